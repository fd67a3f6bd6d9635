//! Shared kinds: equal images share one solve.

use domain::{
    claim::{Admission, Claim, ClaimState, NewClaim, Source},
    ledger::Event,
    money::Money,
    ports::Note,
    retry::Verdict,
    solve::Stage,
};

use super::concurrency::all_at_once;
use crate::{PRICE, World, accepted, named, over, token_of};

const PICTURE: &[u8] = b"a picture";

async fn joined(world: &World, new: NewClaim) -> Claim {
    match world.admit(new).await {
        Admission::Joined(claim) => claim,
        other => panic!("expected a join, got {other:?}"),
    }
}

pub(super) async fn a_shared_kind_joins_the_solve_under_way(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    let second = joined(&world, world.image(PICTURE)).await;
    assert_eq!((second.solve, second.state), (first.solve, ClaimState::Waiting));
    world.open(world.image(b"another picture")).await;
    assert_eq!(world.lease_of(&first).await.solve.claims, [first.id, second.id]);
}

pub(super) async fn a_shared_answer_serves_all_who_wait_and_all_who_come(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    let second = joined(&world, world.image(PICTURE)).await;
    world.submit(&first, "t1").await;
    let settled = world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(settled.ended, [first.id, second.id]);
    for _ in 0..3 {
        let Admission::Stocked(claim) = world.admit(world.image(PICTURE)).await else {
            panic!("not stocked")
        };
        assert_eq!(token_of(&claim), Some("token-t1"));
        assert_eq!(claim.source, Some(Source::Stock));
    }
    assert_eq!(world.find(&first).await.source, Some(Source::Upstream));
    assert_eq!(world.find(&second).await.source, Some(Source::Join));
}

pub(super) async fn a_join_wakes_an_overdue_solve(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    world.submit(&first, "t1").await;
    world.withdraw(&first).await;
    let second = joined(&world, world.image(PICTURE)).await;
    let stage = world.records.active(domain::ports::Scope::All, 9).await.unwrap()[0].stage;
    assert_eq!((stage, second.solve), (Stage::Submitted, first.solve));
    let settled = world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(settled.ended, [second.id]);
}

pub(super) async fn one_of_two_joined_claims_may_leave(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    let second = joined(&world, world.image(PICTURE)).await;
    world.withdraw(&first).await;
    let lease = world.lease_of(&second).await;
    assert_eq!((lease.solve.stage, &lease.solve.claims), (Stage::Queued, &vec![second.id]));
    world.intend(&lease).await.unwrap();
    world.settle(lease.solve.id, 1, accepted("t1")).await;
    let settled = world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(settled.ended, [second.id]);
}

pub(super) async fn a_joined_claim_costs_nothing(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    let second = joined(&world, world.image(PICTURE)).await;
    world.submit(&first, "t1").await;
    world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(world.find(&first).await.cost, Some(PRICE));
    assert_eq!(world.find(&second).await.cost, Some(Money::ZERO));
}

pub(super) async fn all_joined_claims_fail_with_one_dead_letter(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    let second = joined(&world, world.image(PICTURE)).await;
    world.submit(&first, "t1").await;
    let settled = world.settle(first.solve.unwrap(), 1, over("ERROR_BAD", Verdict::GiveUp)).await;
    assert_eq!(settled.ended, [first.id, second.id]);
    assert_eq!(world.find(&second).await.state, ClaimState::Failed);
    let dead_letter = world.records.dead_letter(first.solve.unwrap()).await.unwrap().unwrap();
    assert_eq!((dead_letter.claims, dead_letter.cost), (vec![first.id, second.id], Some(PRICE)));
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 1);
}

pub(super) async fn a_shared_answer_reported_bad_serves_nobody_else(world: World) {
    let first = world.serve(world.image(PICTURE), "t1").await;
    let report = |claim: &Claim, good| Note {
        claim: Some(claim.id),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
        kind: Some(claim.kind.clone()),
        event: Event::Reported { good },
        by: None,
    };
    world.store.note(report(&first, true), world.now()).await.unwrap();
    let Admission::Stocked(second) = world.admit(world.image(PICTURE)).await else {
        panic!("a good report spoils nothing")
    };
    world.store.note(report(&second, false), world.now()).await.unwrap();
    assert!(matches!(world.admit(world.image(PICTURE)).await, Admission::Opened(_)));
}

/// Lets claims join a solve until it has a thousand.
async fn fill(world: &World, first: &Claim) {
    let joins = all_at_once(999, |_| {
        let world = world.clone();
        async move { joined(&world, world.image(PICTURE)).await }
    })
    .await;
    assert!(joins.iter().all(|claim| claim.solve == first.solve));
}

pub(super) async fn a_thousand_claims_share_a_solve_and_the_next_opens_its_own(world: World) {
    let first = world.open(world.image(PICTURE)).await;
    fill(&world, &first).await;
    let other = world.open(world.image(PICTURE)).await;
    assert_eq!(joined(&world, world.image(PICTURE)).await.solve, other.solve);
    world.withdraw(&first).await;
    let late = joined(&world, world.image(PICTURE)).await;
    assert_eq!(late.solve, first.solve, "a place is free again");
    world.submit(&late, "t1").await;
    let settled = world.settle(first.solve.unwrap(), 1, world.solved("t1")).await;
    assert!(settled.ended.len() >= 1000, "{} ended", settled.ended.len());
}

pub(super) async fn a_key_joins_its_own_claim_in_a_full_solve(world: World) {
    let mut new = world.image(PICTURE);
    new.key = named(&new, "order-17");
    let first = world.open(new.clone()).await;
    fill(&world, &first).await;
    let fresh = world.image(PICTURE);
    (new.id, new.solve) = (fresh.id, fresh.solve);
    let Admission::Replayed(again) = world.admit(new).await else { panic!("not replayed") };
    assert_eq!(again.id, first.id);
}
