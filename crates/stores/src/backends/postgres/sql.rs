//! The statements that compare rows, compare and fetch ranges, and write. Every value is a parameter; only our own table and column
//! names are part of the text.

use std::iter;

use domain::ports::StoreError;
use tokio_postgres::types::{ToSql, Type};

use crate::{
    optimistic::{RawKey, RowVersion, ScanRange, Write},
    schema::codec::{Codec, corrupt},
};

use super::{
    NAME,
    columns::{SqlValue, array_of},
    layout::{MALFORMED_KEY, TableLayout},
    reporting::{ReportingColumn, reporting_columns},
};

type Param = (Box<dyn ToSql + Send + Sync>, Type);

#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) params: Vec<Param>,
}

impl Statement {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), params: Vec::new() }
    }

    /// Adds a text parameter.
    pub(super) fn text(mut self, value: impl Into<String>) -> Self {
        self.params.push((Box::new(value.into()), Type::TEXT));
        self
    }

    /// Adds a bigint parameter.
    pub(super) fn number(mut self, value: i64) -> Self {
        self.params.push((Box::new(value), Type::INT8));
        self
    }
}

pub(super) struct SqlRange {
    /// Its bounds; `None`: the end of the table.
    least: Option<Vec<SqlValue>>,
    most: Option<Vec<SqlValue>>,
    pub(super) falling: bool,
    limit: i64,
}

/// What a statement fetches of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    Keys,
    Rows,
}

pub(super) struct TableSql {
    pub(super) tag: u8,
    pub(super) layout: TableLayout,
    /// `"schema".name`
    name: String,
}

// === impl TableSql ===

