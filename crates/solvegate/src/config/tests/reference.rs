//! docs/configuration.md and solvegate.example.toml, printed from the keys. `UPDATE_GOLDEN=1` rewrites both.

use std::fmt::Write as _;

use crate::config::{
    schema::sentences,
    written::{Key, KeyForm, Keys, Section, SectionKeys as _, ValueType, variable},
};

use super::*;

const INTRODUCTION: &str = "\
# Configuration

<!-- Printed from crates/solvegate/src/config/written/keys.rs; UPDATE_GOLDEN=1 cargo test -p solvegate --lib rewrites it. -->

`solvegate` reads `solvegate.toml` in the current directory, or the file named with `--config FILE`. \
Every key is optional unless it says `required`. \
[solvegate.example.toml](../solvegate.example.toml) holds all of them, and `solvegate config schema` prints a JSON Schema \
that editors complete and check the file with.

**Order.** Options of the command line win over the environment, the environment wins over the file. \
Every key has a variable: `SOLVEGATE_`, then the names of table and key in upper case, joined by two underscores. \
Members of a list are numbered from 0: `SOLVEGATE_SITE__0__HOST`. \
A variable holds a string as it is and any other value as TOML.

**Secrets** are written as `\"env:NAME\"` (a variable), `\"file:PATH\"` (a file with mode 0600 or stricter) or as themselves, \
which only a configuration file with mode 0600 or stricter may do.

**Reload.** SIGHUP reads the same places again and checks everything. An error is logged and the old configuration stays in \
force. Changes to tables marked *reload* are applied, the log names changes that need a restart.

**Check.** `solvegate doctor` says whether the configuration is valid, and tries the service, the store and the port with it.
";

/// A key that holds a value, with its names from its table down.
struct Leaf {
    key: &'static Key,
    of: &'static ValueType,
    /// `budget.cost_per_day`, `codes.CODE.max`.
    path: String,
    /// The same with a name that could be written: `codes.ERROR_CAPTCHA_UNSOLVABLE.max`.
    example: String,
    variable: Vec<&'static str>,
}

/// The values below a table, with those of tables in it.
fn leaves(section: &'static Section) -> Vec<Leaf> {
    section.keys.iter().flat_map(|key| below(key, key.form)).collect()
}

fn below(key: &'static Key, form: KeyForm) -> Vec<Leaf> {
    let prefixed = |path: &str, example: &str, variable: &'static str, leaf: Leaf| Leaf {
        path: join(path, &leaf.path),
        example: join(example, &leaf.example),
        variable: [vec![variable], leaf.variable].concat(),
        ..leaf
    };
    let name = key.name;
    match form {
        KeyForm::Value(of) => {
            vec![Leaf { key, of, path: name.into(), example: name.into(), variable: vec![name] }]
        }
        KeyForm::Table(section) | KeyForm::List(section) | KeyForm::OneOrMany(section) => {
            leaves(section).into_iter().map(|leaf| prefixed(name, name, name, leaf)).collect()
        }
        KeyForm::Map(names, KeyForm::Value(of)) => {
            let (placeholder, example) = (names.placeholder, names.example);
            let path = format!("{name}.{placeholder}");
            let example = format!("{name}.{example}");
            vec![Leaf { key, of, path, example, variable: vec![name, placeholder] }]
        }
        KeyForm::Map(names, each) => {
            let each = match each {
                KeyForm::Table(section) => leaves(section),
                KeyForm::Value(_) | KeyForm::List(_) | KeyForm::OneOrMany(_) | KeyForm::Map(..) => {
                    unreachable!("no such key")
                }
            };
            let each = each.into_iter();
            let each = each
                .map(|leaf| prefixed(names.placeholder, names.example, names.placeholder, leaf));
            each.map(|leaf| prefixed(name, name, name, leaf)).collect()
        }
    }
}

fn join(above: &str, below: &str) -> String {
    format!("{above}.{below}")
}

/// A part of the reference: the keys before the first table, or one table.
struct Part {
    title: String,
    about: String,
    reloads: bool,
    /// The first names of its variables.
    variable: Vec<&'static str>,
    leaves: Vec<Leaf>,
}

