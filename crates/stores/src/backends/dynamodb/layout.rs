//! The items of the table. All of it is part of the stored format, whose names are older than those in the code.
//!
//! | `PK` | `SK` | item |
//! |---|---|---|
//! | `HEAD` | `head` | the metadata: format, incarnation, last compacted commit, compactor |
//! | `LOG#<block>` | the slot | a commit: its changes |
//! | `SHEET#<table>` | its least key | a segment: a range of the rows of a table |
//! | `APART#<nonce>` | the part | an overflow item: a part of a large value |

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::ports::StoreError;
use serde::{Deserialize, Serialize};

use crate::{optimistic::RawKey, schema::codec::corrupt};

use super::NAME;

pub(super) type Item = HashMap<String, AttributeValue>;

/// The random id of a commit or of a large value.
pub(super) type Nonce = [u8; 8];

/// The names of attributes. Many words are reserved, so expressions use placeholders for them.
pub(super) const PK: &str = "PK";
pub(super) const SK: &str = "SK";
pub(super) const BODY: &str = "body";
pub(super) const NONCE: &str = "nonce";
pub(super) const GATEWAY: &str = "gateway";
pub(super) const PARTS: &str = "parts";
pub(super) const UNTIL: &str = "until_key";
pub(super) const COMPACTED: &str = "filed";
/// A new random number for every write of a segment.
pub(super) const EDITION: &str = "edition";
/// Of a segment: no overflow item of its rows expires. Segments of earlier releases do not say so.
pub(super) const KEPT: &str = "kept";
/// Of an overflow item: the key of the row whose value it holds.
pub(super) const ROW: &str = "row";
pub(super) const FORMAT: &str = "format";
pub(super) const INCARNATION: &str = "incarnation";
pub(super) const COMPACTOR: &str = "filer";
pub(super) const HEARTBEAT: &str = "beat";
/// When DynamoDB may delete an item, in seconds. No decision reads it. Items without it stay.
pub(super) const GC_AT: &str = "gc_at";

pub(super) const META: &str = "HEAD";
const META_SORT: &[u8] = b"head";

/// Begins the partition keys of overflow items.
pub(super) const OVERFLOW: &str = "APART#";

pub(super) const THIS_FORMAT: u64 = 1;

/// Commits in one partition.
pub(super) const BLOCK: u64 = 100;
/// A larger value is stored in overflow items, and the row refers to them.
pub(super) const MAX_INLINE: usize = 32 << 10;
/// An item has at most 400 KiB, including the names of its attributes.
pub(super) const MAX_ITEM: usize = 350 << 10;

/// The value of a row, or the body of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredValue {
    Inline(Arc<[u8]>),
    Overflow(OverflowRef),
}

/// Refers to the overflow items of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OverflowRef {
    pub(super) nonce: Nonce,
    pub(super) parts: u32,
}

/// The changes of a commit; `None`: the row is deleted.
pub(super) type Changes = Vec<(RawKey, Option<StoredValue>)>;

#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) slot: u64,
    pub(super) nonce: Nonce,
    pub(super) changes: Changes,
}

/// The rows of a table from `least` up to, but without, `until`.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) least: RawKey,
    pub(super) until: RawKey,
    /// The last commit that is merged into it.
    pub(super) compacted: u64,
    pub(super) edition: u64,
    /// Whether the overflow items of its rows are known not to expire.
    pub(super) is_kept: bool,
    pub(super) rows: Vec<(RawKey, StoredValue)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableMeta {
    pub(super) incarnation: u64,
    /// The last commit that is merged into the segments.
    pub(super) compacted: u64,
    /// The current compactor and its last heartbeat.
    pub(super) compactor: Option<(u64, u64)>,
}

// === attributes ===

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) fn bytes(value: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(value))
}

fn read_number(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

fn read_bytes<'i>(item: &'i Item, name: &str) -> Option<&'i [u8]> {
    Some(item.get(name)?.as_b().ok()?.as_ref())
}

pub(super) fn key(pk: impl Into<String>, sk: &[u8]) -> Item {
    HashMap::from([(PK.to_owned(), text(pk)), (SK.to_owned(), bytes(sk))])
}

pub(super) fn meta_key() -> Item {
    key(META, META_SORT)
}

pub(super) fn log_partition(slot: u64) -> String {
    format!("LOG#{:012}", slot / BLOCK)
}

pub(super) fn slot_key(slot: u64) -> Item {
    key(log_partition(slot), &slot.to_be_bytes())
}

pub(super) fn segment_partition(tag: u8) -> String {
    let name = crate::schema::tables::name_of(tag).unwrap_or("unknown");
    format!("SHEET#{name}")
}

pub(super) fn overflow_key(nonce: Nonce, part: u32) -> Item {
    key(format!("{OVERFLOW}{:016x}", u64::from_be_bytes(nonce)), &part.to_be_bytes())
}

/// Below every key of a table.
pub(super) fn table_least(tag: u8) -> RawKey {
    [tag].as_slice().into()
}

/// Above every key of a table.
pub(super) fn table_end(tag: u8) -> RawKey {
    [tag + 1].as_slice().into()
}

// === items ===

