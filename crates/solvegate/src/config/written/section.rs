//! What a key of the configuration is, and how a field of a section is read from the tree of values.

use std::{collections::BTreeMap, fmt};

use super::{
    Node, Reader, SingleValue,
    tree::{Content, Origin, Table, unknown_key},
};
use crate::config::ConfigError;

/// Everything that is known about a key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its meaning, as lines of a comment.
    pub(crate) about: &'static str,
    pub(crate) form: KeyForm,
    /// Written as in an environment variable: strings without quotes, everything else as TOML.
    pub(crate) default: Option<&'static str>,
    /// What an absent key means, where no single value says it.
    pub(crate) unset: Option<&'static str>,
    /// Written like the default, and different from it.
    pub(crate) example: Option<&'static str>,
    /// Whether a reload applies a change, to the key and to everything below it.
    pub(crate) reloads: bool,
}

pub(crate) struct Section {
    pub(crate) about: &'static str,
    pub(crate) keys: &'static [Key],
}

/// What is written below a key.
#[derive(Clone, Copy)]
pub(crate) enum KeyForm {
    /// A single value, or a list or inline table that is one value.
    Value(&'static ValueType),
    Table(&'static Section),
    List(&'static Section),
    /// A list of tables, or the only one of them as a table.
    OneOrMany(&'static Section),
    /// A table whose keys the operator chooses.
    Map(MapNames, &'static Self),
}

#[derive(Clone, Copy)]
pub(crate) struct MapNames {
    /// Stands for any name in the reference.
    pub(crate) placeholder: &'static str,
    pub(crate) example: &'static str,
    /// A name as it is spelled in the file, from the lower case of an environment variable.
    pub(crate) from_variable: fn(&str) -> String,
}

/// The type of a single value, in words and as JSON Schema.
pub(crate) struct ValueType {
    /// With its article: "a whole number".
    pub(crate) name: &'static str,
    /// Strings are taken from an environment variable as they are, everything else as TOML.
    pub(crate) is_text: bool,
    pub(crate) schema: fn() -> serde_json::Value,
}

/// A value and the place it was written at. Equal when the values are.
#[derive(Clone)]
pub(crate) struct Given<T> {
    pub(crate) value: T,
    /// False for a default.
    pub(crate) is_written: bool,
    place: String,
}

/// Tables of a list that may also be written as a single table.
#[derive(Clone, PartialEq)]
pub(crate) struct OneOrMany<S> {
    pub(crate) tables: Vec<S>,
    pub(crate) is_single: bool,
}

/// What a field is read from.
pub(crate) struct Source<'a> {
    pub(super) node: Option<Node>,
    /// The key as people write it, such as `[upstream] url`.
    pub(super) place: String,
    pub(super) default: Option<&'static str>,
    pub(super) reader: &'a Reader<'a>,
}

pub(crate) trait Field: Sized {
    const FORM: KeyForm;

    fn read(source: Source<'_>) -> Result<Self, ConfigError>;

    /// Whether the values differ in something that a reload cannot change.
    fn needs_restart(&self, other: &Self) -> bool
    where
        Self: PartialEq,
    {
        self != other
    }
}

/// A struct that `section!` made.
pub(crate) trait SectionKeys: Field {
    const SECTION: &'static Section;

    /// The keys whose values differ in something that a reload cannot change.
    fn keys_that_need_restart(&self, other: &Self) -> Vec<&'static Key>;
}

pub(super) trait MapName: Ord + Sized {
    const NAMES: MapNames;
    fn parse(name: &str) -> Result<Self, String>;
}

/// Defines a section: the struct of its values and the description of its keys.
macro_rules! section {
    ($(#[doc = $about:literal])* $name:ident { $(
        $(#[doc = $doc:literal])*
        $key:ident: $type:ty $(= $default:literal)? $(, unset $unset:literal)? $(, example $example:literal)?
        $(, reloads $reloads:literal)?;
    )* }) => {
        #[derive(Clone, PartialEq)]
        pub(crate) struct $name { $( pub(crate) $key: $type, )* }

        impl SectionKeys for $name {
            const SECTION: &'static Section = &Section {
                about: concat!($($about, "\n"),*),
                keys: &[$( Key {
                    name: stringify!($key),
                    about: concat!($($doc, "\n"),*),
                    form: <$type as Field>::FORM,
                    default: section!(@optional $($default)?),
                    unset: section!(@optional $($unset)?),
                    example: section!(@optional $($example)?),
                    reloads: section!(@flag $($reloads)?),
                }, )*],
            };

            fn keys_that_need_restart(&self, other: &Self) -> Vec<&'static Key> {
                let needs = [$( Field::needs_restart(&self.$key, &other.$key), )*];
                let keys = Self::SECTION.keys.iter().zip(needs);
                keys.filter(|(key, needs)| *needs && !key.reloads).map(|(key, _)| key).collect()
            }
        }

        impl Field for $name {
            const FORM: KeyForm = KeyForm::Table(Self::SECTION);

            fn read(mut source: Source<'_>) -> Result<Self, ConfigError> {
                let mut table = source.known_table(Self::SECTION)?;
                let mut entry = |name| (table.remove(name), name);
                Ok(Self { $(
                    $key: source.below(entry(stringify!($key)), section!(@optional $($default)?))?,
                )* })
            }

            fn needs_restart(&self, other: &Self) -> bool {
                !self.keys_that_need_restart(other).is_empty()
            }
        }
    };
    (@optional) => { None };
    (@optional $value:literal) => { Some($value) };
    (@flag) => { false };
    (@flag $value:literal) => { $value };
}
pub(super) use section;

// === impl Source ===

impl Source<'_> {
    /// The values of a table; an absent one is empty.
    pub(super) fn table(&mut self) -> Result<Table, ConfigError> {
        match self.node.take() {
            Some(Node { content: Content::Table(table), .. }) => Ok(table),
            Some(other) => Err(other.is_not("a table", &self.place)),
            None => Ok(Table::new()),
        }
    }

    /// The same, if it has only keys of the section.
    pub(super) fn known_table(&mut self, section: &Section) -> Result<Table, ConfigError> {
        let table = self.table()?;
        match table.iter().find(|(name, _)| section.find(name).is_none()) {
            Some((name, node)) => {
                let what = unknown_key(name, &self.place, section);
                Err(ConfigError::at(node.origin.place(""), what))
            }
            None => Ok(table),
        }
    }

    /// Reads a key of this table.
    pub(super) fn below<F: Field>(
        &self,
        (node, key): (Option<Node>, &str),
        default: Option<&'static str>,
    ) -> Result<F, ConfigError> {
        let place = place_of(&self.place, key, F::FORM);
        F::read(Source { node, place, default, reader: self.reader })
    }
}

/// A key as people write it: `listen`, `[upstream] url`, `[[worker]] budget.cost_per_day`.
pub(crate) fn place_of(section: &str, key: &str, form: KeyForm) -> String {
    match form {
        _ if section.ends_with(']') => format!("{section} {key}"),
        _ if !section.is_empty() => format!("{section}.{key}"),
        KeyForm::Value(_) => key.into(),
        KeyForm::Table(_) | KeyForm::Map(..) => format!("[{key}]"),
        KeyForm::List(_) | KeyForm::OneOrMany(_) => format!("[[{key}]]"),
    }
}

// === impl Section, KeyForm, Key ===

impl Section {
    pub(crate) fn find(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }

    /// The key that was probably meant.
    pub(super) fn nearest(&self, written: &str) -> Option<&'static str> {
        nearest(self.names(), written, 0.7)
    }
}

impl KeyForm {
    /// The type of the value, or of the values in a map of values.
    pub(crate) fn value_type(self) -> Option<&'static ValueType> {
        match self {
            Self::Value(of) => Some(of),
            Self::Map(_, each) => each.value_type(),
            Self::Table(_) | Self::List(_) | Self::OneOrMany(_) => None,
        }
    }
}

