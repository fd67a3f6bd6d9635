//! What a reload changes, for the audit trail: the names of what changed and of its keys in the file, never a value. Called
//! by `serve`.

use std::collections::BTreeMap;

use domain::{
    admin_action::{AdminAction, Change, ConfigChange, ConfigPart},
    declarations::{Images, WorkerScope},
    site::{Opened, Site},
};

use crate::config::{Admin, Config, Worker};

/// The most changes that one entry lists.
const MOST: usize = 200;

/// A sort of item that a list of the configuration has, and that is compared by name.
trait Item: PartialEq {
    fn name(&self) -> String;

    /// Its keys in the file, and whether they differ from the other's.
    fn keys(&self, other: &Self) -> Vec<(&'static str, bool)>;
}

/// The reload from one configuration to another.
pub(super) fn reload(old: &Config, new: &Config, provider_key: bool) -> AdminAction {
    let mut changes = Vec::new();
    let (before, after) = (&old.declarations, &new.declarations);
    compare(ConfigPart::Site, &before.sites, &after.sites, &mut changes);
    if changes.is_empty() && before.sites != after.sites {
        // The first declaration that covers a page counts, so their order matters.
        changes.push(changed(ConfigPart::Site, "(order)"));
    }
    let (images, new_images) = (before.images.as_slice(), after.images.as_slice());
    compare(ConfigPart::Images, images, new_images, &mut changes);
    compare(ConfigPart::Worker, &old.workers, &new.workers, &mut changes);
    compare(ConfigPart::Admin, &old.admins, &new.admins, &mut changes);
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
fn compare<T: Item>(part: ConfigPart, old: &[T], new: &[T], changes: &mut Vec<ConfigChange>) {
    let mut named: BTreeMap<String, (Vec<&T>, Vec<&T>)> = BTreeMap::new();
    for item in old {
        named.entry(item.name()).or_default().0.push(item);
    }
    for item in new {
        named.entry(item.name()).or_default().1.push(item);
    }
    for (name, (before, after)) in named {
        let (name, change) = match (before.is_empty(), after.is_empty()) {
            (true, _) => (name, Change::Added),
            (false, true) => (name, Change::Removed),
            (false, false) if before != after => {
                (with_keys(name, &changed_keys(&before, &after)), Change::Changed)
            }
            (false, false) => continue,
        };
        changes.push(ConfigChange { part, name, change });
    }
}

/// The keys that differ, in the order of the file. None when the number of declarations under one name changed.
fn changed_keys<T: Item>(before: &[&T], after: &[&T]) -> Vec<&'static str> {
    let mut found = Vec::new();
    if before.len() != after.len() {
        return found;
    }
    for (before, after) in before.iter().zip(after) {
        for (key, differs) in before.keys(after) {
            if differs && !found.contains(&key) {
                found.push(key);
            }
        }
    }
    found
}

fn with_keys(name: String, keys: &[&str]) -> String {
    match (name.is_empty(), keys.is_empty()) {
        (_, true) => name,
        (true, false) => keys.join(", "),
        (false, false) => format!("{name}: {}", keys.join(", ")),
    }
}

// === impl Item ===

// Every field is named below, so that a new one stops the build until it has its key here.

impl Item for Site {
    fn name(&self) -> String {
        self.rule.to_string()
    }

    fn keys(&self, other: &Self) -> Vec<(&'static str, bool)> {
        let Self {
            rule,
            basis,
            owner,
            expires,
            reuse,
            after_failure,
            ambiguous,
            key_ignores_proxy,
            opened,
        } = self;
        let Opened { methods, params, sitekeys } = opened;
        vec![
            ("host", *rule != other.rule),
            ("basis", *basis != other.basis),
            ("owner", *owner != other.owner),
            ("expires", *expires != other.expires),
            ("methods", *methods != other.opened.methods),
            ("params", *params != other.opened.params),
            ("sitekeys", *sitekeys != other.opened.sitekeys),
            ("reuse", *reuse != other.reuse),
            ("after_failure", *after_failure != other.after_failure),
            ("ambiguous", *ambiguous != other.ambiguous),
            ("key_ignores_proxy", *key_ignores_proxy != other.key_ignores_proxy),
        ]
    }
}

impl Item for Images {
    fn name(&self) -> String {
        String::new()
    }

