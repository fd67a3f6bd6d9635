//! Values from the environment: `SOLVEGATE_UPSTREAM__URL` is `url` of `[upstream]`, `SOLVEGATE_SITE__0__HOST` is
//! `host` of the first `[[site]]`. Only this module reads the process's environment.

use std::collections::BTreeMap;

use super::{
    KeyForm, Keys, Node, Section, SectionKeys as _,
    section::place_of,
    tree::{Content, Origin},
};
use crate::config::ConfigError;

/// A copy of the process's environment.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

const PREFIX: &str = "SOLVEGATE_";

// === impl Environment ===

impl Environment {
    /// Copies the process's environment, without variables that are not UTF-8.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn ours(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Only names are shown: values may be secret.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Puts the environment's values over the file's.
pub(super) fn overlay(tree: &mut Node, environment: &Environment) -> Result<(), ConfigError> {
    for (name, value) in environment.ours() {
        let lower = name.to_ascii_lowercase();
        let path: Vec<&str> = lower.split("__").collect();
        // `SOLVEGATE_ADMIN_KEY` and the like are the operator's own names for secrets.
        if path.len() == 1 && Keys::SECTION.find(path[0]).is_none() {
            continue;
        }
        Assignment { name: &format!("{PREFIX}{name}"), text: value }.put_into(tree, &path)?;
    }
    Ok(())
}

/// The variable for a key, by its names from the root down.
pub(crate) fn variable<'n>(path: impl IntoIterator<Item = &'n str>) -> String {
    let parts: Vec<_> = path.into_iter().map(str::to_ascii_uppercase).collect();
    format!("{PREFIX}{}", parts.join("__"))
}

/// A value from outside of the file, by the name of its variable or option.
pub(super) struct Assignment<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

// === impl Assignment ===

impl Assignment<'_> {
    /// Puts the value into the tree, at the end of a path of keys.
    pub(super) fn put_into(&self, tree: &mut Node, path: &[&str]) -> Result<(), ConfigError> {
        self.put(tree, KeyForm::Table(Keys::SECTION), "", path)
            .map_err(|what| ConfigError::at(self.name, what))
    }

    fn put(
        &self,
        node: &mut Node,
        form: KeyForm,
        place: &str,
        path: &[&str],
    ) -> Result<(), String> {
        let Some((name, rest)) = path.split_first() else {
            let KeyForm::Value(of) = form else {
                return Err(format!(
                    "{place} is a table; add the name of one of its keys, joined by two underscores"
                ));
            };
            *node = Node::from_text(of, self.text, Origin::Named(self.name.into()));
            return Ok(());
        };
        let (child, form, place) = match form {
            KeyForm::Value(_) => return Err(format!("{place} has no keys below it")),
            KeyForm::Table(section) => {
                let key = section.find(name).ok_or_else(|| self.unknown(name, place, section))?;
                (entry(node, name, place, key.form)?, key.form, place_of(place, name, key.form))
            }
            KeyForm::List(section) => {
                (member(node, name, place)?, KeyForm::Table(section), place.to_owned())
            }
            KeyForm::OneOrMany(section) => {
                let is_member = name.bytes().all(|b| b.is_ascii_digit());
                if is_member && node.content.is_empty_table() {
                    node.content = Content::List(Vec::new());
                }
                let form = if is_member { KeyForm::List(section) } else { KeyForm::Table(section) };
                return self.put(node, form, place, path);
            }
            KeyForm::Map(names, each) => {
                let name = (names.from_variable)(name);
                (entry(node, &name, place, *each)?, *each, place_of(place, &name, *each))
            }
        };
        self.put(child, form, &place, rest)
    }

    fn unknown(&self, key: &str, place: &str, section: &Section) -> String {
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let near = section.nearest(key).map(str::to_ascii_uppercase);
        let key = key.to_ascii_uppercase();
        let first = format!("{PREFIX}{key}");
        let hint = near.map_or(String::new(), |near| {
            let right = |part: &str| match part {
                part if part == key => near.clone(),
                part if part == first => format!("{PREFIX}{near}"),
                part => part.to_owned(),
            };
            let parts: Vec<_> = self.name.split("__").map(right).collect();
            format!("; did you mean {}?", parts.join("__"))
        });
        format!("unknown key `{key}`{place}{hint}")
    }
}

fn entry<'n>(
    node: &'n mut Node,
    name: &str,
    place: &str,
    form: KeyForm,
) -> Result<&'n mut Node, String> {
    let Content::Table(table) = &mut node.content else {
        return Err(format!("{place} is not a table in the file"));
    };
    let empty = match form {
        KeyForm::List(_) => Content::List(Vec::new()),
        KeyForm::Value(_) | KeyForm::Table(_) | KeyForm::OneOrMany(_) | KeyForm::Map(..) => {
            Content::Table(BTreeMap::new())
        }
    };
    let new = || Node { origin: Origin::Default, content: empty };
    Ok(table.entry(name.to_owned()).or_insert_with(new))
}

/// The table with this number in a list. The number after the last one adds a table.
fn member<'n>(node: &'n mut Node, index: &str, place: &str) -> Result<&'n mut Node, String> {
    let Content::List(list) = &mut node.content else {
        return Err(format!("{place} is not a list in the file"));
    };
    let at: usize = index.parse().ok().filter(|at| *at <= list.len()).ok_or_else(|| {
        format!("{place} has {} members so far; number its members from 0 without gaps", list.len())
    })?;
    if at == list.len() {
        list.push(Node::empty());
    }
    Ok(&mut list[at])
}
