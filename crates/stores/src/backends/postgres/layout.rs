//! The columns of each table. The migrations create them and docs/stores/postgres.md documents them; a test compares all three.

use crate::schema::tables::{self as t, Table};

use super::columns::{ColumnType, KeyColumn, SqlValue};

#[derive(Clone, Copy, Debug)]
pub(super) struct TableLayout {
    pub(super) name: &'static str,
    /// The columns of the primary key, in order.
    pub(super) key: &'static [(&'static str, KeyColumn)],
    /// Columns for people and their queries; `None`: a row is nothing but its key.
    pub(super) reporting: Option<&'static [(&'static str, ColumnType)]>,
}

/// An index entry has at most 2,704 bytes. This leaves 2,000 for a name, and room for the other columns of its key.
const LONGEST_KEY: usize = 2100;
pub(super) const MALFORMED_KEY: &str = "a malformed key";
pub(super) const OUT_OF_RANGE: &str = "a number or time beyond what PostgreSQL holds";

use ColumnType::{Number as N, Text as T, Time as At};
use KeyColumn::{Day, Holder, Number, Print, Text, Time, Which};

const CLAIM: (&str, KeyColumn) = ("claim", Number);
const SOLVE: (&str, KeyColumn) = ("solve", Number);
const DUE: (&str, KeyColumn) = ("due", Time);
const WORKER_KEY: (&str, KeyColumn) = ("worker", Text);
const OPENED: (&str, KeyColumn) = ("opened_at", Time);
const PRINT: (&str, KeyColumn) = ("fingerprint", Print);
const WORKER: (&str, ColumnType) = ("worker", T);
const PROJECT: (&str, ColumnType) = ("project", T);
const KIND: (&str, ColumnType) = ("kind", T);

