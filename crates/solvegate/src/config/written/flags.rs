//! Values from the command line. They win over the file and the environment.

use std::path::PathBuf;

use super::{Node, environment::Assignment, tree::Content};
use crate::config::ConfigError;

/// Options of the command line that stand for keys of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--data`, which is not a key of the file.
    pub data: Option<PathBuf>,
    values: Vec<Flag>,
    replaced: Vec<&'static str>,
}

#[derive(Clone)]
struct Flag {
    option: &'static str,
    key: &'static str,
    value: String,
}

// === impl Flags ===

impl Flags {
    /// An option for a key such as `upstream.url`, if it was given.
    pub fn set(&mut self, option: &'static str, key: &'static str, value: Option<&String>) {
        let value = value.cloned();
        self.values.extend(value.map(|value| Flag { option, key, value }));
    }

    /// Ignores a table of the file and the environment: options take its place as a whole.
    pub fn replace(&mut self, table: &'static str) {
        self.replaced.push(table);
    }

    pub(super) fn overlay(&self, tree: &mut Node) -> Result<(), ConfigError> {
        if let Content::Table(root) = &mut tree.content {
            root.retain(|name, _| !self.replaced.contains(&name.as_str()));
        }
        for Flag { option, key, value } in &self.values {
            let path: Vec<_> = key.split('.').collect();
            Assignment { name: option, text: value }.put_into(tree, &path)?;
        }
        Ok(())
    }
}

/// Without the value, which may be secret.
impl std::fmt::Debug for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.option)
    }
}
