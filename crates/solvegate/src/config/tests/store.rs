//! The store's URL: what chooses it, what is refused, and that its password is never shown.

use super::*;

const PASSWORD: &str = "canary-password";

fn store(written: &str) -> Result<Config, String> {
    load(&format!("[store]\nurl = \"{written}\""), &INSECURE)
}

const INSECURE: [(&str, &str); 1] = [("SOLVEGATE_INSECURE_STORE", "true")];

fn load_insecure(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    load(text, &[environment, &INSECURE].concat())
}

#[test]
fn a_store_on_another_machine_needs_verified_tls_or_a_word_that_it_does_not() {
    let safe = [
        "memory:",
        "embedded:here",
        "redis://127.0.0.1:6379",
        "redis+cluster://127.0.0.1:1,[::1]:2",
        "rediss://cache",
        "postgres://localhost/x?sslmode=disable",
        "postgres://db/x?sslmode=verify-full",
        "postgres://db/x?sslrootcert=ca.pem",
        "dynamodb:shop",
        "dynamodb:shop?endpoint=http://127.0.0.1:8000",
        "dynamodb:shop?endpoint=https://dynamo.example.com",
    ];
    let bare = |url: &str| load(&format!("[store]\nurl = \"{url}\""), &NOTHING);
    for url in safe {
        assert!(bare(url).is_ok(), "{url}: {:?}", bare(url).err());
    }
    let exposed = [
        ("redis://cache", "use rediss://"),
        ("redis://:canary@cache", "use rediss://"),
        ("redis+cluster://127.0.0.1:1,cache:2", "use rediss://"),
        ("postgres://db/x", "add ?sslmode=verify-full"),
        ("postgres://u:canary@db/x?sslmode=prefer", "add ?sslmode=verify-full"),
        ("postgres://db/x?sslmode=require", "add ?sslmode=verify-full"),
        ("postgres://db/x?sslmode=disable", "add ?sslmode=verify-full"),
        ("postgres://127.0.0.1/x?listen=postgres%3A%2F%2Fdb%2Fx", "add ?sslmode=verify-full"),
        ("dynamodb:shop?endpoint=http://10.0.0.1:8000", "https://"),
    ];
    for (url, remedy) in exposed {
        let ledger = format!("[store]\nurl = \"memory:\"\nledger = \"{url}\"");
        for (refusal, place) in [
            (bare(url).unwrap_err(), "solvegate.toml:2: [store] url: "),
            (load(&ledger, &NOTHING).unwrap_err(), "solvegate.toml:3: [store] ledger: "),
        ] {
            assert!(refusal.starts_with(place), "{refusal}");
            assert!(
                refusal.contains(remedy) && refusal.contains("insecure_store = true"),
                "{refusal}"
            );
            assert!(!refusal.contains("canary"), "{refusal}");
        }
        assert!(store(url).is_ok() && load_insecure(&ledger, &[]).is_ok(), "{url}");
    }
    for (variable, value) in [
        ("REDIS_URL", "redis://cache"),
        ("REDIS_HOST", "cache"),
        ("DATABASE_URL", "postgres://db/x"),
    ] {
        let refusal = load("", &[(variable, value)]).unwrap_err();
        assert!(refusal.starts_with(&format!("{variable}: ")), "{refusal}");
        assert!(load_insecure("", &[(variable, value)]).is_ok());
    }
    let endpoint = [("DYNAMODB_TABLE", "shop"), ("AWS_ENDPOINT_URL", "http://10.0.0.1:8000")];
    assert!(load("", &endpoint).unwrap_err().starts_with("DYNAMODB_TABLE: dynamodb:shop is on"));
    assert!(load("insecure_store = 1", &NOTHING).unwrap_err().contains("expected true or false"));
}

