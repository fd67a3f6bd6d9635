//! The key columns of each table. The migrations create them, and docs/stores/postgres.md documents them.

use crate::schema::tables::{self as t, Table};

use super::columns::{KeyColumn, SqlValue};

#[derive(Clone, Copy, Debug)]
pub(super) struct TableLayout {
    pub(super) name: &'static str,
    /// The columns of the primary key, in order.
    pub(super) key: &'static [(&'static str, KeyColumn)],
    /// Whether rows also have a version, a body and reporting columns; otherwise a row is nothing but its key.
    pub(super) has_body: bool,
}

/// An index entry has at most 2,704 bytes. This leaves 2,000 for a name, and room for the other columns of its key.
const LONGEST_KEY: usize = 2100;
pub(super) const MALFORMED_KEY: &str = "a malformed key";
const OUT_OF_RANGE: &str = "a number or time beyond what PostgreSQL holds";

use KeyColumn::{Day, Holder, Number, Print, Text, Time, Which};

const CLAIM: (&str, KeyColumn) = ("claim", Number);
const SOLVE: (&str, KeyColumn) = ("solve", Number);
const DUE: (&str, KeyColumn) = ("due", Time);
const DAY: (&str, KeyColumn) = ("day", Day);
const WORKER: (&str, KeyColumn) = ("worker", Text);
const HOLDER: (&str, KeyColumn) = ("holder", Holder);
const OPENED: (&str, KeyColumn) = ("opened_at", Time);
const EXPIRES: (&str, KeyColumn) = ("expires_at", Time);
const PRINT: (&str, KeyColumn) = ("fingerprint", Print);
const SORT: (&str, KeyColumn) = ("sort", Which);
const SUBJECT: (&str, KeyColumn) = ("subject", Number);
const SEQ: (&str, KeyColumn) = ("seq", Number);

impl TableLayout {
    const fn rows<T: Table>(key: &'static [(&'static str, KeyColumn)]) -> Self {
        Self { name: T::NAME, key, has_body: true }
    }

    const fn index<T: Table>(key: &'static [(&'static str, KeyColumn)]) -> Self {
        Self { name: T::NAME, key, has_body: false }
    }

    pub(super) fn of(tag: u8) -> Self {
        match tag {
            t::Claims::TAG => Self::rows::<t::Claims>(&[CLAIM]),
            t::Keys::TAG => Self::rows::<t::Keys>(&[("key", Print)]),
            t::Solves::TAG => Self::rows::<t::Solves>(&[SOLVE]),
            t::Challenges::TAG => Self::rows::<t::Challenges>(&[SOLVE]),
            t::Free::TAG => Self::index::<t::Free>(&[DUE, SOLVE]),
            t::Held::TAG => Self::index::<t::Held>(&[HOLDER, DUE, SOLVE]),
            t::Holders::TAG => Self::rows::<t::Holders>(&[HOLDER]),
            t::Waiting::TAG => Self::index::<t::Waiting>(&[PRINT, OPENED, CLAIM]),
            t::Joinable::TAG => Self::index::<t::Joinable>(&[PRINT, SOLVE]),
            t::Watched::TAG => Self::index::<t::Watched>(&[("at", Time), CLAIM]),
            t::Stock::TAG => Self::rows::<t::Stock>(&[PRINT, EXPIRES, SOLVE]),
            t::Expiries::TAG => Self::index::<t::Expiries>(&[EXPIRES, PRINT, SOLVE]),
            t::Pages::TAG => Self::rows::<t::Pages>(&[SEQ]),
            t::LedgerIndex::TAG => Self::index::<t::LedgerIndex>(&[SORT, SUBJECT, SEQ]),
            t::Totals::TAG => Self::rows::<t::Totals>(&[DAY, ("label", Text)]),
            t::Spending::TAG => Self::rows::<t::Spending>(&[DAY, WORKER]),
            t::Authorised::TAG => Self::rows::<t::Authorised>(&[DAY]),
            t::ByTime::TAG => Self::index::<t::ByTime>(&[OPENED, CLAIM]),
            t::ByWorker::TAG => Self::index::<t::ByWorker>(&[WORKER, OPENED, CLAIM]),
            t::BySitekey::TAG => Self::index::<t::BySitekey>(&[("sitekey", Text), OPENED, CLAIM]),
            t::DeadLetters::TAG => Self::rows::<t::DeadLetters>(&[SOLVE]),
            t::Died::TAG => Self::index::<t::Died>(&[("died_at", Time), SOLVE]),
            t::Tasks::TAG => Self::rows::<t::Tasks>(&[("task", Text)]),
            t::RetentionQueue::TAG => {
                Self::index::<t::RetentionQueue>(&[("at", Time), SORT, SUBJECT])
            }
            t::Callbacks::TAG => Self::rows::<t::Callbacks>(&[CLAIM]),
            t::Outbox::TAG => Self::index::<t::Outbox>(&[DUE, CLAIM]),
            t::Pools::TAG => Self::rows::<t::Pools>(&[PRINT]),
            t::Spare::TAG => Self::index::<t::Spare>(&[PRINT, SOLVE]),
            t::Margins::TAG => Self::rows::<t::Margins>(&[("host", Text), ("kind", Text)]),
            t::Memos::TAG => Self::rows::<t::Memos>(&[("name", Text)]),
            t::Archived::TAG => Self::rows::<t::Archived>(&[("one", Which)]),
            _ => unreachable!("no table has the tag {tag}"),
        }
    }

    /// A key as column values, and whether they represent it exactly.
    pub(super) fn values(&self, key: &[u8]) -> Option<(Vec<SqlValue>, bool)> {
        let mut rest = key.get(1..)?;
        let mut all_exact = true;
        let mut values = Vec::with_capacity(self.key.len());
        for (_, part) in self.key {
            let (value, is_exact) = part.read(&mut rest)?;
            all_exact &= is_exact;
            values.push(value);
        }
        rest.is_empty().then_some((values, all_exact))
    }

    /// The column values of a key, or why the columns cannot hold it.
    pub(super) fn exact_values(&self, key: &[u8]) -> Result<Vec<SqlValue>, &'static str> {
        match self.values(key) {
            None => Err(MALFORMED_KEY),
            Some((_, false)) => Err(OUT_OF_RANGE),
            Some((values, true)) => Ok(values),
        }
    }

    /// Why the table cannot store a key.
    pub(super) fn refuses(&self, key: &[u8]) -> Option<&'static str> {
        if key.len() > LONGEST_KEY {
            return Some("a name of more than 2,000 bytes, which no index of PostgreSQL takes");
        }
        self.exact_values(key).err()
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.name == t::Pages::NAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_layout() {
        for (tag, name) in t::NAMES {
            let layout = TableLayout::of(*tag);
            assert_eq!(layout.name, *name);
            assert!(!layout.key.is_empty());
        }
    }
}
