//! Keys of workers and admins. The gateway keeps only their digests.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// SHA-256 of a key. Prints as `…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

/// The text is not a key. Client libraries refuse to send a key of any other length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has exactly 32 printable ASCII characters without spaces")]
pub struct MalformedKey;

const LENGTH: usize = 32;

impl KeyDigest {
    /// Checks the form of a key and hashes it.
    pub fn of(key: &str) -> Result<Self, MalformedKey> {
        if key.len() != LENGTH || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(MalformedKey);
        }
        Ok(Self(Sha256::digest(key).into()))
    }

    /// The digest in hexadecimal, to be kept in a file.
    pub fn to_hex(self) -> String {
        let digit =
            |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16");
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    /// Reads what [`KeyDigest::to_hex`] wrote; `None` when it is anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_from_hex(text).map(Self)
    }

    /// Whether both belong to the same key, compared in constant time.
    pub fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// `None` when the text is not two hexadecimal digits for each of the `N` bytes.
pub(crate) fn bytes_from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_back() {
        let digest = KeyDigest::of(&"k".repeat(32)).unwrap();
        assert!(KeyDigest::from_hex(&digest.to_hex()) == Some(digest));
        for bad in ["", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert!(KeyDigest::from_hex(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_has_thirty_two_plain_characters() {
        assert!(KeyDigest::of(&"k".repeat(32)).is_ok());
        for bad in ["", "short", &"k".repeat(31), &"k".repeat(33), &"é".repeat(16), &" ".repeat(32)]
        {
            assert_eq!(KeyDigest::of(bad), Err(MalformedKey), "{bad:?}");
        }
    }
}
