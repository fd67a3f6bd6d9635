//! The audit trail through the real binary: who did what from where, floods of refusals, reloads, and changes of the store file.

mod servers;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Output,
};

use domain::chain::LedgerItem;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Gateway, Settings, Sim, WORKER, command, eventually};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
/// The tag of the ledger's pages.
const PAGES: u8 = 13;
/// The version and the checksum of a row.
const HEAD: usize = 5;

async fn trail(gateway: &Gateway, query: &str) -> Vec<Value> {
    let reply = gateway.send_as_admin(&Call::get(format!("/v1/audit{query}"))).await;
    reply.good().unwrap()["items"].as_array().unwrap().clone()
}

/// Stops the gateway, which writes what it counted.
fn stop(gateway: &mut Gateway) {
    gateway.process.signal(Signal::TERM);
    assert!(gateway.process.wait().success());
}

fn turnstile(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/login" })
}

fn audit(dir: &Path, args: &[&str]) -> Output {
    let output = command(dir, &[&["audit"], args].concat()).output().unwrap();
    eprintln!("{}{}", text(&output.stdout), text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A gateway whose ledger has entries of many sorts.
async fn lived(dir: &Path, sim: &Sim) -> Gateway {
    live(dir, sim, &Settings::default()).await
}

async fn live(dir: &Path, sim: &Sim, settings: &Settings) -> Gateway {
    let gateway = Gateway::with(dir, sim, settings);
    for n in 0..3 {
        gateway.solve(turnstile(&format!("site-{n}")), Some("order")).await;
        let solved = gateway.solve(turnstile(&format!("site-{n}")), None).await;
        let id = solved.body["id"].as_str().unwrap();
        let report = Call::post(format!("/v1/solves/{id}/report"), json!({ "verdict": "good" }));
        gateway.send_as_admin(&report).await.good().unwrap();
    }
    let undeclared =
        json!({ "kind": "turnstile", "sitekey": "k", "pageurl": "https://evil.example/" });
    gateway.solve(undeclared, None).await;
    let waiting = Call::post("/v1/solves", turnstile("withdrawn"));
    let waiting = gateway.send(&waiting).await.good().unwrap();
    let path = format!("/v1/solves/{}", waiting["id"].as_str().unwrap());
    gateway.send_as_admin(&Call::delete(path)).await.good().unwrap();
    let pool = json!({
        "kind": "turnstile", "sitekey": "pooled", "pageurl": "https://shop.example.com/", "level": 1
    });
    let pool = gateway.send_as_admin(&Call::put("/v1/pools", pool)).await.good().unwrap();
    let path = format!("/v1/pools/{}", pool["id"].as_str().unwrap());
    gateway.send_as_admin(&Call::delete(path)).await.good().unwrap();
    gateway
}

/// The keys and rows of the ledger's pages.
fn pages(dir: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let file = Database::open(dir.join("data/store.redb")).unwrap();
    let read = file.begin_read().unwrap();
    let rows = read.open_table(ROWS).unwrap();
    let all = rows.iter().unwrap().map(Result::unwrap);
    let all = all.map(|(key, row)| (key.value().to_vec(), row.value().to_vec()));
    all.filter(|(key, _)| key[0] == PAGES).collect()
}

fn write_row(dir: &Path, key: &[u8], row: &[u8]) {
    let file = Database::open(dir.join("data/store.redb")).unwrap();
    let write = file.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(key, row).unwrap();
    write.commit().unwrap();
}

/// The row with another checksum, as somebody writes it who knows the format.
fn with_checksum(key: &[u8], mut row: Vec<u8>) -> Vec<u8> {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(&row[HEAD..]);
    row[1..HEAD].copy_from_slice(&sum.finalize().to_le_bytes());
    row
}

fn last_number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[1..].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admins_actions_are_in_the_trail_with_name_role_and_address() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = lived(dir.path(), &sim).await;
    let items = trail(&gateway, "?actor=admin").await;
    let actions: Vec<&str> =
        items.iter().rev().map(|item| item["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        ["reported", "reported", "reported", "withdrawn", "pool_set", "pool_closed"]
    );
    for item in &items {
        assert_eq!((&item["role"], &item["address"]), (&json!("admin"), &json!("127.0.0.1")));
    }
    let refused = gateway.send(&Call::get("/v1/audit")).await;
    assert_eq!(refused.status, 403, "a worker may not read it");
    eventually("the refusal of the worker is in the trail itself", async || {
        let items = trail(&gateway, "?action=refused").await;
        let is_ours =
            |item: &Value| item["actor"] == "one" && item["facts"]["code"] == "admin_only";
        items.into_iter().find(is_ours)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_wrong_keys_and_refused_claims_adds_a_bounded_number_of_entries() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway = Gateway::start(dir.path(), &sim);
    let base = gateway.base.trim_start_matches("http://").to_owned();
    for n in 0..200 {
        let page = format!("https://evil-{n}.example/");
        let claim = json!({ "kind": "turnstile", "sitekey": "k", "pageurl": page, "fresh": true });
        let refused = gateway.send(&Call::post("/v1/solves", claim)).await;
        assert_eq!(refused.status, 403);
    }
    for n in 0..300 {
        // A connection that never showed a valid key.
        let mut stream = TcpStream::connect(&base).unwrap();
        let request = format!(
            "GET /v1/history HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong-{n:04}-0123456789abcdefghijk\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut String::new()).unwrap();
    }
    stop(&mut gateway);
    let shown = audit(dir.path(), &["show", "--action", "refused", "--limit", "200", "--json"]);
    let items: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let items = items["items"].as_array().unwrap();
    assert!(items.len() <= 12, "{} entries", items.len());
    let count = |actor: &str| -> u64 {
        let of = items.iter().filter(|item| item["actor"] == actor);
        of.map(|item| item["facts"]["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((count("one"), count("-")), (200, 300), "every refusal is counted");
    let strangers = items.iter().filter(|item| item["actor"] == "-");
    assert!(strangers.clone().count() > 0);
    assert!(strangers.into_iter().all(|item| item["address"] == "127.0.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_says_what_it_changed_by_name_and_shows_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let file = dir.path().join("solvegate.toml");
    let key = "another-worker-key-012345678-xyz";
    let config = fs::read_to_string(&file).unwrap();
    let config = config.replace(
        "basis = \"own shop, tests\"\n            ambiguous",
        "basis = \"a wider one\"\n            ambiguous",
    );
    let config = config.replace("host = \"*.corp.example.org\"", "host = \"*.corp.example.com\"");
    let config = config.replace("name = \"two\"", "name = \"two\"\nqueue = 77\nprojects = [\"x\"]");
    let more = format!("\n[[worker]]\nname = \"three\"\nkey = \"{key}\"\n");
    fs::write(&file, config + &more).unwrap();
    gateway.process.signal(Signal::HUP);
    let item = eventually("the reload is in the trail", async || {
        trail(&gateway, "?action=reloaded").await.pop()
    })
    .await;
    assert_eq!((&item["actor"], &item["role"]), (&json!("sighup"), &json!("process")));
    let change = |part: &str, name: &str, change: &str| json!({ "part": part, "name": name, "change": change });
    assert_eq!(
        item["facts"]["changes"],
        json!([
            change("site", "*.corp.example.com", "added"),
            change("site", "*.corp.example.org", "removed"),
            change("site", "careful.example.com: basis", "changed"),
            change("worker", "three", "added"),
            change("worker", "two: projects, queue", "changed"),
        ])
    );
    for secret in [key, WORKER, ADMIN, "a wider one"] {
        assert!(!item.to_string().contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_process_of_its_own_is_in_the_trail() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway = Gateway::start(dir.path(), &sim);
    stop(&mut gateway);
    let set = [
        "pools",
        "set",
        "--kind",
        "turnstile",
        "--sitekey",
        "k",
        "--pageurl",
        "https://shop.example.com/",
    ];
    assert!(command(dir.path(), &set).output().unwrap().status.success());
    let shown = audit(dir.path(), &["show", "--json"]);
    let items: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let item = &items["items"][0];
    assert_eq!((&item["action"], &item["role"]), (&json!("pool_set"), &json!("process")));
    assert_eq!(item["address"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_verified_without_a_gateway_and_a_changed_bit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway = lived(dir.path(), &sim).await;
    let key = dir.path().join("admin.key");
    fs::write(&key, ADMIN).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let from = format!("file:{}", key.display());
    let verified = audit(dir.path(), &["verify", "--server", &gateway.base, "--key", &from]);
    assert!(verified.status.success());
    stop(&mut gateway);
    let export = audit(dir.path(), &["export"]);
    assert!(export.status.success());
    let file = dir.path().join("export.jsonl");
    fs::write(&file, &export.stdout).unwrap();
    let verify =
        |more: &[&str]| audit(dir.path(), &[&["verify", "--file", "export.jsonl"], more].concat());
    let good = verify(&[]);
    assert!(good.status.success());
    let head = text(&good.stdout).lines().last().unwrap().to_owned();
    assert!(verify(&["--expect", &head]).status.success());
    let other = format!("1:{}", head.split_once(':').unwrap().1);
    assert!(!verify(&["--expect", &other]).status.success());
    // One bit in the middle of each line.
    let lines: Vec<&[u8]> = export.stdout.split_inclusive(|byte| *byte == b'\n').collect();
    for n in 0..lines.len() {
        let mut changed = lines.iter().map(|line| line.to_vec()).collect::<Vec<_>>();
        let at = lines[n].len() * 3 / 4;
        changed[n][at] ^= 1;
        fs::write(&file, changed.concat()).unwrap();
        let found = verify(&[]);
        assert_eq!(found.status.code(), Some(1));
        let number = n + 1;
        assert!(text(&found.stderr).contains(&format!("entry {number}:")), "{number}");
    }
}

/// Every page, and in each several bits of every part: the entries, their hashes, the checksum.
#[tokio::test(flavor = "multi_thread")]
async fn a_bit_flipped_in_the_store_file_is_found_with_the_number_of_the_entry() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway = lived(dir.path(), &sim).await;
    stop(&mut gateway);
    assert!(audit(dir.path(), &["verify"]).status.success());
    let exported = text(&audit(dir.path(), &["export"]).stdout);
    let mut kinds = BTreeSet::new();
    let mut firsts = Vec::new();
    for line in exported.lines() {
        let LedgerItem::Entry(chained) = serde_json::from_str(line).unwrap() else {
            panic!("{line}")
        };
        let event = serde_json::to_value(&chained.entry.event).unwrap();
        let named = event.as_object().and_then(|facts| facts.keys().next().cloned());
        if kinds.insert(named.unwrap_or_else(|| event.to_string())) {
            firsts.push(chained.entry.seq);
        }
    }
    assert!(kinds.len() > 8, "{kinds:?}");
    let all = pages(dir.path());
    let page_of = |seq: u64| all.iter().find(|(key, _)| seq <= last_number(key)).unwrap();
    let mut flips = 0;
    for seq in firsts {
        let (key, row) = page_of(seq);
        let first =
            all.iter().map(|(key, _)| last_number(key) + 1).filter(|first| *first <= seq).max();
        let (first, last) = (first.unwrap_or(1), last_number(key));
        for (at, mend) in
            [(HEAD + 3, true), (row.len() / 2, true), (row.len() - 1, true), (row.len() / 3, false)]
        {
            let mut changed = row.clone();
            changed[at] ^= 1 << (at % 7);
            let changed = if mend { with_checksum(key, changed) } else { changed };
            write_row(dir.path(), key, &changed);
            let found = audit(dir.path(), &["verify"]);
            assert_eq!(found.status.code(), Some(1), "byte {at} of the page {first} to {last}");
            let said = text(&found.stderr);
            let named = |number: u64| {
                said.contains(&format!("entry {number}:"))
                    || said.contains(&format!("entries {number} to"))
            };
            assert!((first..=last + 1).any(named), "{said}");
            flips += 1;
        }
        write_row(dir.path(), key, row);
    }
    assert!(flips > 30);
    assert!(audit(dir.path(), &["verify"]).status.success(), "all is as before");
}
