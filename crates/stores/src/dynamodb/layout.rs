//! The items of the table, and what stands in them.
//!
//! | `PK` | `SK` | what |
//! |---|---|---|
//! | `HEAD` | `head` | the format, the incarnation, how far commits are filed, who files |
//! | `LOG#<block>` | the slot | a commit: what it changed |
//! | `SHEET#<table>` | its least key | a stretch of the rows of a table |
//! | `APART#<nonce>` | the part | what is too large for the item it belongs to |

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::ports::StoreError;
use serde::{Deserialize, Serialize};

use crate::{
    codec::corrupt,
    remote::{Key, Stamp},
};

use super::NAME;

/// An item as the SDK has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The names of attributes. Many words are reserved, so expressions name them by `#`.
pub(super) const PK: &str = "PK";
pub(super) const SK: &str = "SK";
pub(super) const BODY: &str = "body";
pub(super) const NONCE: &str = "nonce";
pub(super) const GATEWAY: &str = "gateway";
pub(super) const PARTS: &str = "parts";
pub(super) const UNTIL: &str = "until_key";
pub(super) const FILED: &str = "filed";
/// Drawn anew whenever a sheet is written.
pub(super) const EDITION: &str = "edition";
pub(super) const FORMAT: &str = "format";
pub(super) const INCARNATION: &str = "incarnation";
pub(super) const FILER: &str = "filer";
pub(super) const BEAT: &str = "beat";
/// When DynamoDB may delete an item, in seconds. Nothing is decided by it.
pub(super) const GC_AT: &str = "gc_at";

pub(super) const HEAD: &str = "HEAD";
const HEAD_SORT: &[u8] = b"head";

/// The one format of this release.
pub(super) const THIS_FORMAT: u64 = 1;

/// Commits under one partition key.
pub(super) const BLOCK: u64 = 100;
/// A value beyond this lies apart, and the row says where.
pub(super) const LONG: usize = 32 << 10;
/// An item has 400 KiB at most, names of attributes included.
pub(super) const MOST: usize = 350 << 10;

/// A row's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Value {
    /// Itself.
    Here(Arc<[u8]>),
    /// In items of its own.
    Apart(Apart),
}

/// Where something large lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Apart {
    pub(super) nonce: Stamp,
    pub(super) parts: u32,
}

/// What a commit does to rows; `None`: the row is gone.
pub(super) type Changes = Vec<(Key, Option<Value>)>;

/// A commit, as everybody reads it.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) slot: u64,
    pub(super) nonce: Stamp,
    pub(super) changes: Changes,
}

/// A commit as it is read, before what lies apart is fetched.
#[derive(Debug)]
pub(super) enum Body {
    Here(Vec<u8>),
    Apart(Apart),
}

/// A stretch of a table's rows: those from `least` on that are below `until`.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    pub(super) least: Key,
    pub(super) until: Key,
    /// Commits up to this slot are in it, as far as they change it.
    pub(super) filed: u64,
    pub(super) edition: u64,
    pub(super) rows: Vec<(Key, Value)>,
}

/// The head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) incarnation: u64,
    /// Commits up to this slot are in the sheets.
    pub(super) filed: u64,
    /// Who files just now, and how often it said so.
    pub(super) filer: Option<(u64, u64)>,
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

/// The two names of an item.
pub(super) fn key(pk: impl Into<String>, sk: &[u8]) -> Item {
    HashMap::from([(PK.to_owned(), text(pk)), (SK.to_owned(), bytes(sk))])
}

pub(super) fn head_key() -> Item {
    key(HEAD, HEAD_SORT)
}

/// The partition of a slot.
pub(super) fn log_partition(slot: u64) -> String {
    format!("LOG#{:012}", slot / BLOCK)
}

pub(super) fn slot_key(slot: u64) -> Item {
    key(log_partition(slot), &slot.to_be_bytes())
}

/// The partition of a table's sheets.
pub(super) fn sheet_partition(tag: u8) -> String {
    let name = crate::tables::name_of(tag).unwrap_or("unknown");
    format!("SHEET#{name}")
}

pub(super) fn apart_key(nonce: Stamp, part: u32) -> Item {
    key(format!("APART#{:016x}", u64::from_be_bytes(nonce)), &part.to_be_bytes())
}

/// Below every key of a table.
pub(super) fn table_least(tag: u8) -> Key {
    [tag].as_slice().into()
}

/// Above every key of a table.
pub(super) fn table_end(tag: u8) -> Key {
    [tag + 1].as_slice().into()
}

// === items ===

fn odd(what: &'static str) -> StoreError {
    corrupt(NAME, what, "an item that is none")
}