impl Key {
    /// A key of the root as people write it.
    pub(crate) fn title(&self) -> String {
        place_of("", self.name, self.form)
    }
}

/// The most similar name, if it is similar enough.
pub(crate) fn nearest<'n>(
    names: impl Iterator<Item = &'n str>,
    written: &str,
    min_similarity: f64,
) -> Option<&'n str> {
    let similarity = |name: &str| strsim::jaro_winkler(name, written);
    let best = names.max_by(|a, b| similarity(a).total_cmp(&similarity(b)))?;
    (similarity(best) >= min_similarity).then_some(best)
}

// === impl Given ===

impl<T> Given<T> {
    pub(crate) fn refused(&self, what: impl fmt::Display) -> ConfigError {
        ConfigError::at(&self.place, what)
    }

    /// Turns the value into another; an error gets the place of the value.
    pub(crate) fn check<U, E: fmt::Display>(
        self,
        check: impl FnOnce(T) -> Result<U, E>,
    ) -> Result<U, ConfigError> {
        check(self.value).map_err(|what| ConfigError::at(self.place, what))
    }
}

impl<T: PartialEq> PartialEq for Given<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

// === impl Field ===

/// A key without a default.
impl<T: SingleValue> Field for Option<Given<T>> {
    const FORM: KeyForm = KeyForm::Value(&T::TYPE);

    fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        source.node.is_some().then(|| Given::read(source)).transpose()
    }
}

/// A key with a default.
impl<T: SingleValue> Field for Given<T> {
    const FORM: KeyForm = KeyForm::Value(&T::TYPE);

    fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let Source { node, place, default, reader } = source;
        let node = node.or_else(|| Some(Node::from_text(&T::TYPE, default?, Origin::Default)));
        let node = node.ok_or_else(|| ConfigError::at(&place, "is missing"))?;
        let is_written = !matches!(node.origin, Origin::Default);
        let place = node.origin.place(&place);
        let value = T::checked(&node, reader).map_err(|what| ConfigError::at(&place, what))?;
        Ok(Self { value, is_written, place })
    }
}

impl<S: SectionKeys> Field for Vec<S> {
    const FORM: KeyForm = KeyForm::List(S::SECTION);

    fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let Source { node, place, default, reader } = source;
        let members = match node {
            Some(Node { content: Content::List(members), .. }) => members,
            Some(other) => return Err(other.is_not("a list of tables", &place)),
            None => Vec::new(),
        };
        let read =
            |member| S::read(Source { node: Some(member), place: place.clone(), default, reader });
        members.into_iter().map(read).collect()
    }
}

impl<S: SectionKeys> Field for OneOrMany<S> {
    const FORM: KeyForm = KeyForm::OneOrMany(S::SECTION);

    fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let is_single =
            matches!(&source.node, Some(Node { content: Content::Table(_), .. }) | None);
        if !is_single {
            return <Vec<S> as Field>::read(source).map(|tables| Self { tables, is_single });
        }
        let place = format!("[{}]", source.place.trim_matches(['[', ']']));
        let table = source.node.map(|node| S::read(Source { node: Some(node), place, ..source }));
        table.transpose().map(|table| Self { tables: table.into_iter().collect(), is_single })
    }
}

impl<K: MapName, F: Field> Field for BTreeMap<K, F> {
    const FORM: KeyForm = KeyForm::Map(K::NAMES, &F::FORM);

    fn read(mut source: Source<'_>) -> Result<Self, ConfigError> {
        let table = source.table()?;
        let read = |(name, node): (String, Node)| {
            let place = || node.origin.place(&place_of(&source.place, &name, F::FORM));
            let key = K::parse(&name).map_err(|why| ConfigError::at(place(), why))?;
            Ok((key, source.below((Some(node), &name), None)?))
        };
        table.into_iter().map(read).collect()
    }
}
