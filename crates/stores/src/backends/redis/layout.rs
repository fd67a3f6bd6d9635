//! Where each table is stored: the names, types and expiry of the keys. All of it is part of the stored format, and
//! docs/stores/redis.md documents it.

use crate::schema::tables::{self as t, Table};

/// The version of the stored format.
pub(super) const FORMAT: &str = "1";
/// All keys are in one slot, because a decision may touch any of them.
pub(super) const SHARDS: &str = "1";

/// How a table is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableForm {
    /// Its part of the key names.
    pub(super) name: &'static str,
    /// Whether each row is a string key with the row's version and value.
    pub(super) rows: bool,
    /// Whether a sorted set has all keys of the table.
    pub(super) index: bool,
    /// Days until a row expires after its last write: longer than any decision needs it.
    pub(super) days: u32,
    /// Whether rows may be large. Then only the version is read for a comparison.
    pub(super) large: bool,
}

/// The names of the keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct KeyNames {
    /// `{prefix:shard}:`; the hash tag puts all keys in one slot.
    stem: String,
    /// The beginning of a table's row keys, in the order of their tags, which begin at one.
    rows: Vec<Vec<u8>>,
}

/// The expiry of the metadata, the indexes, and tables that only grow.
pub(super) const LONGEST_DAYS: u32 = 402;
const HISTORY: u32 = 92;
/// A hundred years: a pause must outlast any time in which nobody changes it. Decisions delete the memos that end.
const NEVER: u32 = 36_500;

// === impl TableForm ===

impl TableForm {
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

    pub(super) fn of(tag: u8) -> Self {
        match tag {
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
            t::LedgerIndex::TAG => Self::index::<t::LedgerIndex>(),
            t::Totals::TAG => Self::both::<t::Totals>(LONGEST_DAYS),
            t::Spending::TAG => Self::both::<t::Spending>(70),
            t::Authorised::TAG => Self::both::<t::Authorised>(3),
            t::ByTime::TAG => Self::index::<t::ByTime>(),
            t::ByWorker::TAG => Self::index::<t::ByWorker>(),
            t::BySitekey::TAG => Self::index::<t::BySitekey>(),
            t::DeadLetters::TAG => Self::rows::<t::DeadLetters>(33),
            t::Died::TAG => Self::index::<t::Died>(),
            t::Tasks::TAG => Self::rows::<t::Tasks>(HISTORY),
            t::RetentionQueue::TAG => Self::index::<t::RetentionQueue>(),
            t::Callbacks::TAG => Self::rows::<t::Callbacks>(3),
            t::Outbox::TAG => Self::index::<t::Outbox>(),
            t::Pools::TAG => Self::both::<t::Pools>(LONGEST_DAYS),
            t::Spare::TAG => Self::index::<t::Spare>(),
            t::Margins::TAG => Self::both::<t::Margins>(LONGEST_DAYS),
            t::Memos::TAG => Self::both::<t::Memos>(NEVER).large(),
            t::Archived::TAG => Self::rows::<t::Archived>(LONGEST_DAYS),
            _ => unreachable!("no table has the tag {tag}"),
        }
    }

    pub(super) fn seconds(self) -> u32 {
        self.days * 86_400
    }
}

// === impl KeyNames ===

impl KeyNames {
    pub(super) fn new(prefix: &str) -> Self {
        let stem = format!("{{{prefix}:0}}:");
        let rows =
            (1..=t::LAST_TAG).map(|tag| format!("{stem}{}:", TableForm::of(tag).name).into());
        Self { rows: rows.collect(), stem }
    }

    pub(super) fn meta(&self) -> Vec<u8> {
        format!("{}head", self.stem).into_bytes()
    }

    /// The last sequence number of a writer.
    pub(super) fn seq(&self, writer: u64) -> Vec<u8> {
        format!("{}turn:{writer:016x}", self.stem).into_bytes()
    }

    /// The channel of the claim notifications.
    pub(super) fn notifications(&self) -> Vec<u8> {
        format!("{}bell", self.stem).into_bytes()
    }

    /// The sorted set of a table's keys.
    pub(super) fn index(&self, tag: u8) -> &[u8] {
        let stem = self.row_stem(tag);
        &stem[..stem.len() - 1]
    }

    /// The sorted sets of all tables that have one.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &[u8]> {
        (1..=t::LAST_TAG).filter(|tag| TableForm::of(*tag).index).map(|tag| self.index(tag))
    }

    pub(super) fn row_stem(&self, tag: u8) -> &[u8] {
        &self.rows[usize::from(tag) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_form() {
        for (tag, name) in t::NAMES {
            let form = TableForm::of(*tag);
            assert_eq!(form.name, *name);
            assert!(form.rows || form.index);
        }
    }
}
