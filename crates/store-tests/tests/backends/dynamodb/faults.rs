//! A table that is slow, refuses, or forgets to answer: nothing is lost that was answered, and nothing is done twice.

#![expect(
    clippy::disallowed_methods,
    reason = "a test outside the store under test, which fails by panicking"
)]

use std::{collections::BTreeSet, time::Duration};

use domain::{
    claim::Admission,
    id::Nonce,
    ports::StoreError,
    solve::{Decision, Fact},
};
use store_tests::{
    World, check, named,
    servers::{DynamoDbServer, Faults, HttpProxy, dynamodb_url, shared_dynamodb},
};
use stores::{DynamoDbProbe, OpenError};

use super::{often_at, open};
use crate::{
    gateways::{Gateway, crowds},
    prefix,
    schedule::{EVENTS, Race, race_all},
};

/// Everything goes wrong now and then. What is asked seven times is answered all the same.
const BAD: Faults =
    Faults { throttled: 4, conflicts: 2, failed_after: 3, lost: 3, denied: 0, only: None };
/// Commits are carried out, and nobody is told.
const UNHEARD: Faults = Faults {
    throttled: 0,
    conflicts: 0,
    failed_after: 0,
    lost: 100,
    denied: 0,
    only: Some("PutItem"),
};

const STEPS: usize = 200;

fn proxy(seed: u64) -> HttpProxy {
    HttpProxy::start(shared_dynamodb().port(), seed)
}

async fn through(proxy: &HttpProxy, table: &str) -> stores::Backend {
    open(&often_at(&dynamodb_url(proxy.port(), table))).await
}

async fn race(mut race: Race) -> BTreeSet<String> {
    let (table, proxy) = (prefix(), proxy(7));
    let others = [through(&proxy, &table).await, through(&proxy, &table).await];
    proxy.set(BAD);
    for _ in 0..STEPS {
        let turn = race.chance().usize(0..others.len());
        race.step(&others[turn], 0).await;
    }
    proxy.set(Faults::default());
    race.finish(&others[0]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_fails_now_and_then_gives_the_same_history() {
    let happened = race_all(6, race).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_while_requests_fail() {
    let (table, proxy) = (prefix(), proxy(8));
    let mut all: Vec<Gateway> = Vec::new();
    for _ in 0..3 {
        let backend = through(&proxy, &table).await;
        let mut world = all.first().map_or_else(|| World::new(&backend), |one| one.world.clone());
        world.store = backend.store.clone();
        world.records = backend.records.clone();
        all.push(Gateway { backend, world });
    }
    proxy.set(BAD);
    crowds::solves_by_twenty(&all, 200).await;
    proxy.set(Faults::default());
    let asked = proxy.asked();
    assert!(asked["TransactWriteItems"] > 0, "nothing was filed: {asked:?}");
    drop(all);
    let (_, probe) = DynamoDbProbe::connect(&shared_dynamodb().url(&table)).await.unwrap();
    probe.take_stock().await.unwrap();
}

/// Every answer of a commit is lost, seven times in a row: nobody knows whether it was carried out. It was; whoever asks again
/// finds the claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_never_came_is_there_when_it_is_asked_for_again() {
    let proxy = proxy(9);
    let backend = through(&proxy, &prefix()).await;
    let world = World::new(&backend);
    world.open(world.turnstile("before")).await;
    let new = || {
        let mut new = world.turnstile("a");
        new.key = named(&new, "k");
        new
    };
    proxy.set(UNHEARD);
    let lost = backend.store.admit(new(), world.now()).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    proxy.set(Faults::default());
    let again = backend.store.admit(new(), world.now()).await.unwrap();
    assert!(matches!(again, Admission::Replayed(_)), "{again:?}");
    check(backend.records.as_ref()).await;
}

/// An intent whose answer was lost is disowned: it is there or will never be, and either way it is not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_whose_answer_was_lost_is_withheld_for_good() {
    let proxy = proxy(10);
    let backend = through(&proxy, &prefix()).await;
    let world = World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let nonce = Nonce::from_number(77);
    proxy.set(UNHEARD);
    let lost = backend.store.advance(&lease, Decision::Intend { nonce }, world.now()).await;
    assert!(lost.is_err(), "{lost:?}");
    proxy.set(Faults::default());
    let solve = lease.solve.id;
    world.tell(solve, 1, Fact::Withheld { nonce }).await;
    let found = backend.store.find_solve(solve).await.unwrap().unwrap();
    assert_eq!(found.stage, domain::solve::Stage::Queued, "{found:?}");
    check(backend.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_allowed_is_said_and_asked_once() {
    let proxy = proxy(11);
    let backend = through(&proxy, &prefix()).await;
    let world = World::new(&backend);
    world.open(world.turnstile("before")).await;
    proxy.set(Faults { denied: 100, ..Faults::default() });
    let before: u64 = proxy.asked()["PutItem"];
    let error = backend.store.admit(world.turnstile("a"), world.now()).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert!(proxy.asked()["PutItem"] <= before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_not_there_is_named() {
    let error = stores::connect(&shared_dynamodb().url("nobody-made-it")).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::NoTable { table, .. } if table == "nobody-made-it"),
        "{error}"
    );
}

/// A server without its tables: nothing is decided, and what is wrong is said. When another table is there under the same
/// name, the gateway begins anew with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_deleted_and_made_again_is_begun_anew() {
    let server = DynamoDbServer::start();
    let url = server.url("shop");
    let backend = open(&url).await;
    let world = World::new(&backend);
    world.open(world.turnstile("a")).await;
    let claim = world.open(world.turnstile("a")).await;
    server.restart();
    let error = backend.store.admit(world.turnstile("b"), world.now()).await.unwrap_err();
    assert!(error.to_string().contains("no table shop"), "{error}");
    let error = backend.store.find_claim(claim.id).await.unwrap_err();
    assert!(error.to_string().contains("no table shop"), "{error}");
    // Somebody makes the table, and another gateway is the first to use it.
    let other = World::new(&open(&url).await);
    let known = other.open(other.turnstile("c")).await;
    for _ in 0..50 {
        if let Ok(found) = backend.store.find_claim(known.id).await {
            assert!(found.is_some(), "it reads another table than the others");
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(backend.store.find_claim(claim.id).await.unwrap(), None, "the old table is gone");
    check(other.records.as_ref()).await;
}
