//! Leases: one holder per solve, and takeover from dead holders.

use std::time::Duration;

use domain::{
    claim::ClaimState,
    id::{HolderId, SolveId},
    ledger::Event,
    ports::LeaseRequest,
    retry::{Verdict, own},
    solve::{MOST_RECOVERIES, Refused, Stage, TAKEOVER_GRACE},
};

use crate::{World, accepted, refused};

pub(super) async fn only_a_living_holder_gets_leases(world: World) {
    world.open(world.turnstile("a")).await;
    assert_eq!(world.lease(HolderId::from_number(9)).await.len(), 0);
    let holder = world.holder(1).await;
    world.pass(15);
    assert_eq!(world.lease(holder).await.len(), 0);
    world.holder(1).await;
    assert_eq!(world.lease(holder).await.len(), 1);
}

pub(super) async fn a_lease_is_given_once(world: World) {
    world.open(world.turnstile("a")).await;
    let (one, two) = (world.holder(1).await, world.holder(2).await);
    assert_eq!(world.lease(one).await.len(), 1);
    assert_eq!(world.lease(one).await.len(), 0);
    assert_eq!(world.lease(two).await.len(), 0);
}

pub(super) async fn leases_come_oldest_first_and_limited(world: World) {
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(world.open(world.turnstile("a")).await.solve.unwrap());
        world.pass(1);
    }
    let holder = world.holder(1).await;
    let mut seen = Vec::new();
    for expected in [2, 2, 1, 0] {
        let leases = world.lease_some(holder, 2).await;
        assert_eq!(leases.len(), expected);
        seen.extend(leases.into_iter().map(|lease| lease.solve.id));
    }
    assert_eq!(seen, expected);
}

pub(super) async fn a_named_solve_is_leased_alone(world: World) {
    let older = world.open(world.turnstile("a")).await.solve.unwrap();
    world.pass(1);
    let named = world.open(world.turnstile("a")).await.solve.unwrap();
    let holder = world.holder(1).await;
    assert_eq!(taken(&world, holder, SolveId::from_number(7)).await, []);
    assert_eq!(taken(&world, holder, named).await, [named]);
    assert_eq!(taken(&world, holder, named).await, [], "it has it already");
    let rest: Vec<_> = world.lease(holder).await.iter().map(|lease| lease.solve.id).collect();
    assert_eq!(rest, [older]);
}

/// A named solve follows the same rules: not from a living holder, not before it is due, and an intent only as
/// ambiguous.
pub(super) async fn a_named_solve_is_taken_from_the_dead_only(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let named = claim.solve.unwrap();
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    let again = Verdict::Again { due: world.now().plus(Duration::from_secs(20)), counted: true };
    world.settle(named, 1, refused("ERROR_NO_SLOT_AVAILABLE", again)).await;
    world.pass(16);
    let two = world.holder(2).await;
    assert_eq!(taken(&world, two, named).await, [], "it is not due yet");
    world.pass(4);
    assert_eq!(taken(&world, two, named).await, [named]);
    let three = world.holder(3).await;
    assert_eq!(taken(&world, three, named).await, [], "its holder lives");
    world.pass(16);
    let three = world.holder(3).await;
    let lease = world.store.lease(LeaseRequest::only(three, named), world.now()).await.unwrap();
    world.intend(&lease[0]).await.unwrap();
    world.pass(16);
    let four = world.holder(4).await;
    let lease = world.store.lease(LeaseRequest::only(four, named), world.now()).await.unwrap();
    assert_eq!(lease[0].solve.stage, Stage::Ambiguous);
}

async fn taken(world: &World, holder: HolderId, named: SolveId) -> Vec<SolveId> {
    let leases = world.store.lease(LeaseRequest::only(holder, named), world.now()).await.unwrap();
    leases.into_iter().map(|lease| lease.solve.id).collect()
}

pub(super) async fn a_dead_holders_intent_becomes_ambiguous(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    world.pass(16);
    let two = world.holder(2).await;
    let taken = world.lease(two).await.remove(0);
    assert_eq!(taken.solve.stage, Stage::Ambiguous);
    assert!(taken.fence > lease.fence);
    // The dead holder may have been stopped only. Its lease ended a second ago; a lease later something may be decided.
    assert_eq!(taken.solve.due, world.now().plus(TAKEOVER_GRACE).minus(Duration::from_secs(1)));
    // The end of the lease authorised nothing: the new holder must authorise before it submits.
    assert_eq!(world.intend(&taken).await, Err(Refused::Moved));
    assert_eq!(world.count(|event| matches!(event, Event::Recovered { .. })).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 0);
}