    fn keys(&self, other: &Self) -> Vec<(&'static str, bool)> {
        let Self { basis, kinds, expires } = self;
        vec![
            ("basis", *basis != other.basis),
            ("kinds", *kinds != other.kinds),
            ("expires", *expires != other.expires),
        ]
    }
}

impl Item for Worker {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn keys(&self, other: &Self) -> Vec<(&'static str, bool)> {
        let Self {
            name: _,
            keys,
            project,
            projects,
            budget,
            callbacks,
            rate,
            poll_rate,
            read_rate,
            balance,
            queue,
            scope,
            priority,
        } = self;
        let WorkerScope { sites, images } = scope;
        vec![
            ("key", *keys != other.keys),
            ("project", *project != other.project),
            ("projects", *projects != other.projects),
            ("sites", *sites != other.scope.sites),
            ("images", *images != other.scope.images),
            ("rate", *rate != other.rate),
            ("poll_rate", *poll_rate != other.poll_rate),
            ("read_rate", *read_rate != other.read_rate),
            ("queue", *queue != other.queue),
            ("priority", *priority != other.priority),
            ("balance", *balance != other.balance),
            ("budget", *budget != other.budget),
            ("callbacks", *callbacks != other.callbacks),
        ]
    }
}

impl Item for Admin {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn keys(&self, other: &Self) -> Vec<(&'static str, bool)> {
        let Self { name: _, keys, role } = self;
        vec![("key", *keys != other.keys), ("role", *role != other.role)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Item for (&str, u8, u8) {
        fn name(&self) -> String {
            self.0.to_owned()
        }

        fn keys(&self, other: &Self) -> Vec<(&'static str, bool)> {
            vec![("basis", self.1 != other.1), ("methods", self.2 != other.2)]
        }
    }

    fn found(old: &[(&str, u8, u8)], new: &[(&str, u8, u8)]) -> Vec<(String, Change)> {
        let mut changes = Vec::new();
        compare(ConfigPart::Site, old, new, &mut changes);
        changes.into_iter().map(|found| (found.name, found.change)).collect()
    }

    #[test]
    fn what_is_new_gone_or_different_is_named() {
        let old = [("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 1, 1)];
        let new = [("a", 1, 1), ("b", 2, 1), ("d", 2, 2), ("e", 1, 1)];
        let expected = [
            ("b: basis", Change::Changed),
            ("c", Change::Removed),
            ("d: basis, methods", Change::Changed),
            ("e", Change::Added),
        ];
        assert_eq!(found(&old, &new), expected.map(|(name, change)| (name.to_owned(), change)));
        assert_eq!(found(&old, &old), []);
    }

    #[test]
    fn a_part_without_a_name_has_its_keys_as_name() {
        let changes = found(&[("", 1, 1)], &[("", 1, 2)]);
        assert_eq!(changes, [("methods".to_owned(), Change::Changed)]);
    }

    #[test]
    fn a_second_declaration_under_one_name_is_a_change() {
        let changed = |name: &str| [(name.to_owned(), Change::Changed)];
        assert_eq!(found(&[("a", 1, 1)], &[("a", 1, 1), ("a", 2, 1)]), changed("a"));
        let (one, two) = (("a", 1, 1), ("a", 1, 2));
        assert_eq!(found(&[one, two], &[one, one]), changed("a: methods"));
    }

    #[test]
    fn two_declarations_of_one_name_that_change_places_are_a_change() {
        let (one, two) = (("a", 1, 1), ("a", 1, 2));
        assert_eq!(found(&[one, two], &[two, one]), [("a: methods".to_owned(), Change::Changed)]);
    }
}
