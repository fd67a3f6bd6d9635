//! Tests of both stages: what is accepted, what is refused, and what the refusal says.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use domain::{
    retry::{Class, Jitter, Profile, RetryTable},
    site::Reuse,
    solve::AmbiguousPolicy,
};
use engine::Slots;

use super::*;

mod access_keys;
mod admins;
mod budgets;
mod guard;
mod limits;
mod reference;
mod standing;
mod store;

const KEY: &str = "f3b1c09d5e7a4826b0d19e6c7a58f243";
const ADMIN: &str = "9d04e7b2a6c15f83e0b7d2946a1c8f5e";
const NOTHING: [(&str, &str); 0] = [];

fn written(text: &str) -> (tempfile::TempDir, Sources) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("solvegate.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (dir, Sources { file: Some(path), ..Sources::default() })
}

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let (dir, mut sources) = written(text);
    sources.environment = environment.iter().copied().collect();
    let place = dir.path().display().to_string();
    sources.load().map_err(|error| error.to_string().replace(&format!("{place}/"), ""))
}

fn refusal(text: &str) -> String {
    load(text, &NOTHING).unwrap_err()
}

#[test]
fn with_nothing_given_there_is_a_gateway_with_a_simulator() {
    let config = load("", &NOTHING).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8402");
    assert_eq!(config.store.to_string(), "embedded:./solvegate-data");
    assert_eq!(config.upstream.service, Service::Simulator);
    let hosts: Vec<_> = config.declarations.sites.iter().map(|s| s.rule.to_string()).collect();
    assert!(hosts.contains(&"*.example.org".into()) && hosts.contains(&"localhost".into()));
    assert!(config.declarations.images.is_some());
}

#[test]
fn with_a_real_upstream_nothing_is_declared() {
    let config = load("", &[("CAPTCHAAI_API_KEY", "abc")]).unwrap();
    assert!(
        matches!(&config.upstream.service, Service::Elsewhere { url, .. } if url == "https://ocr.captchaai.com")
    );
    assert!(config.declarations.sites.is_empty() && config.declarations.images.is_none());
}

/// Every key there is.
const EVERYTHING: &str = r#"
        listen = "127.0.0.1:9000"
        hosts = ["gate.internal"]
        hold = "0s"
        deadline = "2m"
        reuse_window = "30s"
        ambiguity_budget = 7
        max_queued = 5000
        [upstream]
        url = "http://127.0.0.1:1"
        key = "env:PROVIDER_KEY"
        slots = 12
        submits_per_second = 5
        polls_per_task = 9
        price_per_1000 = { recaptcha_v2 = 1.0, image = 0.5, default = 2.0 }
        pingback_url = "https://gate.internal"
        pingback_secret = "env:PINGBACK"
        [store]
        url = "memory:"
        [admin]
        key = "env:ADMIN"
        [[worker]]
        name = "checkout-tests"
        key = "env:WORKER"
        project = "checkout"
        projects = ["returns"]
        budget = { solves_per_day = 2000, cost_per_day = 5.0 }
        rate = "20/s"
        poll_rate = "100/s"
        read_rate = "5/s"
        queue = 200
        sites = ["shop.example.com"]
        priority = 3
        [[site]]
        host = "shop.example.com"
        basis = "own shop, QA contract 2026-14"
        owner = "qa@example.com"
        expires = "2027-06-30"
        methods = ["yandex"]
        params = ["div_id"]
        sitekeys = ["0x4AAA"]
        reuse = "never"
        ambiguous = "never"
        key_ignores_proxy = true
        [polling]
        mode = "fixed"
        first = "2s"
        interval = "3s"
        min_gap = "1s"
        batch = false
        [[pool]]
        kind = "turnstile"
        sitekey = "0x4AAA"
        pageurl = "https://shop.example.com/login"
        params = { action = "login" }
        level = 5
        max = 9
        waste = 0.2
        project = "checkout"
        [retry]
        profile = "aggressive"
        base = "2s"
        cap = "40s"
        most = 4
        jitter = "additive"
        [retry.codes."ERROR_CAPTCHA_UNSOLVABLE"]
        max = 1
        backoff = true
        wait = "5s"
        [retry.codes]
        "ERROR: 1003" = { wait = "45s" }
        ERROR_TEAPOT = { class = "transient" }
        [callbacks]
        secret = "env:HOOKS"
        hosts = ["127.0.0.1:9000", "hooks.internal"]
        [alerts]
        url = "env:ALERTS"
        dead_letters = 25
        cooldown = "5m"
        [images]
        basis = "own intranet forms"
        [tokens]
        turnstile = { lifetime = "200s", margin = "20s" }
        [tls]
        self_signed = true
    "#;

