//! Encryption at rest, by the real binary: secrets are planted in everything that a store keeps, and then all that the store
//! wrote is searched for them. Without a key they are found, which shows that the search works.

mod search;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;
use store_tests::servers::{
    DynamoDbServer, Persistence, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use crate::support::{
    ADMIN, ClosedPort, Gateway, PROVIDER, Settings, Sim, WORKER, WORKER_TWO, eventually, run,
    write_private,
};
use search::{Canary, files, found};

const KEY: &str = "6f1d0c9b8a7e5d4c3b2a19080716f5e4d3c2b1a09f8e7d6c5b4a392817061524";
const NEW_KEY: &str = "0a9d4e7f1b3c5d6e8f20314253647586970a1b2c3d4e5f60718293a4b5c6d7e8";
const PROXY: &str = "canary-user:canary-word@10.0.0.1:3128";
const COOKIES: &str = "session=\"canary-cookie\"";
const AGENT: &str = "Mozilla/5.0 (canary-agent)";
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\ncanary-picture\x00\xff\xfe";
const IDEMPOTENCY: &str = "canary-idempotency-key";
const CALLBACK: &str = "canary-callback";
const CALLBACK_SECRET: &str = "Y2FuYXJ5LWNhbGxiYWNrLXNlY3JldC0xMjM0NTY3ODkw";

/// Everything a store wrote so far, by place.
type Dump = BTreeMap<String, Vec<u8>>;

/// The secrets that a store must keep for a while. The others never reach it.
const KEPT: [&str; 7] =
    ["proxy", "cookies", "user agent", "picture", "callback", "token", "token in stock"];

fn params() -> Value {
    json!({ "proxy": PROXY, "proxytype": "HTTP", "cookies": COOKIES, "userAgent": AGENT })
}

fn turnstile(sitekey: &str) -> Value {
    json!({
        "kind": "turnstile",
        "sitekey": sitekey,
        "pageurl": "https://shop.example.com/",
        "params": params(),
    })
}

fn settings(store: &str, more: &str, receiver: &ClosedPort) -> Settings {
    Settings {
        store: store.into(),
        store_more: more.into(),
        more: format!(
            "[callbacks]\nhosts = [\"127.0.0.1:{}\"]\nsecret = \"whsec_{CALLBACK_SECRET}\"\n",
            receiver.port()
        ),
        log: "trace",
        ..Settings::default()
    }
}

/// Leaves secrets in every table that may hold some, and returns them.
async fn plant(gateway: &Gateway, sim: &Sim, receiver: &ClosedPort) -> Vec<Canary> {
    // Kept for the retries of its callback: nobody listens there.
    let mut called_back = turnstile("0x4A");
    called_back["callback_url"] = json!(format!("http://127.0.0.1:{}/{CALLBACK}", receiver.port()));
    let served = gateway.solve(called_back, Some(IDEMPOTENCY)).await.body;
    let token = served["token"].as_str().unwrap_or_else(|| panic!("no token: {served}")).to_owned();
    let stocked = leave_in_stock(gateway, sim).await;
    sim.fault_submit(json!({ "code": "ERROR_WRONG_GOOGLEKEY" }), false).await;
    let dead = gateway.solve(turnstile("0x4C"), None).await.body;
    assert_eq!(dead["state"], "failed", "its dead letter keeps the challenge: {dead}");
    sim.fault_submit(json!("never_ready"), true).await;
    let picture = json!({ "kind": "image", "image": STANDARD.encode(PICTURE) });
    let waiting = gateway.send(&Call::post("/v1/solves", picture)).await;
    assert_eq!(waiting.status, 202, "{}", waiting.body);
    let mut pool = turnstile("0x4D");
    pool["level"] = json!("auto");
    let pool = gateway.send_as_admin(&Call::put("/v1/pools", pool)).await;
    assert!(pool.status.is_success(), "{}", pool.body);
    vec![
        Canary::new("proxy", PROXY),
        Canary::new("cookies", COOKIES),
        Canary::new("user agent", AGENT),
        Canary::new("picture", PICTURE),
        Canary::new("callback", CALLBACK),
        Canary::new("token", token),
        Canary::new("token in stock", stocked),
        Canary::new("idempotency key", IDEMPOTENCY),
        Canary::new("worker's key", WORKER),
        Canary::new("other worker's key", WORKER_TWO),
        Canary::new("admin's key", ADMIN),
        Canary::new("provider's key", PROVIDER),
        Canary::new("encryption key", KEY),
        Canary::new("callback secret", STANDARD.decode(CALLBACK_SECRET).unwrap()),
    ]
}

/// A token of a withdrawn claim; returns its beginning, which names the task.
async fn leave_in_stock(gateway: &Gateway, sim: &Sim) -> String {
    let paid = sim.charges().await;
    let claim = gateway.send(&Call::post("/v1/solves", turnstile("0x4B"))).await.body;
    eventually("it is paid", async || (sim.charges().await > paid).then_some(())).await;
    let id = claim["id"].as_str().unwrap();
    gateway.send(&Call::delete(format!("/v1/solves/{id}"))).await;
    let task = eventually("its token is in stock", async || {
        let story = gateway.story(id).await;
        let of = |name: &str| story.iter().find(|entry| entry["event"] == name).cloned();
        of("banked").and(of("accepted")).map(|entry| entry["facts"]["task"].clone())
    })
    .await;
    format!("SIM.{}.", task.as_str().unwrap())
}

/// Searches what the store wrote and what the gateway logged, while it holds everything and after it stopped.
async fn check(sealed: bool, store: &str, server: impl Fn() -> Dump) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let receiver = ClosedPort::hold();
    let more = if sealed { format!("encryption_key = \"{KEY}\"") } else { String::new() };
    let mut gateway = Gateway::with(dir.path(), &sim, &settings(store, &more, &receiver));
    let canaries = plant(&gateway, &sim, &receiver).await;
    let dump = || {
        let mut dump = server();
        if store.starts_with("embedded") {
            dump.extend(files(&dir.path().join("data")));
        }
        dump
    };
    let expected: BTreeSet<_> = if sealed { BTreeSet::new() } else { KEPT.into() };
    // Some servers write their files a moment after they answer.
    let seen = found(&canaries, &dump());
    assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), expected, "{seen:#?}");
    gateway.process.signal(Signal::TERM);
    gateway.process.wait();
    let seen = found(&canaries, &dump());
    assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), expected, "{seen:#?}");
    let log = gateway.process.stdout() + &gateway.process.stderr();
    assert!(log.contains("drain"), "the log is complete: {log}");
    let seen = found(&canaries, &BTreeMap::from([("the log".to_owned(), log.into_bytes())]));
    assert!(seen.is_empty(), "{seen:#?}");
}

