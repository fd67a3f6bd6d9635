//! One worker cannot hurt the others, by the real binary.

use domain::{ledger::Event, secret::Secret};
use futures_util::future::join_all;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Settings, Sim, all_entries, eventually};

const NOISY: &str = "noisy-3b1c09d5e7a4826b0d19e6c7a5";

/// A gateway with a third worker.
fn with_noisy(
    sim: &Sim,
    dir: &std::path::Path,
    limits: &str,
    slots: &'static str,
) -> (Gateway, Remote) {
    let more = format!("[[worker]]\nname = \"noisy\"\nkey = \"{NOISY}\"\n{limits}\n");
    let settings = Settings { slots, more, poll_ms: 100, ..Settings::default() };
    let gateway = Gateway::with(dir, sim, &settings);
    let noisy = Remote::new(&gateway.base, Secret::new(NOISY), None).unwrap();
    (gateway, noisy)
}

fn body(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_floods_gets_429_while_another_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "500ms"]);
    let (gateway, noisy) = with_noisy(&sim, dir.path(), "queue = 30", "1");
    let calls: Vec<_> =
        (0..200).map(|n| Call::post("/v1/solves", body(&format!("0x{n}")))).collect();
    let flood = join_all(calls.iter().map(|call| noisy.send(call))).await;
    let flood: Vec<_> = flood.into_iter().map(Result::unwrap).collect();
    let count = |status| flood.iter().filter(|reply| reply.status == status).count();
    // Those that were submitted meanwhile left the queue.
    assert!((30..60).contains(&count(StatusCode::ACCEPTED)), "{}", count(StatusCode::ACCEPTED));
    assert_eq!(count(StatusCode::ACCEPTED) + count(StatusCode::TOO_MANY_REQUESTS), 200);
    let refused = flood.iter().find(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS).unwrap();
    assert_eq!(refused.body["code"], "busy", "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    // The other worker's claim goes before the rest of the flood.
    let served = gateway.solve(body("0x4A"), None).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    let active = noisy.send(&Call::get("/v1/active?limit=200")).await.unwrap();
    let waiting = active.body["items"].as_array().unwrap().len();
    assert!(waiting >= 10, "{waiting} solves of the flood are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_polls_of_a_served_claim_add_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let (mut gateway, noisy) = with_noisy(&sim, dir.path(), "poll_rate = \"1000000/s\"", "5");
    let call = Call::post("/v1/solves", body("0x4A")).header("prefer", "wait=30");
    let served = noisy.send(&call).await.unwrap().good().unwrap();
    let id = served["id"].as_str().unwrap();
    let poll = Call::get(format!("/res.php?key={NOISY}&action=get&json=1&id={id}"));
    for _ in 0..100 {
        let replies = join_all((0..100).map(|_| noisy.send(&poll))).await;
        for reply in replies {
            assert_eq!(reply.unwrap().body["request"], served["token"]);
        }
    }
    let explain = Call::get(format!("/v1/solves/{id}/explain"));
    eventually("the polls are counted", async || {
        let story = noisy.send(&explain).await.unwrap().body;
        (story["repeats"] == json!({ "fetched": 10_000, "replayed": 0 })).then_some(())
    })
    .await;
    gateway.process.signal(Signal::TERM);
    gateway.process.wait();
    let url = format!("embedded:{}", dir.path().join("data").display());
    let store = stores::connect(&url).await.unwrap();
    let entries = all_entries(&*store.records).await;
    assert!(entries.len() < 20, "{entries:#?}");
    let delivered = entries.iter().filter(|entry| matches!(entry.event, Event::Delivered { .. }));
    assert_eq!(delivered.count(), 1);
}
