//! A table that is slow, refuses requests, or loses replies: no acknowledged write is lost, and nothing is done twice.

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

use super::{often_compacting_at, open};
use crate::{
    gateways::{Gateway, concurrent_callers},
    prefix,
    schedule::{Comparison, EVENTS, compare_all},
};

/// Occasional faults of every kind. Seven tries are enough to get a reply nevertheless.
const BAD: Faults =
    Faults { throttled: 4, conflicts: 2, failed_after: 3, lost: 3, denied: 0, only: None };
/// Commits are carried out, and their replies are lost.
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
    open(&often_compacting_at(&dynamodb_url(proxy.port(), table))).await
}

async fn compare_with_faults(mut comparison: Comparison) -> BTreeSet<String> {
    let (table, proxy) = (prefix(), proxy(7));
    let others = [through(&proxy, &table).await, through(&proxy, &table).await];
    proxy.set(BAD);
    for _ in 0..STEPS {
        let turn = comparison.chance().usize(0..others.len());
        comparison.step(&others[turn], 0).await;
    }
    proxy.set(Faults::default());
    comparison.finish(&others[0]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_fails_now_and_then_gives_the_same_history() {
    let happened = compare_all(6, compare_with_faults).await;
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
    concurrent_callers::solves_by_twenty(&all, 200).await;
    proxy.set(Faults::default());
    let requests = proxy.request_counts();
    assert!(requests["TransactWriteItems"] > 0, "nothing was compacted: {requests:?}");
    drop(all);
    let (_, probe) = DynamoDbProbe::connect(&shared_dynamodb().url(&table)).await.unwrap();
    probe.take_stock().await.unwrap();
}

/// The reply to a commit is lost seven times in a row, so the gateway cannot know whether it was carried out. It was,
/// and a retry with the same key finds the claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_reply_was_lost_is_found_by_the_retry() {
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

/// An intent whose reply was lost is withheld: whether or not it was written, it is not submitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_whose_answer_was_lost_is_withheld_for_good() {
    let proxy = proxy(10);
    let backend = through(&proxy, &prefix()).await;
    let world = World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let nonce = Nonce::from_number(77);
    proxy.set(UNHEARD);
    let lost = backend
        .store
        .advance(
            &lease,
            Decision::Intend { guard: domain::declarations::Guard::open(), nonce },
            world.now(),
        )
        .await;
    assert!(lost.is_err(), "{lost:?}");
    proxy.set(Faults::default());
    let solve = lease.solve.id;
    world.settle(solve, 1, Fact::Withheld { nonce }).await;
    let found = backend.store.find_solve(solve).await.unwrap().unwrap();
    assert_eq!(found.stage, domain::solve::Stage::Queued, "{found:?}");
    check(backend.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_request_is_reported_and_not_retried() {
    let proxy = proxy(11);
    let backend = through(&proxy, &prefix()).await;
    let world = World::new(&backend);
    world.open(world.turnstile("before")).await;
    proxy.set(Faults { denied: 100, ..Faults::default() });
    let before: u64 = proxy.request_counts()["PutItem"];
    let error = backend.store.admit(world.turnstile("a"), world.now()).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert!(proxy.request_counts()["PutItem"] <= before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_not_there_is_named() {
    let error = stores::connect(&shared_dynamodb().url("missing-table")).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::NoTable { table, .. } if table == "missing-table"),
        "{error}"
    );
}

/// Without its table a gateway decides nothing and reports why. When a new table has the same name, the gateway starts
/// over with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_deleted_and_recreated_starts_empty() {
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
    // An operator creates the table, and another gateway is the first to use it.
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
