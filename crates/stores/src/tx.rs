//! Transactions, in which decisions and queries run. A backend reads and writes rows by the bytes of their keys
//! ([`ReadTx`], [`WriteTx`]). [`TypedRead`] and [`TypedWrite`] add the types of `schema/tables.rs`.
//!
//! Decisions take `&mut dyn WriteTx` and no type parameter, so they are compiled once and not once per backend. Next to a
//! network or an fsync, the indirect call costs nothing.

use std::{any::Any, ops::RangeInclusive};

use domain::ledger::Entry;
use serde::Serialize;

use crate::{
    Result,
    schema::codec::{Codec, corrupt, key_bytes, read_key},
    schema::tables::Table,
};

/// Reads rows as of one moment.
pub(crate) trait ReadTx {
    /// Decodes the rows.
    fn codec(&self) -> Codec;

    /// The backend's name in error messages.
    fn backend(&self) -> &'static str {
        self.codec().backend
    }

    /// Passes the row of a key to `read`, if there is one.
    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<()>;

    /// Passes at most `limit` rows of the range to `read`.
    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<()>;
}

/// Writes rows. All writes of one decision become visible together.
pub(crate) trait WriteTx: ReadTx {
    /// Inserts or replaces a row.
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<()>;

    /// Removes a row and passes it to `read`. A backend may remove a row without a value without passing it.
    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<()>;

    /// Appends a page of entries to the ledger. Where several gateways write, it gets its numbers when the transaction is
    /// committed, because no decision depends on them. Until then it stands after all pages that have numbers.
    fn append(&mut self, entries: Vec<Entry>) -> Result<()>;

    /// The lane of the sums that this gateway adds to (`decisions/support/lanes.rs`).
    fn sum_lane(&self) -> u8 {
        0
    }

    /// Asks the server not to lose this write, because the gateway is about to spend money on it.
    fn require_durable(&mut self) {}

    /// Whether the server may have lost writes that it acknowledged. Decisions spend nothing on such rows.
    fn is_doubtful(&self) -> bool {
        false
    }
}

/// Receives a row's key and value.
pub(crate) type ReadRow<'a> = &'a mut dyn FnMut(&[u8], Stored<'_>) -> Result<()>;

/// The keys that a scan covers, its order and its limit.
pub(crate) struct KeyRange {
    pub(crate) least: Vec<u8>,
    pub(crate) most: Vec<u8>,
    pub(crate) order: Order,
    pub(crate) limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Rising,
    Falling,
}

impl Order {
    pub(crate) fn apply<'a, I>(self, rows: I) -> Box<dyn Iterator<Item = I::Item> + 'a>
    where
        I: DoubleEndedIterator + 'a,
    {
        match self {
            Self::Rising => Box::new(rows),
            Self::Falling => Box::new(rows.rev()),
        }
    }
}

/// The key of a row to write, and what a backend needs to know about its table.
#[derive(Clone, Copy)]
pub(crate) struct RowKey<'a> {
    pub(crate) bytes: &'a [u8],
    /// The table's name in error messages.
    pub(crate) table: &'static str,
    /// Whether the rows of the table have no value besides their key.
    pub(crate) is_plain: bool,
    /// Whether the value is sealed, if the store has a key.
    pub(crate) holds_secret: bool,
}

/// A row's value as a backend stores it.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// Encoded with its checksum, by `schema/codec.rs`.
    Encoded(&'a [u8]),
    /// The row has no value besides its key.
    Plain,
    /// The value itself. Only the memory store has this.
    Value(&'a dyn Any),
}

/// A value to write. The memory store keeps it as it is, and the other backends encode it.
pub(crate) trait RowValue: Send {
    /// Appends the encoded value to `out`.
    fn encode(&self, out: Vec<u8>) -> Result<Vec<u8>, postcard::Error>;

    fn as_any(&self) -> &dyn Any;
}

pub(crate) type Rows<T> = Vec<(<T as Table>::Key, <T as Table>::Value)>;

impl<V: Serialize + Any + Send> RowValue for V {
    fn encode(&self, out: Vec<u8>) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_extend(self, out)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) trait TypedRead: ReadTx {
    fn get<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>> {
        let mut found = None;
        self.find(&key_bytes::<T>(key), &mut |key, stored| {
            found = Some(value::<T>(self.codec(), key, stored)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn has<T: Table>(&self, key: &T::Key) -> Result<bool> {
        let mut found = false;
        self.find(&key_bytes::<T>(key), &mut |_, _| {
            found = true;
            Ok(())
        })?;
        Ok(found)
    }

    /// At most `limit` rows of the range.
    fn scan<T: Table>(
        &self,
        range: RangeInclusive<T::Key>,
        order: Order,
        limit: usize,
    ) -> Result<Rows<T>> {
        let mut rows = Vec::new();
        if range.start() > range.end() || limit == 0 {
            return Ok(rows);
        }
        let (least, most) = (key_bytes::<T>(range.start()), key_bytes::<T>(range.end()));
        self.find_range(&KeyRange { least, most, order, limit }, &mut |key, stored| {
            let value = value::<T>(self.codec(), key, stored)?;
            rows.push((read_key::<T>(self.backend(), key)?, value));
            Ok(())
        })?;
        Ok(rows)
    }
}

impl<R: ReadTx + ?Sized> TypedRead for R {}

pub(crate) trait TypedWrite: WriteTx {
    /// Inserts or replaces a row.
    fn put<T: Table>(&mut self, key: T::Key, value: T::Value) -> Result<()> {
        let bytes = key_bytes::<T>(&key);
        let key = RowKey { holds_secret: T::holds_secret(&value), ..row_key::<T>(&bytes) };
        self.write(key, Box::new(value))
    }

    /// Removes a row and returns its value. For a table without values, `None` does not mean that there was no row.
    fn take<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>> {
        let (codec, mut found) = (self.codec(), None);
        self.remove(row_key::<T>(&key_bytes::<T>(key)), &mut |key, stored| {
            found = Some(value::<T>(codec, key, stored)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Writes or removes a row without a value.
    fn set<T: Table<Value = ()>>(&mut self, key: T::Key, exists: bool) -> Result<()> {
        if exists { self.put::<T>(key, ()) } else { self.take::<T>(&key).map(drop) }
    }
}

impl<W: WriteTx + ?Sized> TypedWrite for W {}

fn row_key<T: Table>(bytes: &[u8]) -> RowKey<'_> {
    let is_plain = size_of::<T::Value>() == 0;
    RowKey { bytes, table: T::NAME, is_plain, holds_secret: false }
}

pub(crate) fn value<T: Table>(codec: Codec, key: &[u8], stored: Stored<'_>) -> Result<T::Value> {
    let backend = codec.backend;
    match stored {
        Stored::Encoded(bytes) => codec.read_row::<T>(key, bytes),
        Stored::Plain => postcard::from_bytes(&[]).map_err(|why| corrupt(backend, T::NAME, why)),
        Stored::Value(value) => match value.downcast_ref::<T::Value>() {
            Some(value) => Ok(value.clone()),
            None => Err(corrupt(backend, T::NAME, "a value of another table")),
        },
    }
}
