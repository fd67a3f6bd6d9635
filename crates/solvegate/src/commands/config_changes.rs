//! What a reload changes, for the audit trail: names only, never keys. Called by `serve`.

use std::collections::BTreeMap;

use domain::{
    admin_action::{AdminAction, Change, ConfigChange, ConfigPart},
    site::Site,
};

use crate::config::{Admin, Config, Worker};

/// The most changes that one entry lists.
const MOST: usize = 200;

/// The reload from one configuration to another.
pub(super) fn reload(old: &Config, new: &Config, provider_key: bool) -> AdminAction {
    let mut changes = Vec::new();
    let (before, after) = (&old.declarations, &new.declarations);
    let site = |site: &Site| site.rule.to_string();
    compare(ConfigPart::Site, &before.sites, &after.sites, site, &mut changes);
    if changes.is_empty() && before.sites != after.sites {
        // The first declaration that covers a page counts, so their order matters.
        changes.push(changed(ConfigPart::Site, "(order)"));
    }
    let images = |_: &_| String::new();
    compare(
        ConfigPart::Images,
        before.images.as_slice(),
        after.images.as_slice(),
        images,
        &mut changes,
    );
    let worker = |worker: &Worker| worker.name.to_string();
    compare(ConfigPart::Worker, &old.workers, &new.workers, worker, &mut changes);
    let admin = |admin: &Admin| admin.name.to_string();
    compare(ConfigPart::Admin, &old.admins, &new.admins, admin, &mut changes);
    if provider_key {
        changes.push(changed(ConfigPart::ProviderKey, ""));
    }
    let more = changes.len().saturating_sub(MOST);
    changes.truncate(MOST);
    AdminAction::Reloaded { changes, more: u32::try_from(more).unwrap_or(u32::MAX) }
}

fn changed(part: ConfigPart, name: &str) -> ConfigChange {
    ConfigChange { part, name: name.to_owned(), change: Change::Changed }
}

/// Compares two lists by name. Several items may have one name, such as two declarations of a host.
fn compare<T: PartialEq>(
    part: ConfigPart,
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> String,
    changes: &mut Vec<ConfigChange>,
) {
    let mut named: BTreeMap<String, (Vec<&T>, Vec<&T>)> = BTreeMap::new();
    for item in old {
        named.entry(name(item)).or_default().0.push(item);
    }
    for item in new {
        named.entry(name(item)).or_default().1.push(item);
    }
    for (name, (before, after)) in named {
        let change = match (before.is_empty(), after.is_empty()) {
            (true, _) => Change::Added,
            (false, true) => Change::Removed,
            (false, false) if before != after => Change::Changed,
            (false, false) => continue,
        };
        changes.push(ConfigChange { part, name, change });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(old: &[(&str, u8)], new: &[(&str, u8)]) -> Vec<(String, Change)> {
        let mut changes = Vec::new();
        compare(ConfigPart::Site, old, new, |item| item.0.to_owned(), &mut changes);
        changes.into_iter().map(|found| (found.name, found.change)).collect()
    }

    #[test]
    fn what_is_new_gone_or_different_is_named() {
        let changes = found(&[("a", 1), ("b", 1), ("c", 1)], &[("a", 1), ("b", 2), ("d", 1)]);
        let expected = [("b", Change::Changed), ("c", Change::Removed), ("d", Change::Added)];
        assert_eq!(changes, expected.map(|(name, change)| (name.to_owned(), change)));
        assert_eq!(found(&[("a", 1)], &[("a", 1)]), []);
    }

    #[test]
    fn a_second_declaration_under_one_name_is_a_change() {
        assert_eq!(found(&[("a", 1)], &[("a", 1), ("a", 2)]), [("a".to_owned(), Change::Changed)]);
    }
}
