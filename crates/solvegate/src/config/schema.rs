//! The keys as JSON Schema, for editors: `solvegate config schema`.

use serde_json::{Map, Value, json};

use super::written::{Key, KeyForm, Keys, Section, SectionKeys as _, ValueType, variable};

/// The marks of keys that must be given.
const REQUIRED: &str = "required";

/// Describes `solvegate.toml`.
pub fn schema() -> Value {
    let mut root = Map::new();
    root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".into(), json!("solvegate.toml"));
    root.extend(table(Keys::SECTION, &[], None));
    root.into()
}

/// `reloads` is the answer of the root's key; below the root it holds for every key.
fn table(section: &Section, path: &[&str], reloads: Option<bool>) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in section.keys {
        let path: Vec<&str> = path.iter().copied().chain([key.name]).collect();
        properties.insert(key.name.into(), property(key, &path, reloads.unwrap_or(key.reloads)));
        if key.unset == Some(REQUIRED) {
            required.push(key.name);
        }
    }
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("description".into(), json!(sentences(section.about)));
    object.insert("properties".into(), properties.into());
    object.insert("required".into(), json!(required));
    object.insert("additionalProperties".into(), json!(false));
    object
}

fn property(key: &Key, path: &[&str], reloads: bool) -> Value {
    let mut object = below(key.form, path, reloads);
    let Some(of) = key.form.value_type() else { return object.into() };
    let unset = key.unset.map_or(String::new(), |unset| format!(" If not set: {unset}."));
    object.insert("description".into(), json!(sentences(key.about) + &unset));
    object.extend(key.default.map(|text| ("default".to_owned(), json_of(of, text))));
    let in_map = |value| match key.form {
        KeyForm::Map(names, _) => json!({ names.example: value }),
        KeyForm::Value(_) | KeyForm::Table(_) | KeyForm::List(_) => value,
    };
    let example = key.example.map(|text| in_map(json_of(of, text)));
    object.extend(example.map(|example| ("examples".to_owned(), json!([example]))));
    object.insert("x-environment".into(), json!(variable(path.iter().copied())));
    object.insert("x-needs-restart".into(), json!(!reloads));
    object.into()
}

fn below(form: KeyForm, path: &[&str], reloads: bool) -> Map<String, Value> {
    let list = |value: Value| value.as_object().cloned().unwrap_or_default();
    match form {
        KeyForm::Value(of) => list((of.schema)()),
        KeyForm::Table(section) => table(section, path, Some(reloads)),
        KeyForm::List(section) => {
            let path = [path, &["0"]].concat();
            list(json!({ "type": "array", "items": table(section, &path, Some(reloads)) }))
        }
        KeyForm::Map(names, each) => {
            let path = [path, &[names.placeholder]].concat();
            let each = below(*each, &path, reloads);
            list(json!({ "type": "object", "additionalProperties": each }))
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
