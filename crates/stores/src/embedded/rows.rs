//! The embedded store's shelf: all tables as one ordered map of bytes, each key led by its table's tag.

use std::ops::{Bound, RangeInclusive};

use domain::ports::StoreError;
use redb::{AccessGuard, ReadableTable, StorageError};

use crate::{
    codec::{key_bytes, read_key, read_row, row_bytes},
    shelf::{Order, Rows, Shelf, ShelfMut, Table},
};

use super::{NAME, corrupt};

/// The rows, open in a transaction.
pub(crate) struct OpenRows<R> {
    rows: R,
    /// Whether anything was written.
    pub(super) changed: bool,
}

/// The rows, open to write.
pub(crate) type WriteRows<'a> = OpenRows<redb::Table<'a, &'static [u8], &'static [u8]>>;

/// A row as redb hands it out.
type Row<'a> =
    Result<(AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>), StorageError>;

impl<R> OpenRows<R> {
    pub(super) fn new(rows: R) -> Self {
        Self { rows, changed: false }
    }
}

impl<R: ReadableTable<&'static [u8], &'static [u8]>> Shelf for OpenRows<R> {
    fn backend(&self) -> &'static str {
        NAME
    }

    fn get<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>, StoreError> {
        let key = key_bytes::<T>(key);
        match self.rows.get(key.as_slice()).map_err(failed)? {
            Some(row) => read_row::<T>(NAME, &key, row.value()).map(Some),
            None => Ok(None),
        }
    }

    fn has<T: Table>(&self, key: &T::Key) -> Result<bool, StoreError> {
        let key = key_bytes::<T>(key);
        Ok(self.rows.get(key.as_slice()).map_err(failed)?.is_some())
    }

    fn last<T: Table>(&self) -> Result<Option<T::Key>, StoreError> {
        let (least, most) = ([T::TAG], [T::TAG + 1]);
        let bounds = (Bound::Included(least.as_slice()), Bound::Excluded(most.as_slice()));
        let mut rows = self.rows.range::<&[u8]>(bounds).map_err(failed)?;
        match rows.next_back() {
            Some(row) => read_key::<T>(NAME, row.map_err(failed)?.0.value()).map(Some),
            None => Ok(None),
        }
    }

    fn scan<T: Table>(
        &self,
        range: RangeInclusive<T::Key>,
        order: Order,
        limit: usize,
    ) -> Result<Rows<T>, StoreError> {
        if range.start() > range.end() {
            return Ok(Vec::new());
        }
        let (least, most) = (key_bytes::<T>(range.start()), key_bytes::<T>(range.end()));
        let bounds = least.as_slice()..=most.as_slice();
        let rows = self.rows.range::<&[u8]>(bounds).map_err(failed)?;
        let read = |row: Row<'_>| {
            let (key, value) = row.map_err(failed)?;
            let row = read_row::<T>(NAME, key.value(), value.value())?;
            Ok((read_key::<T>(NAME, key.value())?, row))
        };
        match order {
            Order::Rising => rows.take(limit).map(read).collect(),
            Order::Falling => rows.rev().take(limit).map(read).collect(),
        }
    }
}

impl ShelfMut for WriteRows<'_> {
    fn put<T: Table>(&mut self, key: T::Key, value: T::Value) -> Result<(), StoreError> {
        let key = key_bytes::<T>(&key);
        let row = row_bytes::<T>(NAME, &key, &value)?;
        self.changed = true;
        self.rows.insert(key.as_slice(), row.as_slice()).map_err(failed)?;
        Ok(())
    }

    fn take<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, StoreError> {
        let key = key_bytes::<T>(key);
        let row = self.rows.remove(key.as_slice()).map_err(failed)?;
        self.changed |= row.is_some();
        row.map(|row| read_row::<T>(NAME, &key, row.value())).transpose()
    }
}

/// What a failure of the file means.
pub(super) fn failed(why: StorageError) -> StoreError {
    if let StorageError::Corrupted(why) = why {
        return corrupt("file", why);
    }
    StoreError::Unavailable { backend: NAME, source: Box::new(why) }
}