#[test]
fn every_form_of_a_redis_url_is_taken_and_shown_without_password_and_query() {
    let cases = [
        ("redis://cache", "redis://cache"),
        ("redis://cache:6380/2", "redis://cache:6380/2"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis://:canary-password@cache:6379/0", "redis://…@cache:6379/0"),
        ("rediss://u:canary@password@cache:6379/0?prefix=canary-1_x", "rediss://…@cache:6379/0"),
        ("redis+cluster://a:7000,b:7001", "redis+cluster://a:7000,b:7001"),
        ("redis+cluster://u:canary@a:7000,b:7001?prefix=canary", "redis+cluster://…@a:7000,b:7001"),
    ];
    for (written, shown) in cases {
        let config = store(written).unwrap();
        assert_eq!((config.store.to_string(), config.store.expose()), (shown.into(), written));
        assert!(config.store.is_shared());
        let debug = format!("{config:?}");
        assert!(!debug.contains("canary"), "{debug}");
    }
}

#[test]
fn a_bad_url_names_its_key_shows_a_right_one_and_never_itself() {
    let prefix = "x".repeat(41);
    let cases = [
        ("redis:".into(), "is not the address"),
        ("redis://".into(), "has no host"),
        ("redis://:canary@".into(), "has no host"),
        ("redis://host:canary".into(), "has no host, or one that is not"),
        ("redis://host:6379/canary".into(), "database that is not a number"),
        ("redis://a,b".into(), "only a cluster"),
        ("redis+cluster://a:1,,b:2".into(), "has no host"),
        ("redis+cluster://a:1,b:2/3".into(), "but a cluster has none"),
        ("redis://u:canary/x@host".into(), "%2F"),
        ("redis://host#canary".into(), "has no host"),
        ("redis://host?canary=1".into(), "unknown option after the `?`"),
        ("redis://host?prefix=".into(), "1 to 40"),
        ("redis://host?prefix=Canary".into(), "1 to 40"),
        (format!("redis://host?prefix={prefix}"), "1 to 40"),
        ("canary-pigeon".into(), "expected memory:"),
        ("embedded:".into(), "expected memory:"),
    ];
    for (written, says) in cases {
        let refusal = store(&written).unwrap_err();
        assert!(
            refusal.starts_with("solvegate.toml:2: [store] url: ") && refusal.contains(says),
            "{refusal}"
        );
        assert!(refusal.contains("redis://host:6379") && !refusal.contains("anary"), "{refusal}");
    }
}

#[test]
fn a_table_of_dynamodb_is_taken_and_shown_without_where_it_is() {
    for written in
        ["dynamodb:shop", "dynamodb:shop?region=eu-west-1&endpoint=http://127.0.0.1:8000"]
    {
        let config = store(written).unwrap();
        assert_eq!(config.store.to_string(), "dynamodb:shop");
        assert!(config.store.is_shared());
    }
    let example = "dynamodb:TABLE?region=eu-west-1";
    let misspelled = ("dynamodb:shop?regoin=x", "did you mean region=?");
    for (written, remedy) in [("dynamodb:", example), ("dynamodb:a", example), misspelled] {
        let refusal = store(written).unwrap_err();
        assert!(refusal.starts_with("solvegate.toml:2: [store] url: "), "{refusal}");
        assert!(refusal.contains(remedy), "{refusal}");
    }
}

#[test]
fn every_form_of_a_postgres_url_is_taken_and_shown_without_password_and_query() {
    let cases = [
        ("postgres://db", "postgres://db"),
        ("postgresql://ann@db:5433/shop", "postgresql://…@db:5433/shop"),
        ("postgres://ann:canary@db/shop?schema=qa_1&sslmode=require", "postgres://…@db/shop"),
        ("postgres://db/shop?listen=postgres%3A%2F%2Fu%3Acanary%40h%2Fshop", "postgres://db/shop"),
    ];
    for (written, shown) in cases {
        let config = store(written).unwrap();
        assert_eq!((config.store.to_string(), config.store.expose()), (shown.into(), written));
        assert!(config.store.is_shared());
        let debug = format!("{config:?}");
        assert!(!debug.contains("canary"), "{debug}");
    }
    let bad = [
        ("postgres://", "has no host"),
        ("postgres://a,b/shop", "names several hosts"),
        ("postgres://u:canary/x@host/db", "%2F"),
        ("postgres://host/db?canary=1", "unknown option after the `?`"),
        ("postgres://host/db?schema=Canary", "a schema that is not"),
        ("postgres://host/db?schema=pg_canary", "a schema that is not"),
    ];
    for (written, says) in bad {
        let refusal = store(written).unwrap_err();
        assert!(
            refusal.starts_with("solvegate.toml:2: [store] url: ") && refusal.contains(says),
            "{refusal}"
        );
        assert!(refusal.contains("postgres://user") && !refusal.contains("anary"), "{refusal}");
    }
}

#[test]
fn the_whole_url_may_be_a_secret_elsewhere_and_with_a_password_the_file_must_be_private() {
    let url = format!("redis://:{PASSWORD}@cache");
    let config = load_insecure("[store]\nurl = \"env:CACHE\"", &[("CACHE", &url)]).unwrap();
    assert_eq!(config.store.expose(), url);
    let says = store("env:NOT_SET").unwrap_err();
    assert!(says.contains("NOT_SET is not set"), "{says}");
    for (written, is_refused) in [(&*url, true), ("rediss://cache", false)] {
        let (_dir, sources) = written_store(written);
        let file = sources.file.clone().unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refusal = sources.load().err().map(|error| error.to_string());
        assert_eq!(refusal.is_some(), is_refused, "{refusal:?}");
        assert!(refusal.is_none_or(|says| says.contains("chmod 600") && !says.contains(PASSWORD)));
    }
}

fn written_store(url: &str) -> (tempfile::TempDir, Sources) {
    written(&format!("[store]\nurl = \"{url}\""))
}

#[test]
fn the_tutorials_variables_choose_redis_where_nothing_else_is_chosen() {
    let chosen =
        |environment: &[(&str, &str)]| load_insecure("", environment).map(|c| c.store.to_string());
    assert_eq!(chosen(&[("REDIS_URL", "redis://:p@a/1")]).unwrap(), "redis://…@a/1");
    assert_eq!(chosen(&[("REDIS_HOST", "a")]).unwrap(), "redis://a:6379");
    let both = [("REDIS_HOST", "a"), ("REDIS_PORT", "7"), ("DATABASE_URL", "x")];
    assert_eq!(chosen(&both).unwrap(), "redis://a:7");
    let linked = [("REDIS_HOST", "a"), ("REDIS_PORT", "tcp://10.0.0.1:6379")];
    assert!(chosen(&linked).unwrap_err().starts_with("REDIS_PORT: expected"));
    // Orchestrators set that one for every service called redis.
    assert_eq!(chosen(&[("REDIS_PORT", "6379")]).unwrap(), "embedded:./solvegate-data");
    let says = chosen(&[("REDIS_URL", "http://canary")]).unwrap_err();
    assert!(says.starts_with("REDIS_URL: expected") && !says.contains("canary"), "{says}");
    let file = load("[store]\nurl = \"memory:\"", &[("REDIS_URL", "redis://a")]).unwrap();
    assert_eq!(file.store.to_string(), "memory:", "a chosen store wins");
    let (_dir, mut sources) = written("");
    sources.environment = [("REDIS_URL", "redis://a")].into_iter().collect();
    sources.flags.data = Some("own".into());
    assert_eq!(sources.load().unwrap().store.to_string(), "embedded:own", "--data chooses too");
}

#[test]
fn the_tutorials_table_is_chosen_where_nothing_else_is() {
    let chosen = load("", &[("DYNAMODB_TABLE", "captcha-solves")]).unwrap();
    assert_eq!(chosen.store.to_string(), "dynamodb:captcha-solves");
    let says = load("", &[("DYNAMODB_TABLE", "x")]).unwrap_err();
    assert!(says.starts_with("DYNAMODB_TABLE: "), "{says}");
    let chosen = load("[store]\nurl = \"memory:\"", &[("DYNAMODB_TABLE", "x")]);
    assert!(chosen.is_ok(), "a chosen store wins");
}

#[test]
fn the_tutorials_database_is_chosen_where_nothing_else_is() {
    let named =
        |url| load_insecure("", &[("DATABASE_URL", url)]).map(|config| config.store.to_string());
    assert_eq!(named("postgres://u:canary@db/shop").unwrap(), "postgres://…@db/shop");
    let says = named("mysql://u:canary@db/shop").unwrap_err();
    assert!(says.starts_with("DATABASE_URL: is not PostgreSQL"), "{says}");
    assert!(says.contains("--data DIR") && !says.contains("canary"), "{says}");
    let chosen = load("[store]\nurl = \"memory:\"", &[("DATABASE_URL", "mysql://x")]);
    assert!(chosen.is_ok(), "a chosen store wins");
}

#[test]
fn what_all_gateways_of_a_shared_store_must_know_is_configured_and_never_made() {
    let with = |more: &str| load(&format!("[store]\nurl = \"redis://a\"\n{more}"), &INSECURE);
    let config = with("").unwrap();
    assert_eq!(
        (config.data.as_deref(), config.secrets_dir()),
        (Some("./solvegate-data".as_ref()), None)
    );
    let says = with("[alerts]\nurl = \"https://x.example/\"").unwrap_err();
    assert!(says.starts_with("[callbacks] secret: is missing"), "{says}");
    let says = with("[upstream]\npingback_url = \"https://x.example\"").unwrap_err();
    assert!(says.starts_with("[upstream] pingback_secret: is missing"), "{says}");
}

#[test]
fn history_may_be_kept_in_any_store_but_the_same() {
    let written = |store: &str, ledger: &str| {
        load(&format!("[store]\nurl = \"{store}\"\nledger = \"{ledger}\""), &INSECURE)
    };
    let config = written("redis://cache", "redis://:canary@other:6379/0?prefix=x").unwrap();
    assert_eq!(config.ledger.as_ref().unwrap().to_string(), "redis://…@other:6379/0");
    assert!(!format!("{config:?}").contains("canary"));
    let different = [
        ("embedded:here", "embedded:there"),
        ("redis://cache", "redis://cache?prefix=history"),
        ("redis://cache/0", "redis://cache/1"),
        ("memory:", "embedded:there"),
        ("memory:", "postgres://db/shop"),
        ("postgres://db/shop", "postgres://db/shop?schema=history"),
    ];
    for (store, ledger) in different {
        assert!(written(store, ledger).is_ok(), "{store} {ledger}");
    }
    let same = [
        ("embedded:here", "embedded:here"),
        ("redis://cache", "redis://:canary@cache/0"),
        ("redis://cache/2?prefix=a", "redis://cache/2?prefix=a"),
        ("postgres://db/shop?schema=a", "postgres://u:canary@db/shop?sslmode=require&schema=a"),
    ];
    for (store, ledger) in same {
        let refusal = written(store, ledger).unwrap_err();
        assert!(refusal.contains("[store] ledger: is the store itself"), "{refusal}");
        assert!(!refusal.contains("canary"), "{refusal}");
    }
    for same in ["dynamodb:shop", "dynamodb:shop?file_every=9", "dynamodb:shop?region=local"] {
        assert!(written("dynamodb:shop", same).is_err(), "{same}");
    }
    assert!(written("dynamodb:shop?region=a", "dynamodb:shop?file_every=9&region=a").is_err());
    assert!(written("dynamodb:shop?region=a", "dynamodb:shop?region=b").is_ok());
    assert!(written("dynamodb:shop", "dynamodb:history").is_ok());
    assert!(written("redis://cache", "dynamodb:shop").is_ok());
    assert!(written("memory:", "pigeon").unwrap_err().contains("[store] ledger: expected"));
}

// === encryption_key ===

const STORE_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn encryption(written: &str) -> Result<Config, String> {
    load(&format!("[store]\nencryption_key = {written}"), &[("STORE_KEY", STORE_KEY)])
}

#[test]
fn an_encryption_key_is_one_key_or_the_new_one_and_the_old_one() {
    assert_eq!(load("", &NOTHING).unwrap().encryption, None);
    let (one, old) = encryption("\"env:STORE_KEY\"").unwrap().encryption.unwrap();
    assert_eq!(old, None);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.key");
    crate::keys::write_private(&path, OTHER).unwrap();
    let both = format!("[\"file:{}\", \"env:STORE_KEY\"]", path.display());
    let config = encryption(&both).unwrap();
    let (new, old) = config.encryption.clone().unwrap();
    assert!(new != one && old == Some(one));
    let debug = format!("{config:?}");
    assert!(!debug.contains(STORE_KEY) && !debug.contains(OTHER), "{debug}");
}

#[test]
fn a_bad_encryption_key_is_refused_with_its_name_and_without_its_value() {
    let same = "[\"env:STORE_KEY\", \"env:STORE_KEY\"]";
    let three = "[\"env:STORE_KEY\", \"env:STORE_KEY\", \"env:STORE_KEY\"]";
    let guessable = format!("\"{}\"", "ab".repeat(32));
    for (bad, why) in [
        ("\"canary-short\"", "32 bytes as 64 hex digits or as base64"),
        ("\"env:MISSING\"", "MISSING is not set"),
        (&guessable, "is not random"),
        ("[]", "is empty"),
        ("\"\"", "is empty"),
        (same, "same key twice"),
        (three, "more than two keys"),
        ("7", "expected"),
        ("[\"env:STORE_KEY\", 7]", "expected"),
    ] {
        let error = encryption(bad).unwrap_err();
        assert!(error.contains("encryption_key") && error.contains(why), "{bad}: {error}");
        assert!(!error.contains("canary") && !error.contains("abab"), "{error}");
    }
}
