//! Starts: the decision that opens a solve leases it and writes its first intent, if nothing forbids it.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::{Actor, ActorRole},
    budget::BudgetScope,
    claim::{Admission, Allowance, Claim, ClaimState, NewClaim, Start},
    declarations::Guard,
    id::{HolderId, Nonce},
    lease::{Fence, Lease},
    ledger::Event,
    pause::PauseScope,
    ports::{PauseRequest, Scope},
    retry::Verdict,
    solve::{Refused, Solve, Stage},
};

use crate::{
    World,
    world::{accepted, named, refused, worker},
};

const GATEWAY: u64 = 1;
const NONCE: u64 = 77;

/// A claim that a gateway can submit at once. The gateway need not hold a lease.
fn startable(world: &World) -> NewClaim {
    by(GATEWAY, Guard::open(), world.turnstile("a"))
}

fn by(gateway: u64, guard: Guard, new: NewClaim) -> NewClaim {
    let start =
        Start { holder: HolderId::from_number(gateway), nonce: Nonce::from_number(NONCE), guard };
    NewClaim { start: Some(start), ..new }
}

async fn start(world: &World) -> (Claim, Lease) {
    world.holder(GATEWAY).await;
    match world.admit(startable(world)).await {
        Admission::Started(claim, lease) => (claim, *lease),
        other => panic!("not started: {other:?}"),
    }
}

async fn withhold(world: &World, claim: &Claim) -> Option<Claim> {
    let (solve, nonce) = (claim.solve.unwrap(), Nonce::from_number(NONCE));
    world.store.withhold_start(claim.id, solve, nonce, world.now()).await.unwrap()
}

async fn solve_of(world: &World, claim: &Claim) -> Solve {
    world.store.find_solve(claim.solve.unwrap()).await.unwrap().unwrap()
}

async fn intents(world: &World) -> usize {
    world.count(|event| matches!(event, Event::Intent { .. })).await
}

/// Solves that count against ann's budget: reserved, settled and released.
async fn booked(world: &World) -> (u64, u64, u64) {
    let spending = world.records.spending(world.now().day()).await.unwrap();
    let books = spending.books.get(&BudgetScope::Worker(worker("ann"))).cloned();
    let sums = books.unwrap_or_default().month;
    (sums.reserved.solves, sums.settled.solves, sums.released.solves)
}

pub(super) async fn a_claim_is_started_by_the_decision_that_admits_it(world: World) {
    let (claim, lease) = start(&world).await;
    let solve = solve_of(&world, &claim).await;
    assert_eq!(lease.solve, solve, "the lease has the solve as it is stored");
    assert_eq!((solve.stage, solve.attempt, solve.fence), (Stage::Intent, 1, Fence(1)));
    assert_eq!(solve.holder, Some(HolderId::from_number(GATEWAY)));
    assert_eq!((lease.holder, lease.fence), (HolderId::from_number(GATEWAY), Fence(1)));
    assert_eq!((solve.nonce, solve.claims), (Some(Nonce::from_number(NONCE)), vec![claim.id]));
    assert_eq!(world.find(&claim).await, claim);
    let entries = world.entries().await;
    assert!(matches!(entries[0].event, Event::Opened { .. }), "{entries:?}");
    assert!(matches!(entries[1].event, Event::Intent { attempt: 1, .. }), "{entries:?}");
    assert_eq!((entries.len(), booked(&world).await), (2, (1, 0, 0)));

    let other = world.holder(2).await;
    assert_eq!(world.lease(other).await.len(), 0, "it is not in the queue");
    assert_eq!(world.intend(&lease).await, Err(Refused::Moved));
    world.settle(solve.id, 1, accepted("t1")).await;
    world.settle(solve.id, 1, world.solved("t1")).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
    assert_eq!(booked(&world).await, (1, 1, 0));
}

