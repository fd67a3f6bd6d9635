//! kill -9 of one gateway after the other, under load.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::ledger::Event;
use store_tests::servers::{
    DynamoDbServer, Persistence, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::{
    fleet::{Fleet, GATEWAYS},
    judge::{all_entries, judge},
    load::{Load, claim, id_of, work},
};
use crate::support::{eventually, pause};

/// How long the load and the kills go on, when nobody says otherwise.
const SECONDS: u64 = 45;
const CLAIMS: usize = 2_000;
/// On a table every decision is a request of its own.
const FEWER_CLAIMS: usize = 500;
/// Lease and two seconds.
const TAKEN_OVER: Duration = Duration::from_secs(17);

fn redis() -> RedisServer {
    let persistence = Persistence::EverySecond;
    RedisServer::start(&RedisOptions { persistence, ..RedisOptions::default() })
}

/// `SOLVEGATE_KILLS_SECONDS`: longer runs for whoever has the time (docs/testing.md).
#[expect(clippy::disallowed_methods, reason = "a test may be told how long to last")]
fn how_long() -> Duration {
    let told = std::env::var("SOLVEGATE_KILLS_SECONDS").ok();
    Duration::from_secs(told.map_or(SECONDS, |told| told.parse().unwrap()))
}

fn postgres() -> PostgresServer {
    PostgresServer::start(&PostgresOptions { durable: true, ..PostgresOptions::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_killed_under_load_lose_nothing_and_pay_nothing_twice() {
    let redis = redis();
    killed_under_load(&redis.url(), CLAIMS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_on_postgres_killed_under_load_lose_nothing_and_pay_nothing_twice() {
    let postgres = postgres();
    killed_under_load(&postgres.url(), CLAIMS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_on_dynamodb_killed_under_load_lose_nothing_and_pay_nothing_twice() {
    let server = DynamoDbServer::start();
    // Filed often enough that some die while they file.
    let url = format!("{}&file_every=40", server.url("shop"));
    stores::migrate(&url).await.unwrap();
    killed_under_load(&url, FEWER_CLAIMS).await;
    let (_, probe) = stores::DynamoDbProbe::connect(&url).await.unwrap();
    println!("{:?}", probe.take_stock().await.unwrap());
}

async fn killed_under_load(url: &str, claims: usize) {
    let mut fleet = Fleet::start(url, "800ms");
    let mut chance = fastrand::Rng::new();
    println!("kills drawn from seed {}", chance.get_seed());
    let load = Load::start(&fleet.doors, claims, how_long());
    let mut kills = 0;
    let end = super::now() + how_long();
    while super::now() < end && !load.is_over() {
        pause(Duration::from_millis(chance.u64(1_500..4_500))).await;
        let victim = chance.usize(..GATEWAYS);
        fleet.kill(victim);
        fleet.restart(victim);
        kills += 1;
    }
    let outcomes = load.outcomes().await;
    println!("{kills} kills in {:?}", how_long());
    // Paid tasks that nobody waits for are harvested too.
    let store = stores::connect(url).await.unwrap();
    eventually("every solve ends", Duration::from_secs(60), async || {
        let active = store.records.active(domain::ports::Scope::All, 1).await.unwrap();
        active.is_empty().then_some(())
    })
    .await;
    let paid = fleet.sim.ledger().await;
    judge(&store, &paid, &outcomes, claims).await.hold(&outcomes);
    store_tests::check(&*store.records).await;
}

#[expect(clippy::disallowed_methods, reason = "held against the times in the ledger")]
fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_are_taken_over_within_lease_and_two_seconds() {
    let redis = redis();
    taken_over_in_time(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_on_postgres_are_taken_over_within_lease_and_two_seconds() {
    let postgres = postgres();
    taken_over_in_time(&postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_on_dynamodb_are_taken_over_within_lease_and_two_seconds() {
    let server = DynamoDbServer::start();
    stores::migrate(&server.url("shop")).await.unwrap();
    taken_over_in_time(&server.url("shop")).await;
}

async fn taken_over_in_time(url: &str) {
    const SOLVES: usize = 60;
    let mut fleet = Fleet::start(url, "5s");
    let mut names = Vec::new();
    for n in 0..SOLVES {
        let name = format!("claim-{n}");
        id_of(&fleet.gateway(0).ask(&claim(&name)).await);
        names.push(name);
    }
    eventually("all are submitted", Duration::from_secs(5), async || {
        (fleet.sim.charges().await == SOLVES).then_some(())
    })
    .await;
    fleet.kill(0);
    let killed = clock();
    let mut outcomes = Vec::new();
    for name in &names {
        outcomes.push(work(&fleet.doors, name).await);
    }
    let store = stores::connect(url).await.unwrap();
    let entries = all_entries(&*store.records).await;
    let recovered = entries.iter().filter(|entry| matches!(entry.event, Event::Recovered { .. }));
    let times: Vec<_> = recovered.map(|entry| entry.at.millis().saturating_sub(killed)).collect();
    let last = Duration::from_millis(times.iter().max().copied().expect("somebody takes over"));
    println!(
        "{} of {SOLVES} solves were the dead one's, the last was taken over after {last:?}",
        times.len()
    );
    assert!(last <= TAKEN_OVER, "{last:?}");
    let paid = fleet.sim.ledger().await;
    judge(&store, &paid, &outcomes, SOLVES).await.hold(&outcomes);
}
