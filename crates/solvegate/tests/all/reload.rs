//! A reload with a mistake in any key that a reload applies says what is wrong, and changes nothing.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{Gateway, Sim, WORKER, eventually};

const NEW: &str = "c7e10b5d94a82f36d0b9e1f7483a6c52";

/// A line that is added to the configuration, in the table of the line before it, and what the refusal says.
const MISTAKES: [(&str, &str, &str); 30] = [
    (WORKER_TWO_LINE, "rate = \"often\"", "rate: \"often\" is not a rate"),
    (WORKER_TWO_LINE, "poll_rate = \"0/s\"", "poll_rate: "),
    (WORKER_TWO_LINE, "read_rate = 5", "read_rate: "),
    (WORKER_TWO_LINE, "queue = 0", "queue: "),
    (WORKER_TWO_LINE, "projects = [\"a b\"]", "projects: "),
    (WORKER_TWO_LINE, "images = \"yes\"", "images: expected true or false"),
    (WORKER_TWO_LINE, "balance = 1", "balance: expected true or false"),
    (WORKER_TWO_LINE, "sites = [\"*\"]", "sites: "),
    (WORKER_TWO_LINE, "keys = [{ sha256 = \"ab\" }]", "sha256: expected 64 hexadecimal digits"),
    (WORKER_TWO_LINE, "budget = { solves_per_week = 1 }", "solves_per_week"),
    (WORKER_TWO_LINE, "callbacks.secret = \"whsec_short\"", "callbacks secret: it is not base64"),
    (WORKER_TWO_LINE, "callbacks.hosts = [\"http://a/b\"]", "callbacks hosts: "),
    (WORKER_TWO_LINE, "image = true", "did you mean `images`?"),
    (SITE_LINE, "owner = \" \"", "owner: is empty"),
    (SITE_LINE, "expires = \"2027-02-30\"", "expires: "),
    (SITE_LINE, "methods = [\"turnstile\"]", "methods: "),
    (SITE_LINE, "params = [\"pageurl\"]", "params: "),
    (SITE_LINE, "sitekeys = [\"a b\"]", "sitekeys: "),
    (IMAGES_LINE, "kinds = [\"imege\"]", "did you mean \"image\"?"),
    (IMAGES_LINE, "kinds = []", "kinds: is empty"),
    (IMAGES_LINE, "expires = \"tomorrow\"", "expires: "),
    (ADMIN_LINE, "role = \"root\"", "role: "),
    (ADMIN_LINE, "keys = []", "keys: is empty"),
    (STORE_LINE, "encryption_key = \"canary-short\"", "encryption_key: "),
    (LISTEN_LINE, "insecure_store = \"no\"", "insecure_store: expected true or false"),
    (LISTEN_LINE, "max_queued = 0", "max_queued: "),
    (LISTEN_LINE, "max_queue = 5", "did you mean `max_queued`?"),
    (
        "",
        "[[worker]]\nname = \"weak\"\nkey = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
        "can be guessed",
    ),
    ("", "[[site]]\nhost = \"*.co.uk\"\nbasis = \"all\"", "whole public suffix"),
    (
        "",
        "[[worker]]\nname = \"three\"\nkey = \"canary-provider-8901234567890123\"",
        "go around the gateway",
    ),
];

const WORKER_TWO_LINE: &str = "name = \"two\"";
const SITE_LINE: &str = "host = \"careful.example.com\"";
const IMAGES_LINE: &str = "basis = \"own forms, tests\"";
const GRIDS: &str = "kinds = [\"grid\"]";
const ADMIN_LINE: &str = "[admin]";
const STORE_LINE: &str = "url = \"embedded:data\"";
const LISTEN_LINE: &str = "listen = \"127.0.0.1:0\"";

/// The configuration with changes that are right, which a mistake beside them must not let through.
fn changed(text: &str) -> String {
    let text = text.replace("host = \"shop.example.com\"", "host = \"other.example.com\"");
    let text = text.replace(&format!("key = \"{WORKER}\""), &format!("key = \"{NEW}\""));
    text.replace(IMAGES_LINE, &format!("{IMAGES_LINE}\n{GRIDS}"))
}

/// With one line more behind another one, or at the end.
fn with_mistake(text: &str, after: &str, line: &str) -> String {
    if after.is_empty() {
        return format!("{text}\n{line}\n");
    }
    // A key can be written once.
    let text = text.replace(if line.starts_with("kinds") { GRIDS } else { "\0" }, "");
    assert_eq!(text.matches(after).count(), 1, "{after}");
    text.replace(after, &format!("{after}\n{line}"))
}

async fn in_force(gateway: &Gateway) -> [Value; 3] {
    let read = async |path| gateway.send_as_admin(&Call::get(path)).await.good().unwrap();
    [read("/v1/sites").await, read("/v1/workers").await, read("/v1/audit?action=reloaded").await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_any_key_is_named_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let file = dir.path().join("solvegate.toml");
    let written = fs::read_to_string(&file).unwrap();
    let before = in_force(&gateway).await;
    let refusals = || {
        let log = gateway.process.stderr();
        let failed = log.lines().filter(|line| line.contains("reload failed"));
        failed.map(str::to_owned).collect::<Vec<_>>()
    };
    for (number, (after, line, says)) in MISTAKES.into_iter().enumerate() {
        fs::write(&file, with_mistake(&changed(&written), after, line)).unwrap();
        gateway.process.signal(Signal::HUP);
        let said = eventually("the refusal", async || refusals().get(number).cloned()).await;
        let said: Value = serde_json::from_str(&said).unwrap();
        let error = said["error"].as_str().unwrap_or_default();
        assert!(error.contains(says), "{line}\n  said: {said}");
        assert!(!error.contains("canary") && !error.contains(NEW), "{error}");
        assert_eq!(in_force(&gateway).await, before, "{line}");
    }
    assert_eq!(before[2]["items"], json!([]));
    let page = "https://shop.example.com/";
    let claim = json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": page });
    assert!(gateway.solve(claim, None).await.status.is_success(), "with the old key and site");
    // Without a mistake the same changes come into force.
    fs::write(&file, changed(&written)).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the reload", async || {
        let now = in_force(&gateway).await;
        (now[0] != before[0] && now[2] != before[2]).then_some(())
    })
    .await;
    assert_eq!(gateway.send(&Call::get("/v1/history")).await.status, 401, "the key is replaced");
}