pub(super) async fn a_reply_that_comes_after_the_takeover_pays_for_nothing_more(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    world.pass(16);
    let two = world.holder(2).await;
    let taken = world.lease(two).await.remove(0);
    // The first holder was stopped and goes on: what it learned counts, and the solve stays the second one's.
    let settled = world.settle(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!(settled.solve.stage, Stage::Submitted);
    assert_eq!((settled.solve.holder, settled.solve.fence), (Some(two), taken.fence));
    assert_eq!(world.authorise(&taken).await, Err(Refused::Moved));
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 0);
}

pub(super) async fn a_dead_holders_task_is_taken_over_at_once(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    world.settle(lease.solve.id, 1, accepted("t1")).await;
    world.pass(16);
    let two = world.holder(2).await;
    let taken = world.lease(two).await.remove(0);
    assert_eq!((taken.solve.stage, taken.solve.attempt), (Stage::Submitted, 1));
    assert!(taken.solve.due <= world.now());
    assert!(taken.solve.task.is_some());
}

pub(super) async fn a_task_recorded_by_a_clock_ahead_is_taken_over_too(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    let ahead = world.now().plus(Duration::from_secs(60));
    world.store.settle(lease.solve.id, 1, accepted("t1"), ahead).await.unwrap();
    world.pass(16);
    let two = world.holder(2).await;
    let taken = world.lease(two).await.remove(0);
    assert_eq!(taken.solve.stage, Stage::Submitted);
    assert!(taken.solve.due <= world.now());
}

pub(super) async fn a_dead_holders_solves_come_in_their_turn(world: World) {
    let first = world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    assert_eq!(world.lease(one).await.len(), 1);
    world.pass(1);
    let second = world.open(world.turnstile("a")).await;
    world.pass(16);
    let two = world.holder(2).await;
    for claim in [first, second] {
        let lease = world.lease_some(two, 1).await.remove(0);
        assert_eq!(Some(lease.solve.id), claim.solve);
    }
}

pub(super) async fn a_dead_holders_backoff_is_kept(world: World) {
    world.open(world.turnstile("a")).await;
    let one = world.holder(1).await;
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    let due = world.now().plus(Duration::from_secs(60));
    let again = Verdict::Again { due, counted: true };
    world.settle(lease.solve.id, 1, refused("ERROR_NO_SLOT_AVAILABLE", again)).await;
    world.pass(59);
    let two = world.holder(2).await;
    assert_eq!(world.lease(two).await.len(), 0);
    world.pass(1);
    let taken = world.lease(two).await.remove(0);
    assert_eq!((taken.solve.stage, taken.solve.failures.len()), (Stage::Queued, 1));
}

pub(super) async fn a_released_solve_is_free_at_once(world: World) {
    world.open(world.turnstile("a")).await;
    let (one, two) = (world.holder(1).await, world.holder(2).await);
    let lease = world.lease(one).await.remove(0);
    world.store.release(one).await.unwrap();
    assert_eq!(world.intend(&lease).await, Err(Refused::LeaseLost));
    // The holder has lost the solve for good, even when it comes back.
    world.holder(1).await;
    assert_eq!(world.intend(&lease).await, Err(Refused::LeaseLost));
    let taken = world.lease(two).await.remove(0);
    assert!(taken.fence > lease.fence);
    assert_eq!(world.count(|event| matches!(event, Event::Recovered { .. })).await, 0);
    world.intend(&taken).await.unwrap();
}

pub(super) async fn a_released_intent_is_not_sent_again(world: World) {
    world.open(world.turnstile("a")).await;
    let (one, two) = (world.holder(1).await, world.holder(2).await);
    let lease = world.lease(one).await.remove(0);
    world.intend(&lease).await.unwrap();
    world.store.release(one).await.unwrap();
    let taken = world.lease(two).await.remove(0);
    assert_eq!(taken.solve.stage, Stage::Ambiguous);
}

pub(super) async fn a_solve_that_kills_its_holders_is_given_up(world: World) {
    let mut new = world.turnstile("a");
    new.deadline = world.now().plus(Duration::from_secs(3600));
    let claim = world.open(new).await;
    for life in 1..=u64::from(MOST_RECOVERIES) + 1 {
        let holder = world.holder(life).await;
        let lease = world.lease(holder).await.remove(0);
        // Whatever the previous holder decided, the provider reports that it accepted nothing.
        if lease.solve.stage == Stage::Ambiguous {
            let again = Verdict::Again { due: world.now(), counted: false };
            world.settle(lease.solve.id, lease.solve.attempt, refused("NOT_SENT", again)).await;
        }
        world.intend(&lease).await.unwrap();
        world.pass(16);
    }
    let last = world.holder(99).await;
    assert_eq!(world.lease(last).await.len(), 0);
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, None));
    assert_eq!(claim.code.unwrap().as_str(), own::POISON);
    assert!(world.records.dead_letter(claim.solve.unwrap()).await.unwrap().is_some());
}
