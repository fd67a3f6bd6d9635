//! What is true: the sheets, with what the log says since before them.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use domain::ports::StoreError;
use futures_util::future::try_join_all;

use crate::remote::{Assumed, Correction, Ended, Key, Row, Span, plain};

use super::{
    failure::unavailable,
    layout::{Sheet, Value, sheet_partition, table_end},
    link::Part,
    log::{Log, State},
};

/// What has to be known.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    pub(super) rows: Vec<Key>,
    pub(super) ranges: Vec<Range>,
}

/// The first rows of a range.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) keys: RangeInclusive<Key>,
    pub(super) falling: bool,
    pub(super) wanted: usize,
}

/// All rows of a table from `from` on that are below `to`.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) from: Key,
    pub(super) to: Key,
    pub(super) rows: BTreeMap<Key, Value>,
}

/// What is true of what was needed, at one moment: the stretches the rows are in, and those of each range in the order of
/// its scan.
#[derive(Debug)]
pub(super) struct View {
    pub(super) rows: Vec<Stretch>,
    pub(super) ranges: Vec<Vec<Stretch>>,
}

/// The same as it is read.
struct Sheets {
    rows: Vec<Sheet>,
    ranges: Vec<Vec<Sheet>>,
}

/// So often everything is read again because sheets were filed meanwhile.
const ROUNDS: usize = 20;
/// Sheets in one request, when the range is long.
const SHEETS: usize = 16;
/// Rows of one table are looked for by so many at a time.
const LANES: usize = 8;
/// Fewer rows than this are looked for one after the other: they may be on one sheet.
const FEW: usize = 4;

// === impl Part ===

impl Part {
    /// The sheets of a table from its first on.
    fn of(tag: u8, limit: usize) -> Self {
        let partition = sheet_partition(tag);
        Self { partition, least: None, most: None, falling: false, limit: Some(limit) }
    }
}

// === impl Needs ===

impl Needs {
    /// Everything that was assumed.
    pub(super) fn of(assumed: &Assumed) -> Self {
        let spans = assumed.spans.iter();
        Self {
            rows: assumed.rows.keys().cloned().collect(),
            ranges: spans.map(|(span, found)| Range::all_of(span, found.to_tell())).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }
}

// === reading sheets ===

impl Log {
    /// What is true of all that is needed, at one moment.
    pub(super) async fn view(&self, needs: &Needs) -> Result<View, StoreError> {
        for _ in 0..ROUNDS {
            let (filed, beginning) = {
                let state = self.state();
                (state.filed, state.beginning)
            };
            if let Some(sheets) = self.gather(needs).await? {
                let state = self.state();
                // Changes that were forgotten meanwhile may be missing in a sheet that was read before; one that knows
                // more than the log, as far as it was read, is of another moment.
                let is_same = state.filed == filed && state.beginning == beginning;
                if is_same && sheets.all().all(|sheet| sheet.filed <= state.slot) {
                    return Ok(state.view(sheets));
                }
            }
            self.read_on().await?;
        }
        Err(unavailable("what is read changes too fast; ask again"))
    }

    /// The sheets of all that is needed; nothing when they were changed under the reader's hands.
    async fn gather(&self, needs: &Needs) -> Result<Option<Sheets>, StoreError> {
        let mut keys: Vec<&Key> = needs.rows.iter().collect();
        keys.sort_unstable();
        let tables = keys.chunk_by(|a, b| a[0] == b[0]);
        let lanes = tables.flat_map(|keys| keys.chunks(keys.len().div_ceil(LANES).max(FEW)));
        let rows = try_join_all(lanes.map(|keys| self.sheets_at(keys)));
        let ranges = try_join_all(needs.ranges.iter().map(|range| self.sheets_of(range)));
        let (rows, ranges) = tokio::try_join!(rows, ranges)?;
        let rows = rows.into_iter().collect::<Option<Vec<_>>>();
        let ranges = ranges.into_iter().collect::<Option<Vec<_>>>();
        let both = rows.zip(ranges);
        Ok(both.map(|(rows, ranges)| Sheets { rows: rows.into_iter().flatten().collect(), ranges }))
    }