#[test]
fn every_key_of_the_contract_is_understood() {
    let secrets = [
        ("PROVIDER_KEY", "p"),
        ("ADMIN", ADMIN),
        ("WORKER", KEY),
        ("HOOKS", "whsec_x"),
        ("PINGBACK", "sixteen characters"),
        ("ALERTS", "https://hooks.example.com/abc"),
    ];
    let config = load(EVERYTHING, &secrets).unwrap();
    assert_eq!(config.upstream.slots, Slots::Fixed(12));
    assert_eq!(config.upstream.prices.kinds.len(), 2);
    let worker = &config.workers[0];
    assert_eq!(worker.rate, Some("20/s".parse().unwrap()));
    assert_eq!(worker.budget.cost_per_day.unwrap().micros(), 5_000_000);
    let site = &config.declarations.sites[0];
    assert_eq!((site.reuse, site.ambiguous), (Some(Reuse::Never), AmbiguousPolicy::Never));
    assert_eq!(config.claims.ambiguity_budget, 7);
    assert_eq!(config.tls, Some(Tls::SelfSigned));
    assert_eq!((worker.priority, config.callbacks.hosts.len()), (3, 2));
    assert_eq!(config.callbacks.secret.unwrap().expose(), "whsec_x");
    let alerts = config.alerts.unwrap();
    assert_eq!((alerts.dead_letters, alerts.cooldown), (25, Duration::from_secs(300)));
    assert_eq!((config.data, config.claims.hold), (None, Duration::ZERO));
}

/// `key = "…"` of a worker that is otherwise fine, with more keys.
fn scope_of(more: &str) -> domain::declarations::WorkerScope {
    let text = format!("[[worker]]\nname = \"w\"\nkey = \"{KEY}\"\n{more}");
    load(&text, &[]).unwrap().workers[0].scope.clone()
}

#[test]
fn a_worker_kept_to_sites_sends_no_pictures_unless_that_is_written() {
    assert!(scope_of("").images);
    assert!(!scope_of("images = false").images);
    assert!(!scope_of("sites = [\"shop.example.com\"]").images);
    assert!(scope_of("sites = [\"shop.example.com\"]\nimages = true").images);
}

