//! The keys of rows. The bytes of a key sort in the same order as the key.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use domain::{
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, HolderId, SolveId},
    time::{Day, Timestamp},
};

pub(crate) trait Key: Ord + Clone + fmt::Debug + Send + 'static {
    fn write(&self, out: &mut Vec<u8>);
    /// Reads a key from the front of `input`; `None` when the bytes are malformed.
    fn read(input: &mut &[u8]) -> Option<Self>;
    fn least() -> Self;
    fn most() -> Self;
}

/// A key of several parts, which scans can select by the first part.
pub(crate) trait CompoundKey: Key {
    type First: Key;
    fn least_of(first: Self::First) -> Self;
    fn most_of(first: Self::First) -> Self;
}

/// A text in a key, without zero bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(Arc<str>);

// === ranges ===

/// All keys of a table.
pub(crate) fn all<K: Key>() -> RangeInclusive<K> {
    K::least()..=K::most()
}

/// The keys with this first part.
pub(crate) fn starting_with<K: CompoundKey>(first: K::First) -> RangeInclusive<K> {
    K::least_of(first.clone())..=K::most_of(first)
}

/// The keys whose first part is at most `last`.
pub(crate) fn up_to<K: CompoundKey>(last: K::First) -> RangeInclusive<K> {
    K::least()..=K::most_of(last)
}

// === impl Key ===

/// A key whose bytes have a fixed size.
macro_rules! fixed_size_key {
    ($type:ty, $size:expr, $to_bytes:expr, $from_bytes:expr) => {
        const _: () = {
            const TO_BYTES: fn(&$type) -> [u8; $size] = $to_bytes;
            const FROM_BYTES: fn([u8; $size]) -> $type = $from_bytes;

            impl Key for $type {
                fn write(&self, out: &mut Vec<u8>) {
                    out.extend_from_slice(&TO_BYTES(self));
                }

                fn read(input: &mut &[u8]) -> Option<Self> {
                    let (bytes, rest) = input.split_first_chunk()?;
                    *input = rest;
                    Some(FROM_BYTES(*bytes))
                }

                fn least() -> Self {
                    FROM_BYTES([0; $size])
                }

                fn most() -> Self {
                    FROM_BYTES([u8::MAX; $size])
                }
            }
        };
    };
}

macro_rules! number_key {
    ($type:ty, $number:ty, $to:path, $from:path) => {
        fixed_size_key!($type, size_of::<$number>(), |key| $to(*key).to_be_bytes(), |bytes| {
            $from(<$number>::from_be_bytes(bytes))
        });
    };
}

fixed_size_key!(u8, 1, |n| n.to_be_bytes(), u8::from_be_bytes);
fixed_size_key!(u64, 8, |n| n.to_be_bytes(), u64::from_be_bytes);
fixed_size_key!(Fingerprint, 32, |key| *key.as_bytes(), Fingerprint::from_bytes);
fixed_size_key!(KeyHash, 32, |key| *key.as_bytes(), KeyHash::from_bytes);
number_key!(ClaimId, u64, ClaimId::number, ClaimId::from_number);
number_key!(SolveId, u64, SolveId::number, SolveId::from_number);
number_key!(HolderId, u64, HolderId::number, HolderId::from_number);
number_key!(Timestamp, u64, Timestamp::millis, Timestamp::from_millis);
number_key!(Day, u32, Day::number, Day::from_number);

macro_rules! compound_key {
    ($first:ident $(, $rest:ident $index:tt)+) => {
        impl<$first: Key $(, $rest: Key)+> Key for ($first, $($rest),+) {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
                $( self.$index.write(out); )+
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                Some(($first::read(input)?, $( $rest::read(input)? ),+))
            }

            fn least() -> Self {
                Self::least_of($first::least())
            }

            fn most() -> Self {
                Self::most_of($first::most())
            }
        }

        impl<$first: Key $(, $rest: Key)+> CompoundKey for ($first, $($rest),+) {
            type First = $first;

            fn least_of(first: $first) -> Self {
                (first, $( $rest::least() ),+)
            }

            fn most_of(first: $first) -> Self {
                (first, $( $rest::most() ),+)
            }
        }
    };
}

compound_key!(A, B 1);
compound_key!(A, B 1, C 2);

// === impl Text ===

impl Text {
    /// Cuts the text at its first zero byte, which would break the order. No name has one.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.split('\0').next().unwrap_or_default().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The upper bound of the texts that begin with the prefix.
    pub(crate) fn after(prefix: &str) -> Self {
        Self(format!("{prefix}{}", char::MAX).into())
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

    fn least() -> Self {
        Self("".into())
    }

    fn most() -> Self {
        Self::after("")
    }
}