    /// The sheets of some keys in order.
    async fn sheets_at(&self, keys: &[&Key]) -> Result<Option<Vec<Sheet>>, StoreError> {
        let mut found: Vec<Sheet> = Vec::new();
        for key in keys {
            if found.last().is_none_or(|sheet| sheet.until <= **key) {
                let Some(sheet) = self.sheet_at(key).await? else { return Ok(None) };
                found.push(sheet);
            }
        }
        Ok(Some(found))
    }

    /// The sheet a key belongs to. A table without sheets is one empty sheet. A query may see one half of a transaction: then
    /// there is none for a moment.
    pub(super) async fn sheet_at(&self, key: &Key) -> Result<Option<Sheet>, StoreError> {
        let found = self.sheets_before(key[0], Some(key), 1).await?;
        let found = found.into_iter().next().unwrap_or_else(|| Sheet::empty(key[0]));
        Ok(Some(found).filter(|sheet| *key < sheet.until))
    }

    /// Sheets from one that begins with `most` or before it, and those before; `None`: from the table's last.
    pub(super) async fn sheets_before(
        &self,
        tag: u8,
        most: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Sheet>, StoreError> {
        let most = most.map(|key| key.to_vec());
        self.read_sheets(Part { least: None, most, falling: true, ..Part::of(tag, limit) }).await
    }

    /// Sheets that begin in a range.
    async fn sheets_within(
        &self,
        keys: RangeInclusive<&Key>,
        limit: usize,
    ) -> Result<Vec<Sheet>, StoreError> {
        let (least, most) = (Some(keys.start().to_vec()), Some(keys.end().to_vec()));
        self.read_sheets(Part { least, most, ..Part::of(keys.start()[0], limit) }).await
    }

    async fn read_sheets(&self, part: Part) -> Result<Vec<Sheet>, StoreError> {
        let items = self.link.query(&part).await.map_err(|failure| self.failed(failure))?;
        items.iter().map(Sheet::read).collect()
    }

    /// Sheets of a range from its beginning on, until enough rows are there.
    async fn sheets_of(&self, range: &Range) -> Result<Option<Vec<Sheet>>, StoreError> {
        let (least, most) = (range.keys.start(), range.keys.end());
        let tag = least[0];
        let start = if range.falling { most.min(&table_end(tag)).clone() } else { least.clone() };
        let Some(first) = self.first_sheet(&start, tag).await? else { return Ok(None) };
        let mut found = vec![first];
        let mut rows = self.state().count(&found[0], range);
        while let Some(end) = found.last().filter(|end| !range.ends_in(&end.least, &end.until)) {
            if rows >= range.wanted {
                break;
            }
            let next = if range.falling {
                // The sheet that was last comes once more.
                let mut next = self.sheets_before(tag, Some(&end.least), SHEETS + 1).await?;
                next.retain(|sheet| sheet.least < end.least);
                next
            } else {
                self.sheets_within(&end.until..=most, SHEETS).await?
            };
            if next.is_empty() {
                return Ok(None);
            }
            for sheet in next {
                let meets = found.last().is_none_or(|end| {
                    if range.falling { sheet.until == end.least } else { sheet.least == end.until }
                });
                if !meets {
                    return Ok(None);
                }
                rows += self.state().count(&sheet, range);
                found.push(sheet);
            }
        }
        Ok(Some(found))
    }

    /// The sheet a scan begins in; one from the end of the table begins in its last.
    async fn first_sheet(&self, start: &Key, tag: u8) -> Result<Option<Sheet>, StoreError> {
        let end = table_end(tag);
        if *start != end {
            return self.sheet_at(start).await;
        }
        let found = self.sheets_before(tag, None, 1).await?;
        let found = found.into_iter().next().unwrap_or_else(|| Sheet::empty(tag));
        Ok(Some(found).filter(|sheet| sheet.until == end))
    }
}

// === the log before the sheets ===

impl Sheets {
    fn all(&self) -> impl Iterator<Item = &Sheet> {
        self.rows.iter().chain(self.ranges.iter().flatten())
    }
}

impl State {
    fn view(&self, sheets: Sheets) -> View {
        let stretches = |sheets: Vec<Sheet>| -> Vec<Stretch> {
            sheets.into_iter().map(|sheet| self.stretch(sheet)).collect()
        };
        View {
            rows: stretches(sheets.rows),
            ranges: sheets.ranges.into_iter().map(stretches).collect(),
        }
    }

