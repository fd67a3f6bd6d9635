//! How rows are found: keys whose bytes sort as the keys do.

use std::{fmt, sync::Arc};

use domain::{
    fingerprint::{Fingerprint, KeyHash},
    id::{ClaimId, HolderId, SolveId},
    time::{Day, Timestamp},
};

/// A key whose bytes sort as it does.
pub(crate) trait Key: Ord + Clone + fmt::Debug + Send + 'static {
    /// Appends the bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads the bytes back; `None` when they are no key.
    fn read(input: &mut &[u8]) -> Option<Self>;
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
