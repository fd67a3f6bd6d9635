//! `memory:` keeps all rows in one ordered map behind a lock. It is for tests, trials and processes that may lose their data.
//! Differential tests compare the other backends with it.

use std::{collections::BTreeMap, ops::Bound, sync::Mutex};

use async_trait::async_trait;
use domain::{ledger::Entry, ports::StoreError};

use crate::{
    adapter::{Counters, DecideFn, Extent, Lane, ReadFn, TransactionRunner},
    decisions::support::ledger,
    schema::{codec::Codec, seal::Keyring},
    tx::{KeyRange, ReadRow, ReadTx, RowKey, RowValue, Stored, WriteTx},
};

const NAME: &str = "memory";

pub(crate) struct Memory {
    /// A std lock, because its poisoning detects decisions that panicked.
    rows: Mutex<MemoryRows>,
}

/// The rows of all tables, each key led by the tag of its table. Values are boxed, because a map moves its entries.
struct MemoryRows {
    rows: BTreeMap<Box<[u8]>, MemoryRow>,
    codec: Codec,
}

enum MemoryRow {
    Value(Box<dyn RowValue>),
    /// A row that holds a secret, in a store with a key. There is nothing at rest here; the suites run on it, because they
    /// are quickest on this store.
    Sealed(Box<[u8]>),
}

// === impl Memory ===

impl Memory {
    pub(crate) fn new(keys: Option<&'static Keyring>) -> Self {
        let codec = Codec { keys, ..Codec::plain(NAME) };
        Self { rows: Mutex::new(MemoryRows { rows: BTreeMap::new(), codec }) }
    }

    fn with<T>(&self, run: impl FnOnce(&mut MemoryRows) -> T) -> Result<T, StoreError> {
        // A decision that panicked may have left half of its writes behind, so nothing is decided after it.
        let mut rows = self.rows.lock().map_err(|_| {
            StoreError::unavailable(NAME, "an earlier decision panicked; restart the process")
        })?;
        Ok(run(&mut rows))
    }
}

#[async_trait]
impl TransactionRunner for Memory {
    async fn decide(&self, mut decide: DecideFn, _: Lane) -> Result<(), StoreError> {
        self.with(|rows| decide(rows)).map(drop)
    }

    async fn read(&self, mut read: ReadFn, _: Extent) -> Result<(), StoreError> {
        self.with(|rows| read(rows))
    }

    fn counters(&self) -> Counters {
        let rows = self.with(|all| all.rows.len()).unwrap_or(0);
        Counters { rows, ..Counters::default() }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

// === impl MemoryRows ===

impl ReadTx for MemoryRows {
    fn codec(&self) -> Codec {
        self.codec
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.rows.get(key) {
            Some(row) => read(key, row.stored()),
            None => Ok(()),
        }
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<(), StoreError> {
        let (least, most) = (range.least.as_slice(), range.most.as_slice());
        let rows = self.rows.range::<[u8], _>((Bound::Included(least), Bound::Included(most)));
        let mut rows = range.order.apply(rows).take(range.limit);
        rows.try_for_each(|(key, row)| read(key, row.stored()))
    }
}

impl WriteTx for MemoryRows {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<(), StoreError> {
        let row = if self.codec.keys.is_some() && key.holds_secret {
            let mut bytes = Vec::new();
            self.codec.write_row(key, &*value, &mut bytes)?;
            MemoryRow::Sealed(bytes.into())
        } else {
            MemoryRow::Value(value)
        };
        self.rows.insert(key.bytes.into(), row);
        Ok(())
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.rows.remove(key.bytes) {
            Some(row) => read(key.bytes, row.stored()),
            None => Ok(()),
        }
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), StoreError> {
        ledger::append_numbered(self, entries)
    }
}

// === impl MemoryRow ===

impl MemoryRow {
    fn stored(&self) -> Stored<'_> {
        match self {
            Self::Value(value) => Stored::Value(value.as_any()),
            Self::Sealed(bytes) => Stored::Encoded(bytes),
        }
    }
}
