//! The types a single value can have.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use domain::{
    actor::AdminRole,
    challenge::{BadChallenge, Kind},
    id::{Project, WorkerName},
    money::{Currency, Money},
    rate::Rate,
    retry::{Class, Code, Jitter, Profile},
    secret::Secret,
    site::{AfterFailure, HostRule, Reuse},
    solve::AmbiguousPolicy,
    time::Day,
};
use serde_json::json;
use stores::EncryptionKey;

use super::{
    Node, Reader, ValueType,
    section::{MapName, MapNames, nearest},
    tree::Content,
};
use crate::config::valid::StoreUrl;

/// A value that is read from a single entry.
pub(crate) trait SingleValue: Sized {
    const TYPE: ValueType;

    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, Refused>;

    /// Reads the value; the error says what is wrong in a sentence.
    fn checked(node: &Node, reader: &Reader<'_>) -> Result<Self, String> {
        Self::read(node, reader).map_err(|refused| match refused {
            Refused::Type => {
                format!("expected {}, found {}", Self::TYPE.name, node.content.name())
            }
            Refused::Value => format!("expected {}", Self::TYPE.name),
            Refused::Because(why) => why,
        })
    }
}

pub(crate) enum Refused {
    /// Its TOML type is another one.
    Type,
    /// It is none of the values of its type.
    Value,
    Because(String),
}

/// `"auto"` or a number.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AutoOr {
    Auto,
    Number(u32),
}

/// Parameters of a challenge as `in.php` has them. A value may be a secret, such as a proxy.
#[derive(Clone, PartialEq)]
pub(crate) struct Params(pub(crate) BTreeMap<String, String>);

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NonZeroDuration(pub(crate) Duration);

/// How the gateway chooses the moments at which it polls.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Learned,
    Fixed,
}

/// The keys of a store, new one first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncryptionKeys {
    pub(crate) current: EncryptionKey,
    pub(crate) old: Option<EncryptionKey>,
}

/// Reads a duration such as `5s`, `250ms` or `2m`, up to 366 days.
pub fn read_duration(text: &str) -> Option<Duration> {
    let length: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(length).ok().filter(|length| length.as_secs() <= 366 * 86_400)
}

const fn text_type(name: &'static str) -> ValueType {
    ValueType { name, is_text: true, schema: || json!({ "type": "string" }) }
}

/// Values of any type: the type, its description, and a function from the node.
macro_rules! values {
    ($( $type:ty, $description:expr, |$node:ident, $reader:tt| $read:expr; )*) => { $(
        impl SingleValue for $type {
            const TYPE: ValueType = $description;

            fn read($node: &Node, $reader: &Reader<'_>) -> Result<Self, Refused> {
                $read
            }
        }
    )* };
}

/// Values that are strings: the type, its name, and a function from the string.
macro_rules! text_values {
    ($( $type:ty, $name:literal, |$text:ident| $parse:expr; )*) => { values! { $(
        $type, text_type($name), |node, _| {
            let $text = node.content.text()?;
            $parse
        };
    )* } };
}

/// Values that are one of a few words.
macro_rules! words {
    ($( $type:ty, $name:literal, [$( $word:literal => $value:expr ),*]; )*) => { values! { $(
        $type,
        ValueType { schema: || json!({ "enum": [$( $word ),*] }), ..text_type($name) },
        |node, _| match node.content.text()? {
            $( $word => Ok($value), )*
            _ => Err(Refused::Value),
        };
    )* } };
}

/// Values of TOML's other types: the type, its name, its JSON Schema, and a function from the node.
macro_rules! toml_values {
    ($( $type:ty, $name:literal, $schema:tt, |$node:ident, $reader:tt| $read:expr; )*) => { values! { $(
        $type,
        ValueType { name: $name, is_text: false, schema: || json!($schema) },
        |$node, $reader| $read;
    )* } };
}

/// Values that are whole numbers within the range of their type.
macro_rules! numbers {
    ($( $type:ty, $name:literal, $least:literal; )*) => { toml_values! { $(
        $type, $name, { "type": "integer", "minimum": $least }, |node, _| {
            let Content::Integer(number) = node.content else { return Err(Refused::Type) };
            number.to_string().parse().map_err(|_| Refused::Value)
        };
    )* } };
}

