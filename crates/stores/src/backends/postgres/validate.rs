//! A read set as statements, and their results as conflicts.

use std::{collections::BTreeMap, sync::Arc};

use domain::ports::StoreError;
use tokio_postgres::Row as SqlRow;

use crate::optimistic::{
    Conflict, RangeRead, RawKey, ReadSet, RowVersion, ScanRange, VersionedRow,
};

use super::{
    columns::SqlValue,
    connection::SqlStep,
    server::PostgresServer,
    sql::{Fetch, SqlRange, TableSql},
};

/// A read set by table, in the order of its statements.
pub(super) struct ReadSetQuery<'a> {
    rows: Vec<(&'a TableSql, Vec<RowCheck<'a>>)>,
    /// Each group is one statement.
    ranges: Vec<Vec<RangeCheck<'a>>>,
}

/// A row of the read set.
type RowCheck<'a> = (&'a RawKey, Option<RowVersion>);

/// A range of the read set.
#[derive(Clone, Copy)]
pub(super) struct RangeCheck<'a> {
    table: &'a TableSql,
    scan: &'a ScanRange,
    read: &'a RangeRead,
}

type RangeRows<'a> = (RangeCheck<'a>, Vec<(RawKey, VersionedRow)>);

// === impl ReadSetQuery ===

impl<'a> ReadSetQuery<'a> {
    pub(super) fn new(server: &'a PostgresServer, reads: &'a ReadSet) -> Self {
        // A key that no column can hold does not exist.
        let may_exist = |key: &RawKey| server.table(key[0]).layout.exact_values(key).is_ok();
        let rows = reads.rows.iter().filter(|(key, _)| may_exist(key));
        let rows: Vec<_> = rows.map(|(key, version)| (key, *version)).collect();
        let tables = rows.chunk_by(|a, b| a.0[0] == b.0[0]);
        let rows = tables.map(|rows| (server.table(rows[0].0[0]), rows.to_vec())).collect();
        let ranges = reads.scans.iter();
        let ranges = ranges.map(|(scan, read)| {
            let table = server.table(scan.least[0]);
            RangeCheck { table, scan, read }
        });
        Self { rows, ..Self::of_ranges(ranges.collect()) }
    }

    /// Without the rows.
    pub(super) fn ranges_only(self) -> Self {
        Self { rows: Vec::new(), ..self }
    }

    pub(super) fn of_ranges(ranges: Vec<RangeCheck<'a>>) -> Self {
        let mut groups: BTreeMap<_, Vec<RangeCheck<'a>>> = BTreeMap::new();
        let mut alone = Vec::new();
        for range in ranges {
            let sql_range = range.sql_range(Fetch::Rows);
            // A range that ends with its table is a statement of its own. So is a range of a partitioned table: only then
            // does the planner skip the partitions that cannot contain it.
            if sql_range.is_closed() && !range.table.layout.is_partitioned() {
                let group = (range.table.tag, sql_range.falling, sql_range.shared());
                groups.entry(group).or_default().push(range);
            } else {
                alone.push(vec![range]);
            }
        }
        alone.extend(groups.into_values());
        Self { rows: Vec::new(), ranges: alone }
    }

    /// Adds the statements that compare the rows, and those that fetch the keys of what was read or the rows of whole ranges.
    pub(super) fn add_steps(&self, steps: &mut Vec<SqlStep>, of: Fetch) -> Result<(), StoreError> {
        for (table, rows) in &self.rows {
            steps.push(SqlStep::Query(table.compare_rows(rows)?));
        }
        for group in &self.ranges {
            let table = group[0].table;
            let sql_ranges: Vec<SqlRange> = group.iter().map(|range| range.sql_range(of)).collect();
            steps.push(SqlStep::Query(match sql_ranges.as_slice() {
                [one] => table.range(one, of),
                many => table.ranges(many, of),
            }));
        }
        Ok(())
    }

    /// The rows that have changed.
    pub(super) fn read_rows(
        &self,
        results: &mut impl Iterator<Item = Vec<SqlRow>>,
    ) -> Result<Vec<Conflict>, StoreError> {
        let mut conflicts = Vec::new();
        for (table, expected) in &self.rows {
            for changed in results.next().unwrap_or_default() {
                let at = position(&changed).and_then(|at| expected.get(at));
                let (key, version) = at.ok_or_else(|| table.corrupt_row("an unexpected row"))?;
                let row = if table.layout.has_body {
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
            let table = group[0].table;
            let mut read = vec![Vec::new(); group.len()];
            for row in results.next().unwrap_or_default() {
                let of_range = position(&row).and_then(|at| read.get_mut(at));
                let rows = of_range.ok_or_else(|| table.corrupt_row("an unexpected row"))?;
                rows.push(member(table, &row, of)?);
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

fn member(table: &TableSql, row: &SqlRow, of: Fetch) -> Result<(RawKey, VersionedRow), StoreError> {
    let width = table.layout.key.len();
    let values = (1..=width).map(|at| row.try_get::<_, SqlValue>(at));
    let values =
        values.collect::<Result<Vec<_>, _>>().map_err(|_| table.corrupt_row("a malformed key"))?;
    let row = if of == Fetch::Rows && table.layout.has_body {
        row_of(row, width + 1).ok_or_else(|| table.corrupt_row("a row without a body"))?
    } else {
        VersionedRow::key_only()
    };
    Ok((table.key(&values)?, row))
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
    fn sql_range(&self, of: Fetch) -> SqlRange {
        match of {
            // One row more than there was.
            Fetch::Keys => {
                self.table.sql_range(self.scan, self.read.until.as_ref(), self.read.keys.len() + 1)
            }
            Fetch::Rows => self.table.sql_range(self.scan, None, self.read.conflict_limit()),
        }
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
