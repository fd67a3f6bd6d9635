//! Keys of workers and admins. The gateway keeps only their digests.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::time::Timestamp;

/// SHA-256 of a key. Prints as `…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

/// The text is not a key. Client libraries refuse to send a key of any other length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has exactly 32 printable ASCII characters without spaces")]
pub struct MalformedKey;

/// A key that gives access, by its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The first moment at which it no longer gives access.
    pub until: Option<Timestamp>,
}

/// Why a key is too easy to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakKey {
    /// It has few different characters, like `aaaa…`.
    #[error("has fewer than 8 different characters")]
    FewCharacters,
    /// It repeats a text of at most 16 characters, like `0123456789abcdef0123456789abcdef`.
    #[error("repeats a shorter text")]
    Repeats,
    /// Most of its characters follow the one before them, like `abcdefgh…`.
    #[error("counts upwards or downwards")]
    Counts,
}

const LENGTH: usize = 32;

// A random key of 32 hexadecimal digits has one chance in ten million to miss these limits, a longer alphabet less.
const MIN_DIFFERENT: usize = 8;
const MAX_PERIOD: usize = LENGTH / 2;
const MAX_STEPS: usize = 20;

/// Refuses keys that were typed and not drawn. It finds the usual placeholders; it cannot tell a sentence from a random key.
pub fn check_strength(key: &str) -> Result<(), WeakKey> {
    let bytes = key.as_bytes();
    let mut different = bytes.to_vec();
    different.sort_unstable();
    different.dedup();
    if different.len() < MIN_DIFFERENT {
        return Err(WeakKey::FewCharacters);
    }
    let repeats_after =
        |period: usize| bytes.iter().zip(bytes.iter().skip(period)).all(|(a, b)| a == b);
    if (1..=MAX_PERIOD).any(repeats_after) {
        return Err(WeakKey::Repeats);
    }
    let steps = bytes.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 1).count();
    if steps > MAX_STEPS { Err(WeakKey::Counts) } else { Ok(()) }
}

// === impl AccessKey ===

impl AccessKey {
    /// Whether it gives access at this moment.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// A key without an end.
impl From<KeyDigest> for AccessKey {
    fn from(digest: KeyDigest) -> Self {
        Self { digest, until: None }
    }
}

// === impl KeyDigest ===

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
    fn a_key_that_was_typed_is_weak_and_one_that_was_drawn_is_not() {
        for (weak, why) in [
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", WeakKey::FewCharacters),
            ("12121212121212121212121212121234", WeakKey::FewCharacters),
            ("0123456789abcdef0123456789abcdef", WeakKey::Repeats),
            ("12345678901234567890123456789012", WeakKey::Repeats),
            ("changemechangemechangemechangeme", WeakKey::FewCharacters),
            ("secretpasswordsecretpasswordsecr", WeakKey::Repeats),
            ("abcdefghijklmnopqrstuvwxyz012345", WeakKey::Counts),
            ("zyxwvutsrqponmlkjihgfedcba987654", WeakKey::Counts),
        ] {
            assert_eq!(check_strength(weak), Err(why), "{weak}");
        }
        let hex = |n: u32| KeyDigest(Sha256::digest(n.to_be_bytes()).into()).to_hex();
        for key in (0..10_000).map(hex) {
            assert_eq!(check_strength(&key[..32]), Ok(()), "{key}");
        }
    }

    #[test]
    fn a_key_ends_at_its_moment() {
        let digest = KeyDigest::of(&"k".repeat(32)).unwrap();
        let key = AccessKey { digest, until: Some(Timestamp::from_millis(5)) };
        assert!(
            key.is_valid(Timestamp::from_millis(4)) && !key.is_valid(Timestamp::from_millis(5))
        );
        assert!(AccessKey::from(digest).is_valid(Timestamp::from_millis(u64::MAX)));
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
