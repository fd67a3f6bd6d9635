//! `solvegate doctor`: good, risky and wrong findings, each with its mark, its remedy and its exit code.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;
use store_tests::servers::{Persistence, RedisOptions, RedisServer};

use crate::support::{ADMIN, ClosedPort, Gateway, Sim, WORKER, run};

const KEY: &str = "canary-provider-8901234567890123";

/// Runs it on a free port and returns its findings with their weights.
fn doctor(dir: &Path, args: &[&str]) -> (Option<i32>, Vec<(String, String, String)>) {
    doctor_on(dir, args, "memory:")
}

/// The same with a store's URL for `--store env:STORE`.
fn doctor_on(
    dir: &Path,
    args: &[&str],
    store: &str,
) -> (Option<i32>, Vec<(String, String, String)>) {
    let all = [&["doctor", "--json", "--listen", "127.0.0.1:0"], args].concat();
    let output = run(dir, &all, &[("PROVIDER_KEY", KEY), ("STORE", store)]);
    assert!(!format!("{}{}", output.stdout, output.stderr).contains("canary"), "{}", output.stdout);
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(said["well"], output.code == Some(0), "{said}");
    let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let checks = said["checks"].as_array().unwrap().iter().map(|check| {
        let what = text(check, "what") + " → " + &text(check, "remedy");
        (text(check, "about"), text(check, "weight"), what)
    });
    (output.code, checks.collect())
}

/// Asserts that there is such a finding.
fn says(checks: &[(String, String, String)], about: &str, weight: &str, what: &str) {
    let found = checks.iter().any(|(a, w, said)| a == about && w == weight && said.contains(what));
    assert!(found, "{about} {weight} {what} is not in {checks:#?}");
}

fn write(dir: &Path, text: &str) {
    fs::write(dir.join("solvegate.toml"), text).unwrap();
}

fn elsewhere(url: &str, more: &str) -> String {
    format!(
        "[upstream]\nurl = \"{url}\"\nkey = \"env:PROVIDER_KEY\"\n{more}\n\
         [[site]]\nhost = \"shop.example.com\"\nbasis = \"own\"\n"
    )
}

#[test]
fn without_configuration_doctor_passes_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["doctor", "--listen", "127.0.0.1:0"], &[]);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let marks: Vec<_> = output.stdout.lines().map(|line| line.chars().next().unwrap()).collect();
    assert!(marks.len() >= 8 && marks.iter().all(|mark| *mark == '✓'), "{}", output.stdout);
    for about in ["configuration", "service", "clock", "key", "threads", "store", "port", "sites"] {
        assert!(output.stdout.contains(&format!("✓ {about} ")), "{about}: {}", output.stdout);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "doctor makes nothing");
}

#[test]
fn a_wrong_configuration_is_one_line_and_exit_code_two() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "[store]\nurl = \"redis://:canary@h/x\"");
    let (code, checks) = doctor(dir.path(), &[]);
    assert_eq!((code, checks.len()), (Some(2), 1));
    says(&checks, "configuration", "bad", "[store] url");
}

#[test]
fn a_limit_on_money_without_a_price_names_the_price() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Sim::nowhere();
    write(dir.path(), &elsewhere(&nowhere.url, "budget = { cost_per_day = 5.0 }"));
    let (code, checks) = doctor(dir.path(), &[]);
    assert_eq!((code, checks.len()), (Some(2), 1), "{checks:#?}");
    says(&checks, "configuration", "bad", "the price of recaptcha_v2");
    says(&checks, "configuration", "bad", "price_per_1000 = { recaptcha_v2 = 1.0 }");
}

#[test]
fn an_unreachable_service_and_a_refused_key_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Sim::nowhere();
    write(dir.path(), &elsewhere(&nowhere.url, ""));
    let (code, checks) = doctor(dir.path(), &[]);
    assert_eq!(code, Some(3));
    says(&checks, "service name", "good", "127.0.0.1");
    says(&checks, "service", "bad", "check [upstream] url");
    assert!(
        checks.iter().all(|(about, ..)| about != "key"),
        "there is no service to check it with"
    );

    let key = dir.path().join("sim.key");
    fs::write(&key, "another-key-67890123456789012345").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let sim = Sim::start(dir.path(), &["--key", "file:sim.key"]);
    write(dir.path(), &elsewhere(&sim.url, ""));
    let (code, checks) = doctor(dir.path(), &[]);
    assert_eq!(code, Some(4));
    says(&checks, "service", "good", "answers");
    says(&checks, "key", "bad", "check [upstream] key");
    assert!(checks.iter().all(|(about, ..)| about != "threads"), "asked again, it would be banned");
}

