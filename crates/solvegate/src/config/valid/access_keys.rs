//! The keys of workers and admins: strong enough, each with one owner, and none of them the key of the account at the
//! service.

use std::collections::HashSet;

use domain::{
    key::{AccessKey, KeyDigest, check_strength},
    secret::Secret,
};

use crate::config::{
    ConfigError,
    written::{Given, KeyList, KeySource, WrittenKey},
};

/// The keys that have an owner.
pub(super) struct TakenKeys {
    digests: HashSet<KeyDigest>,
    provider: Option<KeyDigest>,
}

const MAKE_ONE: &str = "make one with: openssl rand -hex 16";

/// `key` or `keys`, as they are written beside each other.
pub(super) fn check(
    place: &str,
    key: Option<Given<Secret>>,
    keys: Option<Given<KeyList>>,
) -> Result<Vec<AccessKey>, ConfigError> {
    match (key, keys) {
        (Some(key), None) => Ok(vec![key.check(|key| digest(&key))?.into()]),
        (None, Some(keys)) => {
            keys.check(|list| list.0.iter().enumerate().map(read).collect::<Result<_, _>>())
        }
        (None, None) => Err(ConfigError::at(place, "key is missing; write key = \"env:NAME\"")),
        (Some(_), Some(_)) => {
            let what = "give either key or keys, not both; while one key replaces another, write both into keys";
            Err(ConfigError::at(place, what))
        }
    }
}

fn read((at, written): (usize, &WrittenKey)) -> Result<AccessKey, String> {
    let digest = match &written.source {
        KeySource::Key(key) => digest(key).map_err(|why| format!("number {}: {why}", at + 1))?,
        KeySource::Digest(digest) => *digest,
    };
    Ok(AccessKey { digest, until: written.until })
}

fn digest(key: &Secret) -> Result<KeyDigest, String> {
    let Ok(digest) = KeyDigest::of(key.expose()) else {
        let length = key.expose().len();
        return Err(format!(
            "the key has {length} characters; client libraries insist on exactly 32 printable ones; {MAKE_ONE}"
        ));
    };
    check_strength(key.expose())
        .map_err(|why| format!("the key can be guessed, because it {why}; {MAKE_ONE}"))?;
    Ok(digest)
}

// === impl TakenKeys ===

impl TakenKeys {
    /// `provider` is the key of the account at the service.
    pub(super) fn new(provider: Option<&Secret>) -> Self {
        let provider = provider.and_then(|key| KeyDigest::of(key.expose()).ok());
        Self { digests: HashSet::new(), provider }
    }

    /// Refuses a key that has another owner.
    pub(super) fn take(&mut self, place: &str, keys: &[AccessKey]) -> Result<(), ConfigError> {
        for key in keys {
            if self.provider == Some(key.digest) {
                return Err(ConfigError::at(
                    place,
                    format!(
                        "the key is that of the account at the service ([upstream] key): its holder could go around the \
                     gateway; {MAKE_ONE}"
                    ),
                ));
            }
            if !self.digests.insert(key.digest) {
                let what = "the key is used twice; give each worker and each admin their own";
                return Err(ConfigError::at(place, what));
            }
        }
        Ok(())
    }
}
