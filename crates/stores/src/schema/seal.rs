//! Encryption of rows that hold secrets. A sealed value is the id of its key (8 bytes), a nonce (24), the encrypted value and
//! a tag (16). The key of the row is authenticated with it, so a value cannot be moved to another row.
//!
//! Every row gets a key of its own: AES-256-GCM under HMAC-SHA-256 of the first half of the nonce, with the second half as
//! the nonce of GCM. GCM alone has 96 bits of nonce, which random ones may repeat after some billion rows; a busy gateway
//! writes that many in weeks. With 192 random bits a repetition is out of reach, and gateways need not agree on a counter.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use domain::{ports::Chance, secret::Secret};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use zeroize::Zeroize;

/// The keys of a store. New rows are sealed with the first one, and both can be read.
///
/// Codecs copy their reference to it, so a keyring lives until the process ends.
#[derive(Debug)]
pub struct Keyring {
    current: RowKeys,
    old: Option<RowKeys>,
    chance: Arc<dyn Chance>,
}

/// A key that rows are sealed with: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey([u8; KEY_LEN]);

/// A key's name in rows and messages. Only a gateway with the key can derive it, and it says nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId([u8; 8]);

/// Why a text is no encryption key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadEncryptionKey {
    #[error("is not 32 bytes as 64 hex digits or as base64; make one with: openssl rand -hex 32")]
    Form,
    #[error("is not random: its bytes repeat; make one with: openssl rand -hex 32")]
    Guessable,
}

/// The keys of rows, derived from one key.
#[derive(Clone)]
struct RowKeys {
    id: KeyId,
    derive: hmac::Key,
}

const KEY_LEN: usize = 32;
const ID_LEN: usize = size_of::<KeyId>();
/// The first half selects the key of the row, the second half is GCM's nonce.
const HALF: usize = NONCE_LEN;
const SEAL_NONCE_LEN: usize = 2 * HALF;
/// What comes before the encrypted value.
pub(super) const SEAL_HEAD: usize = ID_LEN + SEAL_NONCE_LEN;
/// 32 random bytes have fewer different ones once in 10^19 keys.
const LEAST_DIFFERENT: usize = 16;

// === impl Keyring ===

impl Keyring {
    /// Random numbers come from `chance`. A nonce must not repeat; it need not be secret.
    pub fn new(
        current: &EncryptionKey,
        old: Option<&EncryptionKey>,
        chance: Arc<dyn Chance>,
    ) -> &'static Self {
        let old = old.map(RowKeys::new);
        Box::leak(Box::new(Self { current: RowKeys::new(current), old, chance }))
    }

    /// The key that new rows are sealed with.
    pub fn current(&self) -> KeyId {
        self.current.id
    }

    /// The key that rows may still be sealed with.
    pub fn old(&self) -> Option<KeyId> {
        self.old.as_ref().map(|old| old.id)
    }

    pub(crate) fn has(&self, id: KeyId) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: KeyId) -> Option<&RowKeys> {
        [Some(&self.current), self.old.as_ref()].into_iter().flatten().find(|keys| keys.id == id)
    }

    /// The head of a sealed value, to which its plain value is appended.
    pub(super) fn head(&self) -> [u8; SEAL_HEAD] {
        let mut head = [0; SEAL_HEAD];
        let (id, nonce) = head.split_at_mut(ID_LEN);
        id.copy_from_slice(&self.current.id.0);
        for part in nonce.chunks_exact_mut(size_of::<u64>()) {
            part.copy_from_slice(&self.chance.draw().to_be_bytes());
        }
        head
    }

    /// Encrypts the value that follows the head, in place, and appends its tag.
    pub(super) fn seal(&self, context: &[u8], sealed: &mut Vec<u8>, start: usize) {
        let (head, value) = sealed[start..].split_at_mut(SEAL_HEAD);
        let nonce = &head[ID_LEN..];
        let tag = self
            .current
            .of_row(nonce)
            .seal_in_place_separate_tag(gcm_nonce(nonce), Aad::from(context), value)
            .expect("a row is far smaller than the 64 GiB that one key may encrypt");
        sealed.extend_from_slice(tag.as_ref());
    }

    /// Decrypts a sealed value.
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CannotOpen> {
        let id = key_id_of(sealed).ok_or(CannotOpen::Altered)?;
        let Some((head, value)) = sealed.split_at_checked(SEAL_HEAD) else {
            return Err(CannotOpen::Altered);
        };
        let Some(keys) = self.find(id) else {
            return Err(CannotOpen::Unknown { id, known: self.to_string() });
        };
        let nonce = &head[ID_LEN..];
        let mut value = value.to_vec();
        let opened =
            keys.of_row(nonce).open_in_place(gcm_nonce(nonce), Aad::from(context), &mut value);
        let len = opened.map_err(|_| CannotOpen::Altered)?.len();
        value.truncate(len);
        Ok(value)
    }
}

