//! The key of the account, which a reload can replace.

use domain::secret::Secret;
use parking_lot::RwLock;

use crate::BadUpstream;

pub(crate) struct AccountKey(RwLock<Keys>);

/// A key that may replace the one in use.
#[derive(Debug)]
pub struct NewKey(Secret);

struct Keys {
    current: Secret,
    /// A reply to a call made with it may still arrive and quote it.
    previous: Option<Secret>,
}

// === impl AccountKey ===

impl AccountKey {
    pub(crate) fn new(key: Secret) -> Result<Self, BadUpstream> {
        let NewKey(current) = NewKey::new(key)?;
        Ok(Self(RwLock::new(Keys { current, previous: None })))
    }

    pub(crate) fn current(&self) -> Secret {
        self.0.read().current.clone()
    }

    pub(crate) fn replace(&self, NewKey(key): NewKey) {
        let mut keys = self.0.write();
        if keys.current != key {
            keys.previous = Some(std::mem::replace(&mut keys.current, key));
        }
    }

    /// The text without the keys.
    pub(crate) fn redact(&self, text: &str) -> String {
        let keys = self.0.read();
        let all = std::iter::once(&keys.current).chain(&keys.previous);
        all.fold(text.to_owned(), |text, key| text.replace(key.expose(), "…"))
    }
}

// === impl NewKey ===

impl NewKey {
    /// Refuses a key without characters.
    pub fn new(key: Secret) -> Result<Self, BadUpstream> {
        if key.expose().trim().is_empty() { Err(BadUpstream::NoKey) } else { Ok(Self(key)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_key_is_used_at_once_and_both_are_redacted() {
        let key = AccountKey::new(Secret::new("old-key")).unwrap();
        for _ in 0..2 {
            key.replace(NewKey::new(Secret::new("new-key")).unwrap());
        }
        assert_eq!(key.current().expose(), "new-key");
        assert_eq!(key.redact("key=old-key key=new-key"), "key=… key=…");
        assert_eq!(NewKey::new(Secret::new(" ")).unwrap_err(), BadUpstream::NoKey);
    }
}
