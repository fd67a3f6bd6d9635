//! Budgets of the real binary.

use futures_util::future::join_all;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use solvegate::client::Call;
use store_tests::servers::{RedisOptions, RedisServer};

use crate::support::{Gateway, PATIENCE, Settings, Sim, eventually};

const POOL: &str = "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4A\"\n\
                    pageurl = \"https://shop.example.com/login\"\nlevel = 3\n";

/// Tokens that a pool has paid for count for the worker that gets them.
#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_five_callers_with_a_budget_of_one_a_pool_of_three_serves_one() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let settings = Settings { more: POOL.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    // A reload puts the budget into force.
    let file = dir.path().join("solvegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let limited = "name = \"two\"\nbudget = { solves_per_day = 1, solves_per_month = 9 }";
    std::fs::write(&file, text.replace("name = \"two\"", limited)).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the reload is logged", async || {
        gateway.process.stderr().contains("configuration reloaded").then_some(())
    })
    .await;
    eventually("the pool is full", async || {
        let pools = gateway.send_as_admin(&Call::get("/v1/pools")).await.body;
        (pools["items"][0]["stock"] == 3).then_some(())
    })
    .await;
    let body = json!({ "kind": "turnstile", "sitekey": "0x4A", "fresh": true,
                       "pageurl": "https://shop.example.com/login" });
    let call = Call::post("/v1/solves", body);
    let calls = (0..25).map(|_| gateway.send_as_two(&call));
    let replies = join_all(calls).await;
    let with = |status| replies.iter().filter(move |reply| reply.status == status);
    let served: Vec<_> = with(StatusCode::OK).map(|reply| &reply.body["source"]).collect();
    assert_eq!((served, with(StatusCode::TOO_MANY_REQUESTS).count()), (vec![&json!("stock")], 24));
    assert!(with(StatusCode::TOO_MANY_REQUESTS).all(|one| one.body["code"] == "budget_exceeded"));
    let workers = gateway.send_as_admin(&Call::get("/v1/workers")).await.body;
    let budget = &workers["items"][1]["budget"];
    let limits = [0, 1].map(|n| (&budget[n]["limit"], &budget[n]["used"], &budget[n]["most"]));
    assert_eq!(limits[0], (&json!("solves_per_day"), &json!(1), &json!(1)));
    assert_eq!(limits[1], (&json!("solves_per_month"), &json!(1), &json!(9)));
    eventually("the pool is full again", async || (sim.charges().await == 4).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_five_callers_at_two_gateways_a_budget_of_one_serves_one() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let redis = RedisServer::start(&RedisOptions::default());
    let sim = Sim::start(one.path(), &["--solve-time", "300ms"]);
    let settings = Settings {
        store: redis.url(),
        // A month, so that it does not matter when the test runs.
        edit: |file| {
            let limited = "name = \"two\"\nbudget = { solves_per_month = 1 }";
            file.replace("name = \"two\"", limited)
        },
        ..Settings::default()
    };
    let gateways = [one.path(), two.path()].map(|dir| Gateway::with(dir, &sim, &settings));
    let body = json!({ "kind": "turnstile", "sitekey": "0x4A", "fresh": true,
                       "pageurl": "https://shop.example.com/login" });
    let call = Call::post("/v1/solves", body).header("prefer", "wait=60").waiting(PATIENCE);
    let replies = join_all((0..25).map(|n| gateways[n % 2].send_as_two(&call))).await;
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS)), (1, 24));
    assert_eq!(sim.charges().await, 1);
}
