//! Lost writes (`gateways::losses`), outages, failovers, and what is known of commits that got no reply.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test outside the server under test, which fails by panicking and shows its figures"
)]

use std::time::{Duration, Instant};

use domain::{
    claim::{Admission, ClaimState},
    id::Nonce,
    ports::StoreError,
    solve::{Decision, Fact, Stage},
};
use store_tests::{
    World, check,
    servers::{FaultProxy, Persistence, RedisOptions, RedisServer},
};

use crate::gateways::{
    losses::{self, LosingServer, PATIENCE, gateway, until_back},
    pauses::a_pause_holds_at_every_gateway,
};

fn server() -> RedisServer {
    RedisServer::start(&RedisOptions::default())
}

/// Restores the state of the last `SAVE`.
fn roll_back(server: &RedisServer) {
    server.kill();
    server.restart();
}

impl LosingServer for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn save(&self) {
        self.cli(&["SAVE"]);
    }

    fn roll_back(&self) {
        roll_back(self);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_restart_loses_nothing_that_is_under_way() {
    losses::an_empty_restart_loses_nothing_that_is_under_way(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_each_restore_their_own_records() {
    losses::two_gateways_each_restore_their_own_records(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_in_the_audit_trail_and_the_chain_is_intact() {
    losses::a_loss_is_in_the_audit_trail_and_the_chain_is_intact(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_is_restored_and_a_later_resume_with_it() {
    losses::a_pause_is_restored_and_a_later_resume_with_it(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone() {
    losses::a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone(
        &server(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_handed_out_after_the_last_save_is_not_handed_out_again() {
    losses::a_token_handed_out_after_the_last_save_is_not_handed_out_again(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reassigned_after_the_last_save_stays_with_its_new_claim() {
    losses::a_token_reassigned_after_the_last_save_stays_with_its_new_claim(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_accepted_after_the_last_save_is_not_paid_again() {
    losses::a_task_accepted_after_the_last_save_is_not_paid_again(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_again_while_the_rows_are_in_doubt() {
    losses::nothing_is_sent_again_while_the_rows_are_in_doubt(&server()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_an_append_only_file_a_killed_server_loses_nothing() {
    let options = RedisOptions { persistence: Persistence::EverySecond, ..RedisOptions::default() };
    let server = RedisServer::start(&options);
    let (backend, world) = gateway(&server).await;
    let mut claims = Vec::new();
    for n in 0..50 {
        claims.push(world.open(world.turnstile(&format!("s{n}"))).await);
    }
    roll_back(&server);
    until_back(&backend, &world).await;
    assert!(backend.store.find_claim(claims[49].id).await.unwrap().is_some());
    let holder = world.holder(1).await;
    assert_eq!(world.lease_some(holder, 100).await.len(), 50);
    check(backend.records.as_ref()).await;
    // A busy disk may delay the last second of writes. Then the gateway notices a loss and restores them.
    let since = server.cli(&["HGET", "{losses:0}:head", "since"]);
    println!("an append-only file: taken for a loss: {}", since.trim() != "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_away_and_comes_back() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    let claim = world.open(world.turnstile("a")).await;
    server.pause();
    let start = Instant::now();
    let found = backend.store.find_claim(claim.id).await;
    assert!(matches!(found, Err(StoreError::Unavailable { .. })), "{found:?}");
    let new = world.turnstile("b");
    let refused = backend.store.admit(new.clone(), world.now()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    server.resume();
    until_back(&backend, &world).await;
    // The request sent during the pause was carried out once or not at all.
    let known = backend.store.find_claim(new.id).await.unwrap();
    let again = backend.store.admit(new, world.now()).await.unwrap();
    match known {
        Some(_) => assert!(matches!(again, Admission::NameTaken), "{again:?}"),
        None => assert!(matches!(again, Admission::Opened(_)), "{again:?}"),
    }
    check(backend.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnects_to_an_unreachable_server_back_off() {
    let server = server();
    let proxy = FaultProxy::start(server.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let backend = crate::connect(&url, "losses").await;
    let world = World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    proxy.cut();
    let start = Instant::now();
    let mut requests = 0_u64;
    while start.elapsed() < Duration::from_secs(3) {
        assert!(backend.store.find_claim(claim.id).await.is_err());
        requests += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(requests > 100, "calls fail fast ({requests})");
    let before = proxy.accepted();
    proxy.heal();
    until_back(&backend, &world).await;
    assert!(proxy.accepted() - before <= 6, "{} connections", proxy.accepted() - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_replica_that_is_promoted_is_noticed() {
    let master = server();
    let options = RedisOptions { replica_of: Some(master.port()), ..RedisOptions::default() };
    let replica = RedisServer::start(&options);
    let proxy = FaultProxy::start(master.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let backend = crate::connect(&url, "losses").await;
    let world = World::new(&backend);
    let kept = world.open(world.turnstile("a")).await;
    master.cli(&["WAIT", "1", "1000"]);
    // The replica no longer receives writes, so intents do not count as safe.
    replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let lost = world.open(world.turnstile("b")).await;
    let lease = world.lease_of(&lost).await;
    let nonce = Nonce::from_number(5);
    let intent = backend
        .store
        .advance(
            &lease,
            Decision::Intend { guard: domain::declarations::Guard::open(), nonce },
            world.now(),
        )
        .await;
    assert!(matches!(intent, Err(StoreError::Unavailable { .. })), "no replica has it: {intent:?}");

    master.kill();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    proxy.lead_to(replica.port());
    until_back(&backend, &world).await;
    for claim in [&kept, &lost] {
        assert_eq!(world.find(claim).await.state, ClaimState::Waiting);
    }
}

/// A commit whose caller timed out can still arrive. It must not be carried out after its gateway has withheld the
/// intent, because no gateway would ever resolve that intent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_that_arrives_after_it_was_withheld_is_not_written() {
    let server = server();
    let proxy = FaultProxy::start(server.port());
    let backend = crate::connect(&format!("redis://127.0.0.1:{}", proxy.port()), "late").await;
    let world = World::new(&backend);
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let nonce = Nonce::from_number(7);

    // The request takes longer than the timeout, and later requests overtake it.
    proxy.delay(Duration::from_millis(3_500));
    let intended = backend
        .store
        .advance(
            &lease,
            Decision::Intend { guard: domain::declarations::Guard::open(), nonce },
            world.now(),
        )
        .await;
    assert!(matches!(intended, Err(StoreError::Unavailable { .. })), "{intended:?}");
    proxy.delay(Duration::ZERO);
    let start = Instant::now();
    let withheld = Fact::Withheld { nonce };
    while backend.store.settle(lease.solve.id, 1, withheld.clone(), world.now()).await.is_err() {
        assert!(start.elapsed() < PATIENCE, "the store did not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;

    let again = world
        .decide(
            &lease,
            Decision::Intend {
                guard: domain::declarations::Guard::open(),
                nonce: Nonce::from_number(8),
            },
        )
        .await;
    assert_eq!(again.unwrap().stage, Stage::Intent, "no other gateway has begun it");
    check(&*backend.records).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_at_every_gateway_at_once() {
    a_pause_holds_at_every_gateway(&server().url()).await;
}
