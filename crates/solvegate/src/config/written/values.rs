//! The types a single value can have.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use domain::{
    challenge::Kind,
    id::{Project, WorkerName},
    money::Money,
    rate::Rate,
    retry::{Class, Code, Jitter, Profile},
    secret::Secret,
    site::{HostRule, Reuse},
    solve::AmbiguousPolicy,
    time::Day,
};
use serde_json::json;

use super::{
    Node, Reader, ValueType,
    section::{MapName, MapNames},
    tree::Content,
};
use crate::config::valid::StoreUrl;

/// A value that is read from a single entry.
pub(crate) trait SingleValue: Sized {
    const TYPE: ValueType;
    const TYPE_REF: &'static ValueType = &Self::TYPE;

    fn read(node: Node, reader: &Reader<'_>) -> Result<Self, String>;
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

/// A duration longer than zero.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NonZeroDuration(pub(crate) Duration);

/// How the gateway chooses the moments at which it polls.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Learned,
    Fixed,
}

/// A key that a later release will have.
#[derive(Clone, PartialEq)]
pub(crate) struct NotYet;

/// Reads a duration such as `5s`, `250ms` or `2m`, up to 366 days.
pub fn read_duration(text: &str) -> Option<Duration> {
    let length: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(length).ok().filter(|length| length.as_secs() <= 366 * 86_400)
}

fn mismatch<T>(of: &ValueType, found: &Content) -> Result<T, String> {
    Err(format!("expected {}, found {}", of.name, found.name()))
}

fn text_of(of: &ValueType, content: Content) -> Result<String, String> {
    if let Content::Text(text) = content { Ok(text) } else { mismatch(of, &content) }
}

const fn text_type(name: &'static str) -> ValueType {
    ValueType { name, is_text: true, schema: || json!({ "type": "string" }) }
}

/// Values that are strings: the type, its name, and a function from the string.
macro_rules! text_values {
    ($( $type:ty, $name:literal, $parse:expr; )*) => { $(
        impl SingleValue for $type {
            const TYPE: ValueType = text_type($name);

            fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
                let parse: fn(String) -> Result<Self, String> = $parse;
                parse(text_of(&Self::TYPE, node.content)?)
            }
        }
    )* };
}

/// Values that are one of a few words.
macro_rules! words {
    ($( $type:ty, $name:literal, [$( $word:literal => $value:expr ),*]; )*) => { $(
        impl SingleValue for $type {
            const TYPE: ValueType = ValueType {
                schema: || json!({ "enum": [$( $word ),*] }),
                ..text_type($name)
            };

            fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
                match text_of(&Self::TYPE, node.content)?.as_str() {
                    $( $word => Ok($value), )*
                    _ => Err(concat!("expected ", $name).to_owned()),
                }
            }
        }
    )* };
}

/// Values that are whole numbers within the range of their type.
macro_rules! numbers {
    ($( $type:ty, $name:literal, $least:literal; )*) => { $(
        impl SingleValue for $type {
            const TYPE: ValueType = ValueType {
                name: $name,
                is_text: false,
                schema: || json!({ "type": "integer", "minimum": $least }),
            };

            fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
                let Content::Integer(number) = node.content else {
                    return mismatch(&Self::TYPE, &node.content);
                };
                number.to_string().parse().map_err(|_| concat!("expected ", $name).to_owned())
            }
        }
    )* };
}

text_values! {
    String, "a string", Ok;
    PathBuf, "a path", |text| Ok(text.into());
    SocketAddr, "an address such as \"127.0.0.1:8402\"", |text| text.parse()
        .map_err(|_| format!("{text:?} is not an address such as 127.0.0.1:8402"));
    Duration, "a duration such as \"5s\"", |text| read_duration(&text)
        .ok_or_else(|| format!("{text:?} is not a duration such as \"5s\""));
    NonZeroDuration, "a duration such as \"5s\", longer than zero", |text| {
        let length = read_duration(&text)
            .ok_or_else(|| format!("{text:?} is not a duration such as \"5s\""))?;
        if length.is_zero() { Err("must be longer than zero".into()) } else { Ok(Self(length)) }
    };
    Rate, "a rate such as \"20/s\", \"300/m\" or \"1000/h\"", |text| text.parse().map_err(said);
    HostRule, "a host such as \"shop.example.com\" or \"*.example.com\"", |text| host_rule(&text);
    WorkerName, "a name", |text| Self::new(text).map_err(said);
    Project, "a name", |text| Self::new(text).map_err(said);
    Kind, "a kind such as \"turnstile\"", |text| text.parse().map_err(said);
}

words! {
    Mode, "\"learned\" or \"fixed\"", ["learned" => Self::Learned, "fixed" => Self::Fixed];
    Reuse, "\"window\", \"in-flight\" or \"never\"",
        ["window" => Self::Window, "in-flight" => Self::InFlight, "never" => Self::Never];
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

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// `*` alone gets an answer of its own.
fn host_rule(text: &str) -> Result<HostRule, String> {
    if text.starts_with('*') && !text.starts_with("*.") {
        return Err(
            "would declare every site; name the hosts you may automate, such as \"shop.example.com\" or \
             \"*.example.com\""
                .into(),
        );
    }
    text.parse().map_err(said)
}

// === impl SingleValue ===

impl SingleValue for bool {
    const TYPE: ValueType = ValueType {
        name: "true or false",
        is_text: false,
        schema: || json!({ "type": "boolean" }),
    };

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let Content::Boolean(flag) = node.content else {
            return mismatch(&Self::TYPE, &node.content);
        };
        Ok(flag)
    }
}

