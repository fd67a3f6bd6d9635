//! A pause, and a withdrawn site, stop all gateways within two seconds. The judge is the store's ledger: what was decided before
//! the stop may still be under way to the provider, however slow the machine is, and nothing may be decided later.

use std::time::Duration;

use domain::{
    admin_action::AdminAction,
    ledger::{Entry, Event},
};
use serde_json::json;
use solvegate::client::Call;
use store_tests::servers::{
    DynamoDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::{
    fleet::{Fleet, GATEWAYS},
    load::{claim, id_of},
};
use crate::support::{Gateway, all_entries, eventually, pause, wall_clock};

/// Enough that each gateway has work for more than this test, with two slots and a second for each task.
const CLAIMS: usize = 240;
const WITHIN: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_on_redis_stop_at_a_pause_and_at_a_withdrawal() {
    let redis = RedisServer::start(&RedisOptions::default());
    stopped(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_on_postgres_stop_at_a_pause_and_at_a_withdrawal() {
    let postgres = PostgresServer::start(&PostgresOptions::default());
    stopped(&postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_on_dynamodb_stop_at_a_pause_and_at_a_withdrawal() {
    let server = DynamoDbServer::start();
    let url = server.url("shop");
    stores::migrate(&url).await.unwrap();
    stopped(&url).await;
}

async fn stopped(store: &str) {
    let ledger = stores::connect(store).await.unwrap();
    let entries = async || all_entries(&*ledger.records).await;
    let mut fleet = Fleet::with_slots(store, "1s", "2");
    let mut ids = Vec::new();
    for number in 0..CLAIMS {
        let gateway = fleet.gateway(number % GATEWAYS);
        ids.push(id_of(&gateway.send(&claim(&format!("stop-{number}"))).await));
    }
    charged(&fleet, 3 * GATEWAYS).await;

    let paused = fleet.gateway(0).send_as_admin(&Call::post("/-/pause", json!({}))).await;
    assert_eq!(paused.body["changed"], true, "{}", paused.body);
    pause(2 * WITHIN).await;
    // Two gateways see what the first one was told, and one that starts does.
    fleet.kill(2);
    fleet.restart(2);
    for number in 0..GATEWAYS {
        let list = fleet.gateway(number).send_as_admin(&Call::get("/v1/pauses")).await;
        assert_eq!(list.body["items"][0]["scope"], "everything", "{}", list.body);
    }
    pause(WITHIN).await;
    let all = entries().await;
    let began = all.iter().position(is_pause).expect("the pause is in the ledger");
    // The decision that spends reads the pauses, so they hold from their commit on.
    assert_eq!(spent(&all[began..]), 0, "submitted after the pause");
    let before = spent(&all);
    assert!(fleet.sim.charges().await <= before, "submitted without a decision");

    fleet.gateway(1).send_as_admin(&Call::post("/-/resume", json!({}))).await;
    charged(&fleet, before + 3 * GATEWAYS).await;

    let withdraw =
        |text: String| text.replace("host = \"shop.example.com\"", "host = \"other.example.com\"");
    fleet.reload(withdraw, has_no_shop).await;
    let stop = wall_clock();
    pause(2 * WITHIN).await;
    let all = entries().await;
    let late = all.iter().filter(|entry| spends(entry) && entry.at > stop.plus(WITHIN));
    assert_eq!(
        late.collect::<Vec<_>>(),
        Vec::<&Entry>::new(),
        "2 s after the withdrawal at {stop}"
    );
    let last = all.iter().filter(|entry| spends(entry)).map(|entry| entry.at).max().unwrap();
    println!("the last submission was decided {:?} after the withdrawal", last.since(stop));
    let paid = fleet.sim.charges().await;
    assert!(paid < CLAIMS, "the test withdrew too late");
    let mut undeclared = 0;
    for id in &ids {
        undeclared += usize::from(ends_undeclared(&fleet, id).await);
    }
    assert!(undeclared >= CLAIMS - paid, "{undeclared} undeclared, {paid} paid");
    let letters = fleet.gateway(0).send_as_admin(&Call::get("/v1/dead-letters?closed=true")).await;
    assert_eq!(letters.body["items"], json!([]));
    println!("{paid} of {CLAIMS} claims paid, {undeclared} ended as not declared");
}

async fn charged(fleet: &Fleet, count: usize) {
    eventually("submissions", async || (fleet.sim.charges().await >= count).then_some(())).await;
}

fn is_pause(entry: &Entry) -> bool {
    matches!(&entry.event, Event::Administered { action: AdminAction::Paused { .. }, .. })
}

/// Whether a gateway decided to submit.
fn spends(entry: &Entry) -> bool {
    matches!(entry.event, Event::Intent { .. } | Event::Authorised { .. })
}

fn spent(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| matches!(entry.event, Event::Intent { .. })).count()
}

async fn has_no_shop(gateway: &Gateway) -> bool {
    let sites = gateway.send_as_admin(&Call::get("/v1/sites")).await;
    let hosts = sites.body["items"].as_array().unwrap().iter().map(|site| &site["host"]);
    hosts.into_iter().all(|host| host != "shop.example.com")
}

/// Waits for the end of a claim; whether it failed because its site is not declared.
async fn ends_undeclared(fleet: &Fleet, id: &str) -> bool {
    let reply = eventually("the end of a claim", async || {
        let reply = fleet.gateway(0).send(&Call::get(format!("/v1/solves/{id}?wait=10"))).await;
        Some(reply).filter(|reply| reply.status.as_u16() != 202)
    })
    .await;
    !reply.status.is_success() && reply.body.to_string().contains("ERROR_SITE_NOT_DECLARED")
}