fn parts() -> Vec<Part> {
    let (values, tables): (Vec<_>, Vec<_>) =
        Keys::SECTION.keys.iter().partition(|key| matches!(key.form, KeyForm::Value(_)));
    let first = Part {
        title: String::new(),
        about: sentences(Keys::SECTION.about),
        reloads: false,
        variable: vec![],
        leaves: values.into_iter().flat_map(|key| below(key, key.form)).collect(),
    };
    let table = |key: &'static Key| {
        let (about, variable) = match key.form {
            KeyForm::List(section) | KeyForm::OneOrMany(section) => {
                (section.about, vec![key.name, "0"])
            }
            KeyForm::Table(section) => (section.about, vec![key.name]),
            KeyForm::Map(..) | KeyForm::Value(_) => (key.about, vec![key.name]),
        };
        let mut leaves = below(key, key.form);
        for leaf in &mut leaves {
            leaf.path = leaf.path.split_once('.').unwrap().1.into();
            leaf.example = leaf.example.split_once('.').unwrap().1.into();
            leaf.variable.remove(0);
        }
        let (title, about) = (key.title(), sentences(about));
        Part { title, about, reloads: key.reloads, variable, leaves }
    };
    std::iter::once(first).chain(tables.into_iter().map(table)).collect()
}

/// A value as TOML.
fn toml_of(of: &ValueType, text: &str) -> String {
    let is_toml = !of.is_text && toml::de::DeValue::parse(text).is_ok();
    if is_toml { text.into() } else { format!("{text:?}") }
}

fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.into());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            write!(line, "{space}{word}").unwrap();
        }
    }
    lines.join("\n")
}

fn markdown() -> String {
    let mut text: String = INTRODUCTION.split('\n').map(|line| wrap(line, 100) + "\n").collect();
    for part in parts() {
        let title = if part.title.is_empty() { "Before the first table" } else { &part.title };
        let reload =
            if part.reloads { "A *reload* applies changes." } else { "Changes need a restart." };
        let about = wrap(&format!("{} {reload}", part.about), 100);
        write!(text, "## {}\n\n{about}\n\n", heading(title)).unwrap();
        let mut example = part.title.clone();
        for leaf in &part.leaves {
            text += &entry(&part, leaf);
            if let Some(value) = leaf.key.example.or(leaf.key.default) {
                write!(example, "\n{} = {}", leaf.example, toml_of(leaf.of, value)).unwrap();
            }
        }
        write!(text, "\n```toml\n{}\n```\n\n", example.trim_start()).unwrap();
    }
    text.trim_end().to_owned() + "\n"
}

fn heading(title: &str) -> String {
    if title.starts_with('[') { format!("`{title}`") } else { title.into() }
}

fn entry(part: &Part, leaf: &Leaf) -> String {
    let name = variable(part.variable.iter().chain(&leaf.variable).copied());
    let absent = match (leaf.key.default, leaf.key.unset) {
        (Some(default), _) => format!("Default: `{}`.", toml_of(leaf.of, default)),
        (None, Some("required")) => "Required.".into(),
        (None, unset) => {
            format!("If not set: {}.", unset.expect("a key says what its absence means"))
        }
    };
    let reload = if leaf.key.reloads && !part.reloads {
        " A *reload* applies changes of this key."
    } else {
        ""
    };
    let about = format!("**`{}`** {}{reload}\\", leaf.path, sentences(leaf.key.about));
    let facts = format!("Type: {}. {absent} Variable: `{name}`.", leaf.of.name);
    let lines = [about, facts].map(|text| wrap(&text, 98)).join("\n").replace('\n', "\n  ");
    format!("- {lines}\n")
}

