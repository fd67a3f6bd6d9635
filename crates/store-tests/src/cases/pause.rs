//! Pauses: nothing is submitted while one of them covers the work, and nothing is lost by it.

use domain::{
    actor::{Actor, ActorRole},
    admin_action::AdminAction,
    claim::{Admission, ClaimState},
    declarations::Guard,
    id::WorkerName,
    ledger::Event,
    pause::{MAX_PAUSES, PauseScope, Pauses},
    pool::Level,
    ports::{PauseRequest, PauseResult},
    solve::{Decision, Refused, Stage},
};

use crate::World;

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn site(rule: &str) -> PauseScope {
    PauseScope::site(rule).unwrap()
}

fn operator() -> Actor {
    let address = Some([10, 0, 0, 7].into());
    Actor { name: worker("night-shift"), role: ActorRole::Operator, address }
}

async fn set(world: &World, scope: PauseScope, paused: bool) -> (Pauses, bool) {
    let request = PauseRequest { scope, paused, by: operator() };
    match world.store.set_pause(request, world.now()).await.unwrap() {
        PauseResult::Done { pauses, is_new } => (pauses, is_new),
        PauseResult::TooMany => panic!("too many pauses"),
    }
}

async fn pause(world: &World, scope: PauseScope) {
    assert!(set(world, scope, true).await.1);
}

async fn resume(world: &World, scope: PauseScope) {
    assert!(set(world, scope, false).await.1);
}

pub(super) async fn a_pause_is_kept_and_names_who_made_it(world: World) {
    assert!(world.store.pauses().await.unwrap().is_empty());
    let (began, scope) = (world.now(), site("*.example.com"));
    pause(&world, scope.clone()).await;
    world.pass_days(500);
    world.sweep().await;
    assert!(!set(&world, scope.clone(), true).await.1, "repeated, it changes nothing");
    let pauses = world.store.pauses().await.unwrap();
    let found: Vec<_> = pauses.iter().collect();
    assert_eq!((found.len(), &found[0].scope, found[0].since), (1, &scope, began));
    assert_eq!(found[0].by, operator());
    assert!(!set(&world, PauseScope::Everything, false).await.1, "that is another scope");
    resume(&world, scope.clone()).await;
    assert!(!set(&world, scope.clone(), false).await.1);
    assert!(world.store.pauses().await.unwrap().is_empty());
}

pub(super) async fn pausing_and_resuming_are_in_the_audit_trail_once(world: World) {
    let scope = PauseScope::Worker(worker("ann"));
    for paused in [true, true, false, false] {
        set(&world, scope.clone(), paused).await;
    }
    let entries = world.entries().await;
    let actions: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Administered { by, action } => Some((by.clone(), action.clone())),
            _ => None,
        })
        .collect();
    let paused = AdminAction::Paused { scope: scope.clone() };
    let resumed = AdminAction::Resumed { scope };
    assert_eq!(actions, [(operator(), paused), (operator(), resumed)]);
}

pub(super) async fn paused_work_is_not_paid_for_and_goes_on_afterwards(world: World) {
    for scope in
        [PauseScope::Everything, site("shop.example.com"), PauseScope::Worker(worker("ann"))]
    {
        let claim = world.open(world.turnstile("a")).await;
        let lease = world.lease_of(&claim).await;
        pause(&world, scope.clone()).await;
        let entries = world.entries().await;
        assert_eq!(world.intend(&lease).await, Err(Refused::Paused), "{scope}");
        assert_eq!(world.entries().await, entries, "a refused decision changes nothing");
        let solve = world.store.find_solve(lease.solve.id).await.unwrap().unwrap();
        assert_eq!((solve.stage, solve.attempt, solve.failures.len()), (Stage::Queued, 0, 0));
        resume(&world, scope).await;
        assert_eq!(world.intend(&lease).await.unwrap().stage, Stage::Intent);
        world.withdraw(&claim).await;
    }
}

pub(super) async fn a_pause_of_others_stops_nothing(world: World) {
    pause(&world, site("*.shop.example.com")).await;
    pause(&world, site("example.com")).await;
    pause(&world, PauseScope::Worker(worker("bob"))).await;
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
}

