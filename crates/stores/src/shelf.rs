//! What a backend has to offer: ordered tables with get, put, take and scan. The rules (`rules/`) and the readings
//! (`readings/`) are written once on top of it; `tables.rs` lists the tables.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Bound, RangeInclusive},
    sync::Arc,
};

use domain::{
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, HolderId, SolveId},
    ports::StoreError,
    time::{Day, Timestamp},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::tables::Maps;

/// One ordered table. The types are never made; they only name what is kept where.
pub(crate) trait Table: 'static {
    /// First byte of every key at rest. Never reused for another table.
    const TAG: u8;
    /// Its name in error messages.
    const NAME: &'static str;
    /// What rows are found by.
    type Key: Key;
    /// What a row holds.
    type Value: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + 'static;

    /// Where the memory store keeps it. Boxed: a map moves its values about.
    fn map(maps: &Maps) -> &BTreeMap<Self::Key, Box<Self::Value>>;
    /// Where the memory store keeps it, to write.
    fn map_mut(maps: &mut Maps) -> &mut BTreeMap<Self::Key, Box<Self::Value>>;
}

/// A key whose bytes sort as it does.
pub(crate) trait Key: Ord + Clone + fmt::Debug + Send + 'static {
    /// Appends the bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads the bytes back; `None` when they are no key.
    fn read(input: &mut &[u8]) -> Option<Self>;
}

/// Which end of a range a scan starts at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Smallest key first.
    Rising,
    /// Largest key first.
    Falling,
}

/// Rows of a scan, in its order.
pub(crate) type Rows<T> = Vec<(<T as Table>::Key, <T as Table>::Value)>;

/// Reads rows.
pub(crate) trait Shelf {
    /// The backend's name in error messages.
    fn backend(&self) -> &'static str;

    /// The row of a key.
    fn get<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>, StoreError>;

    /// Whether there is a row.
    fn has<T: Table>(&self, key: &T::Key) -> Result<bool, StoreError>;

    /// The largest key of the table.
    fn last<T: Table>(&self) -> Result<Option<T::Key>, StoreError>;

    /// At most `limit` rows of the range.
    fn scan<T: Table>(
        &self,
        range: RangeInclusive<T::Key>,
        order: Order,
        limit: usize,
    ) -> Result<Rows<T>, StoreError>;
}

/// Writes rows. All writes of one decision become visible together.
pub(crate) trait ShelfMut: Shelf {
    /// Writes a row over whatever was there.
    fn put<T: Table>(&mut self, key: T::Key, value: T::Value) -> Result<(), StoreError>;

    /// Takes a row out. Whether there was one is only said of rows that have a value.
    fn take<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, StoreError>;

    /// Money is about to be spent on what is written: it must not be lost with the server.
    fn must_last(&mut self) {}

    /// Whether the rows may be older than what was once answered: nothing is risked on them.
    fn is_doubtful(&self) -> bool {
        false
    }
}

/// A text in a key; it holds no zero byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(Arc<str>);

// === impl Text ===

impl Text {
    /// A text to sort by. Zero bytes, which no name has, would break the order: they end it.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.split('\0').next().unwrap_or_default().into())
    }

    /// The text itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Above everything that begins with this: a bound for a range.
    pub(crate) fn after(prefix: &str) -> Self {
        Self(format!("{prefix}{}", char::MAX).into())
    }

    /// Below every other.
    pub(crate) fn least() -> Self {
        Self("".into())
    }
}

// === impl Key ===

macro_rules! number_key {
    ($type:ty, $number:ty, $to:expr, $from:expr) => {
        impl Key for $type {
            fn write(&self, out: &mut Vec<u8>) {
                let to: fn(&$type) -> $number = $to;
                out.extend_from_slice(&to(self).to_be_bytes());
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = input.split_first_chunk()?;
                *input = rest;
                let from: fn($number) -> $type = $from;
                Some(from(<$number>::from_be_bytes(*bytes)))
            }
        }
    };
}

number_key!(u8, u8, |n| *n, |n| n);
number_key!(u64, u64, |n| *n, |n| n);
number_key!(ClaimId, u64, |id| id.number(), ClaimId::from_number);
number_key!(SolveId, u64, |id| id.number(), SolveId::from_number);
number_key!(HolderId, u64, |id| id.number(), HolderId::from_number);
number_key!(Timestamp, u64, |at| at.millis(), Timestamp::from_millis);
number_key!(Day, u32, |day| day.number(), Day::from_number);

impl Key for Fingerprint {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = input.split_first_chunk()?;
        *input = rest;
        Some(Self::from_bytes(*bytes))
    }
}

/// A key hash as a key; the hash itself cannot be made from bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyBytes([u8; 32]);

impl From<&KeyHash> for KeyBytes {
    fn from(hash: &KeyHash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl Key for KeyBytes {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = input.split_first_chunk()?;
        *input = rest;
        Some(Self(*bytes))
    }
}

impl Key for Text {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
        out.push(0);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let end = input.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&input[..end]).ok()?;
        *input = &input[end + 1..];
        Some(Self(text.into()))
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some((A::read(input)?, B::read(input)?))
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some((A::read(input)?, B::read(input)?, C::read(input)?))
    }
}

// === impl Maps: the memory store's shelf ===

impl Shelf for Maps {
    fn backend(&self) -> &'static str {
        "memory"
    }

    fn get<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>, StoreError> {
        Ok(T::map(self).get(key).map(|value| T::Value::clone(value)))
    }

    fn has<T: Table>(&self, key: &T::Key) -> Result<bool, StoreError> {
        Ok(T::map(self).contains_key(key))
    }

    fn last<T: Table>(&self) -> Result<Option<T::Key>, StoreError> {
        Ok(T::map(self).last_key_value().map(|(key, _)| key.clone()))
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
        let bounds = (Bound::Included(range.start()), Bound::Included(range.end()));
        let rows = T::map(self).range::<T::Key, _>(bounds);
        let rows = rows.map(|(key, value)| (key, value.as_ref()));
        let copy = |(key, value): (&T::Key, &T::Value)| (key.clone(), value.clone());
        Ok(match order {
            Order::Rising => rows.take(limit).map(copy).collect(),
            Order::Falling => rows.rev().take(limit).map(copy).collect(),
        })
    }
}

impl ShelfMut for Maps {
    fn put<T: Table>(&mut self, key: T::Key, value: T::Value) -> Result<(), StoreError> {
        T::map_mut(self).insert(key, Box::new(value));
        Ok(())
    }

    fn take<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, StoreError> {
        Ok(T::map_mut(self).remove(key).map(|value| *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.write(&mut out);
        out
    }

    proptest::proptest! {
        #[test]
        fn bytes_sort_as_the_keys_do(
            a in ("[a-z.-]{0,4}", proptest::num::u64::ANY, 0_u64..4),
            b in ("[a-z.-]{0,4}", proptest::num::u64::ANY, 0_u64..4),
        ) {
            let key = |(text, at, id): &(String, u64, u64)| {
                (Text::new(text), Timestamp::from_millis(*at), ClaimId::from_number(*id))
            };
            let (a, b) = (key(&a), key(&b));
            assert_eq!(a.cmp(&b), bytes(&a).cmp(&bytes(&b)));
            let written = bytes(&a);
            let mut input = written.as_slice();
            assert_eq!(Key::read(&mut input), Some(a));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn an_empty_range_has_no_rows() {
        let rows = Maps::default()
            .scan::<crate::tables::Solves>(
                SolveId::from_number(2)..=SolveId::from_number(1),
                Order::Rising,
                9,
            )
            .unwrap();
        assert!(rows.is_empty());
    }
}