pub(super) fn encode(changes: &Changes) -> Vec<u8> {
    let plain: Vec<(&[u8], &Option<Value>)> =
        changes.iter().map(|(key, value)| (key.as_ref(), value)).collect();
    postcard::to_stdvec(&plain).expect("rows can be written into memory")
}

pub(super) fn decode(body: &[u8]) -> Result<Changes, StoreError> {
    postcard::from_bytes(body).map_err(|why| corrupt(NAME, "log", why))
}

/// A commit's slot, its nonce and its body.
pub(super) fn read_commit(item: &Item) -> Result<(u64, Stamp, Body), StoreError> {
    let read = || {
        let slot = u64::from_be_bytes(read_bytes(item, SK)?.try_into().ok()?);
        let nonce: Stamp = read_bytes(item, NONCE)?.try_into().ok()?;
        let body = match read_number(item, PARTS) {
            Some(parts) => Body::Apart(Apart { nonce, parts: u32::try_from(parts).ok()? }),
            None => Body::Here(read_bytes(item, BODY)?.to_vec()),
        };
        Some((slot, nonce, body))
    };
    read().ok_or_else(|| odd("log"))
}

pub(super) fn read_part(item: &Item) -> Result<&[u8], StoreError> {
    read_bytes(item, BODY).ok_or_else(|| odd("apart"))
}

pub(super) fn read_head(item: &Item) -> Result<Head, StoreError> {
    let read = || {
        let filer = match read_number(item, FILER) {
            Some(filer) => Some((filer, read_number(item, BEAT)?)),
            None => None,
        };
        Some(Head {
            incarnation: read_number(item, INCARNATION)?,
            filed: read_number(item, FILED)?,
            filer,
        })
    };
    read().ok_or_else(|| odd("head"))
}

/// The format an item says it has.
pub(super) fn read_format(item: &Item) -> Option<u64> {
    read_number(item, FORMAT)
}

impl Sheet {
    pub(super) fn read(item: &Item) -> Result<Self, StoreError> {
        let read = || {
            let rows = postcard::from_bytes(read_bytes(item, BODY)?).ok()?;
            let least: Key = read_bytes(item, SK)?.into();
            let tag = *least.first()?;
            let until = read_bytes(item, UNTIL).map_or_else(|| table_end(tag), Into::into);
            let (filed, edition) = (read_number(item, FILED)?, read_number(item, EDITION)?);
            Some(Self { least, until, filed, edition, rows })
        };
        read().ok_or_else(|| odd("sheet"))
    }

    /// All of a table that has no sheets yet.
    pub(super) fn empty(tag: u8) -> Self {
        let (least, until) = (table_least(tag), table_end(tag));
        Self { least, until, filed: 0, edition: 0, rows: Vec::new() }
    }

    pub(super) fn tag(&self) -> u8 {
        self.least.first().copied().unwrap_or(0)
    }

    pub(super) fn item(&self) -> Item {
        let mut item = key(sheet_partition(self.tag()), &self.least);
        let body = postcard::to_stdvec(&self.rows).expect("rows can be written into memory");
        item.insert(BODY.into(), bytes(&body));
        item.insert(FILED.into(), number(self.filed));
        item.insert(EDITION.into(), number(self.edition));
        if self.until != table_end(self.tag()) {
            item.insert(UNTIL.into(), bytes(&self.until));
        }
        item
    }
}

impl Value {
    /// What it takes up where it stands. What lies apart is fetched with its sheet, so few such rows share one.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len() + 4,
            Self::Apart(_) => 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_comes_back_as_it_was() {
        let key = |bytes: &[u8]| -> Key { bytes.into() };
        let sheet = Sheet {
            least: key(&[1]),
            until: key(&[1, 9]),
            filed: 7,
            edition: 5,
            rows: vec![
                (key(&[1, 2]), Value::Here([3, 0, 255].as_slice().into())),
                (key(&[1, 3]), Value::Apart(Apart { nonce: [9; 8], parts: 3 })),
            ],
        };
        let again = Sheet::read(&sheet.item()).unwrap();
        assert_eq!((again.least, again.until), (sheet.least, sheet.until));
        assert_eq!((again.filed, again.edition), (7, 5));
        assert_eq!(again.rows, sheet.rows);
    }

    #[test]
    fn changes_come_back_as_they_were() {
        let changes: Changes = vec![
            ([1, 2].as_slice().into(), None),
            ([1, 3].as_slice().into(), Some(Value::Here([].as_slice().into()))),
        ];
        assert_eq!(decode(&encode(&changes)).unwrap(), changes);
        assert!(decode(b"\xff\xff").is_err());
    }
}
