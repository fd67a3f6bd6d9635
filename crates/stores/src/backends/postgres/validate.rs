//! A read set as statements, and their results as conflicts.

use std::{collections::BTreeMap, sync::Arc};

use domain::ports::StoreError;
use tokio_postgres::Row as SqlRow;

use crate::optimistic::{
    Conflict, RangeRead, RawKey, ReadSet, RowVersion, ScanRange, VersionedRow,
};

use super::{
    columns::SqlValue,
    commit::PostgresServer,
    connection::SqlStep,
    sql::{Fetch, SqlRange, TableSql},
};

/// A read set by table, in the order of its statements.
pub(super) struct ReadSetQuery<'a> {
    server: &'a PostgresServer,
    rows: BTreeMap<u8, Vec<(&'a RawKey, Option<RowVersion>)>>,
    /// Each group is one statement.
    ranges: Vec<Vec<RangeCheck<'a>>>,
}

/// A range of the read set.
#[derive(Clone, Copy)]
pub(super) struct RangeCheck<'a> {
    scan: &'a ScanRange,
    read: &'a RangeRead,
}

/// A range and its rows.
type RangeRows<'a> = (RangeCheck<'a>, Vec<(RawKey, VersionedRow)>);

// === impl ReadSetQuery ===

impl<'a> ReadSetQuery<'a> {
    pub(super) fn new(server: &'a PostgresServer, reads: &'a ReadSet) -> Self {
        let mut rows = BTreeMap::new();
        // A key that no column can hold does not exist.
        let may_exist = |key: &RawKey| server.table(key[0]).holds(key);
        for (key, version) in reads.rows.iter().filter(|(key, _)| may_exist(key)) {
            rows.entry(key[0]).or_insert_with(Vec::new).push((key, *version));
        }
        let ranges = reads.scans.iter().map(|(scan, read)| RangeCheck { scan, read }).collect();
        Self { rows, ..Self::of_ranges(server, ranges) }
    }

    pub(super) fn of_ranges(server: &'a PostgresServer, ranges: Vec<RangeCheck<'a>>) -> Self {
        let mut groups: BTreeMap<_, Vec<RangeCheck<'a>>> = BTreeMap::new();
        let mut alone = Vec::new();
        for range in ranges {
            let tag = range.scan.least[0];
            let table = server.table(tag);
            let sql_range = range.whole(server);
            // A range that ends with its table is a statement of its own. So is a range of a partitioned table: only then
            // does the planner skip the partitions that cannot contain it.
            if sql_range.is_closed() && !table.layout.is_partitioned() {
                groups
                    .entry((tag, sql_range.is_falling(), sql_range.shared()))
                    .or_default()
                    .push(range);
            } else {
                alone.push(vec![range]);
            }
        }
        alone.extend(groups.into_values());
        Self { server, rows: BTreeMap::new(), ranges: alone }
    }

    pub(super) fn add_rows(&self, steps: &mut Vec<SqlStep>) -> Result<(), StoreError> {
        for (tag, rows) in &self.rows {
            steps.push(SqlStep::Query(self.server.table(*tag).compare_rows(rows)?));
        }
        Ok(())
    }

