//! The keys that exist, as data: for errors that name the nearest one, and for environment variables.

use std::{fmt, ops::Range};

use toml::de::{DeTable, DeValue};

/// What stands under a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A string, also when it looks like a number.
    Text,
    /// Any other single value, list of values or inline table of values.
    Value,
    /// A table with these keys.
    Table(Keys),
    /// A list of tables with these keys.
    Tables(Keys),
    /// A table whose keys are kinds.
    ByKind(&'static Self),
    /// A table whose keys are codes of a provider; below each stand these keys.
    ByCode(Keys),
}

/// Keys and what stands under them.
pub(super) type Keys = &'static [(&'static str, Shape)];

/// A key that does not exist, and the one that was probably meant.
#[derive(Debug)]
pub(super) struct Unknown {
    pub(super) span: Range<usize>,
    key: String,
    keys: Keys,
}

use Shape::{ByCode, ByKind, Table, Tables, Text, Value};

/// Every key of `solvegate.toml`.
pub(super) const ROOT: Keys = &[
    ("listen", Text),
    ("hosts", Value),
    ("hold", Text),
    ("deadline", Text),
    ("reuse_window", Text),
    ("ambiguity_budget", Value),
    ("upstream", Table(UPSTREAM)),
    ("store", Table(&[("url", Text), ("ledger", Text)])),
    ("admin", Table(&[("key", Text)])),
    ("worker", Tables(WORKER)),
    ("site", Tables(SITE)),
    ("pool", Tables(POOL)),
    ("polling", Table(POLLING)),
    ("retry", Table(RETRY)),
    ("callbacks", Table(&[("secret", Text), ("hosts", Value)])),
    ("alerts", Table(&[("url", Text), ("dead_letters", Value), ("cooldown", Text)])),
    ("images", Table(&[("basis", Text)])),
    ("tokens", ByKind(&Table(&[("lifetime", Text), ("margin", Text)]))),
    ("tls", Table(&[("cert", Text), ("key", Text), ("self_signed", Value)])),
];

const UPSTREAM: Keys = &[
    ("url", Text),
    ("key", Text),
    ("slots", Value),
    ("submits_per_second", Value),
    ("polls_per_task", Value),
    ("price_per_1000", ByKind(&Value)),
    ("plan", Table(&[("monthly", Value)])),
    ("pingback_url", Text),
    ("pingback_secret", Text),
];

const POLLING: Keys =
    &[("mode", Text), ("first", Text), ("interval", Text), ("min_gap", Text), ("batch", Value)];

const WORKER: Keys = &[
    ("name", Text),
    ("key", Text),
    ("project", Text),
    ("budget", Table(&[("solves_per_day", Value), ("cost_per_day", Value)])),
    ("rate", Text),
    ("sites", Value),
    ("priority", Value),
];

const RETRY: Keys = &[
    ("profile", Text),
    ("base", Text),
    ("cap", Text),
    ("most", Value),
    ("jitter", Text),
    ("codes", ByCode(&[("class", Text), ("max", Value), ("backoff", Value), ("wait", Text)])),
];

const SITE: Keys = &[
    ("host", Text),
    ("basis", Text),
    ("expires", Text),
    ("reuse", Text),
    ("ambiguous", Text),
    ("key_ignores_proxy", Value),
];

const POOL: Keys = &[
    ("kind", Text),
    ("sitekey", Text),
    ("pageurl", Text),
    ("params", Value),
    ("level", Value),
    ("max", Value),
    ("waste", Value),
    ("project", Text),
];

/// The shape under a key.
pub(super) fn find(keys: Keys, key: &str) -> Option<Shape> {
    keys.iter().find(|(name, _)| *name == key).map(|(_, shape)| *shape)
}

/// The first key of the document that does not exist.
pub(super) fn check_keys(document: &DeTable<'_>) -> Result<(), Unknown> {
    check_table(document, ROOT)
}

fn check_table(table: &DeTable<'_>, keys: Keys) -> Result<(), Unknown> {
    for (key, value) in table {
        let Some(shape) = find(keys, key.get_ref()) else {
            let key_text = key.get_ref().to_string();
            return Err(Unknown { span: key.span(), key: key_text, keys });
        };
        check_value(value.get_ref(), shape)?;
    }
    Ok(())
}

fn check_value(value: &DeValue<'_>, shape: Shape) -> Result<(), Unknown> {
    match (shape, value) {
        (Table(keys), DeValue::Table(table)) => check_table(table, keys),
        (Tables(keys), DeValue::Array(items)) => items.iter().try_for_each(|item| {
            item.get_ref().as_table().map_or(Ok(()), |table| check_table(table, keys))
        }),
        (ByKind(each), DeValue::Table(table)) => {
            table.iter().try_for_each(|(_, value)| check_value(value.get_ref(), *each))
        }
        (ByCode(keys), DeValue::Table(table)) => {
            table.iter().try_for_each(|(_, value)| check_value(value.get_ref(), Table(keys)))
        }
        // Wrong types are found by the next stage, which says what was expected.
        (Text | Value | Table(_) | Tables(_) | ByKind(_) | ByCode(_), _) => Ok(()),
    }
}

/// The existing key most like the one written, if any is near.
pub(super) fn nearest(keys: Keys, written: &str) -> Option<&'static str> {
    let likeness = |name: &str| strsim::jaro_winkler(name, written);
    let best =
        keys.iter().map(|(name, _)| *name).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= 0.7).then_some(best)
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no key `{}` here; ", self.key)?;
        if let Some(name) = nearest(self.keys, &self.key) {
            return write!(f, "did you mean `{name}`?");
        }
        let names: Vec<_> = self.keys.iter().map(|(name, _)| format!("`{name}`")).collect();
        write!(f, "possible are {}", names.join(", "))
    }
}
