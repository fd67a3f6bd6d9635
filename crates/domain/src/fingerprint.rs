//! When two challenges are the same: SHA-256 over their canonical form, length-prefixed and versioned.
//!
//! Canonical form, version 1: the byte 1, then the fields `kind`, `sitekey`, `pageurl`, each parameter in order of
//! its name, each file in order of its name. A field is its tag byte, then for every part its length as eight bytes,
//! big-endian, and its bytes. Files enter by the SHA-256 of their content. Absent fields are left out.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    challenge::{Challenge, Sharing},
    id::SHARDS,
    id::WorkerName,
};

/// Equal fingerprints are interchangeable challenges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint([u8; 32]);

/// What of a challenge is left out of its identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `key_ignores_proxy` of the site: any proxy is as good as another.
    pub ignores_proxy: bool,
}

/// A worker's idempotency key, hashed together with the worker's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash([u8; 32]);

/// The idempotency key is not 1–255 printable characters.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an idempotency key has 1 to 255 printable ASCII characters")]
pub struct BadKey;

const VERSION: u8 = 1;
const KIND: u8 = 1;
const SITEKEY: u8 = 2;
const PAGEURL: u8 = 3;
const PARAM: u8 = 4;
const FILE: u8 = 5;

// === impl Fingerprint ===

impl Fingerprint {
    /// The fingerprint of a challenge.
    pub fn of(challenge: &Challenge, identity: Identity) -> Self {
        let mut form = Canonical::new(VERSION);
        form.field(KIND, &[challenge.kind().name().as_bytes()]);
        if let Some(sitekey) = challenge.sitekey() {
            form.field(SITEKEY, &[sitekey.as_bytes()]);
        }
        if let Some(pageurl) = challenge.pageurl() {
            form.field(PAGEURL, &[pageurl.as_str().as_bytes()]);
        }
        // A bound token works with its own proxy only, whatever the site says.
        let ignores_proxy = identity.ignores_proxy && challenge.kind().sharing() != Sharing::Bound;
        for (name, value) in challenge.params() {
            let left_out = ignores_proxy && matches!(name.as_str(), "proxy" | "proxytype");
            if !left_out {
                form.field(PARAM, &[name.as_bytes(), value.as_bytes()]);
            }
        }
        for (name, content) in challenge.files() {
            form.field(FILE, &[name.as_bytes(), &Sha256::digest(content)]);
        }
        Self(form.hash())
    }

    /// The fingerprint with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its virtual shard, below [`SHARDS`].
    pub fn shard(&self) -> u64 {
        let start = self.0.first_chunk().expect("a fingerprint has 32 bytes");
        u64::from_be_bytes(*start) % SHARDS
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..4])
    }
}

// === impl KeyHash ===

impl KeyHash {
    /// The key a worker chose itself.
    pub fn named(worker: &WorkerName, key: &str) -> Result<Self, BadKey> {
        let printable = key.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if key.is_empty() || key.len() > 255 || !printable {
            return Err(BadKey);
        }
        Ok(Self::over(b'n', worker, key.as_bytes()))
    }

    /// The key of "same parameters, same solve", when the worker chose none.
    pub fn derived(worker: &WorkerName, fingerprint: &Fingerprint) -> Self {
        Self::over(b'd', worker, fingerprint.as_bytes())
    }

    /// The key by which equal dead letters that are brought back know each other. No live claim has it.
    pub fn revived(worker: &WorkerName, fingerprint: &Fingerprint) -> Self {
        Self::over(b'r', worker, fingerprint.as_bytes())
    }

    fn over(tag: u8, worker: &WorkerName, key: &[u8]) -> Self {
        let mut form = Canonical::new(VERSION);
        form.field(tag, &[worker.as_str().as_bytes(), key]);
        Self(form.hash())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..4])
    }
}

/// Length-prefixed fields: no text in one field can look like the start of another.
struct Canonical(Sha256);

impl Canonical {
    fn new(version: u8) -> Self {
        Self(Sha256::new_with_prefix([version]))
    }

    fn field(&mut self, tag: u8, parts: &[&[u8]]) {
        self.0.update([tag]);
        for part in parts {
            self.0.update((part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
    }

    fn hash(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests;
