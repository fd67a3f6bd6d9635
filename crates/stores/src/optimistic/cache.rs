//! The rows this process has cached. They are only hints: every commit compares the rows it has read.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds, RangeInclusive},
};

use crate::{
    schema::tables::{BySitekey, ByTime, ByWorker, LedgerIndex, Pages, Table},
    tx::Order,
};

use super::{RawKey, ReadSet, RowVersion, ScanRange, VersionedRow, Write};

/// Cached rows by key. A row that is not cached is assumed not to exist.
#[derive(Debug, Default)]
pub(crate) struct RowCache {
    rows: BTreeMap<RawKey, VersionedRow>,
    size: usize,
    /// Whether written rows are cached even if no decision reads them.
    keeps_all: bool,
}

/// The current state of something a transaction has read and that has changed since.
#[derive(Debug)]
pub(crate) enum Conflict {
    Row(RawKey, Option<VersionedRow>),
    /// The first rows of a range, without gaps.
    Range {
        scan: ScanRange,
        rows: Vec<(RawKey, VersionedRow)>,
        /// Whether the range may have rows after the last of these.
        more: bool,
    },
}

/// Beyond this size the cache is emptied. Filling it again costs a round trip for each row in use.
const MAX_BYTES: usize = 128 << 20;
/// The memory a row takes besides its bytes.
const ROW_OVERHEAD: usize = 96;

// === impl RowCache ===

impl RowCache {
    /// A cache that also keeps written rows which only queries read: the backend tracks which ranges are complete.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn keeping_all() -> Self {
        Self { keeps_all: true, ..Self::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&VersionedRow> {
        self.rows.get(key)
    }

    pub(crate) fn range<'a>(
        &'a self,
        range: &'a RangeInclusive<RawKey>,
        order: Order,
    ) -> Box<dyn Iterator<Item = (&'a RawKey, &'a VersionedRow)> + 'a> {
        order.apply(self.rows.range(range.clone()))
    }

    pub(crate) fn apply(&mut self, writes: BTreeMap<RawKey, Write>, version: RowVersion) {
        for (key, write) in writes {
            match write {
                Write::Put(bytes) => self.insert_written(key, VersionedRow { version, bytes }),
                Write::Delete => self.remove(&key),
            }
        }
    }

    /// Empties the cache if it is too large. This must not happen between the retries of a batch, which would then never end.
    pub(crate) fn clear_if_full(&mut self) -> bool {
        let is_full = self.size > MAX_BYTES;
        if is_full {
            self.clear();
        }
        is_full
    }

    /// Takes the current rows from a conflict.
    pub(crate) fn apply_conflict(&mut self, conflict: Conflict) {
        match conflict {
            Conflict::Row(key, Some(row)) => self.insert(key, row),
            Conflict::Row(key, None) => self.remove(&key),
            Conflict::Range { scan, rows, more } => {
                let covered = scan.covered(rows.last().filter(|_| more).map(|(key, _)| key));
                self.remove_range(covered);
                for (key, row) in rows {
                    self.insert(key, row);
                }
            }
        }
    }

    /// Takes the current rows from the conflicts of a read set. Returns what is known to be current as of the request that
    /// returned them.
    pub(crate) fn learn(&mut self, mut reads: ReadSet, conflicts: Vec<Conflict>) -> ReadSet {
        for conflict in conflicts {
            reads.add_conflict(&conflict);
            self.apply_conflict(conflict);
        }
        reads
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { keeps_all: self.keeps_all, ..Self::default() };
    }

    #[cfg(feature = "dynamodb")]
    pub(crate) fn fill_range(
        &mut self,
        range: std::ops::Range<RawKey>,
        rows: Vec<(RawKey, VersionedRow)>,
    ) {
        self.remove_range(range);
        for (key, row) in rows {
            self.insert(key, row);
        }
    }

    /// Caches a written row if a later decision may read it.
    fn insert_written(&mut self, key: RawKey, row: VersionedRow) {
        if self.keeps_all {
            self.insert(key, row);
            return;
        }
        if key.first().is_some_and(|tag| is_history(*tag)) {
            return;
        }
        if key.first() == Some(&Pages::TAG) {
            // Only the first page is read, to see whether it is old, and the last one, to number the next.
            let pages: RawKey = [Pages::TAG].as_slice().into();
            let first = self.rows.range(pages..=key.clone()).next().map(|(key, _)| key.clone());
            if let Some(first) = first {
                self.remove_range((Bound::Excluded(first), Bound::Included(key.clone())));
            }
        }
        self.insert(key, row);
    }

    fn insert(&mut self, key: RawKey, row: VersionedRow) {
        let (key_size, value_size) = (key.len(), row.bytes.len());
        match self.rows.insert(key, row) {
            Some(old) => self.size = self.size.saturating_sub(old.bytes.len()) + value_size,
            None => self.size += ROW_OVERHEAD + key_size + value_size,
        }
    }

    fn remove_range(&mut self, range: impl RangeBounds<RawKey>) {
        let old: Vec<RawKey> = self.rows.range(range).map(|(key, _)| key.clone()).collect();
        for key in &old {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &RawKey) {
        if let Some(row) = self.rows.remove(key) {
            self.size = self.size.saturating_sub(ROW_OVERHEAD + key.len() + row.bytes.len());
        }
    }
}

/// Indexes that only queries and retention read. They are written but not cached.
fn is_history(tag: u8) -> bool {
    [ByTime::TAG, ByWorker::TAG, BySitekey::TAG, LedgerIndex::TAG].contains(&tag)
}
