//! JSON objects member by member. Every value keeps its text, so that numbers and unknown members pass unchanged. A repeated
//! name is refused, because two parsers could pick different values.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, in order.
pub(crate) struct Members<'a>(Vec<(String, &'a RawValue)>);

/// A value; numbers and nested values keep their text.
pub(crate) enum Shape<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    Text(String),
    Nested(&'a str),
}

/// The deepest nesting allowed in a request.
const DEPTH_MAX: usize = 32;
/// More members than any request or reply has.
const MEMBERS_MAX: usize = 200;
const REPEATED: &str = "repeated member: ";

// === impl Members ===

impl<'a> Members<'a> {
    /// Parses an object; the error has the name of a repeated member, if that is the reason.
    pub(crate) fn read(text: &'a str) -> Result<Self, Option<String>> {
        serde_json::from_str(text).map_err(|error| {
            let text = error.to_string();
            let name = text.strip_prefix(REPEATED)?;
            Some(name.rsplit_once(" at line ").map_or(name, |(name, _)| name).to_owned())
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The member's shape; `null` counts as absent.
    pub(crate) fn shape(&self, name: &str) -> Option<Shape<'a>> {
        shape(self.get(name)?).filter(|shape| !matches!(shape, Shape::Null))
    }

    /// The text of a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        if let Shape::Text(text) = self.shape(name)? { Some(text) } else { None }
    }

    /// The text of a string or a number.
    pub(crate) fn scalar(&self, name: &str) -> Option<String> {
        match self.shape(name)? {
            Shape::Text(text) => Some(text),
            Shape::Number(number) => Some(number.to_owned()),
            Shape::Null | Shape::Bool(_) | Shape::Nested(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(String, &RawValue)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if members.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("{REPEATED}{name}")));
            }
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

/// The value's shape; `None` for an invalid string, such as half of a surrogate pair.
pub(crate) fn shape(value: &RawValue) -> Option<Shape<'_>> {
    let text = value.get();
    Some(match text.as_bytes().first()? {
        b'"' => Shape::Text(serde_json::from_str(text).ok()?),
        b'{' | b'[' => Shape::Nested(text),
        b't' => Shape::Bool(true),
        b'f' => Shape::Bool(false),
        b'n' => Shape::Null,
        _ => Shape::Number(text),
    })
}

pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A JSON reply of success with this text.
pub(crate) fn success(text: &str) -> String {
    format!(r#"{{"status":1,"request":{}}}"#, quote(text))
}

/// Whether the text is one complete object or array.
pub(crate) fn is_nested(text: &str) -> bool {
    text.starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Removes the white space between the parts of valid JSON; `None` if it is nested too deep.
pub(crate) fn compact(text: &str) -> Option<String> {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    for c in text.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                '"' => quoted = true,
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                ' ' | '\t' | '\r' | '\n' => continue,
                _ => {}
            }
        }
        if depth > DEPTH_MAX {
            return None;
        }
        out.push(c);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_member_is_named() {
        assert_eq!(Members::read(r#"{"a":1,"a":2}"#).err(), Some(Some("a".into())));
        assert_eq!(Members::read(r#"{"a":1,"#).err(), Some(None));
        assert_eq!(Members::read("[1]").err(), Some(None));
    }

    #[test]
    fn space_between_parts_goes_and_space_in_texts_stays() {
        let text = "{ \"a b\" : [ 1 , \"x \\\" y\" ] }";
        assert_eq!(compact(text).as_deref(), Some(r#"{"a b":[1,"x \" y"]}"#));
        assert_eq!(compact(&"[".repeat(33)), None);
    }
}
