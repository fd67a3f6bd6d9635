//! The transactions of the embedded store. All tables share one ordered map of bytes, each key led by the tag of its table.

use domain::{ledger::Entry, ports::StoreError};
use redb::{AccessGuard, ReadableTable, StorageError};

use crate::{
    decisions::support::ledger,
    schema::codec::Codec,
    tx::{KeyRange, Order, ReadRow, ReadTx, RowKey, RowValue, Stored, WriteTx},
};

use super::{NAME, corrupt};

pub(crate) struct EmbeddedTx<R> {
    rows: R,
    codec: Codec,
    /// Whether the transaction wrote anything.
    pub(super) changed: bool,
    /// The buffer that values are encoded into.
    scratch: Vec<u8>,
}

pub(crate) type EmbeddedWriteTx<'a> = EmbeddedTx<redb::Table<'a, &'static [u8], &'static [u8]>>;

type RedbRow<'a> =
    Result<(AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>), StorageError>;

impl<R> EmbeddedTx<R> {
    pub(super) fn new(rows: R, codec: Codec) -> Self {
        Self { rows, codec, changed: false, scratch: Vec::new() }
    }
}

impl<R: ReadableTable<&'static [u8], &'static [u8]>> ReadTx for EmbeddedTx<R> {
    fn codec(&self) -> Codec {
        self.codec
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<(), StoreError> {
        match self.rows.get(key).map_err(failed)? {
            Some(row) => read(key, Stored::Encoded(row.value())),
            None => Ok(()),
        }
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<(), StoreError> {
        let bounds = range.least.as_slice()..=range.most.as_slice();
        let rows = self.rows.range::<&[u8]>(bounds).map_err(failed)?;
        let mut pass = |row: RedbRow<'_>| {
            let (key, value) = row.map_err(failed)?;
            read(key.value(), Stored::Encoded(value.value()))
        };
        match range.order {
            Order::Rising => rows.take(range.limit).try_for_each(&mut pass),
            Order::Falling => rows.rev().take(range.limit).try_for_each(&mut pass),
        }
    }
}

impl WriteTx for EmbeddedWriteTx<'_> {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<(), StoreError> {
        self.codec.write_row(key, &*value, &mut self.scratch)?;
        self.changed = true;
        self.rows.insert(key.bytes, self.scratch.as_slice()).map_err(failed)?;
        Ok(())
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<(), StoreError> {
        let Some(row) = self.rows.remove(key.bytes).map_err(failed)? else { return Ok(()) };
        self.changed = true;
        read(key.bytes, Stored::Encoded(row.value()))
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), StoreError> {
        ledger::append_numbered(self, entries)
    }
}

pub(super) fn failed(why: StorageError) -> StoreError {
    if let StorageError::Corrupted(why) = why {
        return corrupt("file", why);
    }
    StoreError::unavailable(NAME, why)
}
