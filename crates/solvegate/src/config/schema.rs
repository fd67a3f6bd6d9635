//! The keys as JSON Schema, for editors: `solvegate config schema`.

use serde_json::{Map, Value, json};

use super::written::{Key, KeyForm, Keys, Section, SectionKeys as _, ValueType, variable};

pub fn schema() -> Value {
    let mut root = Map::new();
    root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".into(), json!("solvegate.toml"));
    root.extend(table(Keys::SECTION, &[], false).as_object().cloned().unwrap_or_default());
    root.into()
}

/// `reloads`: whether a reload applies changes of the table as a whole.
fn table(section: &Section, path: &[&str], reloads: bool) -> Value {
    let describe = |key: &Key| {
        let path = [path, &[key.name]].concat();
        (key.name.to_owned(), property(key, &path, reloads || key.reloads))
    };
    let required = section.keys.iter().filter(|key| key.unset == Some("required"));
    json!({
        "type": "object",
        "description": sentences(section.about),
        "properties": section.keys.iter().map(describe).collect::<Map<_, _>>(),
        "required": required.map(|key| key.name).collect::<Vec<_>>(),
        "additionalProperties": false,
    })
}

fn property(key: &Key, path: &[&str], reloads: bool) -> Value {
    let mut property = below(key.form, path, reloads);
    let Some(of) = key.form.value_type() else { return property };
    let unset = key.unset.map_or(String::new(), |unset| format!(" If not set: {unset}."));
    property["description"] = json!(sentences(key.about) + &unset);
    if let Some(text) = key.default {
        property["default"] = json_of(of, text);
    }
    if let Some(text) = key.example {
        let example = match key.form {
            KeyForm::Map(names, _) => json!({ names.example: json_of(of, text) }),
            KeyForm::Value(_) | KeyForm::Table(_) | KeyForm::List(_) | KeyForm::OneOrMany(_) => {
                json_of(of, text)
            }
        };
        property["examples"] = json!([example]);
    }
    property["x-environment"] = json!(variable(path.iter().copied()));
    property["x-needs-restart"] = json!(!reloads);
    property
}

fn below(form: KeyForm, path: &[&str], reloads: bool) -> Value {
    match form {
        KeyForm::Value(of) => (of.schema)(),
        KeyForm::Table(section) => table(section, path, reloads),
        KeyForm::List(section) => {
            let path = [path, &["0"]].concat();
            json!({ "type": "array", "items": table(section, &path, reloads) })
        }
        KeyForm::OneOrMany(section) => {
            let list = below(KeyForm::List(section), path, reloads);
            json!({ "anyOf": [table(section, path, reloads), list] })
        }
        KeyForm::Map(names, each) => {
            let path = [path, &[names.placeholder]].concat();
            json!({ "type": "object", "additionalProperties": below(*each, &path, reloads) })
        }
    }
}

/// A comment as one line.
pub(super) fn sentences(comment: &str) -> String {
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A default or example, which is written as in an environment variable.
fn json_of(of: &ValueType, text: &str) -> Value {
    let read =
        || toml::from_str::<Map<String, Value>>(&format!("value = {text}")).ok()?.remove("value");
    let read = if of.is_text { None } else { read() };
    read.unwrap_or_else(|| json!(text))
}
