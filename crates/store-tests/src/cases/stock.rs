//! Tokens: one owner each, never delivered expired, and not wasted while a claim can use them.

use domain::{
    claim::{Admission, Claim, ClaimState, Delivery, Source},
    ledger::Event,
    retry::{Code, Verdict, own},
    solve::Stage,
};

use crate::{World, accepted, refused, token_of};

async fn stocked(world: &World, sitekey: &str) -> Claim {
    match world.admit(world.turnstile(sitekey)).await {
        Admission::Stocked(claim) => claim,
        other => panic!("expected a token from stock, got {other:?}"),
    }
}

pub(super) async fn a_withdrawn_claims_token_serves_the_next(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    let withdrawn = world.withdraw(&claim).await;
    assert_eq!((withdrawn.state, token_of(&withdrawn)), (ClaimState::Withdrawn, None));
    assert!(matches!(world.fetch(&claim).await, Delivery::Nothing(_)));
    world.open(world.turnstile("b")).await;
    let next = stocked(&world, "a").await;
    assert_eq!(token_of(&next), Some("token-t1"));
    world.open(world.turnstile("a")).await;
    assert!(matches!(world.fetch(&next).await, Delivery::Token(_)));
}

pub(super) async fn an_answer_nobody_waits_for_is_stocked_once(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    world.withdraw(&claim).await;
    let settled = world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert!(settled.fresh && settled.ended.is_empty());
    assert_eq!(token_of(&stocked(&world, "a").await), Some("token-t1"));
    world.open(world.turnstile("a")).await;
}

pub(super) async fn the_first_to_die_is_handed_out_first(world: World) {
    let mut claims = Vec::new();
    for name in ["t1", "t2", "t3"] {
        let claim = world.open(world.turnstile("a")).await;
        world.submit(&claim, name).await;
        claims.push((claim, name));
    }
    let noon = world.now();
    world.pass(60);
    for ((claim, name), age) in claims.iter().zip([20, 50, 0]) {
        let ready = noon.plus(std::time::Duration::from_secs(age));
        world.settle(claim.solve.unwrap(), 1, world.solved_at(name, ready)).await;
        world.withdraw(claim).await;
    }
    for expected in ["token-t3", "token-t1", "token-t2"] {
        assert_eq!(token_of(&stocked(&world, "a").await), Some(expected));
    }
}

pub(super) async fn nothing_is_handed_out_with_less_than_ten_seconds_left(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    world.stock(world.turnstile("b"), "t2").await;
    world.pass(240);
    stocked(&world, "a").await;
    world.tick();
    world.open(world.turnstile("b")).await;
}

pub(super) async fn a_fetch_hands_out_the_same_token_again(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    let first = world.now();
    for _ in 0..3 {
        let Delivery::Token(claim) = world.fetch(&claim).await else { panic!("no token") };
        assert_eq!((token_of(&claim), claim.delivered_at), (Some("token-t1"), Some(first)));
        world.pass(10);
    }
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 1);
    let waiting = world.open(world.turnstile("a")).await;
    assert!(matches!(world.fetch(&waiting).await, Delivery::Nothing(_)));
    let unknown = world.turnstile("x").id;
    assert!(world.store.deliver(unknown, world.now()).await.unwrap().is_none());
}

pub(super) async fn a_fetch_after_expiry_returns_nothing_and_is_recorded_once(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.pass(241);
    assert!(matches!(world.fetch(&claim).await, Delivery::Expired(_)));
    for _ in 0..3 {
        assert!(matches!(world.fetch(&claim).await, Delivery::Nothing(_)));
    }
    world.sweep().await;
    assert_expired_unfetched(&world, &claim).await;
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 0);
    let fetched = world.serve(world.turnstile("a"), "t2").await;
    world.fetch(&fetched).await;
    world.pass(241);
    for _ in 0..2 {
        assert!(matches!(world.fetch(&fetched).await, Delivery::Expired(_)));
    }
    assert_eq!(world.find(&fetched).await.state, ClaimState::Served, "it was fetched");
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
}

/// The claim lapsed once, because its token expired before anybody fetched it.
pub(super) async fn assert_expired_unfetched(world: &World, claim: &Claim) {
    let claim = world.find(claim).await;
    assert_eq!(
        (claim.state, claim.code.as_ref().map(Code::as_str), claim.delivered_at),
        (ClaimState::Lapsed, Some(own::TOKEN_EXPIRED), None)
    );
    let entries = world.entries().await;
    let ends = entries.iter().filter(|entry| {
        entry.claim == Some(claim.id) && matches!(entry.event, Event::Ended { .. })
    });
    assert_eq!(ends.count(), 1);
    assert_eq!(token_of(&claim), Some(""), "the text is gone, its life is still known");
}

pub(super) async fn an_unsent_solve_ends_with_its_claim(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let found = world.store.withdraw(claim.id, None, world.now()).await.unwrap().unwrap();
    assert!(found.was_waiting && found.claim.state == ClaimState::Withdrawn);
    let holder = world.holder(1).await;
    assert_eq!(world.lease(holder).await.len(), 0);
    let again = world.store.withdraw(claim.id, None, world.now()).await.unwrap().unwrap();
    assert!(!again.was_waiting && again.claim == found.claim);
    assert_eq!(world.count(|event| matches!(event, Event::Ended { .. })).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 0);
}

pub(super) async fn a_sent_attempt_without_claims_is_not_tried_again(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    world.withdraw(&claim).await;
    let again = Verdict::Again { due: world.now(), counted: true };
    let settled = world.settle(lease.solve.id, 1, refused("ERROR_NO_SLOT_AVAILABLE", again)).await;
    assert_eq!(settled.solve.stage, Stage::Failed);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 0);
    let other = world.open(world.turnstile("b")).await;
    let lease = world.lease_of(&other).await;
    world.intend(&lease).await.unwrap();
    world.withdraw(&other).await;
    let settled = world.settle(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!(settled.solve.stage, Stage::Overdue);
}

pub(super) async fn an_unfetched_token_goes_to_the_oldest_waiting_claim(world: World) {
    let served = world.serve(world.turnstile("a"), "t1").await;
    let oldest = world.open(world.turnstile("a")).await;
    world.pass(1);
    let younger = world.open(world.turnstile("a")).await;
    world.submit(&younger, "t2").await;
    world.withdraw(&served).await;
    let oldest = world.find(&oldest).await;
    assert_eq!((oldest.state, oldest.source), (ClaimState::Served, Some(Source::Join)));
    assert_eq!(token_of(&oldest), Some("token-t1"));
    // Its own solve was leased but not sent, so it ends at no cost. The paid one goes on for its own claim.
    let active = world.records.active(domain::ports::Scope::All, 9).await.unwrap();
    assert_eq!(active.iter().map(|solve| Some(solve.id)).collect::<Vec<_>>(), [younger.solve]);
    assert_eq!(world.find(&younger).await.state, ClaimState::Waiting);
}

pub(super) async fn a_fetched_token_stays_with_its_claim(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&claim).await;
    let same = world.withdraw(&claim).await;
    assert_eq!((same.state, token_of(&same)), (ClaimState::Served, Some("token-t1")));
    world.pass(200);
    world.sweep().await;
    world.open(world.turnstile("a")).await;
    assert!(matches!(world.fetch(&claim).await, Delivery::Token(_)));
}
