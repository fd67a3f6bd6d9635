//! `memory:` keeps all rows in one ordered map behind a lock. It is for tests, trials and processes that may lose their data.
//! Differential tests compare the other backends with it.

use std::{collections::BTreeMap, ops::Bound, sync::Mutex};

use async_trait::async_trait;
use domain::ports::StoreError;

use crate::{
    adapter::{Counters, DecideFn, Extent, ReadFn, TransactionRunner},
    tx::{KeyRange, ReadRow, ReadTx, RowKey, RowValue, Stored, WriteTx},
};

const NAME: &str = "memory";

#[derive(Default)]
pub(crate) struct Memory {
    /// A std lock, because its poisoning detects decisions that panicked.
    rows: Mutex<MemoryRows>,
}

/// The rows of all tables, each key led by the tag of its table. They are boxed, because a map moves its entries.
#[derive(Default)]
struct MemoryRows(BTreeMap<Box<[u8]>, Box<dyn RowValue>>);

// === impl Memory ===

impl Memory {
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
    async fn decide(&self, mut decide: DecideFn) -> Result<(), StoreError> {
        self.with(|rows| decide(rows)).map(drop)
    }

    async fn read(&self, mut read: ReadFn, _: Extent) -> Result<(), StoreError> {
        self.with(|rows| read(rows))
    }

    fn counters(&self) -> Counters {
        let rows = self.with(|rows| rows.0.len()).unwrap_or(0);
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
    fn backend(&self) -> &'static str {
        NAME
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.0.get(key) {
            Some(value) => read(key, Stored::Value(value.as_any())),
            None => Ok(()),
        }
    }

    fn last_key(&self, tag: u8) -> Result<Option<Vec<u8>>, StoreError> {
        let (least, most) = ([tag], [tag + 1]);
        let bounds = (Bound::Included(least.as_slice()), Bound::Excluded(most.as_slice()));
        Ok(self.0.range::<[u8], _>(bounds).next_back().map(|(key, _)| key.to_vec()))
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<(), StoreError> {
        let (least, most) = (range.least.as_slice(), range.most.as_slice());
        let rows = self.0.range::<[u8], _>((Bound::Included(least), Bound::Included(most)));
        let mut rows = range.order.apply(rows).take(range.limit);
        rows.try_for_each(|(key, value)| read(key, Stored::Value(value.as_any())))
    }
}

impl WriteTx for MemoryRows {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<(), StoreError> {
        self.0.insert(key.bytes.into(), value);
        Ok(())
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.0.remove(key.bytes) {
            Some(value) => read(key.bytes, Stored::Value(value.as_any())),
            None => Ok(()),
        }
    }
}
