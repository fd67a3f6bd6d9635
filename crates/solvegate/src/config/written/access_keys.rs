//! `keys` of a worker or an admin: a list of tables with `key` or `sha256`, and `until`. And a secret that is being replaced.

use domain::{
    key::KeyDigest,
    secret::Secret,
    time::{Day, Timestamp},
};
use serde_json::json;

use super::{
    Node, Reader, SingleValue, ValueType, nearest,
    tree::{Content, Table},
    values::Refused,
};

#[derive(Clone, PartialEq)]
pub(crate) struct KeyList(pub(crate) Vec<WrittenKey>);

/// A secret, or two while the first replaces the second.
#[derive(Clone, PartialEq)]
pub(crate) struct SecretPair {
    pub(crate) current: Secret,
    pub(crate) previous: Option<Secret>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct WrittenKey {
    pub(crate) source: KeySource,
    pub(crate) until: Option<Timestamp>,
}

#[derive(Clone, PartialEq)]
pub(crate) enum KeySource {
    Key(Secret),
    Digest(KeyDigest),
}

const NAMES: [&str; 3] = ["key", "sha256", "until"];

// === impl KeyList ===

impl SingleValue for KeyList {
    const TYPE: ValueType = ValueType {
        name: "a list of tables with `key` or `sha256`, and perhaps `until`",
        is_text: false,
        schema: || {
            let text = json!({ "type": "string" });
            let each = json!({ "key": text, "sha256": text, "until": text });
            let each =
                json!({ "type": "object", "properties": each, "additionalProperties": false });
            json!({ "type": "array", "minItems": 1, "items": each })
        },
    };

    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, Refused> {
        let Content::List(items) = &node.content else { return Err(Refused::Type) };
        if items.is_empty() {
            return Err(Refused::Because("is empty; name at least one key".into()));
        }
        let read = |(at, item): (usize, &Node)| {
            WrittenKey::read(item, reader)
                .map_err(|why| Refused::Because(format!("number {}: {why}", at + 1)))
        };
        items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }
}

// === impl SecretPair ===

impl SingleValue for SecretPair {
    const TYPE: ValueType = ValueType {
        name: "a string (\"env:NAME\", \"file:PATH\" or the secret itself), or a list of two",
        is_text: false,
        schema: || {
            let text = json!({ "type": "string" });
            let list = json!({ "type": "array", "minItems": 1, "maxItems": 2, "items": text });
            json!({ "anyOf": [text, list] })
        },
    };

    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, Refused> {
        let Content::List(items) = &node.content else {
            return Ok(Self { current: Secret::read(node, reader)?, previous: None });
        };
        let read = |item| Secret::checked(item, reader).map_err(Refused::Because);
        match items.as_slice() {
            [only] => Ok(Self { current: read(only)?, previous: None }),
            [new, old] => Ok(Self { current: read(new)?, previous: Some(read(old)?) }),
            _ => Err(Refused::Because(
                "expected one secret, or two: the new one and the old one".into(),
            )),
        }
    }
}

// === impl WrittenKey ===

impl WrittenKey {
    fn read(node: &Node, reader: &Reader<'_>) -> Result<Self, String> {
        let Content::Table(table) = &node.content else {
            let example = "{ key = \"env:NAME\" } or { sha256 = \"…\" }";
            return Err(format!("expected {example}, found {}", node.content.name()));
        };
        check_names(table)?;
        let source = match (table.get("key"), table.get("sha256")) {
            (Some(key), None) => {
                KeySource::Key(Secret::checked(key, reader).map_err(|why| format!("key: {why}"))?)
            }
            (None, Some(digest)) => KeySource::Digest(read_digest(digest)?),
            (None, None) => return Err("key or sha256 is missing".into()),
            (Some(_), Some(_)) => return Err("give either key or sha256, not both".into()),
        };
        let until = table.get("until").map(read_until).transpose()?;
        Ok(Self { source, until })
    }
}

fn check_names(table: &Table) -> Result<(), String> {
    let Some(name) = table.keys().find(|name| !NAMES.contains(&name.as_str())) else {
        return Ok(());
    };
    Err(match nearest(NAMES.into_iter(), name, 0.7) {
        Some(near) => format!("unknown key `{name}`; did you mean `{near}`?"),
        None => format!("unknown key `{name}`; its keys are `key`, `sha256`, `until`"),
    })
}

fn read_digest(node: &Node) -> Result<KeyDigest, String> {
    let digest = node.content.text().ok().and_then(KeyDigest::from_hex);
    digest.ok_or_else(|| {
        "sha256: expected 64 hexadecimal digits; make them with: printf %s \"$KEY\" | sha256sum"
            .into()
    })
}

/// A day counts to its end, as in `expires`.
fn read_until(node: &Node) -> Result<Timestamp, String> {
    let (Content::Text(text) | Content::Date(text)) = &node.content else {
        return Err(format!("until: expected {UNTIL}, found {}", node.content.name()));
    };
    let day = text.parse::<Day>().ok().filter(|_| !text.contains(['T', 't', ' ']));
    let moment = day.map(Day::end).or_else(|| text.parse().ok());
    moment.ok_or_else(|| format!("until: {text:?} is not {UNTIL}"))
}

const UNTIL: &str = "a day such as \"2027-01-31\" or a moment such as \"2027-01-31T18:00:00Z\"";