pub(super) async fn a_started_picture_is_leased_without_its_bytes(world: World) {
    world.holder(GATEWAY).await;
    let new = by(GATEWAY, Guard::open(), world.image(b"a picture"));
    let full = Arc::clone(&new.challenge);
    let Admission::Started(claim, lease) = world.admit(new).await else { panic!("not started") };
    assert_eq!((lease.file_bytes, lease.challenge.file_bytes()), (9, 0));
    let stored = world.store.find_challenge(claim.solve.unwrap()).await.unwrap();
    assert_eq!(stored, Some(full));
    let second = by(GATEWAY, Guard::open(), world.image(b"a picture"));
    let Admission::Joined(joined) = world.admit(second).await else { panic!("not joined") };
    assert_eq!((joined.solve, intents(&world).await), (claim.solve, 1));
}

pub(super) async fn a_claim_of_a_dead_gateway_is_opened_and_waits(world: World) {
    let unknown = world.admit(startable(&world)).await;
    world.holder(GATEWAY).await;
    world.pass(15);
    let ended = world.admit(startable(&world)).await;
    world.holder(GATEWAY).await;
    world.store.release(HolderId::from_number(GATEWAY)).await.unwrap();
    let released = world.admit(startable(&world)).await;
    for admission in [unknown, ended, released] {
        let Admission::Opened(claim) = admission else { panic!("{admission:?}") };
        let solve = solve_of(&world, &claim).await;
        assert_eq!((solve.stage, solve.holder, solve.nonce), (Stage::Queued, None, None));
    }
    assert_eq!(intents(&world).await, 0);
    let other = world.holder(2).await;
    assert_eq!(world.lease(other).await.len(), 3);
}

pub(super) async fn a_paused_claim_is_opened_and_goes_on_afterwards(world: World) {
    world.holder(GATEWAY).await;
    let name = worker("night-shift");
    let operator = Actor { name, role: ActorRole::Operator, address: None };
    for scope in [
        PauseScope::Everything,
        PauseScope::site("shop.example.com").unwrap(),
        PauseScope::Worker(worker("ann")),
    ] {
        let set = |paused| {
            let request = PauseRequest { scope: scope.clone(), paused, by: operator.clone() };
            world.store.set_pause(request, world.now())
        };
        set(true).await.unwrap();
        let before = intents(&world).await;
        let claim = world.open(startable(&world)).await;
        assert_eq!(intents(&world).await, before, "{scope}");
        set(false).await.unwrap();
        let lease = world.lease_of(&claim).await;
        assert_eq!(world.intend(&lease).await.unwrap().attempt, 1);
    }
    let of_others = PauseScope::Worker(worker("bob"));
    let request = PauseRequest { scope: of_others, paused: true, by: operator };
    world.store.set_pause(request, world.now()).await.unwrap();
    start(&world).await;
}

pub(super) async fn an_undeclared_claim_is_opened_and_not_paid_for(world: World) {
    world.holder(GATEWAY).await;
    let nothing = Guard::new(Arc::default());
    let claim = world.open(by(GATEWAY, nothing, world.turnstile("a"))).await;
    assert_eq!(solve_of(&world, &claim).await.stage, Stage::Queued);
    assert_eq!(intents(&world).await, 0);
}

pub(super) async fn a_start_is_booked_once_and_refused_beyond_the_budget(world: World) {
    world.holder(GATEWAY).await;
    let limited = || {
        let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
        NewClaim { allowance, ..startable(&world) }
    };
    let first = world.admit(limited()).await;
    assert!(matches!(first, Admission::Started(..)), "{first:?}");
    let entries = world.entries().await;
    assert!(matches!(world.admit(limited()).await, Admission::OverBudget(_)));
    assert_eq!(world.entries().await, entries, "a refused claim changes nothing");
    assert_eq!(booked(&world).await, (1, 0, 0));
}

pub(super) async fn only_a_new_solve_is_started(world: World) {
    world.holder(GATEWAY).await;
    let keyed = || {
        let new = startable(&world);
        NewClaim { key: named(&new, "k"), reopens_after: Some(Duration::ZERO), ..new }
    };
    let Admission::Started(claim, lease) = world.admit(keyed()).await else { panic!() };
    assert!(matches!(world.admit(keyed()).await, Admission::Replayed(_)));
    let gone = refused("ERROR_GOOGLEKEY", Verdict::GiveUp);
    world.settle(lease.solve.id, 1, gone).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Failed);
    let again = world.admit(keyed()).await;
    assert!(matches!(again, Admission::Opened(_)), "the next generation waits: {again:?}");
    world.stock(world.turnstile("b"), "t2").await;
    let before = intents(&world).await;
    world.holder(GATEWAY).await;
    let stocked = world.admit(by(GATEWAY, Guard::open(), world.turnstile("b"))).await;
    assert!(matches!(stocked, Admission::Stocked(_)), "{stocked:?}");
    assert_eq!(intents(&world).await, before);
}

