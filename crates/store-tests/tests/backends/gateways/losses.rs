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
    ledger::Event,
    ports::{AuditFilter, StoreError},
    solve::{Decision, Refused, Stage},
};
use store_tests::{World, check, named, task, token_of, verify_chain};
use stores::Backend;

use super::pauses::set_pause;

/// A server that forgets everything since it was saved.
pub(crate) trait LosingServer {
    fn url(&self) -> String;

    fn save(&self);

    /// Restores what was saved, or an empty store.
    fn roll_back(&self);
}

/// The store must be back to normal within this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) async fn gateway(server: &impl LosingServer) -> (Backend, World) {
    let backend = crate::connect(&server.url(), "losses").await;
    let world = World::new(&backend);
    (backend, world)
}

/// Retries until the store answers reads and writes, which have connections of their own. Returns how long that took.
pub(crate) async fn until_back(backend: &Backend, world: &World) -> Duration {
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

async fn delivered(world: &World, claim: &Claim) -> String {
    match world.fetch(claim).await {
        Delivery::Token(claim) => token_of(&claim).unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The server goes back to the state of its start.
pub(crate) async fn an_empty_restart_loses_nothing_that_is_under_way(server: &impl LosingServer) {
    let (backend, world) = gateway(server).await;
    let mut new = world.turnstile("a");
    new.key = named(&new, "job-1");
    let again = NewClaim { id: world.turnstile("x").id, ..new.clone() };
    let claim = world.open(new).await;
    let lease = world.submit(&claim, "t1").await;
    let done = world.serve(world.turnstile("b"), "t2").await;
    server.roll_back();

    let took = until_back(&backend, &world).await;
    println!("a restart without the data: back after {took:?}");
    assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
    let replay = world.admit(NewClaim { solve: world.fresh_solve(), ..again }).await;
    assert!(matches!(&replay, Admission::Replayed(same) if same.id == claim.id), "{replay:?}");
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(delivered(&world, &claim).await, "token-t1");
    assert_eq!(delivered(&world, &done).await, "token-t2");
    check(backend.records.as_ref()).await;
}

pub(crate) async fn two_gateways_each_restore_their_own_records(server: &impl LosingServer) {
    let (one, world) = gateway(server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    // One gateway opens the claim and the other submits it, so each knows a part.
    let claim = world.open(world.turnstile("a")).await;
    let lease = far.submit(&claim, "t1").await;
    let own = far.open(far.turnstile("b")).await;
    server.roll_back();

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
pub(crate) async fn a_loss_is_in_the_audit_trail_and_the_chain_is_intact(
    server: &impl LosingServer,
) {
    let (one, world) = gateway(server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    world.serve(world.turnstile("a"), "t1").await;
    far.serve(far.turnstile("b"), "t2").await;
    let before = verify_chain(&*one.records).await.unwrap();
    server.roll_back();

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

pub(crate) async fn a_pause_is_restored_and_a_later_resume_with_it(server: &impl LosingServer) {
    let (one, world) = gateway(server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    let claim = far.open(far.turnstile("a")).await;
    far.lease_of(&claim).await;
    set_pause(&world, true).await;
    server.roll_back();
    until_back(&one, &world).await;
    until_back(&other, &far).await;
    assert_eq!(far.intend(&far.lease_of(&claim).await).await, Err(Refused::Paused));
    // Each gateway now has a version of its own: the later one counts.
    set_pause(&far, false).await;
    server.roll_back();
    until_back(&one, &world).await;
    until_back(&other, &far).await;
    assert!(world.store.pauses().await.unwrap().is_empty());
}

pub(crate) async fn a_task_is_restored_with_its_challenge_when_the_gateway_that_admitted_it_is_gone(
    server: &impl LosingServer,
) {
    let (one, world) = gateway(server).await;
    let other = crate::connect(&server.url(), "losses").await;
    let far = world.through(&other);
    let claim = world.open(world.turnstile("a")).await;
    let lease = far.submit(&claim, "t1").await;
    drop((one, world));
    server.roll_back();

    until_back(&other, &far).await;
    let solve = other.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!((solve.stage, solve.task), (Stage::Submitted, Some(task("t1"))));
    far.settle(lease.solve.id, 1, far.solved("t1")).await;
    let entries = far.entries().await;
    assert!(entries.iter().any(|entry| matches!(entry.event, Event::Ready { .. })), "{entries:?}");
}

pub(crate) async fn a_token_handed_out_after_the_last_save_is_not_handed_out_again(
    server: &impl LosingServer,
) {
    let (backend, world) = gateway(server).await;
    world.stock(world.turnstile("a"), "t1").await;
    server.save();
    let mut taker = world.turnstile("a");
    taker.collect = true;
    let Admission::Stocked(taker) = world.admit(taker).await else { panic!("nothing in stock") };
    server.roll_back();

    until_back(&backend, &world).await;
    assert_eq!(token_of(&world.find(&taker).await), Some("token-t1"), "its claim still has it");
    let next = world.admit(world.turnstile("a")).await;
    assert!(matches!(next, Admission::Opened(_)), "the token went out twice: {next:?}");
}

pub(crate) async fn a_token_reassigned_after_the_last_save_stays_with_its_new_claim(
    server: &impl LosingServer,
) {
    let (backend, world) = gateway(server).await;
    let first = world.serve(world.turnstile("a"), "t1").await;
    let second = world.open(world.turnstile("a")).await;
    server.save();
    world.withdraw(&first).await;
    assert_eq!(delivered(&world, &second).await, "token-t1");
    server.roll_back();

    until_back(&backend, &world).await;
    assert_eq!(world.find(&first).await.state, ClaimState::Withdrawn);
    assert_eq!(delivered(&world, &second).await, "token-t1");
    assert!(!matches!(world.fetch(&first).await, Delivery::Token(_)));
}

pub(crate) async fn a_task_accepted_after_the_last_save_is_not_paid_again(
    server: &impl LosingServer,
) {
    let (backend, world) = gateway(server).await;
    let claim = world.open(world.turnstile("a")).await;
    server.save();
    let lease = world.submit(&claim, "t1").await;
    server.roll_back();

    until_back(&backend, &world).await;
    let solve = backend.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(solve.task, Some(task("t1")));
    let holder = world.holder(2).await;
    assert!(world.lease(holder).await.is_empty(), "another holder took a leased solve");
}

pub(crate) async fn nothing_is_sent_again_while_the_rows_are_in_doubt(server: &impl LosingServer) {
    let (backend, world) = gateway(server).await;
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    server.roll_back();

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