impl TableLayout {
    const fn rows<X: Table>(
        key: &'static [(&'static str, KeyColumn)],
        reporting: &'static [(&'static str, ColumnType)],
    ) -> Self {
        Self { name: X::NAME, key, reporting: Some(reporting) }
    }

    const fn index<X: Table>(key: &'static [(&'static str, KeyColumn)]) -> Self {
        Self { name: X::NAME, key, reporting: None }
    }

    pub(super) fn of(tag: u8) -> Self {
        Self::records(tag)
            .or_else(|| Self::indexes(tag))
            .unwrap_or_else(|| unreachable!("no table has the tag {tag}"))
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

    /// Why the table cannot store a key.
    pub(super) fn refuses(&self, key: &[u8]) -> Option<&'static str> {
        if key.len() > LONGEST_KEY {
            return Some("a name of more than 2,000 bytes, which no index of PostgreSQL takes");
        }
        match self.values(key) {
            None => Some(MALFORMED_KEY),
            Some((_, false)) => Some(OUT_OF_RANGE),
            Some((_, true)) => None,
        }
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.name == t::Pages::NAME
    }

    /// Tables whose rows have a value.
    fn records(tag: u8) -> Option<Self> {
        Some(match tag {
            t::Claims::TAG => Self::rows::<t::Claims>(&[CLAIM], CLAIMS),
            t::Keys::TAG => Self::rows::<t::Keys>(&[("key", Print)], &[("claim", N)]),
            t::Solves::TAG => Self::rows::<t::Solves>(&[SOLVE], SOLVES),
            t::Challenges::TAG => Self::rows::<t::Challenges>(&[SOLVE], &[KIND]),
            t::Holders::TAG => {
                Self::rows::<t::Holders>(&[("holder", Holder)], &[("alive_until", At)])
            }
            t::Stock::TAG => Self::rows::<t::Stock>(
                &[PRINT, ("expires_at", Time), SOLVE],
                &[WORKER, PROJECT, KIND],
            ),
            t::Pages::TAG => Self::rows::<t::Pages>(
                &[("seq", Number)],
                &[("first_seq", N), ("at", At), ("entries", N)],
            ),
            t::Totals::TAG => Self::rows::<t::Totals>(&[("day", Day), ("label", Text)], TOTALS),
            t::Spending::TAG => Self::rows::<t::Spending>(
                &[("day", Day), WORKER_KEY],
                &[("opened", N), ("listed_micros", N)],
            ),
            t::Authorised::TAG => {
                Self::rows::<t::Authorised>(&[("day", Day)], &[("authorised", N)])
            }
            t::DeadLetters::TAG => Self::rows::<t::DeadLetters>(&[SOLVE], DEAD_LETTERS),
            t::Tasks::TAG => {
                Self::rows::<t::Tasks>(&[("task", Text)], &[("solve", N), ("attempt", N)])
            }
            t::Callbacks::TAG => {
                Self::rows::<t::Callbacks>(&[CLAIM], &[("state", T), ("tries", N), ("due", At)])
            }
            t::Pools::TAG => Self::rows::<t::Pools>(
                &[PRINT],
                &[("arrived", N), ("hits", N), ("ordered", N), ("wasted", N)],
            ),
            t::Margins::TAG => Self::rows::<t::Margins>(
                &[("host", Text), ("kind", Text)],
                &[("good", N), ("bad", N)],
            ),
            t::Memos::TAG => Self::rows::<t::Memos>(&[("name", Text)], &[]),
            t::Archived::TAG => Self::rows::<t::Archived>(&[("one", Which)], &[("seq", N)]),
            _ => return None,
        })
    }

    /// Tables whose rows are nothing but their keys.
    fn indexes(tag: u8) -> Option<Self> {
        Some(match tag {
            t::Free::TAG => Self::index::<t::Free>(&[DUE, SOLVE]),
            t::Held::TAG => Self::index::<t::Held>(&[("holder", Holder), DUE, SOLVE]),
            t::Waiting::TAG => Self::index::<t::Waiting>(&[PRINT, OPENED, CLAIM]),
            t::Joinable::TAG => Self::index::<t::Joinable>(&[PRINT, SOLVE]),
            t::Watched::TAG => Self::index::<t::Watched>(&[("at", Time), CLAIM]),
            t::Expiries::TAG => Self::index::<t::Expiries>(&[("expires_at", Time), PRINT, SOLVE]),
            t::LedgerIndex::TAG => Self::index::<t::LedgerIndex>(&[
                ("sort", Which),
                ("subject", Number),
                ("seq", Number),
            ]),
            t::ByTime::TAG => Self::index::<t::ByTime>(&[OPENED, CLAIM]),
            t::ByWorker::TAG => Self::index::<t::ByWorker>(&[WORKER_KEY, OPENED, CLAIM]),
            t::BySitekey::TAG => Self::index::<t::BySitekey>(&[("sitekey", Text), OPENED, CLAIM]),
            t::Died::TAG => Self::index::<t::Died>(&[("died_at", Time), SOLVE]),
            t::RetentionQueue::TAG => Self::index::<t::RetentionQueue>(&[
                ("at", Time),
                ("sort", Which),
                ("subject", Number),
            ]),
            t::Outbox::TAG => Self::index::<t::Outbox>(&[DUE, CLAIM]),
            t::Spare::TAG => Self::index::<t::Spare>(&[PRINT, SOLVE]),
            _ => return None,
        })
    }
}

const CLAIMS: &[(&str, ColumnType)] = &[
    WORKER,
    PROJECT,
    KIND,
    ("state", T),
    ("source", T),
    ("code", T),
    ("sitekey", T),
    ("pageurl", T),
    ("solve", N),
    ("opened_at", At),
    ("ended_at", At),
    ("delivered_at", At),
    ("attempts", N),
    ("cost_micros", N),
];

const SOLVES: &[(&str, ColumnType)] = &[
    WORKER,
    PROJECT,
    KIND,
    ("stage", T),
    ("holder", T),
    ("task", T),
    ("attempt", N),
    ("opened_at", At),
    ("due", At),
    ("ended_at", At),
];

const DEAD_LETTERS: &[(&str, ColumnType)] = &[
    WORKER,
    PROJECT,
    KIND,
    ("code", T),
    ("attempts", N),
    ("cost_micros", N),
    ("died_at", At),
    ("closed_at", At),
];

const TOTALS: &[(&str, ColumnType)] = &[
    WORKER,
    PROJECT,
    KIND,
    ("claims", N),
    ("opened", N),
    ("attempts", N),
    ("solved", N),
    ("failed", N),
    ("replayed", N),
    ("joined", N),
    ("stocked", N),
    ("cost_micros", N),
];

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