#[test]
fn images_cover_the_kinds_that_are_written_down() {
    let kinds = |text: &str| {
        let images = load(text, &[("PROVIDER_KEY", "p")]).unwrap().declarations.images.unwrap();
        let names: Vec<_> = images.kinds.iter().map(|kind| kind.name().to_owned()).collect();
        names.join(" ")
    };
    let upstream = "[upstream]\nurl = \"https://ocr.example.com\"\nkey = \"env:PROVIDER_KEY\"\n";
    let images = "[images]\nbasis = \"own forms\"\n";
    assert_eq!(kinds(&format!("{upstream}{images}")), "image text");
    assert_eq!(kinds(&format!("{upstream}{images}kinds = [\"grid\"]")), "grid");
    assert_eq!(kinds(images), "image text grid coordinates bls rotate");
    for (wrong, says) in [
        ("kinds = [\"image\"]", "[images]: basis is missing"),
        ("expires = \"2027-06-30\"", "[images]: basis is missing"),
        ("basis = \"own\"\nkinds = []", "[images] kinds: is empty; name a kind"),
        (
            "basis = \"own\"\nkinds = [\"turnstile\"]",
            "turnstile has a page, so a [[site]] declares it",
        ),
        ("basis = \"own\"\nkinds = [\"imege\"]", "kind without a page, did you mean \"image\"?"),
        ("basis = \"own\"\nexpires = \"soon\"", "expires: \"soon\" is not a date"),
    ] {
        let refused = refusal(&format!("[images]\n{wrong}"));
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn an_unknown_key_is_answered_with_the_line_and_the_nearest_key() {
    let cases = [
        ("lisen = \"x\"", "solvegate.toml:1: unknown key `lisen`; did you mean `listen`?"),
        (
            "[upstream]\nurl = \"sim\"\nslot = 3",
            "solvegate.toml:3: unknown key `slot` in [upstream]; did you mean `slots`?",
        ),
        (
            "[[site]]\nhost = \"a.example\"\n\n[[site]]\nbases = \"x\"",
            "solvegate.toml:5: unknown key `bases` in [[site]]; did you mean `basis`?",
        ),
        (
            "[[worker]]\nbudget = { solves_a_day = 3 }",
            "solvegate.toml:2: unknown key `solves_a_day` in [[worker]] budget; did you mean `solves_per_day`?",
        ),
        (
            "[images]\nqqqq = 1",
            "solvegate.toml:2: unknown key `qqqq` in [images]; its keys are `basis`, `kinds`, `expires`",
        ),
    ];
    for (text, says) in cases {
        assert_eq!(refusal(text), says);
    }
}

#[test]
fn a_wrong_type_is_answered_with_the_line_and_never_with_a_secret() {
    assert_eq!(
        refusal("\n[upstream]\nsubmits_per_second = \"many\""),
        "solvegate.toml:3: [upstream] submits_per_second: expected a whole number from 1, found a string"
    );
    let says = refusal("[admin]\nkey = 987654321098");
    assert!(
        says.starts_with("solvegate.toml:2: [admin] key: expected a string")
            && !says.contains("98765"),
        "{says}"
    );
    let says = refusal("[admin]\nkey = \"canary-secret\nlisten = 3");
    assert!(says.starts_with("solvegate.toml:2") && !says.contains("canary"), "{says}");
}

#[test]
fn what_is_unsafe_or_not_there_yet_is_refused_with_the_way_out() {
    let worker = |extra: &str| format!("[[worker]]\nname = \"a\"\n{extra}\n");
    let cases: Vec<(String, &str)> = vec![
        ("listen = \"0.0.0.0:8402\"".into(), "--tls-self-signed"),
        ("[[site]]\nhost = \"*\"\nbasis = \"x\"".into(), "would declare every site"),
        ("[[site]]\nhost = \"*.co.uk\"\nbasis = \"x\"".into(), "whole public suffix"),
        ("[[site]]\nhost = \"shop.example.com\"".into(), "basis is missing"),
        ("[[site]]\nhost = \"shop.example.com\"\nbasis = \" \"".into(), "basis: is empty"),
        (worker("key = \"short\""), "exactly 32"),
        (worker(""), "key is missing"),
        (
            worker(&format!("key = \"{KEY}\"")) + &worker(&format!("key = \"{KEY}\"")),
            "the name is used twice",
        ),
        (
            format!("[admin]\nkey = \"{KEY}\"\n") + &worker(&format!("key = \"{KEY}\"")),
            "the key is used twice",
        ),
        (
            "[upstream]\nurl = \"http://ocr.example.com\"\nkey = \"x\"".into(),
            "could be read on the way",
        ),
        ("[upstream]\nurl = \"https://ocr.example.com\"".into(), "set CAPTCHAAI_API_KEY"),
        ("[upstream]\nslots = 0".into(), "a number from 1"),
        ("deadline = \"soon\"".into(), "is not a duration"),
        ("[tls]\ncert = \"x\"".into(), "given together"),
        (worker(&format!("key = \"{KEY}\"\npriority = 0")), "from 1 (the default) to 100"),
        (worker(&format!("key = \"{KEY}\"\npriority = 101")), "from 1 (the default) to 100"),
        ("[alerts]\ndead_letters = 3".into(), "say where alerts are to go"),
        ("[alerts]\nurl = \"ftp://x\"".into(), "expected an address"),
        (
            "[alerts]\nurl = \"https://x.example/\"\ndead_letters = 0".into(),
            "a whole number from 1",
        ),
        ("[alerts]\nurl = \"https://x.example/\"\ncooldown = \"0s\"".into(), "longer than zero"),
        ("[callbacks]\nsecret = \"env:NOT_SET\"".into(), "NOT_SET is not set"),
        (
            worker(&format!("key = \"{KEY}\"\ncallbacks = {{ host = \"x\" }}")),
            "did you mean `hosts`",
        ),
        (
            worker(&format!("key = \"{KEY}\"\ncallbacks = {{ secret = \"env:NOT_SET\" }}")),
            "NOT_SET is not set",
        ),
        (
            "[store]\nurl = \"memory:\"\n[alerts]\nurl = \"https://x.example/\"".into(),
            "[callbacks] secret: is missing",
        ),
    ];
    for (text, says) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(says), "{text}\n  said: {refusal}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let environment = [
        ("SOLVEGATE_LISTEN", "127.0.0.1:2"),
        ("SOLVEGATE_UPSTREAM__SLOTS", "3"),
        ("SOLVEGATE_UPSTREAM__PRICE_PER_1000__IMAGE", "2.5"),
        ("SOLVEGATE_SITE__0__HOST", "a.example.com"),
        ("SOLVEGATE_SITE__0__BASIS", "own"),
        ("SOLVEGATE_WORKER__0__NAME", "w"),
        ("SOLVEGATE_WORKER__0__KEY", KEY),
        ("SOLVEGATE_ADMIN_KEY", "somebody's own variable"),
    ];
    let (_dir, mut sources) = written("listen = \"127.0.0.1:1\"\n[upstream]\nslots = 9");
    sources.environment = environment.into_iter().collect();
    let config = sources.load().unwrap();
    assert_eq!((config.listen.port(), config.upstream.slots), (2, Slots::Fixed(3)));
    assert_eq!(config.declarations.sites[0].rule.to_string(), "a.example.com");
    assert_eq!(config.workers.len(), 1);
    sources.flags.set("--listen", "listen", Some(&"127.0.0.1:3".into()));
    assert_eq!(sources.load().unwrap().listen.port(), 3);
}

#[test]
fn a_wrong_variable_is_named() {
    let cases = [
        (
            "SOLVEGATE_UPSTREAM__SLOT",
            "1",
            "unknown key `SLOT` in [upstream]; did you mean SOLVEGATE_UPSTREAM__SLOTS?",
        ),
        (
            "SOLVEGATE_UPSTREAM__SUBMITS_PER_SECOND",
            "many",
            "SOLVEGATE_UPSTREAM__SUBMITS_PER_SECOND: expected a whole number from 1, found a string",
        ),
        ("SOLVEGATE_SITE__5__HOST", "x", "number its members from 0"),
        ("SOLVEGATE_UPSTREAM", "x", "is a table"),
    ];
    for (name, value, says) in cases {
        let refusal = load("", &[(name, value)]).unwrap_err();
        assert!(refusal.starts_with(name) && refusal.contains(says), "{refusal}");
    }
}

#[test]
fn a_wrong_value_is_named_by_the_option_or_variable_it_came_from() {
    let variables = [
        ("SOLVEGATE_DEADLINE", "soon", "is not a duration"),
        ("SOLVEGATE_STORE__URL", "redis://", "has no host"),
        ("SOLVEGATE_WORKER__0__KEY", "short", "exactly 32"),
        ("SOLVEGATE_UPSTREAM__PRICE_PER_1000__IMAGE", "cheap", "an amount of zero or more"),
    ];
    for (name, value, says) in variables {
        let refusal = load("", &[(name, value), ("SOLVEGATE_WORKER__0__NAME", "w")]).unwrap_err();
        assert!(refusal.starts_with(&format!("{name}: ")) && refusal.contains(says), "{refusal}");
    }
    for (option, key) in [("--store", "store.url"), ("--listen", "listen")] {
        let (_dir, mut sources) = written("");
        sources.flags.set(option, key, Some(&"nonsense".into()));
        let refusal = sources.load().unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("{option}: ")), "{refusal}");
    }
}

