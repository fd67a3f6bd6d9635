//! Fenced decisions: intent, authorise, write off.

use domain::{
    claim::{Claim, ClaimState},
    ledger::Event,
    retry::own,
    solve::{AmbiguousPolicy, Decision, Policy, Refused, Stage},
};

use crate::World;

pub(super) async fn an_intent_is_written_once(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let solve = world.intend(&lease).await.unwrap();
    assert_eq!((solve.stage, solve.attempt), (Stage::Intent, 1));
    assert_eq!(world.intend(&lease).await, Err(Refused::Moved));
    assert_eq!(world.count(|event| matches!(event, Event::Intent { .. })).await, 1);
}

pub(super) async fn an_old_fence_is_refused(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let old = world.lease(one).await.remove(0);
    world.pass(16);
    let two = world.holder(2).await;
    let new = world.lease(two).await.remove(0);
    world.holder(1).await;
    assert_eq!(world.intend(&old).await, Err(Refused::LeaseLost));
    world.intend(&new).await.unwrap();
    let entries = world.entries().await;
    assert_eq!(world.decide(&old, Decision::WriteOff).await, Err(Refused::LeaseLost));
    assert_eq!(world.entries().await, entries);
}

pub(super) async fn a_holder_whose_lease_ended_is_refused(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.pass(15);
    assert_eq!(world.intend(&lease).await, Err(Refused::LeaseLost));
}

pub(super) async fn an_ambiguous_attempt_is_authorised_once(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    assert_eq!(lease.solve.stage, Stage::Ambiguous);
    let solve = world.authorise(&lease).await.unwrap();
    assert_eq!((solve.stage, solve.authorised), (Stage::Queued, 1));
    let again = world.lose_reply(&claim).await;
    assert_eq!(again.solve.attempt, 2);
    assert_eq!(world.authorise(&again).await, Err(Refused::Moved));
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 1);
}

pub(super) async fn the_ambiguity_budget_is_the_whole_days(world: World) {
    let policy = Policy { ambiguity_budget: 1, ..Policy::default() };
    let mut claims: Vec<Claim> = Vec::new();
    for _ in 0..3 {
        let mut new = world.turnstile("a");
        new.policy = policy;
        claims.push(world.open(new).await);
    }
    let first = world.lose_reply(&claims[0]).await;
    world.authorise(&first).await.unwrap();
    let second = world.lose_reply(&claims[1]).await;
    assert_eq!(world.authorise(&second).await, Err(Refused::Budget));
    world.pass_days(1);
    world.lease_of(&claims[1]).await;
    world.authorise(&world.lease_of(&claims[1]).await).await.unwrap();
}

pub(super) async fn a_policy_of_never_refuses_to_authorise(world: World) {
    let mut new = world.turnstile("a");
    new.policy.ambiguous = AmbiguousPolicy::Never;
    let claim = world.open(new).await;
    let lease = world.lose_reply(&claim).await;
    assert_eq!(world.authorise(&lease).await, Err(Refused::Moved));
    assert_eq!(world.decide(&lease, Decision::WriteOff).await.unwrap().stage, Stage::Failed);
}

pub(super) async fn a_solve_nobody_waits_for_is_written_off_not_authorised(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.withdraw(&claim).await;
    assert_eq!(world.authorise(&lease).await.unwrap().stage, Stage::Failed);
    assert_eq!(world.count(|event| matches!(event, Event::WrittenOff { .. })).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 0);
}

pub(super) async fn writing_off_leaves_a_dead_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, None));
    let dead_letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!((dead_letter.code.as_str(), dead_letter.cost), (own::AMBIGUOUS, None));
    assert_eq!((dead_letter.claims, dead_letter.causes.len()), (vec![claim.id], 1));
}

pub(super) async fn a_solve_that_ended_takes_no_decision(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.withdraw(&claim).await;
    assert_eq!(world.intend(&lease).await, Err(Refused::Moved));
    assert_eq!(world.count(|event| matches!(event, Event::Intent { .. })).await, 0);
}