fn example() -> String {
    let mut text = String::from(
        "# Every key of solvegate, with an example value. Remove the `#` before a key to set it.\n\
         # docs/configuration.md describes the keys in full. Printed from their definition, as that is.\n",
    );
    for part in parts() {
        let mut keys = String::new();
        for leaf in &part.leaves {
            let Some(value) = leaf.key.example.or(leaf.key.default) else { continue };
            let about = wrap(&sentences(leaf.key.about), 96).replace('\n', "\n# ");
            let default = leaf.key.default.map_or(String::new(), |default| {
                format!("    # default: {}", toml_of(leaf.of, default))
            });
            let value = toml_of(leaf.of, value);
            writeln!(keys, "# {about}\n#{} = {value}{default}", leaf.example).unwrap();
        }
        let title = match part.title.as_str() {
            "" => String::new(),
            list if list.starts_with("[[") => format!("#{list}\n"),
            table => format!("{table}\n"),
        };
        let about = wrap(&part.about, 96).replace('\n', "\n# ");
        write!(text, "\n# {about}\n{title}\n{keys}").unwrap();
    }
    text
}

/// The example with every key set.
fn uncommented(example: &str) -> String {
    let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let line = |line| if is_key(&line) { &line[1..] } else { line };
    example.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn matches_golden(name: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, printed).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(printed, kept, "{name} differs; UPDATE_GOLDEN=1 rewrites it");
}

#[test]
fn the_reference_describes_the_keys_that_are_read() {
    matches_golden("docs/configuration.md", &markdown());
}

#[test]
fn the_example_loads_as_it_is_and_means_the_defaults() {
    matches_golden("solvegate.example.toml", &example());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../solvegate.example.toml");
    let config = Sources { file: Some(path), ..Sources::default() }.load().unwrap();
    assert_eq!(config, load("", &NOTHING).unwrap());
}

#[test]
fn the_example_loads_with_every_key_set() {
    let secrets = [
        ("CAPTCHAAI_API_KEY", "p"),
        ("SOLVEGATE_ADMIN_KEY", ADMIN),
        ("CHECKOUT_KEY", KEY),
        ("SOLVEGATE_STORE_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ("CALLBACK_SECRET", "whsec_x"),
        ("CHECKOUT_CALLBACK_SECRET", "whsec_x"),
        ("PINGBACK_SECRET", "sixteen characters"),
    ];
    let text = uncommented(&example());
    // A plan and prices exclude each other.
    let is_price = |line: &&str| line.starts_with("price_per_1000");
    let text: Vec<_> = text.lines().filter(|line| !is_price(line)).collect();
    let text = text.join("\n");
    let config = load(&text, &secrets).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(config.workers[0].budget.solves_per_day, Some(2000));
    let old = load("", &NOTHING).unwrap();
    let restart = old.needs_restart(&config);
    let expected: Vec<_> =
        Keys::SECTION.keys.iter().filter(|key| !key.reloads).map(Key::title).collect();
    assert_eq!(restart, expected, "each example differs from the default");
}

#[test]
fn the_schema_has_every_key_with_its_default_and_its_variable() {
    let schema = crate::config::schema();
    let url = &schema["properties"]["worker"]["items"]["properties"]["budget"]["properties"];
    assert_eq!(url["cost_per_day"]["x-environment"], "SOLVEGATE_WORKER__0__BUDGET__COST_PER_DAY");
    let hold = &schema["properties"]["hold"];
    assert_eq!((hold["type"].as_str(), hold["default"].as_str()), (Some("string"), Some("4s")));
    let worker = &schema["properties"]["worker"]["items"];
    assert_eq!(worker["required"], serde_json::json!(["name"]));
    assert_eq!(worker["properties"]["rate"]["x-needs-restart"], false);
    let keys = schema["properties"].as_object().unwrap().keys();
    assert!(keys.eq(Keys::SECTION.names()), "and no other");
}

/// A value that no key takes.
const WRONG: &str = "[[{}]]";

#[test]
fn a_wrong_value_of_any_key_is_refused_with_its_line_and_name() {
    let mut count = 0;
    for part in parts() {
        for leaf in &part.leaves {
            let text = format!("{}\n{} = {WRONG}", part.title, leaf.example);
            let said = refusal(&text);
            let name = leaf.example.rsplit('.').next().unwrap();
            assert!(said.starts_with("solvegate.toml:2:"), "{text}: {said}");
            assert!(said.contains(name), "{text}: {said}");
            count += 1;
        }
    }
    assert!(count > 90, "only {count} keys");
}
