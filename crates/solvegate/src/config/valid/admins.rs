//! Admins, their keys and their roles.

use domain::{actor::AdminRole, id::WorkerName, key::AccessKey};

use super::access_keys::{self, TakenKeys};
use crate::config::{
    ConfigError,
    written::{AdminKeys, OneOrMany},
};

/// A person or program that administers the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub name: WorkerName,
    /// Each of them gives access.
    pub keys: Vec<AccessKey>,
    pub role: AdminRole,
}

/// Names under which the gateway itself writes into the ledger.
const RESERVED_NAMES: [&str; 3] = ["pool", "sighup", "-"];

impl Admin {
    /// The name of an only admin.
    pub(crate) fn default_name() -> WorkerName {
        WorkerName::new("admin").expect("a valid name")
    }
}

pub(super) fn check(
    written: OneOrMany<AdminKeys>,
    taken: &mut TakenKeys,
) -> Result<Vec<Admin>, ConfigError> {
    let mut admins: Vec<Admin> = Vec::new();
    for (at, keys) in written.tables.into_iter().enumerate() {
        let Some(admin) = check_admin(at, keys, written.is_single, taken)? else { continue };
        let refused = |what| Err(ConfigError::at(format!("[[admin]] {}", admin.name), what));
        if RESERVED_NAMES.contains(&admin.name.as_str()) {
            return refused("the gateway itself uses this name in the ledger; choose another");
        }
        if admins.iter().any(|other| other.name == admin.name) {
            return refused("the name is used twice; give each admin its own");
        }
        admins.push(admin);
    }
    Ok(admins)
}

/// `None` for a single table without a key: the gateway then makes one.
fn check_admin(
    at: usize,
    keys: AdminKeys,
    is_single: bool,
    taken: &mut TakenKeys,
) -> Result<Option<Admin>, ConfigError> {
    let name = match (&keys.name, is_single) {
        (Some(name), _) => name.value.clone(),
        (None, true) => Admin::default_name(),
        (None, false) => {
            let place = format!("[[admin]] number {}", at + 1);
            return Err(ConfigError::at(place, "name is missing"));
        }
    };
    if is_single && keys.key.is_none() && keys.keys.is_none() {
        return check_generated(keys.name.as_ref().map(|name| &name.value), keys.role.value);
    }
    let place = if is_single { "[admin] key".into() } else { format!("[[admin]] {name}") };
    let access = access_keys::check(&place, keys.key, keys.keys)?;
    taken.take(&place, &access)?;
    Ok(Some(Admin { name, keys: access, role: keys.role.value }))
}

/// The key that the gateway makes belongs to the admin called `admin`, so a name or a lower role would have no effect.
fn check_generated(
    name: Option<&WorkerName>,
    role: AdminRole,
) -> Result<Option<Admin>, ConfigError> {
    if name.is_some() || role != AdminRole::Admin {
        let what = "name and role need a key; write key = \"env:NAME\"";
        return Err(ConfigError::at("[admin]", what));
    }
    Ok(None)
}