pub(super) async fn a_paused_lost_reply_is_not_followed_by_another_attempt(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    pause(&world, PauseScope::Everything).await;
    assert_eq!(world.authorise(&lease).await, Err(Refused::Paused));
    assert_eq!(world.count(|event| matches!(event, Event::Authorised { .. })).await, 0);
    resume(&world, PauseScope::Everything).await;
    let queued = world.authorise(&lease).await.unwrap();
    assert_eq!((queued.stage, queued.authorised), (Stage::Queued, 1));
    pause(&world, PauseScope::Everything).await;
    let refused = world.intend(&lease).await;
    assert_eq!(refused, Err(Refused::Paused), "what is authorised waits too");
}

pub(super) async fn a_lost_reply_that_would_not_be_repeated_does_not_wait(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    pause(&world, PauseScope::Everything).await;
    let solve = world.decide(&lease, Decision::WriteOff).await.unwrap();
    assert_eq!(solve.stage, Stage::Failed);
}

pub(super) async fn a_paid_task_is_harvested_while_paused(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    pause(&world, PauseScope::Everything).await;
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
    world.fetch(&claim).await;
    let stocked = world.turnstile("b");
    resume(&world, PauseScope::Everything).await;
    world.stock(stocked, "t2").await;
    pause(&world, PauseScope::Everything).await;
    let served = world.admit(world.turnstile("b")).await;
    assert!(matches!(served, Admission::Stocked(_)), "stock costs nothing");
}

pub(super) async fn a_shared_answer_is_bought_for_the_worker_that_is_not_paused(world: World) {
    let ann = world.open(world.image(b"a picture")).await;
    let lease = world.lease_of(&ann).await;
    pause(&world, PauseScope::Worker(worker("ann"))).await;
    assert_eq!(world.intend(&lease).await, Err(Refused::Paused));
    let mut bobs = world.image(b"a picture");
    bobs.worker = worker("bob");
    let Admission::Joined(_) = world.admit(bobs).await else { panic!("not joined") };
    world.intend(&lease).await.unwrap();
}

pub(super) async fn undeclared_work_fails_even_while_it_is_paused(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    pause(&world, PauseScope::Everything).await;
    let guard = Guard::new(std::sync::Arc::default());
    let nonce = domain::id::Nonce::from_number(7);
    let intend = Decision::Intend { nonce, guard: guard.clone() };
    assert_eq!(world.decide(&lease, intend).await, Err(Refused::Undeclared));
    let solve = world.decide(&lease, Decision::Forbid { guard }).await.unwrap();
    assert_eq!(solve.stage, Stage::Failed);
}

pub(super) async fn a_paused_claim_lapses_at_its_deadline(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.lease_of(&claim).await;
    pause(&world, PauseScope::Everything).await;
    world.pass(119);
    assert!(world.sweep().await.lapsed.is_empty());
    world.pass(2);
    assert_eq!(world.sweep().await.lapsed, [claim.id]);
    let lapsed = world.find(&claim).await;
    assert_eq!((lapsed.state, lapsed.attempts), (ClaimState::Lapsed, 0));
}

pub(super) async fn nothing_is_ordered_for_a_paused_pool(world: World) {
    let fingerprint = super::pools::pool(&world, Level::Fixed(3)).await;
    world.holder(1).await;
    for scope in
        [PauseScope::Everything, site("shop.example.com"), PauseScope::Worker(worker("pool"))]
    {
        pause(&world, scope.clone()).await;
        let paused = super::pools::refill(&world, 1, fingerprint, 3).await;
        assert_eq!((paused.is_controller, paused.opened.len()), (true, 0), "{scope}");
        resume(&world, scope).await;
    }
    let refilled = super::pools::refill(&world, 1, fingerprint, 3).await;
    assert_eq!(refilled.opened.len(), 3);
    pause(&world, site("shop.example.com")).await;
    let lease = world.lease_of_solve(refilled.opened[0]).await;
    assert_eq!(world.intend(&lease).await, Err(Refused::Paused), "what is ordered waits");
}

pub(super) async fn the_number_of_pauses_is_bounded(world: World) {
    for number in 0..MAX_PAUSES {
        pause(&world, site(&format!("shop-{number}.example.com"))).await;
    }
    let request =
        PauseRequest { scope: site("one-more.example.com"), paused: true, by: operator() };
    let refused = world.store.set_pause(request, world.now()).await.unwrap();
    assert_eq!(refused, PauseResult::TooMany);
    assert!(!set(&world, site("shop-7.example.com"), true).await.1);
    resume(&world, site("shop-7.example.com")).await;
    pause(&world, PauseScope::Everything).await;
}
