//! `[store] ledger`: the history is archived in another store, and found there.

use domain::ports::{ClaimFilter, Scope};
use serde_json::{Value, json};
use solvegate::client::Call;
use store_tests::servers::{
    DynamoDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};
use stores::Backend;

use crate::support::{Gateway, Settings, Sim, eventually, run};

fn settings(store: &str, ledger: &str) -> Settings {
    let store = format!("{store}\"\nledger = \"{ledger}");
    Settings { store, ..Settings::default() }
}

fn body(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" })
}

/// Waits until the archive at this URL has this many entries.
async fn archived(url: &str, entries: usize) -> Backend {
    let archive = stores::connect(url).await.unwrap();
    eventually("everything is archived", async || {
        let there = archive.archive.entries(0, 999).await.unwrap().len();
        (there >= entries).then_some(())
    })
    .await;
    archive
}

/// Serves claims on one store, then queries them at a gateway on another store, which has only the archive. `meanwhile`
/// disturbs the archive between the first claim and the others.
async fn served_by_the_archive(places: [&str; 2], ledger: &str, meanwhile: impl AsyncFn(bool)) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::with(dir.path(), &sim, &settings(places[0], ledger));
    let mut stories = Vec::new();
    for number in 0..4 {
        if number == 1 {
            meanwhile(true).await;
        }
        let key = format!("order-{number}");
        let served = gateway.solve(body("a"), Some(&key)).await.body;
        assert_eq!(served["state"], "served", "{served}");
        let id = served["id"].as_str().unwrap().to_owned();
        let story = gateway.story(&id).await;
        assert_eq!(story[0]["event"], "opened", "{story:?}");
        stories.push((id, story));
    }
    meanwhile(false).await;
    let entries = stories.iter().map(|(_, story)| story.len()).sum();
    let archive = archived(ledger, entries).await;
    for (id, story) in &stories {
        assert_eq!(&gateway.story(id).await, story, "each entry once, unchanged");
    }
    drop(gateway);
    let gateway = Gateway::with(dir.path(), &sim, &settings(places[1], ledger));
    for (id, story) in &stories {
        assert_eq!(&gateway.story(id).await, story);
    }
    let history = gateway.send_as_admin(&Call::get("/v1/history")).await.body;
    assert_eq!(history["items"][0]["id"], stories[3].0.as_str());
    let page = ClaimFilter::all(Scope::All, 9);
    assert_eq!(archive.archive.history(page).await.unwrap().items.len(), stories.len());
}

const EMBEDDED: [&str; 2] = ["embedded:data", "embedded:other"];

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_explained_and_listed_by_a_redis_when_the_store_is_gone() {
    let redis = RedisServer::start(&RedisOptions::default());
    let url = format!("{}?prefix=history", redis.url());
    served_by_the_archive(EMBEDDED, &url, async |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_explained_and_listed_by_a_postgres_when_the_store_is_gone() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    served_by_the_archive(EMBEDDED, &postgres.url(), async |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_is_the_archive_of_a_redis() {
    let redis = RedisServer::start(&RedisOptions::default());
    let postgres = PostgresServer::start(&PostgresOptions::default());
    let stores = ["one", "two"].map(|prefix| format!("{}?prefix={prefix}", redis.url()));
    let ledger = format!("{}?schema=history", postgres.url());
    served_by_the_archive([&stores[0], &stores[1]], &ledger, async |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_postgres_misses_nothing_in_an_outage() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    served_by_the_archive(EMBEDDED, &postgres.url(), async |is_away| {
        if is_away { postgres.crash() } else { postgres.restart() }
    })
    .await;
}

/// The combination of the tutorial: Redis to coordinate, DynamoDB to keep track.
#[tokio::test(flavor = "multi_thread")]
async fn a_dynamodb_is_the_archive_of_a_redis() {
    let redis = RedisServer::start(&RedisOptions::default());
    let server = DynamoDbServer::start();
    let ledger = server.url("history");
    stores::migrate(&ledger).await.unwrap();
    let stores = ["one", "two"].map(|prefix| format!("{}?prefix={prefix}", redis.url()));
    served_by_the_archive([&stores[0], &stores[1]], &ledger, async |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_on_dynamodb_misses_nothing_in_an_outage() {
    let server = DynamoDbServer::start_durable();
    let ledger = server.url("history");
    stores::migrate(&ledger).await.unwrap();
    served_by_the_archive(EMBEDDED, &ledger, async |is_away| {
        if is_away { server.kill() } else { server.restart() }
    })
    .await;
}

#[test]
fn an_archive_that_is_the_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", "--store", "embedded:here", "--ledger", "embedded:here"];
    let output = run(dir.path(), &args, &[]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("--ledger: is the store itself"), "{}", output.stderr);
}
