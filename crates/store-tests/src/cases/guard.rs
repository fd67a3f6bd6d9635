//! The guard at spend time: a decision that leads to a spend carries the declarations in force.

use std::sync::Arc;

use domain::{
    claim::{Admission, Claim, ClaimState},
    declarations::{Declarations, Guard, Images, KnownWorkers, WorkerScope},
    id::{Nonce, WorkerName},
    ledger::Event,
    ports::DeadLetterFilter,
    ports::Scope,
    retry::own,
    solve::{Decision, Refused, Stage},
};

use crate::World;

const PICTURE: &[u8] = b"a picture";

/// Declares nothing.
fn closed() -> Guard {
    Guard::new(Arc::default())
}

/// Declares pictures, for the worker `ann` only.
fn pictures_of_ann() -> Guard {
    let ann = (WorkerName::new("ann").unwrap(), WorkerScope::FULL);
    Guard::new(Arc::new(Declarations {
        sites: Vec::new(),
        images: Some(Images::new("own forms")),
        workers: KnownWorkers::Listed([ann].into()),
    }))
}

fn intend(world: &World, guard: Guard) -> Decision {
    Decision::Intend { nonce: Nonce::from_number(world.fresh_solve().number()), guard }
}

async fn assert_forbidden(world: &World, claim: &Claim) {
    let claim = world.find(claim).await;
    assert_eq!(claim.state, ClaimState::Failed);
    assert_eq!(claim.code.unwrap().as_str(), own::SITE_NOT_DECLARED);
}

async fn assert_no_dead_letter(world: &World) {
    let all = DeadLetterFilter { closed: true, ..DeadLetterFilter::open(Scope::All, 10) };
    assert!(world.records.dead_letters(all).await.unwrap().items.is_empty());
}

pub(super) async fn work_that_is_no_longer_declared_is_not_paid_for(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let entries = world.entries().await;
    let refused = world.decide(&lease, intend(&world, closed())).await;
    assert_eq!(refused, Err(Refused::Undeclared));
    assert_eq!(world.entries().await, entries, "a refused decision changes nothing");
    let solve = world.decide(&lease, Decision::Forbid { guard: closed() }).await.unwrap();
    assert_eq!((solve.stage, solve.attempt), (Stage::Failed, 0));
    assert_forbidden(&world, &claim).await;
    assert_no_dead_letter(&world).await;
    assert_eq!(world.count(|event| matches!(event, Event::Intent { .. })).await, 0);
    assert_eq!(world.intend(&lease).await, Err(Refused::Moved), "it is not retried");
}

pub(super) async fn an_ambiguous_attempt_that_is_no_longer_declared_is_written_off(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    let authorise = Decision::Authorise { due: world.now(), guard: closed() };
    assert_eq!(world.decide(&lease, authorise).await, Err(Refused::Undeclared));
    let solve = world.decide(&lease, Decision::Forbid { guard: closed() }).await.unwrap();
    assert_eq!(solve.stage, Stage::Failed);
    assert_forbidden(&world, &claim).await;
    assert_no_dead_letter(&world).await;
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 0);
    assert_eq!(world.count(|event| matches!(event, Event::WrittenOff { .. })).await, 1);
}

pub(super) async fn only_the_claims_that_lost_their_permission_fail(world: World) {
    let mut bobs = world.image(PICTURE);
    bobs.worker = WorkerName::new("bob").unwrap();
    let bob = world.open(bobs).await;
    let Admission::Joined(ann) = world.admit(world.image(PICTURE)).await else {
        panic!("not joined")
    };
    let lease = world.lease_of(&bob).await;
    let refused = world.decide(&lease, intend(&world, pictures_of_ann())).await;
    assert_eq!(refused, Err(Refused::Undeclared));
    let forbid = Decision::Forbid { guard: pictures_of_ann() };
    let solve = world.decide(&lease, forbid).await.unwrap();
    assert_eq!((solve.stage, &solve.claims[..]), (Stage::Queued, &[ann.id][..]));
    assert_forbidden(&world, &bob).await;
    let intended = world.decide(&lease, intend(&world, pictures_of_ann())).await.unwrap();
    assert_eq!(intended.stage, Stage::Intent);
    assert_eq!(world.find(&ann).await.state, ClaimState::Waiting);
}

pub(super) async fn a_paid_task_goes_on_without_its_declaration(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    let forbid = Decision::Forbid { guard: closed() };
    assert_eq!(world.decide(&lease, forbid).await, Err(Refused::Moved));
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
}

pub(super) async fn a_refill_that_is_no_longer_declared_ends(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.withdraw(&claim).await;
    // The last claim left a queued solve, so it has ended: a refill is a queued solve that never had a claim.
    assert_eq!(world.decide(&lease, intend(&world, closed())).await, Err(Refused::Moved));
    super::pools::order_one(&world).await;
    let id = world.active_refills().await.remove(0);
    let lease = world.lease_of_solve(id).await;
    let refused = world.decide(&lease, intend(&world, closed())).await;
    assert_eq!(refused, Err(Refused::Undeclared));
    let solve = world.decide(&lease, Decision::Forbid { guard: closed() }).await.unwrap();
    assert_eq!(solve.stage, Stage::Failed);
    assert_no_dead_letter(&world).await;
}

pub(super) async fn nothing_ends_while_the_guard_allows_it(world: World) {
    let claim = world.open(world.image(PICTURE)).await;
    let lease = world.lease_of(&claim).await;
    let entries = world.entries().await;
    let forbid = Decision::Forbid { guard: pictures_of_ann() };
    let solve = world.decide(&lease, forbid).await.unwrap();
    assert_eq!((solve.stage, solve.claims.len()), (Stage::Queued, 1));
    assert_eq!(world.entries().await, entries);
    world.decide(&lease, intend(&world, pictures_of_ann())).await.unwrap();
}