    fn stretch(&self, sheet: Sheet) -> Stretch {
        let mut rows: BTreeMap<Key, Value> = sheet.rows.into_iter().collect();
        for (key, (_, value)) in self.recent.range(sheet.least.clone()..sheet.until.clone()) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Stretch { from: sheet.least, to: sheet.until, rows }
    }

    /// How many rows of the range are in a sheet, as things are.
    fn count(&self, sheet: &Sheet, range: &Range) -> usize {
        let is_there = |key: &Key| self.recent.get(key).is_none_or(|(_, value)| value.is_some());
        let filed: Vec<&Key> = sheet.rows.iter().map(|(key, _)| key).collect();
        let old = filed.iter().filter(|key| range.keys.contains(**key) && is_there(key)).count();
        let recent = self.recent.range(sheet.least.clone()..sheet.until.clone());
        let new = recent.filter(|(key, (_, value))| {
            value.is_some() && range.keys.contains(*key) && filed.binary_search(key).is_err()
        });
        old + new.count()
    }
}

// === impl View ===

impl View {
    /// What was wrong of what was assumed.
    pub(super) async fn compare(self, log: &Log, assumed: &Assumed) -> Result<Ended, StoreError> {
        let mut corrections = Vec::new();
        for (key, stamp) in &assumed.rows {
            let row = match self.row(key) {
                Some(value) => Some(row(log.value(value).await?)),
                None => None,
            };
            // A row that was remembered was told a moment ago, by this very reading.
            if row.is_some() != stamp.is_some() {
                corrections.push(Correction::Row(key.clone(), row));
            }
        }
        for ((span, found), stretches) in assumed.spans.iter().zip(&self.ranges) {
            let range = Range::all_of(span, found.to_tell());
            let (mut rows, is_all) = range.of(stretches);
            let is_cut = rows.len() > range.wanted;
            rows.truncate(range.wanted);
            let more = is_cut || !is_all;
            if more && rows.is_empty() {
                // What was counted is gone again: nothing can be said of so much of it.
                return Ok(Ended::Refused);
            }
            let keys = rows.iter().map(|(key, _)| *key);
            if !more && found.until.is_none() && keys.eq(&found.keys) {
                continue;
            }
            let mut told = Vec::with_capacity(rows.len());
            for (key, value) in rows {
                told.push((key.clone(), row(log.value(value).await?)));
            }
            corrections.push(Correction::Span { span: span.clone(), rows: told, more });
        }
        Ok(if corrections.is_empty() { Ended::Done } else { Ended::Stale(corrections) })
    }

    fn row(&self, key: &Key) -> Option<&Value> {
        let around = |one: &&Stretch| one.from <= *key && *key < one.to;
        self.rows.iter().find(around)?.rows.get(key)
    }
}

/// A row as it is remembered. Versions are not compared here: what changes is seen in the log.
pub(super) fn row(bytes: Arc<[u8]>) -> Row {
    Row { bytes, ..plain() }
}

// === impl Range ===

impl Range {
    /// The first rows of all that was scanned.
    pub(super) fn all_of(span: &Span, wanted: usize) -> Self {
        Self { keys: span.told(None), falling: span.falling, wanted }
    }

    /// The rows of the range in its order, and whether these are all.
    fn of<'s>(&self, stretches: &'s [Stretch]) -> (Vec<(&'s Key, &'s Value)>, bool) {
        let mut rows = Vec::new();
        for stretch in stretches {
            let within = stretch.rows.iter().filter(|(key, _)| self.keys.contains(*key));
            if self.falling { rows.extend(within.rev()) } else { rows.extend(within) }
        }
        (rows, stretches.last().is_some_and(|last| self.ends_in(&last.from, &last.to)))
    }

    /// Whether a scan that came to this stretch is through with it.
    fn ends_in(&self, from: &Key, to: &Key) -> bool {
        if self.falling {
            return from <= self.keys.start();
        }
        to > self.keys.end() || *to == table_end(from[0])
    }
}