text_values! {
    String, "a string", |text| Ok(text.to_owned());
    PathBuf, "a path", |text| Ok(text.into());
    SocketAddr, "an address such as \"127.0.0.1:8402\"", |text| text.parse()
        .map_err(|_| because(format_args!("{text:?} is not an address such as 127.0.0.1:8402")));
    Duration, "a duration such as \"5s\"", |text| read_duration(text)
        .ok_or_else(|| because(format_args!("{text:?} is not a duration such as \"5s\"")));
    Rate, "a rate such as \"20/s\", \"300/m\" or \"1000/h\"", |text| text.parse().map_err(because);
    HostRule, "a host such as \"shop.example.com\" or \"*.example.com\"", |text| host_rule(text);
    WorkerName, "a name", |text| Self::new(text).map_err(because);
    Project, "a name", |text| Self::new(text).map_err(because);
    Kind, "a kind such as \"turnstile\"", |text| text.parse().map_err(because);
}

words! {
    Mode, "\"learned\" or \"fixed\"", ["learned" => Self::Learned, "fixed" => Self::Fixed];
    Reuse, "\"window\", \"in-flight\" or \"never\"",
        ["window" => Self::Window, "in-flight" => Self::InFlight, "never" => Self::Never];
    AfterFailure, "\"reopen\" or \"replay\"", ["reopen" => Self::Reopen, "replay" => Self::Replay];
    AmbiguousPolicy, "\"resubmit-once\" or \"never\"",
        ["resubmit-once" => Self::ResubmitOnce, "never" => Self::Never];
    Profile, "\"default\", \"conservative\" or \"aggressive\"",
        ["default" => Self::Default, "conservative" => Self::Conservative, "aggressive" => Self::Aggressive];
    Jitter, "\"full\" or \"additive\"", ["full" => Self::Full, "additive" => Self::Additive];
}

numbers! {
    u32, "a whole number", 0;
    u64, "a whole number", 0;
    NonZeroU32, "a whole number from 1", 1;
    NonZeroU64, "a whole number from 1", 1;
}

