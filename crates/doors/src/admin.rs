//! The admins by key, with name and role. Only digests of keys are kept.

use std::sync::Arc;

use domain::{
    actor::AdminRole,
    id::WorkerName,
    key::{AccessKey, KeyDigest},
};
use parking_lot::RwLock;

/// A person or program that administers the gateway.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Its name in the audit trail; different from those of workers.
    pub name: WorkerName,
    pub role: AdminRole,
    /// Each of them gives access; there are several while a key is being replaced.
    pub keys: Vec<AccessKey>,
}

/// All admins. Clones share them, and a reload replaces them.
#[derive(Clone, Debug, Default)]
pub struct Admins(Arc<RwLock<Vec<Arc<Admin>>>>);

/// Admins with names and keys of their own, so that putting them into force cannot fail.
#[derive(Debug)]
pub struct CheckedAdmins(Vec<Arc<Admin>>);

/// Two admins have the same name or the same key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAdmins {
    #[error("two admins are called {0}; every admin needs its own name")]
    SameName(WorkerName),
    #[error("the admins {0} and {1} have the same key; every admin needs its own key")]
    SameKey(WorkerName, WorkerName),
}

impl Admins {
    pub fn new(admins: Vec<Admin>) -> Result<Self, BadAdmins> {
        let all = Self::default();
        all.replace(CheckedAdmins::new(admins)?);
        Ok(all)
    }

    pub fn replace(&self, admins: CheckedAdmins) {
        *self.0.write() = admins.0;
    }

    /// The owner of a key, and the key with its end. Compares with every admin, so that the time does not say which one it
    /// was.
    pub(crate) fn find(&self, key: KeyDigest) -> Option<(Arc<Admin>, AccessKey)> {
        let admins = self.0.read();
        admins.iter().fold(None, |found, admin| match admin.find_key(key) {
            Some(key) => Some((Arc::clone(admin), key)),
            None => found,
        })
    }
}

// === impl Admin ===

impl Admin {
    fn find_key(&self, key: KeyDigest) -> Option<AccessKey> {
        self.keys
            .iter()
            .fold(None, |found, own| if own.digest.is(key) { Some(*own) } else { found })
    }
}

// === impl CheckedAdmins ===

impl CheckedAdmins {
    pub fn new(admins: Vec<Admin>) -> Result<Self, BadAdmins> {
        for (at, admin) in admins.iter().enumerate() {
            for other in &admins[..at] {
                if other.name == admin.name {
                    return Err(BadAdmins::SameName(admin.name.clone()));
                }
                let is_same = |key: &AccessKey| admin.find_key(key.digest).is_some();
                if other.keys.iter().any(is_same) {
                    return Err(BadAdmins::SameKey(other.name.clone(), admin.name.clone()));
                }
            }
        }
        Ok(Self(admins.into_iter().map(Arc::new).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(name: &str, key: &str) -> Admin {
        let name = WorkerName::new(name).unwrap();
        Admin {
            name,
            role: AdminRole::Reader,
            keys: vec![KeyDigest::of(&key.repeat(32)).unwrap().into()],
        }
    }

    #[test]
    fn an_admin_is_found_by_its_key_until_it_is_replaced() {
        let admins = Admins::new(vec![admin("a", "1"), admin("b", "2")]).unwrap();
        let find = |key: &str| admins.find(KeyDigest::of(&key.repeat(32)).unwrap());
        assert_eq!(find("1").unwrap().0.name.as_str(), "a");
        assert_eq!(find("2").unwrap().0.name.as_str(), "b");
        admins.replace(CheckedAdmins::new(vec![admin("c", "3")]).unwrap());
        assert!(find("1").is_none() && find("3").is_some());
    }

    #[test]
    fn two_admins_cannot_share_a_name_or_a_key() {
        let refused = |a, b| Admins::new(vec![a, b]).unwrap_err();
        assert!(matches!(refused(admin("a", "1"), admin("a", "2")), BadAdmins::SameName(_)));
        assert!(matches!(refused(admin("a", "1"), admin("b", "1")), BadAdmins::SameKey(..)));
    }
}