impl TableSql {
    pub(super) fn new(schema: &str, tag: u8) -> Self {
        let layout = TableLayout::of(tag);
        Self { tag, layout, name: format!("\"{schema}\".{}", layout.name) }
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
        if of == Fetch::Rows && self.layout.has_body {
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
        params.push((Box::new(versions), Type::INT8_ARRAY));
        let arrays = marks(&params);
        let names = self.listed("", "");
        let on = self.same_key();
        let first = self.layout.key[0].0;
        let (what, wrong) = if self.layout.has_body {
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
    fn same_key(&self) -> String {
        let each = self.columns().map(|name| format!("t.{name} = a.{name}"));
        each.collect::<Vec<_>>().join(" AND ")
    }

    /// The first rows of a range, in its order. Each begins with 1, its position in a list of one range.
    pub(super) fn range(&self, range: &SqlRange, of: Fetch) -> Statement {
        let mut params: Vec<Param> = Vec::new();
        let mut mark = |bound: &Option<Vec<SqlValue>>| {
            let values = bound.clone()?;
            let from = params.len() + 1;
            params.extend(values.into_iter().zip(self.key_types()).map(param));
            Some((from..=params.len()).map(|n| format!("${n}")).collect::<Vec<_>>())
        };
        let (least, most) = (mark(&range.least), mark(&range.most));
        let within = self.within(range.shared(), least.as_deref(), most.as_deref());
        params.push((Box::new(range.limit), Type::INT8));
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
    pub(super) fn ranges(&self, ranges: &[SqlRange], of: Fetch) -> Statement {
        let width = self.layout.key.len();
        let bounds =
            ranges.iter().map(|range| range.least.iter().chain(&range.most).flatten().cloned());
        let mut params = array_params(self.key_types().chain(self.key_types()), bounds);
        let limits: Vec<i64> = ranges.iter().map(|range| range.limit).collect();
        params.push((Box::new(limits), Type::INT8_ARRAY));
        let named = |stem: &str, from: &str| -> Vec<String> {
            (0..width).map(|n| format!("{from}{stem}{n}")).collect()
        };
        let direction = ranges.first().map_or("", SqlRange::direction);
        let shared = ranges.iter().map(SqlRange::shared).min().unwrap_or(0);
        let text = format!(
            "SELECT a.idx, {fetched} FROM unnest({arrays}) WITH ORDINALITY \
             AS a({least}, {most}, few, idx) CROSS JOIN LATERAL (SELECT {inner} FROM {table} \
             {within}ORDER BY {order} LIMIT a.few) t ORDER BY a.idx, {outer}",
            fetched = self.fetched("t.", of),
            arrays = marks(&params),
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

    pub(super) fn put(
        &self,
        rows: &[(&RawKey, &[u8])],
        (codec, version): (Codec, RowVersion),
    ) -> Result<Statement, StoreError> {
        let mut params = self.key_params(rows.iter().map(|(key, _)| *key))?;
        let key = self.listed("", "");
        if !self.layout.has_body {
            let text = format!(
                "INSERT INTO {} ({key}) SELECT * FROM unnest({}) ON CONFLICT DO NOTHING",
                self.name,
                marks(&params)
            );
            return Ok(Statement { text, params });
        }
        let bodies: Vec<Vec<u8>> = rows.iter().map(|(_, bytes)| bytes.to_vec()).collect();
        params.push((Box::new(bodies), Type::BYTEA_ARRAY));
        let reporting = rows.iter().map(|(key, bytes)| reporting_columns(codec, key, bytes));
        let reporting: Vec<Vec<ReportingColumn>> = reporting.collect::<Result<_, _>>()?;
        let columns = || reporting.first().into_iter().flatten();
        let names: Vec<&str> =
            iter::once("body").chain(columns().map(|(name, ..)| *name)).collect();
        let types: Vec<Type> = columns().map(|(_, ty, _)| ty.clone()).collect();
        let values = reporting.into_iter().map(|row| row.into_iter().map(|(_, _, value)| value));
        params.extend(array_params(types, values));
        let arrays = marks(&params);
        params.push(param((version_value(Some(version)), Type::INT8)));
        let updates = names.iter().map(|name| format!(", {name} = excluded.{name}"));
        let text = format!(
            "INSERT INTO {} ({key}, {}, version) SELECT *, ${} FROM unnest({arrays}) \
             ON CONFLICT ({key}) DO UPDATE SET version = excluded.version{}",
            self.name,
            names.join(", "),
            params.len(),
            updates.collect::<String>(),
        );
        Ok(Statement { text, params })
    }

    pub(super) fn delete(&self, keys: &[&RawKey]) -> Result<Statement, StoreError> {
        let params = self.key_params(keys.iter().copied())?;
        let text = format!(
            "DELETE FROM {} t USING unnest({}) AS a({}) WHERE {}",
            self.name,
            marks(&params),
            self.listed("", ""),
            self.same_key()
        );
        Ok(Statement { text, params })
    }

    fn key_params<'k>(
        &self,
        keys: impl Iterator<Item = &'k RawKey>,
    ) -> Result<Vec<Param>, StoreError> {
        let values =
            keys.map(|key| self.layout.exact_values(key).map_err(|why| self.corrupt_row(why)));
        Ok(array_params(self.key_types(), values.collect::<Result<Vec<_>, _>>()?))
    }

    pub(super) fn key(&self, values: &[SqlValue]) -> Result<RawKey, StoreError> {
        let mut bytes = vec![self.tag];
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

fn param((value, ty): (SqlValue, Type)) -> Param {
    (Box::new(value), ty)
}

/// The values of rows as one array per column.
fn array_params(
    types: impl IntoIterator<Item = Type>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = SqlValue>>,
) -> Vec<Param> {
    let mut columns: Vec<(Vec<SqlValue>, Type)> =
        types.into_iter().map(|ty| (Vec::new(), array_of(&ty))).collect();
    for row in rows {
        for ((values, _), value) in columns.iter_mut().zip(row) {
            values.push(value);
        }
    }
    columns.into_iter().map(|(values, ty)| -> Param { (Box::new(values), ty) }).collect()
}

/// `$1, $2, …`
fn marks(params: &[Param]) -> String {
    let marks: Vec<_> = (1..=params.len()).map(|n| format!("${n}")).collect();
    marks.join(", ")
}
