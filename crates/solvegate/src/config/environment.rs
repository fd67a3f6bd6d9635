//! Values from the environment: `SOLVEGATE_UPSTREAM__URL` is `url` of `[upstream]`, `SOLVEGATE_SITE__0__HOST` is
//! `host` of the first `[[site]]`. Only this module reads the process's environment.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{
    ConfigError,
    shape::{self, Keys, Shape},
};

/// A copy of the process's environment.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

const PREFIX: &str = "SOLVEGATE_";

// === impl Environment ===

impl Environment {
    /// Copies the process's environment; variables that are not text are left out.
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
pub(super) fn overlay(table: &mut Table, environment: &Environment) -> Result<(), ConfigError> {
    for (name, value) in environment.ours() {
        let lower = name.to_ascii_lowercase();
        let path: Vec<&str> = lower.split("__").collect();
        // `SOLVEGATE_ADMIN_KEY` and the like are the operator's own names for secrets.
        if path.len() == 1 && shape::find(shape::ROOT, path[0]).is_none() {
            continue;
        }
        set(table, shape::ROOT, &path, value).map_err(|what| variable(name, what))?;
    }
    Ok(())
}

/// An error about one of our variables, by its name without the prefix.
pub(super) fn variable(name: &str, what: String) -> ConfigError {
    ConfigError::at(format!("{PREFIX}{name}"), what)
}

fn set(table: &mut Table, keys: Keys, path: &[&str], value: &str) -> Result<(), String> {
    let (key, rest) = path.split_first().expect("split gives at least one part");
    let Some(shape) = shape::find(keys, key) else {
        let hint = shape::nearest(keys, key).map_or(String::new(), |name| {
            format!("; did you mean `{}`?", name.to_ascii_uppercase())
        });
        return Err(format!("there is no key `{}`{hint}", key.to_ascii_uppercase()));
    };
    set_under(table, key, shape, rest, value)
}

fn set_under(
    table: &mut Table,
    key: &str,
    shape: Shape,
    rest: &[&str],
    value: &str,
) -> Result<(), String> {
    match (shape, rest) {
        (Shape::Text, []) => {
            table.insert(key.into(), Value::String(value.into()));
            Ok(())
        }
        (Shape::Value, []) => {
            table.insert(key.into(), read_value(value));
            Ok(())
        }
        (Shape::Table(keys), [_, ..]) => set(inner_table(table, key)?, keys, rest, value),
        (Shape::Tables(keys), [index, path @ ..]) if !path.is_empty() => {
            set(nth_table(table, key, index)?, keys, path, value)
        }
        (Shape::ByKind(each), [kind, path @ ..]) => {
            set_under(inner_table(table, key)?, kind, *each, path, value)
        }
        // Names of variables are read in lower case; codes are written in upper case.
        (Shape::ByCode(keys), [code, path @ ..]) if !path.is_empty() => {
            let code = code.to_ascii_uppercase();
            set(inner_table(inner_table(table, key)?, &code)?, keys, path, value)
        }
        (Shape::Text | Shape::Value, [_, ..]) => Err(format!("`{key}` has no keys below it")),
        (Shape::Table(_) | Shape::Tables(_) | Shape::ByKind(_) | Shape::ByCode(_), _) => {
            Err(format!("`{key}` is a table; name a key of it, joined by two underscores"))
        }
    }
}

fn inner_table<'t>(table: &'t mut Table, key: &str) -> Result<&'t mut Table, String> {
    let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().ok_or_else(|| format!("`{key}` is not a table in the file"))
}

/// The table with this number in a list; one past the end adds one.
fn nth_table<'t>(table: &'t mut Table, key: &str, index: &str) -> Result<&'t mut Table, String> {
    let entry = table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    let list = entry.as_array_mut().ok_or_else(|| format!("`{key}` is not a list in the file"))?;
    let at: usize = index.parse().ok().filter(|at| *at <= list.len()).ok_or_else(|| {
        format!("`{key}` is a list of {}; number its members from 0 without gaps", list.len())
    })?;
    if at == list.len() {
        list.push(Value::Table(Table::new()));
    }
    list[at].as_table_mut().ok_or_else(|| format!("`{key}` holds something else than tables"))
}

/// Numbers, booleans and lists as TOML writes them; anything else is a string.
fn read_value(text: &str) -> Value {
    let document = format!("value = {text}");
    let read = toml::from_str::<Table>(&document).ok().and_then(|mut table| table.remove("value"));
    read.unwrap_or_else(|| Value::String(text.into()))
}
