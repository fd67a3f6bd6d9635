//! Slots of the account and shares of the workers, by the real binary.

use std::fs;

use futures_util::future::join_all;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::Ledger;
use solvegate::client::Call;

use crate::support::{Gateway, Settings, Sim, eventually};

fn body() -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/" })
}

/// The maximum number of unsolved tasks at one time.
fn most_at_once(ledger: &Ledger) -> usize {
    let under_way = |at| {
        let is_open = |ready_at| at < ready_at;
        ledger.accepted.iter().filter(|t| t.at <= at && t.ready_at.is_none_or(is_open)).count()
    };
    ledger.accepted.iter().map(|task| under_way(task.at)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auto_the_accounts_threads_are_used_and_never_exceeded() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--captchaai", "--threads", "3", "--solve-time", "300ms"]);
    let auto = Settings { slots: "\"auto\"", poll_ms: 100, ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &auto);
    let keys: Vec<String> = (0..15).map(|n| format!("key-{n}")).collect();
    let answers = join_all(keys.iter().map(|key| gateway.solve(body(), Some(key)))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let ledger = sim.ledger().await;
    assert_eq!((ledger.accepted.len(), most_at_once(&ledger)), (15, 3));
    let dead_letters = gateway.send_as_admin(&Call::get("/v1/dead-letters?closed=true")).await;
    assert_eq!(dead_letters.body["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_priority_is_shown_and_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let priorities = async || {
        let reply = gateway.send_as_admin(&Call::get("/v1/workers")).await;
        let workers = reply.body["items"].as_array().unwrap_or_else(|| panic!("{}", reply.body));
        workers.iter().map(|worker| worker["priority"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(priorities().await, [1, 1]);
    let file = dir.path().join("solvegate.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("project = \"checkout\"", "project = \"checkout\"\npriority = 7");
    fs::write(&file, text).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the new shares are in force", async || {
        (priorities().await == [7, 1]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_arrives_late_gets_half_of_the_slots_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--captchaai", "--threads", "5", "--solve-time", "600ms"]);
    let auto = Settings { slots: "\"auto\"", poll_ms: 200, ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &auto);
    let claim = |sitekey: &str, n: usize| {
        let body = json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" });
        Call::post("/v1/solves", body).header("idempotency-key", format!("key-{n}"))
    };
    for n in 0..130 {
        assert_eq!(gateway.send(&claim("0xEARLY", n)).await.status, StatusCode::ACCEPTED);
    }
    // The site keys of the accepted tasks, in order.
    let accepted = async || {
        let tasks = sim.ledger().await.accepted;
        tasks.into_iter().map(|task| task.sitekey.unwrap()).collect::<Vec<_>>()
    };
    eventually("the early worker is being served", async || {
        (accepted().await.len() > 5).then_some(())
    })
    .await;
    for n in 0..20 {
        assert_eq!(gateway.send_as_two(&claim("0xLATE", n)).await.status, StatusCode::ACCEPTED);
    }
    let before = accepted().await.len();
    let tasks = eventually("the late worker is served", async || {
        let tasks = accepted().await;
        (tasks.iter().filter(|sitekey| *sitekey == "0xLATE").count() == 20).then_some(tasks)
    })
    .await;
    let first = tasks.iter().position(|sitekey| sitekey == "0xLATE").unwrap();
    let last = tasks.iter().rposition(|sitekey| sitekey == "0xLATE").unwrap();
    assert!(
        first <= before + 5,
        "its first turn comes after {first} tasks, not soon after {before}"
    );
    let others = last + 1 - first - 20;
    // Up to five tasks of the other are under way when it arrives, and count for the other.
    assert!((12..=25).contains(&others), "{others} tasks of the other beside its twenty");
}
