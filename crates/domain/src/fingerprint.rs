//! When two challenges are the same: they are if the SHA-256 over their canonical form is. The form is length-prefixed, so
//! that no value can pass for the start of another field, and versioned.
//!
//! Canonical form, version 1: the byte 1, then the fields `kind`, `sitekey`, `pageurl`, each parameter in order of
//! its name, each file in order of its name. A field is its tag byte, then for every part its length as eight bytes,
//! big-endian, and its bytes. Files enter by the SHA-256 of their content. Absent fields are left out.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    challenge::{Challenge, Sharing},
    id::WorkerName,
};

/// The identity of a challenge. Challenges with equal fingerprints are interchangeable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint([u8; 32]);

/// The parts of a challenge that its fingerprint leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The site's `key_ignores_proxy`: challenges that differ only in their proxy are the same.
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
        // A bound token works only with its own proxy, so the site's setting does not apply.
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

    /// A fingerprint that a store has kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
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
    /// The hash of a key the worker chose.
    pub fn named(worker: &WorkerName, key: &str) -> Result<Self, BadKey> {
        let printable = key.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if key.is_empty() || key.len() > 255 || !printable {
            return Err(BadKey);
        }
        Ok(Self::over(b'n', worker, key.as_bytes()))
    }

    /// The hash for "same parameters, same solve", when the worker chose no key.
    pub fn derived(worker: &WorkerName, fingerprint: &Fingerprint) -> Self {
        Self::over(b'd', worker, fingerprint.as_bytes())
    }

    /// The hash by which equal dead letters find each other when they are revived. No other claim has it.
    pub fn revived(worker: &WorkerName, fingerprint: &Fingerprint) -> Self {
        Self::over(b'r', worker, fingerprint.as_bytes())
    }

    fn over(tag: u8, worker: &WorkerName, key: &[u8]) -> Self {
        let mut form = Canonical::new(VERSION);
        form.field(tag, &[worker.as_str().as_bytes(), key]);
        Self(form.hash())
    }

    /// A hash that a store has kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..4])
    }
}

/// The canonical form, hashed while it is written.
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