pub(super) async fn a_start_whose_gateway_dies_is_ambiguous_and_repeated_once(world: World) {
    let (claim, _) = start(&world).await;
    world.pass(14);
    let other = world.holder(2).await;
    assert_eq!(world.lease(other).await.len(), 0, "the gateway may still send it");
    world.pass(1);
    let taken = world.lease(other).await.remove(0);
    assert_eq!(taken.solve.stage, Stage::Ambiguous);
    assert_eq!(taken.solve.due, world.now().plus(domain::solve::TAKEOVER_GRACE));
    let queued = world.authorise(&taken).await.unwrap();
    assert_eq!((queued.stage, queued.authorised), (Stage::Queued, 1));
    let second = world.intend(&taken).await.unwrap();
    assert_eq!((second.attempt, second.claims), (2, vec![claim.id]));
}

pub(super) async fn a_start_that_is_withheld_waits_in_the_queue_for_any_gateway(world: World) {
    let (claim, _) = start(&world).await;
    assert_eq!(withhold(&world, &claim).await.as_ref(), Some(&claim));
    let entries = world.entries().await;
    assert!(matches!(entries[2].event, Event::NotAccepted { attempt: 1, .. }), "{entries:?}");
    assert_eq!(withhold(&world, &claim).await.as_ref(), Some(&claim));
    assert_eq!(world.entries().await, entries, "repeated, it changes nothing");
    let other = world.holder(2).await;
    let lease = world.lease(other).await.remove(0);
    assert_eq!((lease.solve.stage, lease.solve.failures.len()), (Stage::Queued, 0));
    assert_eq!(world.intend(&lease).await.unwrap().attempt, 2);
    assert_eq!(booked(&world).await, (1, 0, 0), "nothing was paid, so the reservation stays");
    assert_eq!(withhold(&world, &claim).await.as_ref(), Some(&claim));
    let solve = solve_of(&world, &claim).await;
    assert_eq!((solve.stage, solve.holder), (Stage::Intent, Some(other)), "it is another's now");
}

pub(super) async fn withholding_a_start_that_was_never_stored_changes_nothing(world: World) {
    let new = startable(&world);
    let (solve, nonce) = (new.solve, Nonce::from_number(NONCE));
    let found = world.store.withhold_start(new.id, solve, nonce, world.now()).await.unwrap();
    assert_eq!((found, world.entries().await.len()), (None, 0));
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap(), []);
    // An admission that opened its claim and did not start it has nothing to take back.
    let claim = world.open(new).await;
    let entries = world.entries().await;
    assert_eq!(withhold(&world, &claim).await.as_ref(), Some(&claim));
    assert_eq!(world.entries().await, entries);
    let other = world.holder(2).await;
    assert_eq!(world.lease(other).await.len(), 1);
}

pub(super) async fn a_start_that_was_accepted_is_not_taken_back(world: World) {
    let (claim, lease) = start(&world).await;
    world.settle(lease.solve.id, 1, accepted("t1")).await;
    withhold(&world, &claim).await;
    let solve = solve_of(&world, &claim).await;
    assert_eq!((solve.stage, solve.holder), (Stage::Submitted, Some(lease.holder)));
}

pub(super) async fn a_withheld_start_that_nobody_waits_for_ends_unpaid(world: World) {
    let (claim, lease) = start(&world).await;
    world.withdraw(&claim).await;
    assert_eq!(solve_of(&world, &claim).await.stage, Stage::Intent, "its bytes may have left");
    let found = withhold(&world, &claim).await.unwrap();
    assert_eq!(found.state, ClaimState::Withdrawn);
    assert_eq!(solve_of(&world, &claim).await.stage, Stage::Failed);
    assert_eq!(booked(&world).await, (1, 0, 1));
    assert_eq!(world.decide(&lease, domain::solve::Decision::WriteOff).await, Err(Refused::Moved));
}
