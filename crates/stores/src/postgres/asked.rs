//! What a decision assumed, as statements, and their answers as corrections.

use std::{collections::BTreeMap, sync::Arc};

use domain::ports::StoreError;
use tokio_postgres::Row as Answer;

use crate::remote::{Assumed, Correction, Key, Row, Span, Stamp, draft::Found, plain};

use super::{
    cells::Cell,
    link::Step,
    server::Server,
    sql::{Of, Place, Reach},
};

/// Everything that was assumed, by table, in the order it is asked in.
pub(super) struct Asked<'a> {
    server: &'a Server,
    rows: BTreeMap<u8, Vec<(&'a Key, Option<Stamp>)>>,
    /// Each group is asked for with one statement.
    ranges: Vec<Vec<Range<'a>>>,
}

/// A range that was assumed.
#[derive(Clone, Copy)]
pub(super) struct Range<'a> {
    span: &'a Span,
    found: &'a Found,
}

/// A range, and what is in it.
type Told<'a> = (Range<'a>, Vec<(Key, Row)>);

// === impl Asked ===

impl<'a> Asked<'a> {
    pub(super) fn new(server: &'a Server, assumed: &'a Assumed) -> Self {
        let mut rows = BTreeMap::new();
        // What no column can hold is not there, whoever asks for it.
        let may_be_there = |key: &Key| server.place(key[0]).holds(key);
        for (key, stamp) in assumed.rows.iter().filter(|(key, _)| may_be_there(key)) {
            rows.entry(key[0]).or_insert_with(Vec::new).push((key, *stamp));
        }
        let ranges = assumed.spans.iter().map(|(span, found)| Range { span, found }).collect();
        Self { rows, ..Self::of_ranges(server, ranges) }
    }

    pub(super) fn of_ranges(server: &'a Server, ranges: Vec<Range<'a>>) -> Self {
        let mut groups: BTreeMap<_, Vec<Range<'a>>> = BTreeMap::new();
        let mut alone = Vec::new();
        for range in ranges {
            let tag = range.span.least[0];
            let place = server.place(tag);
            let reach = range.whole(server);
            // One that ends with its table is asked for by itself, and so is one of a table in partitions: only then
            // are those left out that cannot hold any of it.
            if reach.is_closed() && !place.sheet.is_parted() {
                groups.entry((tag, reach.is_falling(), reach.shared())).or_default().push(range);
            } else {
                alone.push(vec![range]);
            }
        }
        alone.extend(groups.into_values());
        Self { server, rows: BTreeMap::new(), ranges: alone }
    }

    pub(super) fn add_rows(&self, steps: &mut Vec<Step>) -> Result<(), StoreError> {
        for (tag, rows) in &self.rows {
            steps.push(Step::Ask(self.server.place(*tag).compare_rows(rows)?));
        }
        Ok(())
    }

    pub(super) fn add_ranges(
        &self,
        steps: &mut Vec<Step>,
        of: Of,
        reach: impl Fn(&Range<'_>) -> Reach,
    ) {
        for group in &self.ranges {
            let place = self.server.place(group[0].span.least[0]);
            let reaches: Vec<Reach> = group.iter().map(&reach).collect();
            let reaches: Vec<&Reach> = reaches.iter().collect();
            steps.push(Step::Ask(match reaches.as_slice() {
                [one] => place.range(one, of),
                many => place.ranges(many, of),
            }));
        }
    }

    /// The rows that were not as assumed.
    pub(super) fn read_rows(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
    ) -> Result<Vec<Correction>, StoreError> {
        let mut corrections = Vec::new();
        for (tag, asked) in &self.rows {
            let place = self.server.place(*tag);
            for wrong in answers.next().unwrap_or_default() {
                let at = place_of(&wrong).and_then(|at| asked.get(at));
                let (key, stamp) = at.ok_or_else(|| place.odd("a row nobody asked for"))?;
                let row = if place.sheet.shown.is_some() {
                    row_of(&wrong, 1)
                } else {
                    stamp.is_none().then(plain)
                };
                corrections.push(Correction::Row((*key).clone(), row));
            }
        }
        Ok(corrections)
    }

    /// Each range with what is in it.
    pub(super) fn read_ranges(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
        of: Of,
    ) -> Result<Vec<Told<'a>>, StoreError> {
        let mut all = Vec::new();
        for group in &self.ranges {
            let tag = group[0].span.least[0];
            let place = self.server.place(tag);
            let mut found = vec![Vec::new(); group.len()];
            for answer in answers.next().unwrap_or_default() {
                let of_range = place_of(&answer).and_then(|at| found.get_mut(at));
                let rows = of_range.ok_or_else(|| place.odd("a row nobody asked for"))?;
                rows.push(member(place, tag, &answer, of)?);
            }
            all.extend(group.iter().copied().zip(found));
        }
        Ok(all)
    }

    /// The ranges whose keys are not as assumed.
    pub(super) fn wrong_ranges(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
    ) -> Result<Vec<Range<'a>>, StoreError> {
        let all = self.read_ranges(answers, Of::Keys)?.into_iter();
        let wrong =
            all.filter(|(range, rows)| !rows.iter().map(|(key, _)| key).eq(&range.found.keys));
        Ok(wrong.map(|(range, _)| range).collect())
    }
}

/// A row of a range.
fn member(place: &Place, tag: u8, answer: &Answer, of: Of) -> Result<(Key, Row), StoreError> {
    let width = place.sheet.key.len();
    let cells = (1..=width).map(|at| answer.try_get::<_, Cell>(at));
    let cells =
        cells.collect::<Result<Vec<_>, _>>().map_err(|_| place.odd("a key that is none"))?;
    let row = if of == Of::Rows && place.sheet.shown.is_some() {
        row_of(answer, width + 1).ok_or_else(|| place.odd("a row without a body"))?
    } else {
        plain()
    };
    Ok((place.key(tag, &cells)?, row))
}

/// Which of those asked for it is about.
fn place_of(answer: &Answer) -> Option<usize> {
    let place: i64 = answer.try_get(0).ok()?;
    usize::try_from(place).ok()?.checked_sub(1)
}

/// Version and body.
fn row_of(answer: &Answer, at: usize) -> Option<Row> {
    let version: Option<i64> = answer.try_get(at).ok()?;
    let body: Option<&[u8]> = answer.try_get(at + 1).ok()?;
    Some(Row { stamp: version?.to_be_bytes(), bytes: Arc::from(body?) })
}

// === impl Range ===

impl Range<'_> {
    /// The part that was looked at, and one row more than was there.
    pub(super) fn assumed(&self, server: &Server) -> Reach {
        let place = server.place(self.span.least[0]);
        place.reach(self.span, self.found.until.as_ref(), self.found.keys.len() + 1)
    }

    /// All of it, as far as it is told.
    pub(super) fn whole(&self, server: &Server) -> Reach {
        server.place(self.span.least[0]).reach(self.span, None, self.found.to_tell())
    }

    pub(super) fn told(&self, rows: Vec<(Key, Row)>) -> Correction {
        let more = rows.len() == self.found.to_tell();
        Correction::Span { span: self.span.clone(), rows, more }
    }

    /// What is true, unless it was assumed so.
    pub(super) fn correction(&self, rows: Vec<(Key, Row)>) -> Option<Correction> {
        let part = self.span.told(self.found.until.as_ref());
        let looked_at = rows.iter().map(|(key, _)| key).filter(|key| part.contains(key));
        let is_same = looked_at.eq(&self.found.keys);
        (!is_same).then(|| self.told(rows))
    }
}
