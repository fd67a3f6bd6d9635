//! Looks for `key` in a form of which only the beginning has arrived, so that a door can refuse a stranger before it reads
//! the rest. The whole form is parsed later; that result counts.

use std::fmt;

use serde::{
    Deserializer as _,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

use super::{Encoding, multipart};

const KEY: &str = "key";
/// A pair that is longer holds a picture, not a key.
const PAIR_MAX: usize = 512;

/// The value of `key`, if it is complete in this beginning of a body.
pub fn find_key(content_type: Option<&str>, beginning: &[u8]) -> Option<String> {
    let content_type = content_type.unwrap_or_default();
    match Encoding::of(content_type, beginning)? {
        Encoding::Json(text) => in_json(text),
        Encoding::Multipart => multipart::find_text(content_type, beginning, KEY),
        Encoding::Urlencoded(text) => in_urlencoded(text),
        Encoding::NotAnObject => None,
    }
}

/// Only pairs that end with `&` are complete.
fn in_urlencoded(beginning: &[u8]) -> Option<String> {
    let end = beginning.iter().rposition(|byte| *byte == b'&')?;
    let pairs = beginning[..end].split(|byte| *byte == b'&').filter(|pair| pair.len() <= PAIR_MAX);
    pairs
        .flat_map(form_urlencoded::parse)
        .find(|(name, _)| name == KEY)
        .map(|(_, value)| value.into_owned())
}

/// The members are read one by one until the text breaks off.
fn in_json(beginning: &[u8]) -> Option<String> {
    let mut found = None;
    let mut deserializer = serde_json::Deserializer::from_slice(beginning);
    // An error means that the text breaks off or is malformed; what was found before is all there is.
    deserializer.deserialize_map(KeyVisitor(&mut found)).unwrap_or(());
    found
}

struct KeyVisitor<'f>(&'f mut Option<String>);

impl<'de> Visitor<'de> for KeyVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == KEY {
                return map.next_value_seed(KeyValue(self.0));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Keeps a string.
struct KeyValue<'f>(&'f mut Option<String>);

impl<'de> DeserializeSeed<'de> for KeyValue<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        let text: String = serde::Deserialize::deserialize(value)?;
        *self.0 = Some(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;

    const KEY_32: &str = "aWorkersKeyOf32Characters0000001";
    const MULTIPART: &str = "multipart/form-data; boundary=xYz";

    fn part(name: &str, file: bool, value: &str) -> String {
        let file = if file { "; filename=\"a.png\"" } else { "" };
        format!("--xYz\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    }

    /// A form in one of the encodings, with the key first or after the picture.
    fn forms(picture: &str) -> Vec<(&'static str, String)> {
        let (key, file) = (part("key", false, KEY_32), part("file", true, picture));
        vec![
            ("", format!("key={KEY_32}&method=base64&body={picture}")),
            ("", format!("method=base64&body={picture}&k%65y={KEY_32}&json=1")),
            ("text/plain", format!(r#"{{"key":"{KEY_32}","body":"{picture}"}}"#)),
            (
                "application/json",
                format!(r#"{{"body":"{picture}","x":[{{"key":"no"}}],"key":"{KEY_32}"}}"#),
            ),
            ("multipart/form-data", format!(r#" {{"k\u0065y":"{KEY_32}","body":"{picture}"}}"#)),
            (MULTIPART, format!("{key}{file}--xYz--\r\n")),
            (MULTIPART, format!("{file}{key}--xYz--\r\n")),
        ]
    }

    #[test]
    fn the_key_is_found_wherever_it_is_once_it_is_complete() {
        for (content_type, body) in forms("iVBORw0KGgo") {
            let at = |end: usize| find_key(Some(content_type), &body.as_bytes()[..end]);
            let first = (0..=body.len()).find(|end| at(*end).is_some());
            let first = first.unwrap_or_else(|| panic!("not found in {body}"));
            for end in first..=body.len() {
                assert_eq!(at(end).as_deref(), Some(KEY_32), "{end} of {body}");
            }
            assert!(body[..first].contains(KEY_32), "a part of the key: {}", &body[..first]);
        }
    }

    #[test]
    fn other_names_values_and_broken_bodies_are_no_keys() {
        let in_file = part("key", true, KEY_32);
        for (content_type, body) in [
            ("", format!("googlekey={KEY_32}&x=1&")),
            ("", format!("Key={KEY_32}&api.key={KEY_32}&")),
            ("", format!("x=key={KEY_32}&")),
            ("", format!("a=1&key={KEY_32}")),
            ("", "key".to_owned()),
            ("", String::new()),
            ("application/json", format!(r#"["key","{KEY_32}"]"#)),
            ("application/json", format!(r#"{{"params":{{"key":"{KEY_32}"}},"#)),
            ("application/json", r#"{"key":17,"#.to_owned()),
            ("application/json", format!(r#"{{"body" "key":"{KEY_32}","#)),
            (MULTIPART, format!("{in_file}--xYz--\r\n")),
            ("multipart/form-data", part("key", false, KEY_32)),
        ] {
            assert_eq!(find_key(Some(content_type), body.as_bytes()), None, "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_found_key_is_the_key_of_the_whole_form(
            content_type in proptest::sample::select(vec!["", "application/json", MULTIPART]),
            body in "(key|=|&|\\{|\"|:|,|[a-z]{1,5}|%65|--xYz\r\n|\\}){0,40}",
            cut in 0_usize..200,
        ) {
            let beginning = &body.as_bytes()[..cut.min(body.len())];
            if let (Some(found), Ok(form)) =
                (find_key(Some(content_type), beginning), Form::read(None, Some(content_type), body.as_bytes()))
            {
                assert_eq!(form.get("key"), Some(found.as_str()));
            }
        }
    }
}