#[test]
fn a_secret_file_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let (dir, sources) = written("");
    let path = dir.path().join("admin.key");
    fs::write(&path, format!("{ADMIN}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = sources.file.clone().unwrap();
    fs::write(&file, format!("[admin]\nkey = \"file:{}\"", path.display())).unwrap();
    let says = sources.load().unwrap_err().to_string();
    assert!(says.contains("0644") && says.contains("chmod 600"), "{says}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        sources.load().unwrap().admins[0].keys,
        [domain::key::KeyDigest::of(ADMIN).unwrap().into()]
    );
}

#[test]
fn a_secret_written_into_a_file_that_others_can_read_is_refused() {
    let (_dir, sources) = written(&format!("[admin]\nkey = \"{ADMIN}\""));
    assert!(sources.load().is_ok());
    let file = sources.file.clone().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let says = sources.load().unwrap_err().to_string();
    assert!(
        says.contains("chmod 600") && says.contains("env:NAME") && !says.contains("a2345"),
        "{says}"
    );
}

#[test]
fn a_reload_tells_what_it_cannot_change() {
    let old = load("", &NOTHING).unwrap();
    let new = load("listen = \"127.0.0.1:1\"\n[retry]\nprofile = \"aggressive\"\n[[site]]\nhost = \"x.example\"\nbasis = \"b\"", &NOTHING).unwrap();
    assert_eq!(old.needs_restart(&new), ["listen", "[retry]"]);
    assert_eq!(old.needs_restart(&old), Vec::<&str>::new());
}

fn retry(text: &str) -> RetryTable {
    load(&format!("[retry]\n{text}"), &NOTHING).unwrap().retry
}

#[test]
fn the_retry_table_is_a_profile_with_single_values_over_it() {
    assert_eq!(retry(""), RetryTable::in_php(Profile::Default));
    assert_eq!(retry("profile = \"aggressive\""), RetryTable::in_php(Profile::Aggressive));
    let table = retry(
        "profile = \"conservative\"\ncap = \"30s\"\njitter = \"additive\"\n\
         [retry.codes.\"ERROR_CAPTCHA_UNSOLVABLE\"]\nmax = 1\nbackoff = true\nwait = \"5s\"\n\
         [retry.codes]\n\"ERROR: 1003\" = { wait = \"45s\" }\nNEW = { class = \"transient\" }",
    );
    let backoff = table.backoff();
    assert_eq!((backoff.base, backoff.cap), (Duration::from_secs(2), Duration::from_secs(30)));
    assert_eq!((backoff.most, table.jitter()), (5, Jitter::Additive));
    let unsolvable = table.rule(&"ERROR_CAPTCHA_UNSOLVABLE".into());
    assert_eq!((unsolvable.max, unsolvable.backoff), (1, true));
    assert_eq!(unsolvable.floor, Duration::from_secs(5));
    assert_eq!(table.rule(&"ERROR: 1003".into()).floor, Duration::from_secs(45));
    assert_eq!(table.rule(&"NEW".into()).class, Class::Transient);
}

#[test]
fn codes_can_be_overridden_by_the_environment() {
    let environment = [("SOLVEGATE_RETRY__CODES__ERROR_CAPTCHA_UNSOLVABLE__MAX", "0")];
    let table = load("[retry]\nprofile = \"default\"", &environment).unwrap().retry;
    assert_eq!(table.rule(&"ERROR_CAPTCHA_UNSOLVABLE".into()).max, 0);
}

#[test]
fn what_would_make_the_retry_table_unsafe_is_refused_by_its_code() {
    let cases = [
        ("profile = \"reckless\"", "expected \"default\""),
        ("jitter = \"none\"", "expected \"full\" or \"additive\""),
        ("base = \"0s\"", "longer than zero"),
        ("base = \"10s\"\ncap = \"5s\"", "is less than base"),
        ("cap = \"2h\"", "an hour at most"),
        ("most = 101", "100 at most"),
        ("[retry.codes]\nAMBIGUOUS = { max = 3 }", "[retry.codes.\"AMBIGUOUS\"]: a lost reply may"),
        ("[retry.codes]\nERROR_ZERO_BALANCE = { class = \"permanent\" }", "must not fail claims"),
        ("[retry.codes]\nERROR_NO_SLOT_AVAILABLE = { max = 5 }", "is not counted"),
        ("[retry.codes]\nERROR_PAGEURL = { class = \"temporary\" }", "\"task-over\""),
        ("[retry.codes]\nERROR_SERVER_EROR = { max = 1 }", "did you mean \"ERROR_SERVER_ERROR\"?"),
        ("[retry.codes]\nQ = { max = 1 }", "A new one needs its class too"),
        ("[retry.codes]\nERROR_PAGEURL = { maximum = 1 }", "did you mean `max`?"),
        ("[retry.codes.ERROR_PAGEURL]\nwaits = \"1s\"", "did you mean `wait`?"),
        ("[retry.codes]\nERROR_PAGEURL = 3", "expected a table, found a whole number"),
    ];
    for (text, says) in cases {
        let refusal = refusal(&format!("[retry]\n{text}"));
        assert!(refusal.contains(says), "{text}\n  said: {refusal}");
    }
}