/// The ids of the keys.
impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.old {
            Some(old) => write!(f, "keys {} and {}", self.current.id, old.id),
            None => write!(f, "key {}", self.current.id),
        }
    }
}

/// Why a sealed value cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum CannotOpen {
    #[error(
        "the row is sealed with key {id}, and `[store] encryption_key` is not set; set it to the key that the other gateways have"
    )]
    NoKeys { id: KeyId },
    #[error(
        "the row is sealed with key {id}, and `[store] encryption_key` has {known}; add the missing key as the second one"
    )]
    Unknown { id: KeyId, known: String },
    #[error("the sealed row was altered, or moved from another place")]
    Altered,
}

/// The id of the key that a sealed value was encrypted with.
pub(crate) fn key_id_of(sealed: &[u8]) -> Option<KeyId> {
    sealed.first_chunk().copied().map(KeyId)
}

fn gcm_nonce(nonce: &[u8]) -> Nonce {
    Nonce::try_assume_unique_for_key(&nonce[HALF..]).expect("the second half of a nonce")
}

// === impl RowKeys ===

impl RowKeys {
    fn new(key: &EncryptionKey) -> Self {
        let derive = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        let tag = hmac::sign(&derive, b"solvegate key id");
        let id = tag.as_ref().first_chunk().copied().map(KeyId).expect("a tag has 32 bytes");
        Self { id, derive }
    }

    fn of_row(&self, nonce: &[u8]) -> LessSafeKey {
        let mut signing = hmac::Context::with_key(&self.derive);
        signing.update(b"solvegate row");
        signing.update(&nonce[..HALF]);
        let key = UnboundKey::new(&AES_256_GCM, signing.sign().as_ref());
        LessSafeKey::new(key.expect("a tag has 32 bytes"))
    }
}

impl fmt::Debug for RowKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

// === impl EncryptionKey ===

impl EncryptionKey {
    /// Reads 64 hex digits, or base64.
    pub fn parse(text: &Secret) -> Result<Self, BadEncryptionKey> {
        let text = text.expose();
        let bytes = if text.len() == 2 * KEY_LEN { from_hex(text) } else { from_base64(text) };
        let key = Self(bytes.ok_or(BadEncryptionKey::Form)?);
        let mut different = key.0;
        different.sort_unstable();
        let is_random = different.chunk_by(|a, b| a == b).count() >= LEAST_DIFFERENT;
        different.zeroize();
        if is_random { Ok(key) } else { Err(BadEncryptionKey::Guessable) }
    }

    /// Its name in rows and messages.
    pub fn id(&self) -> KeyId {
        RowKeys::new(self).id
    }
}

fn from_hex(text: &str) -> Option<[u8; KEY_LEN]> {
    let mut bytes = [0; KEY_LEN];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    }
    Some(bytes)
}

fn from_base64(text: &str) -> Option<[u8; KEY_LEN]> {
    let padding = DecodePaddingMode::Indifferent;
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
    let read = |alphabet| GeneralPurpose::new(alphabet, config).decode(text).ok()?.try_into().ok();
    read(&alphabet::STANDARD).or_else(|| read(&alphabet::URL_SAFE))
}

impl Drop for EncryptionKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

// === impl KeyId ===

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for KeyId {
    type Err = BadEncryptionKey;

    fn from_str(text: &str) -> Result<Self, BadEncryptionKey> {
        let number = u64::from_str_radix(text, 16).map_err(|_| BadEncryptionKey::Form)?;
        Ok(Self(number.to_be_bytes()))
    }
}