fn keys(keys: &[&str]) -> String {
    format!("encryption_key = {keys:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_replaced_in_two_restarts_and_another_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let receiver = ClosedPort::hold();
    let start = |used: &[&str]| {
        let settings = settings("embedded:data", &keys(used), &receiver);
        Gateway::with(dir.path(), &sim, &settings)
    };
    let stop = |mut gateway: Gateway| {
        gateway.process.signal(Signal::TERM);
        gateway.process.wait();
        gateway.process.stderr()
    };
    let gateway = start(&[KEY]);
    let served = gateway.solve(turnstile("0x4A"), Some("order")).await.body;
    assert_eq!(served["state"], "served", "{served}");
    stop(gateway);

    let doctor = |used: &[&str]| {
        let text = settings("embedded:data", &keys(used), &receiver).file(&sim);
        write_private(&dir.path().join("solvegate.toml"), &text);
        run(dir.path(), &["doctor", "--listen", "127.0.0.1:0"], &[]).stdout
    };
    let refusal = |used: &str| {
        let text = settings("embedded:data", used, &receiver).file(&sim);
        write_private(&dir.path().join("solvegate.toml"), &text);
        let refused = run(dir.path(), &["serve"], &[]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(!refused.stderr.contains(KEY) && !refused.stderr.contains(NEW_KEY));
        refused.stderr
    };
    let refused = refusal(&keys(&[NEW_KEY]));
    assert!(refused.contains("sealed with key") && refused.contains("second one"), "{refused}");
    assert!(refusal("").contains("`[store] encryption_key` is not set"));

    assert!(doctor(&[NEW_KEY, KEY]).contains("two encryption keys"));
    let said = stop(start(&[NEW_KEY, KEY]));
    assert!(said.contains("older rows were sealed with it now"), "{said}");
    let gateway = start(&[NEW_KEY]);
    let again = gateway.solve(turnstile("0x4A"), Some("order")).await.body;
    assert_eq!(again["token"], served["token"], "a row of the old key is read with the new one");
    stop(gateway);
    assert!(refusal(&keys(&[KEY])).contains("add the missing key"), "the old one is of no use");
    assert!(!doctor(&[NEW_KEY]).contains("encryption"), "nothing is left to do");
}

// === the stores ===

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_has_no_secret_with_a_key_and_some_without() {
    for sealed in [false, true] {
        check(sealed, "embedded:data\"\nledger = \"embedded:data/history", BTreeMap::new).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_no_secret_with_a_key_and_some_without() {
    for sealed in [false, true] {
        let options = RedisOptions {
            persistence: Persistence::Always,
            // A compressed value could hide a secret.
            extra: ["--rdbcompression", "no"].map(Into::into).into(),
            ..RedisOptions::default()
        };
        let redis = RedisServer::start(&options);
        check(sealed, &redis.url(), || {
            redis.cli(&["save"]);
            let files = files(redis.directory());
            let has = |end: &str| files.keys().any(|name| name.ends_with(end));
            assert!(has(".rdb") && has(".incr.aof"), "{:?}", files.keys());
            files
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_has_no_secret_with_a_key_and_some_without() {
    for sealed in [false, true] {
        let postgres = PostgresServer::start(&PostgresOptions::default());
        check(sealed, &postgres.url(), || {
            postgres.psql("CHECKPOINT");
            // With the write-ahead log and the log of the server.
            let mut dump = files(postgres.directory());
            assert!(dump.keys().any(|name| name.contains("/pg_wal/0")), "{:?}", dump.keys());
            let tables = postgres.psql(
                "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables \
                 WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
            );
            assert!(tables.lines().count() > 20, "{tables}");
            for table in tables.lines() {
                let rows = postgres.psql(&format!("COPY (SELECT * FROM {table}) TO STDOUT"));
                dump.insert(format!("table {table}"), rows.into_bytes());
            }
            dump
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_has_no_secret_with_a_key_and_some_without() {
    for sealed in [false, true] {
        let server = DynamoDbServer::start_durable();
        let url = server.url("shop");
        stores::migrate(&url).await.unwrap();
        check(sealed, &url, || files(server.directory())).await;
    }
}
