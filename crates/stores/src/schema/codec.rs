//! The encoding of a row: a version byte, a checksum over key and value, and the value. Every read verifies the checksum. With
//! the flag [`SEALED`] in the version, the value is encrypted (`seal.rs`).

use domain::ports::{BoxError, StoreError};

use crate::{
    Result,
    schema::keys::Key,
    schema::seal::{CannotOpen, KeyId, Keyring, key_id_of},
    schema::tables::Table,
    tx::{RowKey, RowValue},
};

/// Encodes the rows of a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codec {
    /// The backend's name in error messages.
    pub(crate) backend: &'static str,
    /// Rows that hold secrets are sealed with these. Without them, rows are written as they are.
    pub(crate) keys: Option<&'static Keyring>,
}

/// The version of the encoding. A reader that finds a higher one is too old for the row.
const VERSION: u8 = 1;
/// Set in the version of a sealed row.
const SEALED: u8 = 0x80;
const HEAD: usize = 5;

// === impl Codec ===

impl Codec {
    /// A codec that seals nothing.
    pub(crate) const fn plain(backend: &'static str) -> Self {
        Self { backend, keys: None }
    }

    /// Encodes a value into a buffer that the caller reuses.
    pub(crate) fn write_row(
        self,
        key: RowKey<'_>,
        value: &dyn RowValue,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let keys = self.keys.filter(|_| key.holds_secret);
        let mut row = std::mem::take(bytes);
        row.clear();
        row.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
        if let Some(keys) = keys {
            row[0] |= SEALED;
            row.extend_from_slice(&keys.head());
        }
        *bytes = value.encode(row).map_err(|why| corrupt(self.backend, key.table, why))?;
        if let Some(keys) = keys {
            keys.seal(&context(bytes[0], key.bytes), bytes, HEAD);
        }
        let sum = checksum(key.bytes, &bytes[HEAD..]);
        bytes[1..HEAD].copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    pub(crate) fn read_row<T: Table>(self, key: &[u8], bytes: &[u8]) -> Result<T::Value> {
        let failed = |why: BoxError| corrupt(self.backend, T::NAME, why);
        let Some(([version, sum @ ..], value)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(failed("row too short".into()));
        };
        if checksum(key, value) != u32::from_le_bytes(*sum) {
            return Err(failed("checksum mismatch".into()));
        }
        if version & !SEALED != VERSION {
            return Err(failed(format!("unknown row version {}", version & !SEALED).into()));
        }
        let read = if version & SEALED == 0 {
            read_value::<T>(value)
        } else {
            let opened = self.open(&context(*version, key), value);
            read_value::<T>(&opened.map_err(|why| failed(why.into()))?)
        };
        read.map_err(|why| failed(why.into()))
    }

    fn open(self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CannotOpen> {
        match (self.keys, key_id_of(sealed)) {
            (Some(keys), _) => keys.open(context, sealed),
            (None, Some(id)) => Err(CannotOpen::NoKeys { id }),
            (None, None) => Err(CannotOpen::Altered),
        }
    }
}

/// Reads a row that is not sealed although its checksum is wrong, to tell what was changed; `None` when it cannot be.
pub(crate) fn read_unverified<T: Table>(bytes: &[u8]) -> Option<T::Value> {
    let (_, value) = bytes.split_first_chunk::<HEAD>()?;
    read_value::<T>(value).ok()
}

/// Reads a value. One of an earlier release lacks the fields that were appended since.
fn read_value<T: Table>(value: &[u8]) -> Result<T::Value, postcard::Error> {
    let mut read = read_completed::<T>(value)?;
    T::convert(&mut read);
    Ok(read)
}

fn read_completed<T: Table>(value: &[u8]) -> Result<T::Value, postcard::Error> {
    let read = postcard::from_bytes(value);
    if read.is_ok() || T::APPENDED == 0 {
        return read;
    }
    let mut completed = Vec::with_capacity(value.len() + T::APPENDED);
    completed.extend_from_slice(value);
    completed.resize(value.len() + T::APPENDED, 0);
    postcard::from_bytes(&completed)
}

/// What a sealed value is bound to: its row, because the key begins with the tag of the table, and its encoding.
fn context(version: u8, key: &[u8]) -> Vec<u8> {
    [&[version], key].concat()
}

/// The key that an encoded row is sealed with; `None` when it is not sealed.
pub(crate) fn sealed_with(bytes: &[u8]) -> Option<KeyId> {
    let ([version, ..], sealed) = bytes.split_first_chunk::<HEAD>()?;
    key_id_of(sealed).filter(|_| version & SEALED != 0)
}

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
