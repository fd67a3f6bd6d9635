//! The statements that compare rows, compare and fetch ranges, and write. Every value is a parameter; only our own table and column
//! names are part of the text.

use std::fmt::Write as _;

use domain::ports::StoreError;
use tokio_postgres::types::Type;

use crate::{
    optimistic::{RawKey, RowVersion, ScanRange, Write},
    schema::codec::corrupt,
};

use super::{
    NAME,
    columns::{Param, SqlValue, array_of},
    layout::{MALFORMED_KEY, OUT_OF_RANGE, TableLayout},
    reporting::reporting_values,
};

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) params: Vec<(Param, Type)>,
}

impl Statement {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), params: Vec::new() }
    }

    /// Adds a text parameter.
    pub(super) fn text(mut self, value: impl Into<String>) -> Self {
        self.params.push((Param::One(SqlValue::Text(value.into())), Type::TEXT));
        self
    }

    /// Adds a bigint parameter.
    pub(super) fn number(mut self, value: i64) -> Self {
        self.params.push((Param::One(SqlValue::Number(value)), Type::INT8));
        self
    }
}

/// A range with a limit.
#[derive(Clone, Debug)]
pub(super) struct SqlRange {
    /// Its bounds; `None`: the end of the table.
    least: Option<Vec<SqlValue>>,
    most: Option<Vec<SqlValue>>,
    falling: bool,
    limit: i64,
}

/// What a statement fetches of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    Keys,
    Rows,
}

/// The statements of one table.
#[derive(Clone, Debug)]
pub(super) struct TableSql {
    pub(super) layout: TableLayout,
    /// `"schema".name`
    name: String,
}

// === impl TableSql ===

impl TableSql {
    pub(super) fn new(schema: &str, tag: u8) -> Self {
        let layout = TableLayout::of(tag);
        Self { layout, name: format!("\"{schema}\".{}", layout.name) }
    }

    fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.layout.key.iter().map(|(name, _)| *name)
    }

    /// `t.a, t.b`
    fn listed(&self, alias: &str, direction: &str) -> String {
        let each = self.columns().map(|name| format!("{alias}{name}{direction}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The columns to fetch: the key, and for rows also version and body.
    fn fetched(&self, alias: &str, of: Fetch) -> String {
        let keys = self.listed(alias, "");
        if of == Fetch::Rows && self.layout.reporting.is_some() {
            return format!("{keys}, {alias}version, {alias}body");
        }
        keys
    }

    fn key_types(&self) -> impl Iterator<Item = Type> + '_ {
        self.layout.key.iter().map(|(_, column)| column.ty())
    }

    /// Fetches the rows that have changed: their position in the list, with version and body or `NULL`.
    pub(super) fn compare_rows(
        &self,
        rows: &[(&RawKey, Option<RowVersion>)],
    ) -> Result<Statement, StoreError> {
        let mut params = self.key_params(rows.iter().map(|(key, _)| *key))?;
        let versions: Vec<SqlValue> =
            rows.iter().map(|(_, version)| version_value(*version)).collect();
        params.push((Param::Many(versions), Type::INT8_ARRAY));
        let arrays = arrays(&params);
        let names = self.listed("", "");
        let on = self.same("t", "a");
        let first = self.layout.key[0].0;
        let (what, wrong) = if self.layout.reporting.is_some() {
            ("t.version, t.body", "t.version IS DISTINCT FROM a.version".to_owned())
        } else {
            ("a.version", format!("(t.{first} IS NULL) <> (a.version IS NULL)"))
        };
        let text = format!(
            "SELECT a.idx, {what} FROM unnest({arrays}) WITH ORDINALITY AS a({names}, version, idx) \
             LEFT JOIN {} t ON {on} WHERE {wrong}",
            self.name
        );
        Ok(Statement { text, params })
    }

    /// `t.a = a.a AND …`
    fn same(&self, one: &str, other: &str) -> String {
        let each = self.columns().map(|name| format!("{one}.{name} = {other}.{name}"));
        each.collect::<Vec<_>>().join(" AND ")
    }

    /// The first rows of a range, in its order. Each begins with 1, its position in a list of one range.
    pub(super) fn range(&self, range: &SqlRange, of: Fetch) -> Statement {
        let mut params = Vec::new();
        let mut mark = |bound: &Option<Vec<SqlValue>>| {
            let values = bound.as_ref()?;
            let from = params.len() + 1;
            params.extend(values.iter().cloned().map(Param::One).zip(self.key_types()));
            Some((from..=params.len()).map(|n| format!("${n}")).collect::<Vec<_>>())
        };
        let (least, most) = (mark(&range.least), mark(&range.most));
        let within = self.within(range.shared(), least.as_deref(), most.as_deref());
        params.push((Param::One(SqlValue::Number(range.limit)), Type::INT8));
        let text = format!(
            "SELECT 1::bigint, {} FROM {} {within}ORDER BY {} LIMIT ${}",
            self.fetched("", of),
            self.name,
            self.listed("", range.direction()),
            params.len()
        );
        Statement { text, params }
    }

    /// `WHERE a = … AND (b, c) >= (…) AND (b, c) <= (…)`: columns in which both bounds agree are compared with `=`. Otherwise an
    /// index scan would not stop at the end of the range.
    fn within(&self, shared: usize, least: Option<&[String]>, most: Option<&[String]>) -> String {
        let columns: Vec<&str> = self.columns().collect();
        let equal = columns.iter().zip(least.unwrap_or_default()).take(shared);
        let mut wheres: Vec<String> =
            equal.map(|(column, mark)| format!("{column} = {mark}")).collect();
        let rest = columns[shared..].join(", ");
        for (marks, sign) in [(least, ">="), (most, "<=")] {
            if let Some(marks) = marks.filter(|_| shared < columns.len()) {
                wheres.push(format!("({rest}) {sign} ({})", marks[shared..].join(", ")));
            }
        }
        if wheres.is_empty() { String::new() } else { format!("WHERE {} ", wheres.join(" AND ")) }
    }

    /// The first rows of each of several ranges, each with the position of its range in front. The ranges are closed and have one
    /// direction.
    pub(super) fn ranges(&self, ranges: &[&SqlRange], of: Fetch) -> Statement {
        let width = self.layout.key.len();
        let mut columns = vec![Vec::with_capacity(ranges.len()); 2 * width];
        for range in ranges {
            let values = range.least.iter().chain(&range.most).flatten();
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value.clone());
            }
        }
        let types = self.key_types().chain(self.key_types());
        let mut params: Vec<(Param, Type)> =
            columns.into_iter().map(Param::Many).zip(types.map(|ty| array_of(&ty))).collect();
        let limits = ranges.iter().map(|range| SqlValue::Number(range.limit)).collect();
        params.push((Param::Many(limits), Type::INT8_ARRAY));
        let named = |stem: &str, from: &str| -> Vec<String> {
            (0..width).map(|n| format!("{from}{stem}{n}")).collect()
        };
        let direction = ranges.first().map_or("", |range| range.direction());
        let shared = ranges.iter().map(|range| range.shared()).min().unwrap_or(0);
        let text = format!(
            "SELECT a.idx, {fetched} FROM unnest({arrays}) WITH ORDINALITY \
             AS a({least}, {most}, few, idx) CROSS JOIN LATERAL (SELECT {inner} FROM {table} \
             {within}ORDER BY {order} LIMIT a.few) t ORDER BY a.idx, {outer}",
            fetched = self.fetched("t.", of),
            arrays = arrays(&params),
            least = named("least", "").join(", "),
            most = named("most", "").join(", "),
            inner = self.fetched("", of),
            table = self.name,
            within = self.within(shared, Some(&named("least", "a.")), Some(&named("most", "a."))),
            order = self.listed("", direction),
            outer = self.listed("t.", direction),
        );
        Statement { text, params }
    }

    /// Inserts or replaces rows.
    pub(super) fn put(
        &self,
        rows: &[(&RawKey, &[u8])],
        version: RowVersion,
    ) -> Result<Statement, StoreError> {
        let mut params = self.key_params(rows.iter().map(|(key, _)| *key))?;
        let mut names = self.listed("", "");
        let Some(reporting) = self.layout.reporting else {
            let text = format!(
                "INSERT INTO {} ({names}) SELECT * FROM unnest({}) ON CONFLICT DO NOTHING",
                self.name,
                arrays(&params)
            );
            return Ok(Statement { text, params });
        };
        let bodies = rows.iter().map(|(_, bytes)| SqlValue::Bytes(bytes.to_vec())).collect();
        params.push((Param::Many(bodies), Type::BYTEA_ARRAY));
        let mut columns = vec![Vec::with_capacity(rows.len()); reporting.len()];
        for (key, bytes) in rows {
            for (column, value) in columns.iter_mut().zip(reporting_values(key, bytes)?) {
                column.push(value);
            }
        }
        let types = reporting.iter().map(|(_, ty)| array_of(&ty.ty()));
        params.extend(columns.into_iter().map(Param::Many).zip(types));
        let arrays = arrays(&params);
        params.push((Param::One(version_value(Some(version))), Type::INT8));
        let mut updates = "version = excluded.version, body = excluded.body".to_owned();
        names.push_str(", body");
        for (name, _) in reporting {
            write!(names, ", {name}").expect("writing to a string cannot fail");
            write!(updates, ", {name} = excluded.{name}").expect("writing to a string cannot fail");
        }
        let text = format!(
            "INSERT INTO {} ({names}, version) SELECT *, ${} FROM unnest({arrays}) \
             ON CONFLICT ({}) DO UPDATE SET {updates}",
            self.name,
            params.len(),
            self.listed("", ""),
        );
        Ok(Statement { text, params })
    }

    pub(super) fn delete(&self, keys: &[&RawKey]) -> Result<Statement, StoreError> {
        let params = self.key_params(keys.iter().copied())?;
        let text = format!(
            "DELETE FROM {} t USING unnest({}) AS a({}) WHERE {}",
            self.name,
            arrays(&params),
            self.listed("", ""),
            self.same("t", "a")
        );
        Ok(Statement { text, params })
    }

    fn key_params<'k>(
        &self,
        keys: impl Iterator<Item = &'k RawKey>,
    ) -> Result<Vec<(Param, Type)>, StoreError> {
        let mut columns = vec![Vec::new(); self.layout.key.len()];
        for key in keys {
            let (values, is_exact) =
                self.layout.values(key).ok_or_else(|| self.corrupt_row(MALFORMED_KEY))?;
            if !is_exact {
                return Err(self.corrupt_row(OUT_OF_RANGE));
            }
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        let types = self.key_types().map(|ty| array_of(&ty));
        Ok(columns.into_iter().map(Param::Many).zip(types).collect())
    }

    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.layout.values(key).is_some_and(|(_, is_exact)| is_exact)
    }

    pub(super) fn key(&self, tag: u8, values: &[SqlValue]) -> Result<RawKey, StoreError> {
        let mut bytes = vec![tag];
        for ((_, part), value) in self.layout.key.iter().zip(values) {
            part.write(value, &mut bytes).ok_or_else(|| self.corrupt_row(MALFORMED_KEY))?;
        }
        Ok(bytes.into())
    }

    /// The part of a scan up to `until`; `None`: all of it.
    pub(super) fn sql_range(
        &self,
        scan: &ScanRange,
        until: Option<&RawKey>,
        limit: usize,
    ) -> SqlRange {
        let part = scan.covered(until);
        SqlRange {
            least: self.layout.values(part.start()).map(|(values, _)| values),
            most: self.layout.values(part.end()).map(|(values, _)| values),
            falling: scan.falling,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn corrupt_row(&self, why: &'static str) -> StoreError {
        corrupt(NAME, self.layout.name, why)
    }
}

impl SqlRange {
    /// Only closed ranges can share a statement.
    pub(super) fn is_closed(&self) -> bool {
        self.least.is_some() && self.most.is_some()
    }

    pub(super) fn is_falling(&self) -> bool {
        self.falling
    }

    /// The number of leading columns in which both bounds agree.
    pub(super) fn shared(&self) -> usize {
        let (Some(least), Some(most)) = (&self.least, &self.most) else { return 0 };
        least.iter().zip(most).take_while(|(least, most)| least == most).count()
    }

    fn direction(&self) -> &'static str {
        if self.falling { " DESC" } else { "" }
    }
}

/// The writes of one table: rows to put, and keys to delete.
pub(super) fn partition<'w>(
    writes: &[(&'w RawKey, &'w Write)],
) -> (Vec<(&'w RawKey, &'w [u8])>, Vec<&'w RawKey>) {
    let mut puts = Vec::new();
    let mut deletes = Vec::new();
    for (key, write) in writes {
        match write {
            Write::Put(bytes) => puts.push((*key, bytes.as_ref())),
            Write::Delete => deletes.push(*key),
        }
    }
    (puts, deletes)
}

fn version_value(version: Option<RowVersion>) -> SqlValue {
    version.map_or(SqlValue::Null, |version| SqlValue::Number(i64::from_be_bytes(version)))
}

/// `$1, $2, …`
fn arrays(params: &[(Param, Type)]) -> String {
    let marks: Vec<_> = (1..=params.len()).map(|n| format!("${n}")).collect();
    marks.join(", ")
}