    pub(super) fn add_ranges(
        &self,
        steps: &mut Vec<SqlStep>,
        of: Fetch,
        sql_range: impl Fn(&RangeCheck<'_>) -> SqlRange,
    ) {
        for group in &self.ranges {
            let table = self.server.table(group[0].scan.least[0]);
            let sql_ranges: Vec<SqlRange> = group.iter().map(&sql_range).collect();
            let sql_ranges: Vec<&SqlRange> = sql_ranges.iter().collect();
            steps.push(SqlStep::Query(match sql_ranges.as_slice() {
                [one] => table.range(one, of),
                many => table.ranges(many, of),
            }));
        }
    }

    /// The rows that have changed.
    pub(super) fn read_rows(
        &self,
        results: &mut impl Iterator<Item = Vec<SqlRow>>,
    ) -> Result<Vec<Conflict>, StoreError> {
        let mut conflicts = Vec::new();
        for (tag, expected) in &self.rows {
            let table = self.server.table(*tag);
            for changed in results.next().unwrap_or_default() {
                let at = position(&changed).and_then(|at| expected.get(at));
                let (key, version) = at.ok_or_else(|| table.corrupt_row("an unexpected row"))?;
                let row = if table.layout.reporting.is_some() {
                    row_of(&changed, 1)
                } else {
                    version.is_none().then(VersionedRow::key_only)
                };
                conflicts.push(Conflict::Row((*key).clone(), row));
            }
        }
        Ok(conflicts)
    }

    pub(super) fn read_ranges(
        &self,
        results: &mut impl Iterator<Item = Vec<SqlRow>>,
        of: Fetch,
    ) -> Result<Vec<RangeRows<'a>>, StoreError> {
        let mut all = Vec::new();
        for group in &self.ranges {
            let tag = group[0].scan.least[0];
            let table = self.server.table(tag);
            let mut read = vec![Vec::new(); group.len()];
            for row in results.next().unwrap_or_default() {
                let of_range = position(&row).and_then(|at| read.get_mut(at));
                let rows = of_range.ok_or_else(|| table.corrupt_row("an unexpected row"))?;
                rows.push(member(table, tag, &row, of)?);
            }
            all.extend(group.iter().copied().zip(read));
        }
        Ok(all)
    }

    /// The ranges whose keys have changed.
    pub(super) fn changed_ranges(
        &self,
        results: &mut impl Iterator<Item = Vec<SqlRow>>,
    ) -> Result<Vec<RangeCheck<'a>>, StoreError> {
        let all = self.read_ranges(results, Fetch::Keys)?.into_iter();
        let changed =
            all.filter(|(range, rows)| !rows.iter().map(|(key, _)| key).eq(&range.read.keys));
        Ok(changed.map(|(range, _)| range).collect())
    }
}

fn member(
    table: &TableSql,
    tag: u8,
    row: &SqlRow,
    of: Fetch,
) -> Result<(RawKey, VersionedRow), StoreError> {
    let width = table.layout.key.len();
    let values = (1..=width).map(|at| row.try_get::<_, SqlValue>(at));
    let values =
        values.collect::<Result<Vec<_>, _>>().map_err(|_| table.corrupt_row("a malformed key"))?;
    let row = if of == Fetch::Rows && table.layout.reporting.is_some() {
        row_of(row, width + 1).ok_or_else(|| table.corrupt_row("a row without a body"))?
    } else {
        VersionedRow::key_only()
    };
    Ok((table.key(tag, &values)?, row))
}

/// The position of a result in the list of its statement.
fn position(row: &SqlRow) -> Option<usize> {
    let position: i64 = row.try_get(0).ok()?;
    usize::try_from(position).ok()?.checked_sub(1)
}

fn row_of(row: &SqlRow, at: usize) -> Option<VersionedRow> {
    let version: Option<i64> = row.try_get(at).ok()?;
    let body: Option<&[u8]> = row.try_get(at + 1).ok()?;
    Some(VersionedRow { version: version?.to_be_bytes(), bytes: Arc::from(body?) })
}

// === impl RangeCheck ===

impl RangeCheck<'_> {
    /// The part that was read, with one row more than it had.
    pub(super) fn part_read(&self, server: &PostgresServer) -> SqlRange {
        let table = server.table(self.scan.least[0]);
        table.sql_range(self.scan, self.read.until.as_ref(), self.read.keys.len() + 1)
    }

    /// The whole range, up to the limit of a conflict.
    pub(super) fn whole(&self, server: &PostgresServer) -> SqlRange {
        server.table(self.scan.least[0]).sql_range(self.scan, None, self.read.conflict_limit())
    }

    pub(super) fn conflict(&self, rows: Vec<(RawKey, VersionedRow)>) -> Conflict {
        let more = rows.len() == self.read.conflict_limit();
        Conflict::Range { scan: self.scan.clone(), rows, more }
    }

    /// A conflict, unless the range has the keys that were read.
    pub(super) fn conflict_if_changed(
        &self,
        rows: Vec<(RawKey, VersionedRow)>,
    ) -> Option<Conflict> {
        let part = self.scan.covered(self.read.until.as_ref());
        let keys = rows.iter().map(|(key, _)| key).filter(|key| part.contains(key));
        let is_same = keys.eq(&self.read.keys);
        (!is_same).then(|| self.conflict(rows))
    }
}
