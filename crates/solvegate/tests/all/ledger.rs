//! `[store] ledger`: history is kept in another store, and found there.

#![expect(clippy::disallowed_methods, reason = "a test outside the process under test")]

use std::time::{Duration, Instant};

use domain::ports::{ClaimFilter, Scope};
use serde_json::json;
use solvegate::client::Call;
use stores::conformance::servers::{RedisOptions, RedisServer};

use crate::support::{Gateway, Settings, Sim, run};

fn settings(ledger: &str) -> Settings {
    let store = format!("embedded:data\"\nledger = \"{ledger}");
    Settings { store, ..Settings::default() }
}

fn page() -> ClaimFilter {
    ClaimFilter::all(Scope::All, 9)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_explained_and_listed_and_is_in_the_archive_when_the_store_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let redis = RedisServer::start(&RedisOptions::default());
    let url = format!("{}?prefix=history", redis.url());
    let settings = settings(&url);
    let body =
        json!({ "kind": "turnstile", "sitekey": "a", "pageurl": "https://shop.example.com/" });
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let served = gateway.solve(body, Some("order-1")).await.body;
    let id = served["id"].as_str().unwrap();
    let fresh = gateway.story(id).await;
    assert_eq!(fresh[0]["event"], "opened", "{fresh:?}");
    let archive = stores::connect(&url).await.unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while archive.archive.entries(0, 99).await.unwrap().len() < fresh.len() {
        assert!(Instant::now() < until, "nothing was archived");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(gateway.story(id).await, fresh, "told once, in the same words");
    drop(gateway);
    // Another store: the claim is known from the archive alone.
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    assert_eq!(gateway.story(id).await, fresh);
    let history = gateway.ask_as_admin(&Call::get("/v1/history")).await.body;
    assert_eq!(history["items"][0]["id"], served["id"]);
    assert_eq!(archive.archive.history(page()).await.unwrap().items.len(), 1);
}

#[test]
fn an_archive_that_is_the_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", "--store", "embedded:here", "--ledger", "embedded:here"];
    let output = run(dir.path(), &args, &[]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("[store] ledger: is the store itself"), "{}", output.stderr);
}