impl SingleValue for f64 {
    const TYPE: ValueType =
        ValueType { name: "a number", is_text: false, schema: || json!({ "type": "number" }) };

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let is_number = matches!(node.content, Content::Float(_) | Content::Integer(_));
        let number = node.content.plain().filter(|_| is_number).and_then(|text| text.parse().ok());
        number.map_or_else(|| mismatch(&Self::TYPE, &node.content), Ok)
    }
}

impl SingleValue for AutoOr {
    const TYPE: ValueType = ValueType {
        name: "\"auto\" or a whole number",
        is_text: false,
        schema: || json!({ "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 0 }] }),
    };

    fn read(node: Node, reader: &Reader<'_>) -> Result<Self, String> {
        if matches!(&node.content, Content::Text(word) if word == "auto") {
            return Ok(Self::Auto);
        }
        let refused = |_| format!("expected {}", Self::TYPE.name);
        u32::read(node, reader).map(Self::Number).map_err(refused)
    }
}

impl SingleValue for Money {
    const TYPE: ValueType = ValueType {
        name: "an amount of zero or more, such as 1.5",
        is_text: false,
        schema: || json!({ "type": ["number", "string"], "minimum": 0 }),
    };

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let amount = node.content.plain().and_then(|text| Self::parse(&text));
        let amount = amount.filter(|amount| *amount >= Self::ZERO);
        amount.ok_or_else(|| format!("expected {}", Self::TYPE.name))
    }
}

impl SingleValue for Day {
    const TYPE: ValueType = text_type("a day such as \"2027-06-30\"");

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let (Content::Text(day) | Content::Date(day)) = node.content else {
            return mismatch(&Self::TYPE, &node.content);
        };
        day.parse().map_err(said)
    }
}

impl SingleValue for Class {
    const TYPE: ValueType = ValueType {
        schema: || json!({ "enum": Self::ALL.map(Self::name) }),
        ..text_type("\"transient\", \"permanent\", \"account\", \"task-over\" or \"wait\"")
    };

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let refused = || format!("expected {}", Self::TYPE.name);
        Self::named(&text_of(&Self::TYPE, node.content)?).ok_or_else(refused)
    }
}

impl SingleValue for Secret {
    const TYPE: ValueType = text_type("a string: \"env:NAME\", \"file:PATH\" or the secret itself");

    fn read(node: Node, reader: &Reader<'_>) -> Result<Self, String> {
        reader.secret(&text_of(&Self::TYPE, node.content)?, &node.origin)
    }
}

impl SingleValue for StoreUrl {
    const TYPE: ValueType =
        text_type("the URL of a store, or a string such as \"env:NAME\" or \"file:PATH\"");

    fn read(node: Node, reader: &Reader<'_>) -> Result<Self, String> {
        let written = text_of(&Self::TYPE, node.content)?;
        let elsewhere = written.starts_with("env:") || written.starts_with("file:");
        if elsewhere || Self::has_secret(&written) {
            return Self::parse(reader.secret(&written, &node.origin)?.expose());
        }
        Self::parse(&written)
    }
}

impl<T: SingleValue> SingleValue for Vec<T> {
    const TYPE: ValueType = ValueType {
        name: "a list of strings",
        is_text: false,
        schema: || json!({ "type": "array", "items": (T::TYPE.schema)() }),
    };

    fn read(node: Node, reader: &Reader<'_>) -> Result<Self, String> {
        let Content::List(items) = node.content else {
            return mismatch(&Self::TYPE, &node.content);
        };
        items.into_iter().map(|item| T::read(item, reader)).collect()
    }
}

impl SingleValue for Params {
    const TYPE: ValueType = ValueType {
        name: "a table of strings, numbers and booleans",
        is_text: false,
        schema: || {
            json!({
                "type": "object",
                "additionalProperties": { "type": ["string", "number", "boolean"] },
            })
        },
    };

    fn read(node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        let Content::Table(entries) = node.content else {
            return mismatch(&Self::TYPE, &node.content);
        };
        let param = |(name, node): (String, Node)| {
            let value = if let Content::Boolean(flag) = node.content {
                Some(u8::from(flag).to_string())
            } else {
                node.content.plain()
            };
            let expected = || format!("{name}: expected a string, a number or a boolean");
            let value = value.ok_or_else(expected)?;
            Ok((name, value))
        };
        entries.into_iter().map(param).collect::<Result<_, _>>().map(Self)
    }
}

impl SingleValue for NotYet {
    const TYPE: ValueType = ValueType { name: "a table", is_text: false, schema: || json!(false) };

    fn read(_node: Node, _reader: &Reader<'_>) -> Result<Self, String> {
        Err("cost per slot-second is not in this release; use price_per_1000 or remove the key"
            .into())
    }
}

// === impl MapName ===

impl MapName for Kind {
    const NAMES: MapNames =
        MapNames { placeholder: "KIND", example: "turnstile", from_variable: str::to_owned };

    fn parse(name: &str) -> Result<Self, String> {
        name.parse().map_err(said)
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
