//! Values from the command line. They win over the file and the environment.

use std::path::PathBuf;

use domain::secret::Secret;

use super::{Node, environment::Assignment, tree::Content};
use crate::config::ConfigError;

/// Options of the command line that stand for keys of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--data`, which is not a key of the file.
    pub data: Option<PathBuf>,
    /// Option, key and value, which may be secret.
    values: Vec<(&'static str, &'static str, Secret)>,
    replaced: Vec<&'static str>,
}

// === impl Flags ===

impl Flags {
    /// An option for a key such as `upstream.url`, if it was given.
    pub fn set(&mut self, option: &'static str, key: &'static str, value: Option<&String>) {
        self.values.extend(value.map(|value| (option, key, Secret::new(value.as_str()))));
    }

    /// Ignores a table of the file and the environment: options take its place as a whole.
    pub fn replace(&mut self, table: &'static str) {
        self.replaced.push(table);
    }

    pub(super) fn overlay(&self, tree: &mut Node) -> Result<(), ConfigError> {
        if let Content::Table(root) = &mut tree.content {
            root.retain(|name, _| !self.replaced.contains(&name.as_str()));
        }
        for (option, key, value) in &self.values {
            let path: Vec<_> = key.split('.').collect();
            Assignment { name: option, text: value.expose() }.put_into(tree, &path)?;
        }
        Ok(())
    }
}
