//! The hash chain of the ledger. The hash of an entry covers the entry and the hash of the one before it, so that a later
//! change of any entry changes every hash after it. A hash that was noted outside shows it.
//!
//! `hash = SHA-256(prev ‖ entry)`: the 32 bytes of the previous hash, then the entry as compact JSON ([`canonical`]). The first
//! entry of a chain follows [`EntryHash::START`]. Anybody can recompute it from an export (docs/audit.md).

mod verifier;

pub use verifier::{Break, ChainReport, Flaw, Verifier};

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};

use crate::{id::BadName, key::bytes_from_hex, ledger::Entry};

/// The hash of an entry and of everything before it: 64 hex digits in JSON, bytes in stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryHash([u8; 32]);

/// The place of an entry in the chain, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The hash of the entry before.
    pub prev: EntryHash,
    /// The hash of this entry.
    pub hash: EntryHash,
}

/// An entry with its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedEntry {
    /// The entry.
    pub entry: Entry,
    /// `None` for entries of releases that kept no chain.
    pub link: Option<Link>,
}

/// What a store has at a place of its ledger. As JSON it is a line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Line", try_from = "Line")]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are entries")]
pub enum LedgerItem {
    /// An entry.
    Entry(ChainedEntry),
    /// Something that cannot be read, or that does not belong there.
    Unreadable {
        /// The number of the last entry that is affected.
        seq: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// A line of an export: `{"prev":…,"hash":…,"entry":…}`. The entry is the last member and stands there as it was hashed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<EntryHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<EntryHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unreadable: Option<Unreadable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Unreadable {
    seq: u64,
    why: String,
}

/// The entry as the bytes that are hashed: compact JSON with the fields in the order of their declaration. A field or variant
/// that is added to an entry later must leave the JSON of older entries as it is.
pub fn canonical(entry: &Entry) -> Vec<u8> {
    serde_json::to_vec(entry).expect("an entry has no maps with keys that are not texts")
}

// === impl EntryHash ===

impl EntryHash {
    /// What the first entry of a chain follows.
    pub const START: Self = Self([0; 32]);

    /// The hash of an entry that follows `prev`.
    pub fn of(prev: Self, entry: &Entry) -> Self {
        Self::over(prev, &canonical(entry))
    }

    /// The hash of an entry whose canonical bytes are known.
    pub fn over(prev: Self, canonical: &[u8]) -> Self {
        Self(Sha256::new().chain_update(prev.0).chain_update(canonical).finalize().into())
    }
}

// === impl LedgerItem ===

impl LedgerItem {
    /// The number of its entry, or of the last one it affects.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Entry(chained) => chained.entry.seq,
            Self::Unreadable { seq, .. } => *seq,
        }
    }
}

impl From<LedgerItem> for Line {
    fn from(item: LedgerItem) -> Self {
        let nothing = Self { prev: None, hash: None, unreadable: None, entry: None };
        match item {
            LedgerItem::Entry(ChainedEntry { entry, link }) => Self {
                prev: link.map(|link| link.prev),
                hash: link.map(|link| link.hash),
                entry: Some(entry),
                ..nothing
            },
            LedgerItem::Unreadable { seq, why } => {
                Self { unreadable: Some(Unreadable { seq, why }), ..nothing }
            }
        }
    }
}

impl TryFrom<Line> for LedgerItem {
    type Error = &'static str;

    fn try_from(line: Line) -> Result<Self, &'static str> {
        match line {
            Line { entry: Some(entry), prev, hash, unreadable: None } => {
                let hashes = match (prev, hash) {
                    (Some(prev), Some(hash)) => Some(Link { prev, hash }),
                    (None, None) => None,
                    (Some(_), None) | (None, Some(_)) => return Err("`prev` without `hash`"),
                };
                Ok(Self::Entry(ChainedEntry { entry, link: hashes }))
            }
            Line { unreadable: Some(Unreadable { seq, why }), entry: None, .. } => {
                Ok(Self::Unreadable { seq, why })
            }
            Line { .. } => Err("neither an entry nor unreadable"),
        }
    }
}

impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for EntryHash {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let why = "expected 64 digits 0-9 and a-f";
        bytes_from_hex(text).map(Self).ok_or(BadName { what: "hash", why })
    }
}

impl Serialize for EntryHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EntryHash {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        if input.is_human_readable() {
            return String::deserialize(input)?.parse().map_err(D::Error::custom);
        }
        Deserialize::deserialize(input).map(Self)
    }
}

#[cfg(test)]
mod tests;
