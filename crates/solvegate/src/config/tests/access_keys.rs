//! `key` and `keys` of workers and admins.

use domain::{
    key::{AccessKey, KeyDigest},
    time::Timestamp,
};

use super::*;

const OTHER: &str = "1b7ce02f94d8a635f0c29e4b7d618a53";

fn digest(key: &str) -> String {
    KeyDigest::of(key).unwrap().to_hex()
}

fn worker(more: &str) -> String {
    format!("[[worker]]\nname = \"w\"\n{more}\n")
}

fn keys_of(more: &str) -> Vec<AccessKey> {
    load(&worker(more), &[("NEW", KEY)]).unwrap().workers.remove(0).keys
}

#[test]
fn a_worker_has_one_key_or_several_with_an_end() {
    let known = |key| KeyDigest::of(key).unwrap();
    assert_eq!(keys_of("key = \"env:NEW\""), [known(KEY).into()]);
    let sha = digest(OTHER);
    let until = |text: &str| {
        let both =
            format!("keys = [{{ key = \"env:NEW\" }}, {{ sha256 = \"{sha}\", until = {text} }}]");
        let keys = keys_of(&both);
        assert_eq!((keys.len(), keys[0]), (2, known(KEY).into()));
        assert_eq!(keys[1].digest, known(OTHER));
        keys[1].until.unwrap()
    };
    let end: Timestamp = "2027-02-01T00:00:00Z".parse().unwrap();
    assert_eq!([until("\"2027-01-31\""), until("2027-01-31")], [end; 2], "the whole last day");
    let moment: Timestamp = "2027-01-31T17:00:00Z".parse().unwrap();
    assert_eq!(
        [until("\"2027-01-31T18:00:00+01:00\""), until("2027-01-31T17:00:00Z")],
        [moment; 2]
    );
}

#[test]
fn keys_come_from_the_environment_as_toml() {
    let environment = [
        ("SOLVEGATE_WORKER__0__NAME", "w".to_owned()),
        ("SOLVEGATE_WORKER__0__KEYS", format!("[{{ sha256 = \"{}\" }}]", digest(KEY))),
    ];
    let sources = Sources { environment: environment.into_iter().collect(), ..Sources::default() };
    assert_eq!(sources.load().unwrap().workers[0].keys, [KeyDigest::of(KEY).unwrap().into()]);
}

#[test]
fn bad_keys_are_refused_with_a_remedy() {
    let sha = digest(KEY);
    let cases = [
        (
            format!("key = \"{}\"", "a".repeat(32)),
            "[[worker]] key: the key can be guessed, because it has fewer than 8",
        ),
        (
            "key = \"0123456789abcdef0123456789abcdef\"".into(),
            "repeats a shorter text; make one with: openssl rand -hex 16",
        ),
        ("key = \"abcdefghijklmnopqrstuvwxyz012345\"".into(), "counts upwards"),
        ("key = \"short\"".into(), "exactly 32"),
        (
            format!("keys = [{{ key = \"{KEY}\" }}, {{ key = \"{}\" }}]", "a".repeat(32)),
            "[[worker]] keys: number 2: the key can be guessed",
        ),
        (
            format!("key = \"{KEY}\"\nkeys = [{{ key = \"{OTHER}\" }}]"),
            "[[worker]] w: give either key or keys",
        ),
        (
            format!("keys = [{{ key = \"{KEY}\" }}, {{ sha256 = \"{sha}\" }}]"),
            "[[worker]] w: the key is used twice",
        ),
        ("keys = []".into(), "is empty; name at least one key"),
        ("keys = \"x\"".into(), "expected a list of tables"),
        ("keys = [\"x\"]".into(), "number 1: expected { key = "),
        (
            "keys = [{ sha256 = \"abc\" }]".into(),
            "number 1: sha256: expected 64 hexadecimal digits",
        ),
        ("keys = [{ until = \"2027-01-31\" }]".into(), "number 1: key or sha256 is missing"),
        (
            format!("keys = [{{ key = \"{KEY}\", sha256 = \"{sha}\" }}]"),
            "give either key or sha256, not both",
        ),
        (
            format!("keys = [{{ sha265 = \"{sha}\" }}]"),
            "unknown key `sha265`; did you mean `sha256`?",
        ),
        (
            format!("keys = [{{ sha256 = \"{sha}\", until = \"soon\" }}]"),
            "until: \"soon\" is not a day such as",
        ),
        (
            format!("keys = [{{ sha256 = \"{sha}\", until = 2027-01-31T10:00:00 }}]"),
            "is not a day such as",
        ),
        (
            "keys = [{ key = \"env:MISSING\" }]".into(),
            "number 1: key: the environment variable MISSING is not set",
        ),
    ];
    for (more, says) in cases {
        let refusal = refusal(&worker(&more));
        assert!(refusal.contains(says), "{more}\n  said: {refusal}");
        assert!(!refusal.contains(KEY) && !refusal.contains(&sha), "{refusal}");
    }
}

#[test]
fn the_key_of_the_account_is_no_ones_key_at_the_gateway() {
    let account = format!("[upstream]\nkey = \"{KEY}\"\n");
    let sha = digest(KEY);
    for (text, place) in [
        (worker(&format!("key = \"{KEY}\"")), "[[worker]] w"),
        (worker(&format!("keys = [{{ sha256 = \"{sha}\" }}]")), "[[worker]] w"),
        (format!("[admin]\nkey = \"{KEY}\""), "[admin] key"),
    ] {
        let refusal = refusal(&(account.clone() + &text));
        assert!(
            refusal.starts_with(place) && refusal.contains("go around the gateway"),
            "{refusal}"
        );
    }
}
