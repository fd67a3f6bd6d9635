//! A server that loses acknowledged writes: the gateways notice at once and restore everything they know, take no risks
//! meanwhile, and deliver no token twice.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test outside the server under test, which fails by panicking and shows its figures"
)]

use std::time::{Duration, Instant};

use domain::{
    chain::{ChainedEntry, LedgerItem},
    claim::{Admission, Claim, ClaimState, Delivery, NewClaim},
    id::Nonce,
    ledger::Event,
    ports::{AuditFilter, StoreError},
    solve::{Decision, Fact, Refused, Stage},
};
use store_tests::{
    World, check, named,
    servers::{FaultProxy, Persistence, RedisOptions, RedisServer},
    task, token_of, verify_chain,
};
use stores::Backend;

use crate::gateways::pauses::{a_pause_holds_at_every_gateway, set_pause};

/// The store must be back to normal within this time.
const PATIENCE: Duration = Duration::from_secs(15);

fn server() -> RedisServer {
    RedisServer::start(&RedisOptions::default())
}

async fn gateway(server: &RedisServer) -> (Backend, World) {
    let backend = crate::connect(&server.url(), "losses").await;
    let world = World::new(&backend);
    (backend, world)
}

/// Retries until the store answers reads and writes, which have connections of their own. Returns how long that took.
pub(super) async fn until_back(backend: &Backend, world: &World) -> Duration {
    let start = Instant::now();
    while !is_back(backend).await {
        assert!(start.elapsed() < PATIENCE, "the store did not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The server has also lost the holder's lease.
    world.holder(1_000_000).await;
    start.elapsed()
}

async fn is_back(backend: &Backend) -> bool {
    let read = backend.store.memos("").await.map(drop);
    let written = backend.store.set_memo("is-back", Vec::new()).await;
    !matches!(
        (read, written),
        (Err(StoreError::Unavailable { .. }), _) | (_, Err(StoreError::Unavailable { .. }))
    )
}

/// Restores the state of the last `SAVE`.
fn roll_back(server: &RedisServer) {
    server.kill();
    server.restart();
}

async fn delivered(world: &World, claim: &Claim) -> String {
    match world.fetch(claim).await {
        Delivery::Token(claim) => token_of(&claim).unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_restart_loses_nothing_that_is_under_way() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    let mut new = world.turnstile("a");
    new.key = named(&new, "job-1");
    let again = NewClaim { id: world.turnstile("x").id, ..new.clone() };
    let claim = world.open(new).await;
    let lease = world.submit(&claim, "t1").await;
    let done = world.serve(world.turnstile("b"), "t2").await;
    roll_back(&server);

    let took = until_back(&backend, &world).await;
    println!("an empty restart: back after {took:?}");
    assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
    let replay = world.admit(NewClaim { solve: world.fresh_solve(), ..again }).await;
    assert!(matches!(&replay, Admission::Replayed(same) if same.id == claim.id), "{replay:?}");
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(delivered(&world, &claim).await, "token-t1");
    assert_eq!(delivered(&world, &done).await, "token-t2");
    check(backend.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_each_restore_their_own_records() {
    let server = server();
    let (one, world) = gateway(&server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    // One gateway opens the claim and the other submits it, so each knows a part.
    let claim = world.open(world.turnstile("a")).await;
    let lease = far.submit(&claim, "t1").await;
    let own = far.open(far.turnstile("b")).await;
    roll_back(&server);

    until_back(&one, &world).await;
    until_back(&other, &far).await;
    for world in [&world, &far] {
        assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
        assert_eq!(world.find(&own).await.state, ClaimState::Waiting);
    }
    far.settle(lease.solve.id, 1, far.solved("t1")).await;
    assert_eq!(delivered(&world, &claim).await, "token-t1");
}

/// A hash that was noted before the loss is gone, and the trail says why. What two gateways restored is one chain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_in_the_audit_trail_and_the_chain_is_intact() {
    let server = server();
    let (one, world) = gateway(&server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    world.serve(world.turnstile("a"), "t1").await;
    far.serve(far.turnstile("b"), "t2").await;
    let before = verify_chain(&*one.records).await.unwrap();
    roll_back(&server);

    until_back(&one, &world).await;
    until_back(&other, &far).await;
    let after = verify_chain(&*one.records).await.expect("the restored ledger is one chain");
    assert!(after.entries > before.entries, "{after:?}");
    assert_eq!((after.first, after.unhashed), (Some(1), 0));
    let filter = AuditFilter { action: Some("writes_lost".into()), ..AuditFilter::all(10) };
    let losses = one.records.audit(filter).await.unwrap().items;
    assert!(!losses.is_empty(), "nothing says that entries were lost");
    let noted = one.records.chain(before.last.unwrap(), 1).await.unwrap();
    let noted = noted.into_iter().find_map(|item| match item {
        LedgerItem::Entry(ChainedEntry { link, .. }) => link.map(|link| link.hash),
        LedgerItem::Unreadable { .. } => None,
    });
    assert_ne!(noted, before.head, "a noted hash cannot be there by chance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_is_restored_and_a_later_resume_with_it() {
    let server = server();
    let (one, world) = gateway(&server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    let claim = far.open(far.turnstile("a")).await;
    far.lease_of(&claim).await;
    set_pause(&world, true).await;
    roll_back(&server);
    until_back(&one, &world).await;
    until_back(&other, &far).await;
    assert_eq!(far.intend(&far.lease_of(&claim).await).await, Err(Refused::Paused));
    // Each gateway now has a version of its own: the later one counts.
    set_pause(&far, false).await;
    roll_back(&server);
    until_back(&one, &world).await;
    until_back(&other, &far).await;
    assert!(world.store.pauses().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone() {
    let server = server();
    let (one, world) = gateway(&server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    let claim = world.open(world.turnstile("a")).await;
    let lease = far.submit(&claim, "t1").await;
    drop((one, world));
    roll_back(&server);

    until_back(&other, &far).await;
    let solve = other.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!((solve.stage, solve.task), (Stage::Submitted, Some(task("t1"))));
    far.settle(lease.solve.id, 1, far.solved("t1")).await;
    let entries = far.entries().await;
    assert!(entries.iter().any(|entry| matches!(entry.event, Event::Ready { .. })), "{entries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_handed_out_after_the_last_save_is_not_handed_out_again() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    world.stock(world.turnstile("a"), "t1").await;
    server.cli(&["SAVE"]);
    let mut taker = world.turnstile("a");
    taker.collect = true;
    let Admission::Stocked(taker) = world.admit(taker).await else { panic!("nothing in stock") };
    roll_back(&server);

    until_back(&backend, &world).await;
    assert_eq!(token_of(&world.find(&taker).await), Some("token-t1"), "its claim still has it");
    let next = world.admit(world.turnstile("a")).await;
    assert!(matches!(next, Admission::Opened(_)), "the token went out twice: {next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reassigned_after_the_last_save_stays_with_its_new_claim() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    let first = world.serve(world.turnstile("a"), "t1").await;
    let second = world.open(world.turnstile("a")).await;
    server.cli(&["SAVE"]);
    world.withdraw(&first).await;
    assert_eq!(delivered(&world, &second).await, "token-t1");
    roll_back(&server);

    until_back(&backend, &world).await;
    assert_eq!(world.find(&first).await.state, ClaimState::Withdrawn);
    assert_eq!(delivered(&world, &second).await, "token-t1");
    assert!(!matches!(world.fetch(&first).await, Delivery::Token(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_accepted_after_the_last_save_is_not_paid_again() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    let claim = world.open(world.turnstile("a")).await;
    server.cli(&["SAVE"]);
    let lease = world.submit(&claim, "t1").await;
    roll_back(&server);

    until_back(&backend, &world).await;
    let solve = backend.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(solve.task, Some(task("t1")));
    let holder = world.holder(2).await;
    assert!(world.lease(holder).await.is_empty(), "another holder took a leased solve");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_again_while_the_rows_are_in_doubt() {
    let server = server();
    let (backend, world) = gateway(&server).await;
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    roll_back(&server);

    until_back(&backend, &world).await;
    let due = world.now();
    let authorised = backend
        .store
        .advance(
            &lease,
            Decision::Authorise { guard: domain::declarations::Guard::open(), due },
            due,
        )
        .await;
    assert!(matches!(authorised, Err(StoreError::Unavailable { .. })), "{authorised:?}");
    // A gateway that starts now has not seen the loss, and is as careful.
    let late = crate::connect(&server.url(), "losses").await;
    let authorised = late
        .store
        .advance(
            &lease,
            Decision::Authorise { guard: domain::declarations::Guard::open(), due },
            due,
        )
        .await;
    assert!(matches!(authorised, Err(StoreError::Unavailable { .. })), "{authorised:?}");
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