fn corrupt_item(what: &'static str) -> StoreError {
    corrupt(NAME, what, "a malformed item")
}

pub(super) fn encode(changes: &Changes) -> Vec<u8> {
    let plain: Vec<(&[u8], &Option<StoredValue>)> =
        changes.iter().map(|(key, value)| (key.as_ref(), value)).collect();
    postcard::to_stdvec(&plain).expect("rows can be encoded into memory")
}

pub(super) fn decode(body: &[u8]) -> Result<Changes, StoreError> {
    postcard::from_bytes(body).map_err(|why| corrupt(NAME, "log", why))
}

/// The slot of a commit, its nonce, and its encoded changes.
pub(super) fn read_commit(item: &Item) -> Result<(u64, Nonce, StoredValue), StoreError> {
    let read = || {
        let slot = u64::from_be_bytes(read_bytes(item, SK)?.try_into().ok()?);
        let nonce: Nonce = read_bytes(item, NONCE)?.try_into().ok()?;
        let body = match read_number(item, PARTS) {
            Some(parts) => {
                StoredValue::Overflow(OverflowRef { nonce, parts: u32::try_from(parts).ok()? })
            }
            None => StoredValue::Inline(read_bytes(item, BODY)?.into()),
        };
        Some((slot, nonce, body))
    };
    read().ok_or_else(|| corrupt_item("log"))
}

pub(super) fn read_part(item: &Item) -> Result<&[u8], StoreError> {
    read_bytes(item, BODY).ok_or_else(|| corrupt_item("overflow"))
}

pub(super) fn read_meta(item: &Item) -> Result<TableMeta, StoreError> {
    let read = || {
        let compactor = match read_number(item, COMPACTOR) {
            Some(compactor) => Some((compactor, read_number(item, HEARTBEAT)?)),
            None => None,
        };
        Some(TableMeta {
            incarnation: read_number(item, INCARNATION)?,
            compacted: read_number(item, COMPACTED)?,
            compactor,
        })
    };
    read().ok_or_else(|| corrupt_item("metadata"))
}

pub(super) fn read_format(item: &Item) -> Option<u64> {
    read_number(item, FORMAT)
}

impl Segment {
    pub(super) fn read(item: &Item) -> Result<Self, StoreError> {
        let read = || {
            let rows = postcard::from_bytes(read_bytes(item, BODY)?).ok()?;
            let least: RawKey = read_bytes(item, SK)?.into();
            let tag = *least.first()?;
            let until = read_bytes(item, UNTIL).map_or_else(|| table_end(tag), Into::into);
            let (compacted, edition) = (read_number(item, COMPACTED)?, read_number(item, EDITION)?);
            let is_kept = item.contains_key(KEPT);
            Some(Self { least, until, compacted, edition, is_kept, rows })
        };
        read().ok_or_else(|| corrupt_item("segment"))
    }

    /// The only segment of a table that has none yet.
    pub(super) fn empty(tag: u8) -> Self {
        let (least, until) = (table_least(tag), table_end(tag));
        Self { least, until, compacted: 0, edition: 0, is_kept: true, rows: Vec::new() }
    }

    pub(super) fn tag(&self) -> u8 {
        self.least.first().copied().unwrap_or(0)
    }

    pub(super) fn item(&self) -> Item {
        let mut item = key(segment_partition(self.tag()), &self.least);
        let body = postcard::to_stdvec(&self.rows).expect("rows can be encoded into memory");
        item.insert(BODY.into(), bytes(&body));
        item.insert(COMPACTED.into(), number(self.compacted));
        item.insert(EDITION.into(), number(self.edition));
        if self.is_kept {
            item.insert(KEPT.into(), number(1));
        }
        if self.until != table_end(self.tag()) {
            item.insert(UNTIL.into(), bytes(&self.until));
        }
        item
    }
}

impl StoredValue {
    /// Its size in a segment. A large value is read together with its segment, so few of them should share one.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len() + 4,
            Self::Overflow(_) => 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_survives_a_round_trip() {
        let key = |bytes: &[u8]| -> RawKey { bytes.into() };
        let segment = Segment {
            least: key(&[1]),
            until: key(&[1, 9]),
            compacted: 7,
            edition: 5,
            is_kept: true,
            rows: vec![
                (key(&[1, 2]), StoredValue::Inline([3, 0, 255].as_slice().into())),
                (key(&[1, 3]), StoredValue::Overflow(OverflowRef { nonce: [9; 8], parts: 3 })),
            ],
        };
        let again = Segment::read(&segment.item()).unwrap();
        assert_eq!((again.least, again.until), (segment.least, segment.until));
        assert_eq!((again.compacted, again.edition, again.is_kept), (7, 5, true));
        assert_eq!(again.rows, segment.rows);
    }

    #[test]
    fn changes_survive_a_round_trip() {
        let changes: Changes = vec![
            ([1, 2].as_slice().into(), None),
            ([1, 3].as_slice().into(), Some(StoredValue::Inline([].as_slice().into()))),
        ];
        assert_eq!(decode(&encode(&changes)).unwrap(), changes);
        assert!(decode(b"\xff\xff").is_err());
    }
}
