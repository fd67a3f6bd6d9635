//! kill -9 of one gateway after the other, under load.

use std::time::Duration;

use domain::ledger::Event;
use store_tests::servers::{
    DynamoDbServer, Persistence, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::{
    fleet::{Fleet, GATEWAYS},
    judge::{every_solve_ends, every_task_is_priced, judge},
    load::{Load, claim, id_of, work},
};
use crate::support::{Settings, all_entries, eventually, kills_last, pause, wall_clock};

/// Claims per second during the kills.
const CLAIMS: u64 = 45;
/// Fewer on DynamoDB, where every decision is a request.
const FEWER_CLAIMS: u64 = 11;
/// The lease is 15 s and the sweep runs every second: a test in virtual time holds that bound
/// (`a_dead_gateways_solve_is_taken_over_within_lease_and_sweep`). Here the machine may be busy.
const TAKEN_OVER: Duration = Duration::from_secs(75);

fn redis() -> RedisServer {
    let persistence = Persistence::EverySecond;
    RedisServer::start(&RedisOptions { persistence, ..RedisOptions::default() })
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
    // Frequent compaction, so that some gateways die during it.
    let url = format!("{}&file_every=40", server.url("shop"));
    stores::migrate(&url).await.unwrap();
    killed_under_load(&url, FEWER_CLAIMS).await;
    let (_, probe) = stores::DynamoDbProbe::connect(&url).await.unwrap();
    println!("{:?}", probe.take_stock().await.unwrap());
}

async fn killed_under_load(url: &str, claims_per_second: u64) {
    let claims = usize::try_from(claims_per_second * kills_last().as_secs()).unwrap();
    let mut fleet = Fleet::start(url, "800ms");
    let mut chance = fastrand::Rng::new();
    println!("kills drawn from seed {}", chance.get_seed());
    let load = Load::start(&fleet.doors, claims, kills_last());
    let mut kills = 0;
    let end = super::now() + kills_last();
    while super::now() < end && !load.is_over() {
        pause(Duration::from_millis(chance.u64(1_500..4_500))).await;
        let victim = chance.usize(..GATEWAYS);
        fleet.kill(victim);
        fleet.restart(victim);
        kills += 1;
    }
    let outcomes = load.outcomes().await;
    println!("{kills} kills in {:?}", kills_last());
    let store = stores::connect(url).await.unwrap();
    every_solve_ends(&store).await;
    every_task_is_priced(&store).await;
    let paid = fleet.sim.ledger().await;
    judge(&store, &paid, &outcomes, claims).await.hold(&outcomes);
    store_tests::check(&*store.records).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_are_taken_over_after_its_lease() {
    let redis = redis();
    taken_over_in_time(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_on_postgres_are_taken_over_after_its_lease() {
    let postgres = postgres();
    taken_over_in_time(&postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_gateways_solves_on_dynamodb_are_taken_over_after_its_lease() {
    let server = DynamoDbServer::start();
    stores::migrate(&server.url("shop")).await.unwrap();
    taken_over_in_time(&server.url("shop")).await;
}

async fn taken_over_in_time(url: &str) {
    const SOLVES: usize = 60;
    // Polled more often, a task would use up its polls before it is ready.
    let settings = Settings { poll_ms: 500, ..Settings::default() };
    let mut fleet = Fleet::with(url, &["--solve-time", "10s"], settings);
    // Any gateway with a share of the slots may submit a claim, and all of these are to be of the one that dies.
    let others = [1, 2];
    for other in others {
        fleet.kill(other);
    }
    let mut names = Vec::new();
    for n in 0..SOLVES {
        let name = format!("claim-{n}");
        id_of(&fleet.gateway(0).send(&claim(&name)).await);
        names.push(name);
    }
    eventually("all are submitted", async || (fleet.sim.charges().await == SOLVES).then_some(()))
        .await;
    for other in others {
        fleet.restart(other);
    }
    fleet.kill(0);
    let killed = wall_clock();
    let mut outcomes = Vec::new();
    for name in &names {
        outcomes.push(work(&fleet.doors, name).await);
    }
    let store = stores::connect(url).await.unwrap();
    every_solve_ends(&store).await;
    every_task_is_priced(&store).await;
    let entries = all_entries(&*store.records).await;
    let recovered = entries.iter().filter(|entry| matches!(entry.event, Event::Recovered { .. }));
    let times: Vec<_> = recovered.map(|entry| entry.at.since(killed)).collect();
    let last = times.iter().max().copied().expect("another gateway takes over");
    println!(
        "{} of {SOLVES} solves were the dead one's, the last was taken over after {last:?}",
        times.len()
    );
    assert!(last <= TAKEN_OVER, "{last:?}");
    let paid = fleet.sim.ledger().await;
    judge(&store, &paid, &outcomes, SOLVES).await.hold(&outcomes);
}
