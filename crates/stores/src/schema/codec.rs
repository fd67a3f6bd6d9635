//! The encoding of a row: a version byte, a checksum over key and value, and the value. Every read verifies the checksum.

use domain::ports::{BoxError, StoreError};

use crate::{
    Result,
    schema::keys::Key,
    schema::tables::Table,
    tx::{RowKey, RowValue},
};

/// The version of the encoding. A reader that finds a higher one is too old for the row.
const VERSION: u8 = 1;
const HEAD: usize = 5;

/// The bytes of a key, led by the tag of its table.
pub(crate) fn key_bytes<T: Table>(key: &T::Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.push(T::TAG);
    key.write(&mut bytes);
    bytes
}

pub(crate) fn read_key<T: Table>(backend: &'static str, bytes: &[u8]) -> Result<T::Key> {
    let read = |bytes: &[u8]| {
        let (tag, mut rest) = bytes.split_first()?;
        let key = T::Key::read(&mut rest)?;
        (*tag == T::TAG && rest.is_empty()).then_some(key)
    };
    read(bytes).ok_or_else(|| corrupt(backend, T::NAME, "malformed key"))
}

/// Encodes a value into a buffer that the caller reuses.
pub(crate) fn write_row(
    backend: &'static str,
    key: RowKey<'_>,
    value: &dyn RowValue,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let mut row = std::mem::take(bytes);
    row.clear();
    row.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
    *bytes = value.encode(row).map_err(|why| corrupt(backend, key.table, why))?;
    let sum = checksum(key.bytes, &bytes[HEAD..]);
    bytes[1..HEAD].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

pub(crate) fn read_row<T: Table>(
    backend: &'static str,
    key: &[u8],
    bytes: &[u8],
) -> Result<T::Value> {
    let Some(([version, sum @ ..], value)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(corrupt(backend, T::NAME, "row too short"));
    };
    if checksum(key, value) != u32::from_le_bytes(*sum) {
        return Err(corrupt(backend, T::NAME, "checksum mismatch"));
    }
    if *version != VERSION {
        return Err(corrupt(backend, T::NAME, format!("unknown row version {version}")));
    }
    postcard::from_bytes(value).map_err(|why| corrupt(backend, T::NAME, why))
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(value);
    sum.finalize()
}

pub(crate) fn corrupt(
    backend: &'static str,
    what: &'static str,
    why: impl Into<BoxError>,
) -> StoreError {
    StoreError::corrupt(backend, what, why)
}
