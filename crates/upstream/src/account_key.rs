//! The key of the account, which a reload can replace.

use domain::secret::Secret;
use parking_lot::RwLock;

use crate::BadUpstream;

pub(crate) struct AccountKey(RwLock<Keys>);

struct Keys {
    current: Secret,
    /// A reply to a call made with it may still arrive and quote it.
    previous: Option<Secret>,
}

// === impl AccountKey ===

impl AccountKey {
    pub(crate) fn new(key: Secret) -> Result<Self, BadUpstream> {
        check(&key)?;
        Ok(Self(RwLock::new(Keys { current: key, previous: None })))
    }

    pub(crate) fn current(&self) -> Secret {
        self.0.read().current.clone()
    }

    pub(crate) fn replace(&self, key: Secret) -> Result<(), BadUpstream> {
        check(&key)?;
        let mut keys = self.0.write();
        if keys.current != key {
            keys.previous = Some(std::mem::replace(&mut keys.current, key));
        }
        Ok(())
    }

    /// The text without the keys.
    pub(crate) fn redact(&self, text: &str) -> String {
        let keys = self.0.read();
        let all = std::iter::once(&keys.current).chain(&keys.previous);
        all.fold(text.to_owned(), |text, key| text.replace(key.expose(), "…"))
    }
}

fn check(key: &Secret) -> Result<(), BadUpstream> {
    if key.expose().trim().is_empty() { Err(BadUpstream::NoKey) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_key_is_used_at_once_and_both_are_redacted() {
        let key = AccountKey::new(Secret::new("old-key")).unwrap();
        key.replace(Secret::new("new-key")).unwrap();
        key.replace(Secret::new("new-key")).unwrap();
        assert_eq!(key.current().expose(), "new-key");
        assert_eq!(key.redact("key=old-key key=new-key"), "key=… key=…");
        assert_eq!(key.replace(Secret::new(" ")), Err(BadUpstream::NoKey));
        assert_eq!(key.current().expose(), "new-key", "a bad key changes nothing");
    }
}