#[test]
fn more_slots_than_threads_ended_sites_and_memory_are_risky_and_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--captchaai", "--threads", "5"]);
    let ended = "[[site]]\nhost = \"old.example.com\"\nbasis = \"own\"\nexpires = \"2020-01-01\"";
    write(dir.path(), &(elsewhere(&sim.url, "slots = 9") + ended));
    let (code, checks) = doctor(dir.path(), &["--store", "memory:"]);
    assert_eq!(code, Some(0), "{checks:#?}");
    says(&checks, "threads", "risky", "write slots = 5");
    says(&checks, "sites", "risky", "old.example.com expired on 2020-01-01");
    says(&checks, "sites", "good", "1 site declared");
    says(&checks, "store", "risky", "loses everything");
}

#[test]
fn a_service_without_any_declared_site_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    write(dir.path(), &format!("[upstream]\nurl = \"{}\"\nkey = \"env:PROVIDER_KEY\"", sim.url));
    let (code, checks) = doctor(dir.path(), &[]);
    assert_eq!(code, Some(2));
    says(&checks, "sites", "bad", "add a [[site]]");
}

#[test]
fn a_port_in_use_is_wrong_unless_a_gateway_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let closed = std::thread::spawn(move || drop(other.accept().unwrap()));
    let output = run(dir.path(), &["doctor", "--listen", &address], &[]);
    closed.join().unwrap();
    assert_eq!(output.code, Some(3), "{}", output.stdout);
    assert!(output.stdout.contains("✗ port"), "{}", output.stdout);

    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let address = gateway.base.strip_prefix("http://").unwrap();
    let output = run(dir.path(), &["doctor", "--listen", address], &[]);
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    assert!(output.stdout.contains("a gateway answers on"), "{}", output.stdout);
    assert!(output.stdout.contains("! store"), "its directory is in use: {}", output.stdout);

    let pause = ["pause", "--server", &gateway.base, "--key", "env:ADMIN_KEY"];
    let paused = run(dir.path(), &pause, &[("ADMIN_KEY", ADMIN)]);
    assert!(
        paused.stdout.starts_with("paused: everything\n"),
        "{}{}",
        paused.stdout,
        paused.stderr
    );
    let output = run(dir.path(), &["doctor", "--listen", address], &[]);
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    assert!(output.stdout.contains("and submissions are paused"), "{}", output.stdout);
    let worker = run(dir.path(), &pause, &[("ADMIN_KEY", WORKER)]);
    assert_eq!(worker.code, Some(4), "{}", worker.stderr);
}

#[test]
fn a_redis_is_examined_before_it_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let kept = RedisServer::start(&RedisOptions {
        persistence: Persistence::EverySecond,
        password: Some("canary-redis".into()),
        ..RedisOptions::default()
    });
    let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &kept.url());
    assert_eq!(code, Some(0), "{checks:#?}");
    says(&checks, "store", "good", "writes are persisted");
    says(&checks, "keys", "risky", "[admin] key");
    says(&checks, "store", "good", "it has no data yet; `serve` creates it");
    assert_eq!(kept.cli(&["DBSIZE"]).trim(), "0", "doctor makes nothing");
    kept.cli(&["CONFIG", "SET", "appendonly", "no"]);
    kept.cli(&["CONFIG", "SET", "save", ""]);
    let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &kept.url());
    assert_eq!(code, Some(0), "{checks:#?}");
    says(&checks, "store", "risky", "appendonly yes");
    kept.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &kept.url());
    assert_eq!(code, Some(3));
    says(&checks, "store", "bad", "noeviction");
    let wrong = format!("redis://:canary-wrong@127.0.0.1:{}", kept.port());
    let closed = ClosedPort::hold();
    let away = format!("redis://127.0.0.1:{}", closed.port());
    for (url, remedy) in [(wrong, "password"), (away, "started")] {
        let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &url);
        assert_eq!(code, Some(3));
        says(&checks, "store", "bad", remedy);
    }
}

#[test]
fn a_managed_redis_that_evicts_is_refused_although_its_configuration_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let managed = |policy: &str| {
        let extra = ["--rename-command", "CONFIG", "", "--maxmemory-policy", policy];
        RedisServer::start(&RedisOptions {
            persistence: Persistence::EverySecond,
            extra: extra.map(str::to_owned).to_vec(),
            ..RedisOptions::default()
        })
    };
    let evicts = managed("volatile-lru");
    let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &evicts.url());
    assert_eq!(code, Some(3), "{checks:#?}");
    says(&checks, "store", "bad", "maxmemory-policy volatile-lru");
    let keeps = managed("noeviction");
    let (code, checks) = doctor_on(dir.path(), &["--store", "env:STORE"], &keeps.url());
    assert_eq!(code, Some(0), "{checks:#?}");
    says(&checks, "store", "good", "no key is evicted");
    says(&checks, "store", "good", "writes are persisted");
}
