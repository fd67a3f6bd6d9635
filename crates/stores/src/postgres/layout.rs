//! Which table has which columns. The migrations make them, docs/stores/postgres.md shows them to people, and a test
//! holds all three against each other.

use crate::tables::{self as t, Table};

use super::cells::{Cell, Part, Sort};

/// How a table is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sheet {
    pub(super) name: &'static str,
    /// Its key: the primary key, in this order.
    pub(super) key: &'static [(&'static str, Part)],
    /// What is written beside the body for people and their queries; `None`: a row is nothing but its key.
    pub(super) shown: Option<&'static [(&'static str, Sort)]>,
}

/// An index takes 2,704 bytes. This leaves a name 2,000 and something for what stands beside it.
const LONGEST_KEY: usize = 2100;
pub(super) const NO_KEY: &str = "a key that is none";
pub(super) const BEYOND: &str = "a number or time beyond what PostgreSQL holds";

use Part::{Day, Holder, Number, Print, Text, Time, Which};
use Sort::{Number as N, Text as T, Time as At};

const CLAIM: (&str, Part) = ("claim", Number);
const SOLVE: (&str, Part) = ("solve", Number);
const DUE: (&str, Part) = ("due", Time);
const WORKER_KEY: (&str, Part) = ("worker", Text);
const OPENED: (&str, Part) = ("opened_at", Time);
const PRINT: (&str, Part) = ("fingerprint", Print);
const WORKER: (&str, Sort) = ("worker", T);
const PROJECT: (&str, Sort) = ("project", T);
const KIND: (&str, Sort) = ("kind", T);

impl Sheet {
    const fn rows<X: Table>(
        key: &'static [(&'static str, Part)],
        shown: &'static [(&'static str, Sort)],
    ) -> Self {
        Self { name: X::NAME, key, shown: Some(shown) }
    }

    const fn index<X: Table>(key: &'static [(&'static str, Part)]) -> Self {
        Self { name: X::NAME, key, shown: None }
    }

    /// The table with this tag.
    pub(super) fn of(tag: u8) -> Self {
        Self::records(tag)
            .or_else(|| Self::indexes(tag))
            .unwrap_or_else(|| unreachable!("no table has the tag {tag}"))
    }

    /// A key as cells, and whether they say exactly the same.
    pub(super) fn cells(&self, key: &[u8]) -> Option<(Vec<Cell>, bool)> {
        let mut rest = key.get(1..)?;
        let mut all_exact = true;
        let mut cells = Vec::with_capacity(self.key.len());
        for (_, part) in self.key {
            let (cell, is_exact) = part.read(&mut rest)?;
            all_exact &= is_exact;
            cells.push(cell);
        }
        rest.is_empty().then_some((cells, all_exact))
    }

    /// Why no row can have this key.
    pub(super) fn refuses(&self, key: &[u8]) -> Option<&'static str> {
        if key.len() > LONGEST_KEY {
            return Some("a name of more than 2,000 bytes, which no index of PostgreSQL takes");
        }
        match self.cells(key) {
            None => Some(NO_KEY),
            Some((_, false)) => Some(BEYOND),
            Some((_, true)) => None,
        }
    }

    /// Whether it lies in partitions.
    pub(super) fn is_parted(&self) -> bool {
        self.name == t::Pages::NAME
    }

    /// Those whose rows hold something.
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

    /// Those whose rows are nothing but their keys.
    fn indexes(tag: u8) -> Option<Self> {
        Some(match tag {
            t::Free::TAG => Self::index::<t::Free>(&[DUE, SOLVE]),
            t::Held::TAG => Self::index::<t::Held>(&[("holder", Holder), DUE, SOLVE]),
            t::Waiting::TAG => Self::index::<t::Waiting>(&[PRINT, OPENED, CLAIM]),
            t::Joinable::TAG => Self::index::<t::Joinable>(&[PRINT, SOLVE]),
            t::Watched::TAG => Self::index::<t::Watched>(&[("at", Time), CLAIM]),
            t::Expiries::TAG => Self::index::<t::Expiries>(&[("expires_at", Time), PRINT, SOLVE]),
            t::Told::TAG => {
                Self::index::<t::Told>(&[("sort", Which), ("subject", Number), ("seq", Number)])
            }
            t::ByTime::TAG => Self::index::<t::ByTime>(&[OPENED, CLAIM]),
            t::ByWorker::TAG => Self::index::<t::ByWorker>(&[WORKER_KEY, OPENED, CLAIM]),
            t::BySitekey::TAG => Self::index::<t::BySitekey>(&[("sitekey", Text), OPENED, CLAIM]),
            t::Died::TAG => Self::index::<t::Died>(&[("died_at", Time), SOLVE]),
            t::Garbage::TAG => {
                Self::index::<t::Garbage>(&[("at", Time), ("sort", Which), ("subject", Number)])
            }
            t::Outbox::TAG => Self::index::<t::Outbox>(&[DUE, CLAIM]),
            t::Spare::TAG => Self::index::<t::Spare>(&[PRINT, SOLVE]),
            _ => return None,
        })
    }
}

const CLAIMS: &[(&str, Sort)] = &[
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

const SOLVES: &[(&str, Sort)] = &[
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

const DEAD_LETTERS: &[(&str, Sort)] = &[
    WORKER,
    PROJECT,
    KIND,
    ("code", T),
    ("attempts", N),
    ("cost_micros", N),
    ("died_at", At),
    ("closed_at", At),
];

const TOTALS: &[(&str, Sort)] = &[
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
    fn every_table_has_a_sheet() {
        for (tag, name) in t::NAMES {
            let sheet = Sheet::of(*tag);
            assert_eq!(sheet.name, *name);
            assert!(!sheet.key.is_empty());
        }
    }
}