toml_values! {
    bool, "true or false", { "type": "boolean" }, |node, _| {
        let Content::Boolean(flag) = node.content else { return Err(Refused::Type) };
        Ok(flag)
    };
    f64, "a number", { "type": "number" }, |node, _| {
        let is_text = matches!(node.content, Content::Text(_));
        let number = node.content.plain().filter(|_| !is_text);
        number.and_then(|number| number.parse().ok()).ok_or(Refused::Type)
    };
    AutoOr, "\"auto\" or a whole number",
        { "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 0 }] },
        |node, reader| match node.content.text() {
            Ok("auto") => Ok(Self::Auto),
            Ok(_) | Err(_) => u32::read(node, reader).map(Self::Number).map_err(|_| Refused::Value),
        };
    Money, "an amount of zero or more, such as 1.5",
        { "type": ["number", "string"], "minimum": 0 },
        |node, _| {
            let amount = node.content.plain().and_then(|text| Self::parse(&text));
            amount.filter(|amount| *amount >= Self::ZERO).ok_or(Refused::Value)
        };
    Params, "a table of strings, numbers and booleans",
        { "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } },
        |node, _| {
            let Content::Table(entries) = &node.content else { return Err(Refused::Type) };
            entries.iter().map(param).collect::<Result<_, _>>().map(Self)
        };
    Currency, "a currency such as \"USD\"", { "type": "string", "pattern": "^[A-Z]{3}$" },
        |node, _| node.content.text()?.parse().map_err(|_| Refused::Value);
}

values! {
    Class,
        ValueType {
            schema: || json!({ "enum": Self::ALL.map(Self::name) }),
            ..text_type("\"transient\", \"permanent\", \"account\", \"task-over\" or \"wait\"")
        },
        |node, _| Self::named(node.content.text()?).ok_or(Refused::Value);
    AdminRole,
        ValueType {
            schema: || json!({ "enum": Self::ALL.map(Self::name) }),
            ..text_type("\"reader\", \"operator\" or \"admin\"")
        },
        |node, _| {
            let written = node.content.text()?;
            written.parse().map_err(|_| {
                let near = nearest(Self::ALL.map(Self::name).into_iter(), written, 0.7);
                let hint = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
                because(format_args!(
                    "{written:?} is not a role: expected \"reader\", \"operator\" or \"admin\"{hint}"
                ))
            })
        };
    NonZeroDuration, text_type("a duration such as \"5s\", longer than zero"), |node, reader| {
        let length = Duration::read(node, reader)?;
        if length.is_zero() { Err(because("must be longer than zero")) } else { Ok(Self(length)) }
    };
    Day, text_type("a day such as \"2027-06-30\""), |node, _| {
        let (Content::Text(day) | Content::Date(day)) = &node.content else {
            return Err(Refused::Type);
        };
        day.parse().map_err(because)
    };
    Secret, text_type("a string: \"env:NAME\", \"file:PATH\" or the secret itself"),
        |node, reader| reader.secret(node.content.text()?, &node.origin).map_err(because);
    StoreUrl,
        text_type("the URL of a store, or a string such as \"env:NAME\" or \"file:PATH\""),
        |node, reader| {
            let written = node.content.text()?;
            let elsewhere = written.starts_with("env:") || written.starts_with("file:");
            if elsewhere || Self::has_secret(written) {
                return Self::parse(Secret::read(node, reader)?.expose()).map_err(because);
            }
            Self::parse(written).map_err(because)
        };
}

impl SingleValue for EncryptionKeys {
    const TYPE: ValueType = ValueType {
        schema: || {
            let one = (Secret::TYPE.schema)();
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": 2 }] })
        },
        ..text_type("\"env:NAME\", \"file:PATH\" or the key itself, or a list of two: new, old")
    };

    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, Refused> {
        let key = |node: &Node| {
            let text = Secret::read(node, reader)?;
            EncryptionKey::parse(&text).map_err(because)
        };
        let Content::List(items) = &node.content else {
            return Ok(Self { current: key(node)?, old: None });
        };
        let [current, rest @ ..] = items.as_slice() else {
            return Err(because("is empty; remove the key to store everything unencrypted"));
        };
        let old = match rest {
            [] => None,
            [old] => Some(key(old)?),
            _ => {
                return Err(because("has more than two keys; write the new one, then the old one"));
            }
        };
        let current = key(current)?;
        if old.as_ref() == Some(&current) {
            return Err(because("has the same key twice; write the new one, then the old one"));
        }
        Ok(Self { current, old })
    }
}

fn because(why: impl fmt::Display) -> Refused {
    Refused::Because(why.to_string())
}

/// A `*` that is not followed by a dot gets a message with the valid forms.
fn host_rule(text: &str) -> Result<HostRule, Refused> {
    if text.starts_with('*') && !text.starts_with("*.") {
        return Err(because(
            "would declare every site; name the hosts you may automate, such as \"shop.example.com\" or \
             \"*.example.com\"",
        ));
    }
    text.parse().map_err(because)
}

fn param((name, node): (&String, &Node)) -> Result<(String, String), Refused> {
    let value = if let Content::Boolean(flag) = node.content {
        Some(u8::from(flag).to_string())
    } else {
        node.content.plain()
    };
    let expected = || because(format_args!("{name}: expected a string, a number or a boolean"));
    Ok((name.clone(), value.ok_or_else(expected)?))
}

impl<T: SingleValue> SingleValue for Vec<T> {
    const TYPE: ValueType = ValueType {
        name: "a list of strings",
        is_text: false,
        schema: || json!({ "type": "array", "items": (T::TYPE.schema)() }),
    };

    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, Refused> {
        let Content::List(items) = &node.content else { return Err(Refused::Type) };
        items.iter().map(|item| T::checked(item, reader).map_err(because)).collect()
    }
}

// === impl MapName ===

/// A kind, a kind with `_enterprise`, or `default`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PriceName(pub(crate) Kind);

impl MapName for PriceName {
    const NAMES: MapNames = MapNames { example: "default", ..Kind::NAMES };

    fn parse(name: &str) -> Result<Self, String> {
        Kind::parse(name).map(Self)
    }
}

impl MapName for Kind {
    const NAMES: MapNames =
        MapNames { placeholder: "KIND", example: "turnstile", from_variable: str::to_owned };

    fn parse(name: &str) -> Result<Self, String> {
        name.parse().map_err(|error: BadChallenge| error.to_string())
    }
}

impl MapName for Code {
    const NAMES: MapNames = MapNames {
        placeholder: "CODE",
        example: "ERROR_CAPTCHA_UNSOLVABLE",
        from_variable: str::to_ascii_uppercase,
    };

    fn parse(name: &str) -> Result<Self, String> {
        Ok(Self::new(name))
    }
}
