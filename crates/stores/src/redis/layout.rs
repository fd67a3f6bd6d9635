//! Which table lies where: the names, sorts and lives of the keys. docs/stores/redis.md shows them to people; all of it is
//! part of the format at rest.

use crate::tables::{self as t, Table};

/// The version of all this.
pub(super) const FORMAT: &str = "1";
/// Every decision lies in one slot.
pub(super) const SHARDS: &str = "1";

/// How a table is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Its part of the key names.
    pub(super) name: &'static str,
    /// A string for each row: its version and its value.
    pub(super) rows: bool,
    /// A sorted set of all its keys.
    pub(super) index: bool,
    /// Days its rows live after they were last written: longer than any rule needs them.
    pub(super) days: u32,
    /// Whether a row may be large: then only its version is read to compare it.
    pub(super) large: bool,
}

/// The names of the keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// `{prefix:shard}:`, which puts all keys in one slot.
    stem: String,
    /// What the keys of a table's rows begin with, by its tag.
    rows: Vec<Vec<u8>>,
}

/// The head, sets and everything that is only ever added to.
pub(super) const LONGEST_DAYS: u32 = 402;
const HISTORY: u32 = 92;

// === impl Form ===

impl Form {
    const fn rows<T: Table>(days: u32) -> Self {
        Self { name: T::NAME, rows: true, index: false, days, large: false }
    }

    const fn index<T: Table>() -> Self {
        Self { name: T::NAME, rows: false, index: true, days: LONGEST_DAYS, large: false }
    }

    const fn both<T: Table>(days: u32) -> Self {
        Self { name: T::NAME, rows: true, index: true, days, large: false }
    }

    const fn large(self) -> Self {
        Self { large: true, ..self }
    }

    /// The form of the table with this tag.
    pub(super) fn of(tag: u8) -> Self {
        Self::find(tag).unwrap_or_else(|| unreachable!("no table has the tag {tag}"))
    }

    fn find(tag: u8) -> Option<Self> {
        Some(match tag {
            t::Claims::TAG => Self::rows::<t::Claims>(HISTORY),
            t::Keys::TAG => Self::rows::<t::Keys>(HISTORY),
            t::Solves::TAG => Self::rows::<t::Solves>(HISTORY),
            t::Challenges::TAG => Self::rows::<t::Challenges>(33).large(),
            t::Free::TAG => Self::index::<t::Free>(),
            t::Held::TAG => Self::index::<t::Held>(),
            t::Holders::TAG => Self::both::<t::Holders>(1),
            t::Waiting::TAG => Self::index::<t::Waiting>(),
            t::Joinable::TAG => Self::index::<t::Joinable>(),
            t::Watched::TAG => Self::index::<t::Watched>(),
            t::Stock::TAG => Self::both::<t::Stock>(33),
            t::Expiries::TAG => Self::index::<t::Expiries>(),
            t::Pages::TAG => Self::both::<t::Pages>(HISTORY).large(),
            t::Told::TAG => Self::index::<t::Told>(),
            t::Totals::TAG => Self::both::<t::Totals>(LONGEST_DAYS),
            t::Spending::TAG => Self::both::<t::Spending>(3),
            t::Authorised::TAG => Self::both::<t::Authorised>(3),
            t::ByTime::TAG => Self::index::<t::ByTime>(),
            t::ByWorker::TAG => Self::index::<t::ByWorker>(),
            t::BySitekey::TAG => Self::index::<t::BySitekey>(),
            t::DeadLetters::TAG => Self::rows::<t::DeadLetters>(33),
            t::Died::TAG => Self::index::<t::Died>(),
            t::Tasks::TAG => Self::rows::<t::Tasks>(HISTORY),
            t::Garbage::TAG => Self::index::<t::Garbage>(),
            t::Callbacks::TAG => Self::rows::<t::Callbacks>(3),
            t::Outbox::TAG => Self::index::<t::Outbox>(),
            t::Pools::TAG => Self::both::<t::Pools>(LONGEST_DAYS),
            t::Spare::TAG => Self::index::<t::Spare>(),
            t::Margins::TAG => Self::both::<t::Margins>(LONGEST_DAYS),
            t::Memos::TAG => Self::both::<t::Memos>(LONGEST_DAYS).large(),
            t::Archived::TAG => Self::rows::<t::Archived>(LONGEST_DAYS),
            _ => return None,
        })
    }

    /// How long a row lives, in seconds.
    pub(super) fn seconds(self) -> u32 {
        self.days * 86_400
    }
}

// === impl Names ===

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let stem = format!("{{{prefix}:0}}:");
        let name = |tag| Form::find(tag).map_or("", |form| form.name);
        let rows = (0..=t::LAST_TAG).map(|tag| format!("{stem}{}:", name(tag)).into_bytes());
        Self { rows: rows.collect(), stem }
    }

    /// What is known about all of it.
    pub(super) fn head(&self) -> Vec<u8> {
        format!("{}head", self.stem).into_bytes()
    }

    /// The last turn of a process.
    pub(super) fn turn(&self, writer: u64) -> Vec<u8> {
        format!("{}turn:{writer:016x}", self.stem).into_bytes()
    }

    /// Where bells are rung.
    pub(super) fn bell(&self) -> Vec<u8> {
        format!("{}bell", self.stem).into_bytes()
    }

    /// The sorted set of the table with this tag.
    pub(super) fn index(&self, tag: u8) -> &[u8] {
        let stem = self.row_stem(tag);
        &stem[..stem.len() - 1]
    }

    /// What the keys of a table's rows begin with.
    pub(super) fn row_stem(&self, tag: u8) -> &[u8] {
        &self.rows[usize::from(tag)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_form() {
        for (tag, name) in t::NAMES {
            let form = Form::of(*tag);
            assert_eq!(form.name, *name);
            assert!(form.rows || form.index);
        }
    }
}
