//! A key's digest: all that is kept of a key.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// SHA-256 of a key. Prints as `…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

/// The text cannot be a key: real clients refuse to send any other length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has exactly 32 printable ASCII characters without spaces")]
pub struct BadKey;

const LENGTH: usize = 32;

impl KeyDigest {
    /// The digest of a key. The length is checked before anything is computed or looked up.
    pub fn of(key: &str) -> Result<Self, BadKey> {
        if key.len() != LENGTH || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BadKey);
        }
        Ok(Self(Sha256::digest(key).into()))
    }

    /// Whether both are of the same key; takes the same time either way.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
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
    fn a_key_has_thirty_two_plain_characters() {
        assert!(KeyDigest::of(&"k".repeat(32)).is_ok());
        for bad in ["", "short", &"k".repeat(31), &"k".repeat(33), &"é".repeat(16), &" ".repeat(32)]
        {
            assert_eq!(KeyDigest::of(bad), Err(BadKey), "{bad:?}");
        }
    }
}
