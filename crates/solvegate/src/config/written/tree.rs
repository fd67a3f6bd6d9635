//! Values as they stand in a file, each with its line. Values from elsewhere are put into the same tree.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Section, ValueType, values::Refused};
use crate::config::ConfigError;

/// A configuration file that could be read.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    text: String,
}

/// A value and where it comes from.
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Date(String),
    List(Vec<Node>),
    Table(Table),
}

pub(crate) type Table = BTreeMap<String, Node>;

#[derive(Clone)]
pub(crate) enum Origin {
    /// `FILE:LINE`.
    File(String),
    /// A variable of the environment or an option of the command line.
    Named(String),
    Default,
}

// === impl File ===

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err(error) => Err(ConfigError::at(path.display(), format!("cannot be read: {error}"))),
        }
    }

    /// Names and types are checked when the values are read.
    pub(super) fn parse(&self) -> Result<Node, ConfigError> {
        let document = DeTable::parse(&self.text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            // Only message and line: the line itself may hold a secret.
            ConfigError::at(self.line(start), error.message().replace('\n', ", "))
        })?;
        Ok(Node { origin: Origin::Default, content: self.table(document.get_ref()) })
    }

    fn line(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or_default();
        format!("{}:{}", self.path.display(), before.matches('\n').count() + 1)
    }

    fn table(&self, table: &DeTable<'_>) -> Content {
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            (name.to_string(), self.node(value.get_ref(), key.span().start))
        };
        Content::Table(table.iter().map(entry).collect())
    }

    fn node(&self, value: &DeValue<'_>, offset: usize) -> Node {
        let content = match value {
            DeValue::String(text) => Content::Text(text.to_string()),
            // A number outside of 64 bits is too large for every key.
            DeValue::Integer(number) => Content::Integer(
                i64::from_str_radix(number.as_str(), number.radix()).unwrap_or(i64::MAX),
            ),
            DeValue::Float(number) => Content::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Content::Boolean(*flag),
            DeValue::Datetime(date) => Content::Date(date.to_string()),
            DeValue::Array(items) => {
                let item =
                    |item: &Spanned<DeValue<'_>>| self.node(item.get_ref(), item.span().start);
                Content::List(items.iter().map(item).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        Node { origin: Origin::File(self.line(offset)), content }
    }
}

pub(super) fn unknown_key(name: &str, place: &str, section: &Section) -> String {
    let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
    if let Some(near) = section.nearest(name) {
        return format!("unknown key `{name}`{place}; did you mean `{near}`?");
    }
    let names: Vec<_> = section.names().map(|name| format!("`{name}`")).collect();
    format!("unknown key `{name}`{place}; its keys are {}", names.join(", "))
}

// === impl Origin ===

impl Origin {
    /// Where a value was written, in the words of the operator.
    pub(crate) fn place(&self, key: &str) -> String {
        match self {
            Self::File(line) if key.is_empty() => line.clone(),
            Self::File(line) => format!("{line}: {key}"),
            Self::Named(name) => name.clone(),
            Self::Default => key.into(),
        }
    }
}

// === impl Content ===

impl Content {
    pub(super) fn is_empty_table(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_empty())
    }

    pub(super) fn text(&self) -> Result<&str, Refused> {
        if let Self::Text(text) = self { Ok(text) } else { Err(Refused::Type) }
    }

    /// The text of a string or a number.
    pub(super) fn plain(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Integer(number) => Some(number.to_string()),
            Self::Float(number) => Some(number.to_string()),
            Self::Boolean(_) | Self::Date(_) | Self::List(_) | Self::Table(_) => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "a boolean",
            Self::Date(_) => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

// === impl Node ===

impl Node {
    pub(crate) fn empty() -> Self {
        Self { origin: Origin::Default, content: Content::Table(BTreeMap::new()) }
    }

    /// A value of this type from text without quotes. Text that is no TOML is a string.
    pub(crate) fn from_text(of: &ValueType, text: &str, origin: Origin) -> Self {
        let parsed = if of.is_text { None } else { DeValue::parse(text).ok() };
        let Some(parsed) = parsed else {
            return Self { origin, content: Content::Text(text.into()) };
        };
        let nowhere = File { path: PathBuf::new(), text: String::new() };
        Self { origin, content: nowhere.node(parsed.get_ref(), 0).content }
    }

    /// The error for a value of another type.
    pub(super) fn is_not(&self, expected: &str, place: &str) -> ConfigError {
        let what = format!("expected {expected}, found {}", self.content.name());
        ConfigError::at(self.origin.place(place), what)
    }
}
