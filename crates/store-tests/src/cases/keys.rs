//! Idempotency keys: the same key is the same claim.

use domain::{
    claim::{Admission, Claim, ClaimState, NewClaim},
    ledger::Event,
    retry::Verdict,
};

use crate::{World, derived, named, refused, token_of};

fn with_key(world: &World, sitekey: &str, key: &str) -> NewClaim {
    let mut new = world.turnstile(sitekey);
    new.key = named(&new, key);
    new
}

fn with_window(world: &World, window: u64) -> NewClaim {
    let mut new = world.turnstile("a");
    new.key = derived(&new, window);
    new
}

async fn replayed(world: &World, new: NewClaim) -> Claim {
    match world.admit(new).await {
        Admission::Replayed(claim) => claim,
        other => panic!("expected a replay, got {other:?}"),
    }
}

pub(super) async fn the_same_key_is_the_same_claim(world: World) {
    let first = world.open(with_key(&world, "a", "k")).await;
    assert_eq!(replayed(&world, with_key(&world, "a", "k")).await, first);
    world.submit(&first, "t1").await;
    world.settle(first.solve.unwrap_or_else(|| panic!()), 1, world.solved("t1")).await;
    let again = replayed(&world, with_key(&world, "a", "k")).await;
    assert_eq!((again.id, token_of(&again)), (first.id, Some("token-t1")));
    assert_eq!(world.count(|event| matches!(event, Event::Replayed)).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Opened { .. })).await, 1);
}

pub(super) async fn another_challenge_under_the_key_is_refused(world: World) {
    let first = world.open(with_key(&world, "a", "k")).await;
    let before = world.entries().await;
    match world.admit(with_key(&world, "b", "k")).await {
        Admission::Mismatch(id) => assert_eq!(id, first.id),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.entries().await, before);
    assert_eq!(world.find(&first).await, first);
}

pub(super) async fn a_key_is_kept_for_a_day_after_the_end(world: World) {
    let first = world.serve(with_key(&world, "a", "k"), "t1").await;
    world.fetch(&first).await;
    world.pass(86_399);
    world.sweep().await;
    assert_eq!(replayed(&world, with_key(&world, "a", "k")).await.id, first.id);
    world.pass(1);
    let second = world.open(with_key(&world, "a", "k")).await;
    assert_ne!(second.id, first.id);
    assert_eq!(replayed(&world, with_key(&world, "a", "k")).await.id, second.id);
}

pub(super) async fn a_named_key_replays_a_failure(world: World) {
    let claim = world.open(with_key(&world, "a", "k")).await;
    let lease = world.lease_of(&claim).await;
    assert!(world.intend(&lease).await.is_ok());
    world.settle(lease.solve.id, 1, refused("ERROR_BAD", Verdict::GiveUp)).await;
    let again = replayed(&world, with_key(&world, "a", "k")).await;
    assert_eq!((again.id, again.state), (claim.id, ClaimState::Failed));
}

pub(super) async fn a_named_key_replays_a_dead_token_as_it_is(world: World) {
    let mut new = with_key(&world, "a", "k");
    new.collect = true;
    let claim = world.serve(new, "t1").await;
    world.fetch(&claim).await;
    world.pass(241);
    let mut again = with_key(&world, "a", "k");
    again.collect = true;
    let again = replayed(&world, again).await;
    assert!(again.state == ClaimState::Served && again.token.is_some());
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 1);
}

pub(super) async fn a_derived_key_is_the_claim_in_flight(world: World) {
    let first = world.open(with_window(&world, 0)).await;
    assert_eq!(replayed(&world, with_window(&world, 0)).await.id, first.id);
    world.submit(&first, "t1").await;
    assert_eq!(replayed(&world, with_window(&world, 0)).await.id, first.id);
    world.settle(first.solve.unwrap_or_else(|| panic!()), 1, world.solved("t1")).await;
    world.open(with_window(&world, 0)).await;
}

pub(super) async fn a_derived_key_lasts_for_its_window(world: World) {
    let first = world.serve(with_window(&world, 60), "t1").await;
    world.pass(59);
    let again = replayed(&world, with_window(&world, 60)).await;
    assert_eq!((again.id, token_of(&again)), (first.id, Some("token-t1")));
    world.pass(1);
    world.open(with_window(&world, 60)).await;
}

pub(super) async fn a_derived_key_never_outlives_the_token(world: World) {
    world.serve(with_window(&world, 3600), "t1").await;
    world.pass(240);
    replayed(&world, with_window(&world, 3600)).await;
    world.tick();
    world.open(with_window(&world, 3600)).await;
}

pub(super) async fn a_derived_key_does_not_replay_a_failure(world: World) {
    let claim = world.open(with_window(&world, 60)).await;
    world.withdraw(&claim).await;
    world.open(with_window(&world, 60)).await;
}

pub(super) async fn a_replay_that_collects_counts_as_delivered(world: World) {
    let claim = world.serve(with_key(&world, "a", "k"), "t1").await;
    assert_eq!(claim.delivered_at, None);
    world.pass(5);
    let mut again = with_key(&world, "a", "k");
    again.collect = true;
    let first = world.now();
    assert_eq!(replayed(&world, again.clone()).await.delivered_at, Some(first));
    world.pass(5);
    (again.id, again.solve) = (world.turnstile("x").id, world.turnstile("x").solve);
    assert_eq!(replayed(&world, again).await.delivered_at, Some(first));
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 1);
}

pub(super) async fn an_own_claim_is_never_replayed(world: World) {
    let first = world.open(world.turnstile("a")).await;
    let second = world.open(world.turnstile("a")).await;
    assert_ne!(first.solve, second.solve);
}
