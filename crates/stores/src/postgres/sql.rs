//! The statements: comparing rows, comparing and fetching ranges, writing. Every value is a parameter; what is put into the
//! text are names of our own.

use std::fmt::Write as _;

use domain::ports::StoreError;
use tokio_postgres::types::Type;

use crate::{
    codec::corrupt,
    remote::{Key, Span, Stamp, Write},
};

use super::{
    NAME,
    cells::{Cell, Param, array_of},
    layout::{BEYOND, NO_KEY, Sheet},
    shown::shown,
};

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) text: String,
    pub(super) params: Vec<(Param, Type)>,
}

/// A range to look at, and how many rows of it at most.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// Its bounds; `None`: it goes to the table's end.
    least: Option<Vec<Cell>>,
    most: Option<Vec<Cell>>,
    falling: bool,
    limit: i64,
}

/// What is asked of the rows in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Keys,
    Rows,
}

/// One table as the statements see it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) sheet: Sheet,
    /// `"schema".name`
    name: String,
}

// === impl Place ===

impl Place {
    pub(super) fn new(schema: &str, tag: u8) -> Self {
        let sheet = Sheet::of(tag);
        Self { sheet, name: format!("\"{schema}\".{}", sheet.name) }
    }

    fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.sheet.key.iter().map(|(name, _)| *name)
    }

    /// `t.a, t.b`
    fn listed(&self, alias: &str, direction: &str) -> String {
        let each = self.columns().map(|name| format!("{alias}{name}{direction}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// What a range is told by: the key, and for rows what they hold.
    fn told(&self, alias: &str, of: Of) -> String {
        let keys = self.listed(alias, "");
        if of == Of::Rows && self.sheet.shown.is_some() {
            return format!("{keys}, {alias}version, {alias}body");
        }
        keys
    }

    fn key_types(&self) -> impl Iterator<Item = Type> + '_ {
        self.sheet.key.iter().map(|(_, part)| part.ty())
    }

    /// Those of the rows that are not as assumed, as they are: by their place in the list, with version and body, or `NULL`.
    pub(super) fn compare_rows(&self, rows: &[(&Key, Option<Stamp>)]) -> Result<Ask, StoreError> {
        let mut params = self.key_params(rows.iter().map(|(key, _)| *key))?;
        let assumed: Vec<Cell> = rows.iter().map(|(_, stamp)| version(*stamp)).collect();
        params.push((Param::Many(assumed), Type::INT8_ARRAY));
        let arrays = arrays(&params);
        let names = self.listed("", "");
        let on = self.same("t", "a");
        let first = self.sheet.key[0].0;
        let (what, wrong) = if self.sheet.shown.is_some() {
            ("t.version, t.body", "t.version IS DISTINCT FROM a.version".to_owned())
        } else {
            ("a.version", format!("(t.{first} IS NULL) <> (a.version IS NULL)"))
        };
        let text = format!(
            "SELECT a.place, {what} FROM unnest({arrays}) WITH ORDINALITY AS a({names}, version, place) \
             LEFT JOIN {} t ON {on} WHERE {wrong}",
            self.name
        );
        Ok(Ask { text, params })
    }

    /// `t.a = a.a AND …`
    fn same(&self, one: &str, other: &str) -> String {
        let each = self.columns().map(|name| format!("{one}.{name} = {other}.{name}"));
        each.collect::<Vec<_>>().join(" AND ")
    }

    /// The first rows of a range, in its order, each led by a 1: the place in a list of one.
    pub(super) fn range(&self, reach: &Reach, of: Of) -> Ask {
        let mut params = Vec::new();
        let mut mark = |bound: &Option<Vec<Cell>>| {
            let cells = bound.as_ref()?;
            let from = params.len() + 1;
            params.extend(cells.iter().cloned().map(Param::One).zip(self.key_types()));
            Some((from..=params.len()).map(|n| format!("${n}")).collect::<Vec<_>>())
        };
        let (least, most) = (mark(&reach.least), mark(&reach.most));
        let within = self.within(reach.shared(), least.as_deref(), most.as_deref());
        params.push((Param::One(Cell::Number(reach.limit)), Type::INT8));
        let text = format!(
            "SELECT 1::bigint, {} FROM {} {within}ORDER BY {} LIMIT ${}",
            self.told("", of),
            self.name,
            self.listed("", reach.direction()),
            params.len()
        );
        Ask { text, params }
    }

    /// `WHERE a = … AND (b, c) >= (…) AND (b, c) <= (…)`: the columns in which both bounds are the same are said to be equal. An
    /// index is left at the end of a range only where its first compared column says so.
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

    /// The first rows of each of several ranges, each led by the place of its range. They are closed and of one
    /// direction; the fewer columns the bounds of one share, the more is compared for all.
    pub(super) fn ranges(&self, reaches: &[&Reach], of: Of) -> Ask {
        let width = self.sheet.key.len();
        let mut columns = vec![Vec::with_capacity(reaches.len()); 2 * width];
        for reach in reaches {
            let cells = reach.least.iter().chain(&reach.most).flatten();
            for (column, cell) in columns.iter_mut().zip(cells) {
                column.push(cell.clone());
            }
        }
        let types = self.key_types().chain(self.key_types());
        let mut params: Vec<(Param, Type)> =
            columns.into_iter().map(Param::Many).zip(types.map(|ty| array_of(&ty))).collect();
        let limits = reaches.iter().map(|reach| Cell::Number(reach.limit)).collect();
        params.push((Param::Many(limits), Type::INT8_ARRAY));
        let named = |stem: &str, from: &str| -> Vec<String> {
            (0..width).map(|n| format!("{from}{stem}{n}")).collect()
        };
        let direction = reaches.first().map_or("", |reach| reach.direction());
        let shared = reaches.iter().map(|reach| reach.shared()).min().unwrap_or(0);
        let text = format!(
            "SELECT a.place, {told} FROM unnest({arrays}) WITH ORDINALITY \
             AS a({least}, {most}, few, place) CROSS JOIN LATERAL (SELECT {inner} FROM {table} \
             {within}ORDER BY {order} LIMIT a.few) t ORDER BY a.place, {outer}",
            told = self.told("t.", of),
            arrays = arrays(&params),
            least = named("least", "").join(", "),
            most = named("most", "").join(", "),
            inner = self.told("", of),
            table = self.name,
            within = self.within(shared, Some(&named("least", "a.")), Some(&named("most", "a."))),
            order = self.listed("", direction),
            outer = self.listed("t.", direction),
        );
        Ask { text, params }
    }

    /// Writes rows over whatever was there.
    pub(super) fn put(&self, rows: &[(&Key, &[u8])], stamp: Stamp) -> Result<Ask, StoreError> {
        let mut params = self.key_params(rows.iter().map(|(key, _)| *key))?;
        let mut names = self.listed("", "");
        let Some(shown_columns) = self.sheet.shown else {
            let text = format!(
                "INSERT INTO {} ({names}) SELECT * FROM unnest({}) ON CONFLICT DO NOTHING",
                self.name,
                arrays(&params)
            );
            return Ok(Ask { text, params });
        };
        let bodies = rows.iter().map(|(_, bytes)| Cell::Bytes(bytes.to_vec())).collect();
        params.push((Param::Many(bodies), Type::BYTEA_ARRAY));
        let mut columns = vec![Vec::with_capacity(rows.len()); shown_columns.len()];
        for (key, bytes) in rows {
            for (column, cell) in columns.iter_mut().zip(shown(key, bytes)?) {
                column.push(cell);
            }
        }
        let types = shown_columns.iter().map(|(_, sort)| array_of(&sort.ty()));
        params.extend(columns.into_iter().map(Param::Many).zip(types));
        let arrays = arrays(&params);
        params.push((Param::One(version(Some(stamp))), Type::INT8));
        let mut updates = "version = excluded.version, body = excluded.body".to_owned();
        names.push_str(", body");
        for (name, _) in shown_columns {
            write!(names, ", {name}").expect("a string takes everything");
            write!(updates, ", {name} = excluded.{name}").expect("a string takes everything");
        }
        let text = format!(
            "INSERT INTO {} ({names}, version) SELECT *, ${} FROM unnest({arrays}) \
             ON CONFLICT ({}) DO UPDATE SET {updates}",
            self.name,
            params.len(),
            self.listed("", ""),
        );
        Ok(Ask { text, params })
    }

    /// Takes rows out.
    pub(super) fn take(&self, keys: &[&Key]) -> Result<Ask, StoreError> {
        let params = self.key_params(keys.iter().copied())?;
        let text = format!(
            "DELETE FROM {} t USING unnest({}) AS a({}) WHERE {}",
            self.name,
            arrays(&params),
            self.listed("", ""),
            self.same("t", "a")
        );
        Ok(Ask { text, params })
    }

    /// The key columns of some rows.
    fn key_params<'k>(
        &self,
        keys: impl Iterator<Item = &'k Key>,
    ) -> Result<Vec<(Param, Type)>, StoreError> {
        let mut columns = vec![Vec::new(); self.sheet.key.len()];
        for key in keys {
            let (cells, is_exact) = self.sheet.cells(key).ok_or_else(|| self.odd(NO_KEY))?;
            if !is_exact {
                return Err(self.odd(BEYOND));
            }
            for (column, cell) in columns.iter_mut().zip(cells) {
                column.push(cell);
            }
        }
        let types = self.key_types().map(|ty| array_of(&ty));
        Ok(columns.into_iter().map(Param::Many).zip(types).collect())
    }

    /// Whether a row may have this key.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.sheet.cells(key).is_some_and(|(_, is_exact)| is_exact)
    }

    /// Cells as a key.
    pub(super) fn key(&self, tag: u8, cells: &[Cell]) -> Result<Key, StoreError> {
        let mut bytes = vec![tag];
        for ((_, part), cell) in self.sheet.key.iter().zip(cells) {
            part.write(cell, &mut bytes).ok_or_else(|| self.odd(NO_KEY))?;
        }
        Ok(bytes.into())
    }

    /// A part of a range: up to `until`, or all of it.
    pub(super) fn reach(&self, span: &Span, until: Option<&Key>, limit: usize) -> Reach {
        let part = span.told(until);
        Reach {
            least: self.sheet.cells(part.start()).map(|(cells, _)| cells),
            most: self.sheet.cells(part.end()).map(|(cells, _)| cells),
            falling: span.falling,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn odd(&self, why: &'static str) -> StoreError {
        corrupt(NAME, self.sheet.name, why)
    }
}

impl Reach {
    /// Whether it can be asked for together with others like it.
    pub(super) fn is_closed(&self) -> bool {
        self.least.is_some() && self.most.is_some()
    }

    pub(super) fn is_falling(&self) -> bool {
        self.falling
    }

    /// In how many columns, from the first, both bounds are the same.
    pub(super) fn shared(&self) -> usize {
        let (Some(least), Some(most)) = (&self.least, &self.most) else { return 0 };
        least.iter().zip(most).take_while(|(least, most)| least == most).count()
    }

    fn direction(&self) -> &'static str {
        if self.falling { " DESC" } else { "" }
    }
}

/// The writes of one table in two lists: rows to put, keys to take.
pub(super) fn sorted<'w>(
    writes: &[(&'w Key, &'w Write)],
) -> (Vec<(&'w Key, &'w [u8])>, Vec<&'w Key>) {
    let mut puts = Vec::new();
    let mut takes = Vec::new();
    for (key, write) in writes {
        match write {
            Write::Put(bytes) => puts.push((*key, bytes.as_ref())),
            Write::Gone => takes.push(*key),
        }
    }
    (puts, takes)
}

fn version(stamp: Option<Stamp>) -> Cell {
    stamp.map_or(Cell::Null, |stamp| Cell::Number(i64::from_be_bytes(stamp)))
}

/// `$1, $2, …`; each is an array, and its type goes with it.
fn arrays(params: &[(Param, Type)]) -> String {
    let marks: Vec<_> = (1..=params.len()).map(|n| format!("${n}")).collect();
    marks.join(", ")
}
