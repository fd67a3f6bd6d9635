//! What time does.

use domain::{
    claim::{Admission, ClaimState, Delivery},
    dead_letter::Closing,
    ledger::Event,
    ports::Scope,
    retry::own,
    solve::{Decision, Stage},
};

use super::world::{World, named, token_of};

pub async fn an_unsent_solve_dies_at_the_deadline(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.pass(119);
    assert!(world.sweep().await.lapsed.is_empty());
    world.pass(1);
    assert_eq!(world.sweep().await.lapsed, [claim.id]);
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.code.unwrap().as_str()), (ClaimState::Lapsed, own::DEADLINE));
    let letter = world.records.dead_letter(claim.solve.unwrap()).await.unwrap().unwrap();
    assert_eq!((letter.code.as_str(), letter.claims), (own::DEADLINE, vec![claim.id]));
    let holder = world.holder(1).await;
    assert_eq!(world.lease(holder).await.len(), 0);
    assert!(world.sweep().await.lapsed.is_empty());
}

pub async fn a_sent_solve_goes_on_after_the_deadline_and_closes_its_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    world.pass(120);
    assert_eq!(world.sweep().await.lapsed, [claim.id]);
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!(active[0].stage, Stage::Overdue);
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().unwrap().closed.is_none());
    world.tell(lease.solve.id, 1, world.solved("t1")).await;
    let letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(letter.closed.unwrap().how, Closing::LateAnswer);
    assert_eq!(world.find(&claim).await.state, ClaimState::Lapsed);
    assert!(matches!(world.admit(world.turnstile("a")).await, Admission::Stocked(_)));
}

pub async fn an_ambiguous_solve_keeps_its_stage_at_the_deadline(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.lose_reply(&claim).await;
    world.pass(120);
    world.sweep().await;
    let lease = world.lease_of(&claim).await;
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap()[0].stage, Stage::Ambiguous);
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 1);
    let letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    // What happened after the deadline is in the letter too.
    assert_eq!((letter.causes.len(), letter.cost), (1, None));
}

pub async fn a_token_not_fetched_by_the_deadline_serves_the_next(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.pass(120);
    let swept = world.sweep().await;
    assert_eq!((swept.banked, swept.lapsed), (1, vec![claim.id]));
    assert!(matches!(world.fetch(&claim).await, Delivery::Nothing(_)));
    let Admission::Stocked(next) = world.admit(world.turnstile("a")).await else {
        panic!("not stocked")
    };
    assert_eq!(token_of(&next), Some("token-t1"));
    world.open(world.turnstile("a")).await;
}

pub async fn a_token_that_died_unfetched_is_wasted_once(world: World) {
    let mut new = world.turnstile("a");
    new.deadline = world.now().plus(std::time::Duration::from_secs(600));
    let claim = world.serve(new, "t1").await;
    world.pass(241);
    let swept = world.sweep().await;
    assert_eq!((swept.wasted, swept.banked), (1, 0));
    world.pass(600);
    assert_eq!(world.sweep().await.wasted, 0);
    assert!(matches!(world.fetch(&claim).await, Delivery::Expired(_)));
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
}

pub async fn a_token_that_died_in_stock_is_wasted(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    world.pass(240);
    assert_eq!(world.sweep().await.wasted, 0);
    world.tick();
    assert_eq!(world.sweep().await.wasted, 1);
    assert_eq!(world.sweep().await.wasted, 0);
    assert!(world.records.stock_levels(world.now()).await.unwrap().is_empty());
}

pub async fn a_sweep_is_limited(world: World) {
    for _ in 0..5 {
        world.open(world.turnstile("a")).await;
    }
    world.pass(120);
    for expected in [2, 2, 1, 0] {
        let swept = world.store.sweep(2, world.now()).await.unwrap();
        assert_eq!(swept.lapsed.len(), expected);
    }
}

pub async fn old_records_are_dropped_and_numbers_go_on(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "k");
    let served = world.serve(new, "t1").await;
    world.fetch(&served).await;
    world.pass(1);
    let failed = world.open(world.turnstile("a")).await;
    world.pass(120);
    world.sweep().await;
    let last = world.entries().await.last().unwrap().seq;
    world.pass_days(31);
    world.sweep().await;
    assert!(world.records.dead_letter(failed.solve.unwrap()).await.unwrap().is_none());
    assert!(world.store.find_claim(served.id).await.unwrap().is_some());
    world.pass_days(60);
    // Challenges go first, what they belonged to after them.
    world.sweep().await;
    world.sweep().await;
    assert!(world.store.find_claim(served.id).await.unwrap().is_none());
    assert!(world.records.explain(served.id).await.unwrap().is_empty());
    world.open(world.turnstile("a")).await;
    let next = world.entries().await.last().unwrap().seq;
    assert_eq!(next, last + 1);
}
