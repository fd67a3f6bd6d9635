//! The sweeper: deadlines, expiry of tokens, retention.

use domain::{
    claim::{Admission, Claim, ClaimState, Delivery, NewClaim},
    dead_letter::{Closing, DeadLetterClass},
    ledger::Event,
    money::Money,
    ports::{Scope, SweepRequest},
    retry::own,
    solve::{Decision, Stage},
};

use super::stock::assert_expired_unfetched;
use crate::{PRICE, World, named, token_of};

pub(super) async fn an_unsent_solve_dies_at_the_deadline(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.pass(119);
    assert!(world.sweep().await.lapsed.is_empty());
    world.pass(1);
    assert_eq!(world.sweep().await.lapsed, [claim.id]);
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.code.unwrap().as_str()), (ClaimState::Lapsed, own::DEADLINE));
    let dead_letter = world.records.dead_letter(claim.solve.unwrap()).await.unwrap().unwrap();
    assert_eq!((dead_letter.code.as_str(), dead_letter.claims), (own::DEADLINE, vec![claim.id]));
    let holder = world.holder(1).await;
    assert_eq!(world.lease(holder).await.len(), 0);
    assert!(world.sweep().await.lapsed.is_empty());
}

pub(super) async fn account_trouble_is_named_in_the_claim_and_its_dead_letter(world: World) {
    let unsent = world.open(world.turnstile("a")).await;
    let sent = world.open(world.turnstile("b")).await;
    world.submit(&sent, "t1").await;
    world.pass(120);
    let trouble = Some("ERROR_ZERO_BALANCE".into());
    world
        .store
        .sweep(SweepRequest { trouble, ..SweepRequest::plain(9) }, world.now())
        .await
        .unwrap();
    let (unsent, sent) = (world.find(&unsent).await, world.find(&sent).await);
    let code = |claim: &Claim| claim.code.as_ref().unwrap().to_string();
    assert_eq!((code(&unsent), code(&sent)), ("ERROR_ZERO_BALANCE".into(), own::DEADLINE.into()));
    let letter = world.dead_letter(&unsent).await;
    assert_eq!(
        (letter.class, letter.code.as_str()),
        (DeadLetterClass::Lapsed, code(&unsent).as_str())
    );
    // The sent solve lapsed at its deadline: it may be paid, and its cost is not known yet.
    let dead_letter = world.dead_letter(&sent).await;
    assert_eq!(dead_letter.class, DeadLetterClass::Failed);
    assert_eq!((dead_letter.cost, sent.cost, unsent.cost), (None, None, Some(Money::ZERO)));
}

pub(super) async fn a_sent_solve_goes_on_after_the_deadline_and_closes_its_dead_letter(
    world: World,
) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    world.pass(120);
    assert_eq!(world.sweep().await.lapsed, [claim.id]);
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!(active[0].stage, Stage::Overdue);
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().unwrap().closed.is_none());
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    let dead_letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(
        (dead_letter.closed.unwrap().how, dead_letter.cost),
        (Closing::LateAnswer, Some(PRICE))
    );
    assert_eq!(world.find(&claim).await.state, ClaimState::Lapsed);
    assert!(matches!(world.admit(world.turnstile("a")).await, Admission::Stocked(_)));
}

pub(super) async fn an_ambiguous_solve_keeps_its_stage_at_the_deadline(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.lose_reply(&claim).await;
    world.pass(120);
    world.sweep().await;
    let lease = world.lease_of(&claim).await;
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap()[0].stage, Stage::Ambiguous);
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 1);
    let dead_letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    // The dead letter includes the failures after the deadline.
    assert_eq!((dead_letter.causes.len(), dead_letter.cost), (1, None));
}

pub(super) async fn a_token_not_fetched_by_the_deadline_serves_the_next(world: World) {
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

pub(super) async fn a_token_that_died_unfetched_is_wasted_once(world: World) {
    let mut new = world.turnstile("a");
    new.deadline = world.now().plus(std::time::Duration::from_secs(600));
    let claim = world.serve(new, "t1").await;
    world.pass(241);
    let swept = world.sweep().await;
    assert_eq!((swept.wasted, swept.banked, swept.lapsed), (1, 0, vec![claim.id]));
    assert_expired_unfetched(&world, &claim).await;
    world.pass(600);
    let swept = world.sweep().await;
    assert_eq!((swept.wasted, swept.lapsed), (0, vec![]));
    assert!(matches!(world.fetch(&claim).await, Delivery::Nothing(_)));
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
    assert_expired_unfetched(&world, &claim).await;
}

pub(super) async fn a_claim_lapses_with_its_token_whoever_notices(world: World) {
    let patient = |key: &str, how: &str| {
        let mut new = world.turnstile(key);
        new.deadline = world.now().plus(std::time::Duration::from_secs(600));
        new.key = named(&new, how);
        new
    };
    let (replayed, withdrawn) = (patient("a", "one"), patient("b", "two"));
    let claims = [
        world.serve(replayed.clone(), "t1").await,
        world.serve(withdrawn, "t2").await,
        // Its answer may serve others, but this claim got nothing.
        world.serve(world.image(b"a picture"), "t3").await,
    ];
    world.pass(241);
    let fresh = world.turnstile("a");
    let again = NewClaim { id: fresh.id, solve: fresh.solve, collect: true, ..replayed };
    let Admission::Replayed(found) = world.admit(again).await else { panic!("not replayed") };
    assert_eq!((found.id, found.state), (claims[0].id, ClaimState::Lapsed));
    let admin = Some(crate::world::admin());
    let gone = world.store.withdraw(claims[1].id, admin, world.now()).await.unwrap().unwrap();
    assert_eq!((gone.claim.state, gone.was_waiting), (ClaimState::Lapsed, false));
    assert_eq!(world.sweep().await.lapsed, [claims[2].id]);
    for claim in &claims {
        assert_expired_unfetched(&world, claim).await;
    }
    let wasted = world.count(|event| matches!(event, Event::Wasted { .. })).await;
    assert_eq!(wasted, 2, "a shared answer is not one claim's");
    let acted = world.count(|event| matches!(event, Event::Administered { .. })).await;
    assert_eq!(acted, 0, "there was nothing left to withdraw");
}

pub(super) async fn a_token_that_outlives_the_deadline_is_handed_on_and_not_wasted(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.pass(120);
    world.sweep().await;
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.code.unwrap().as_str()), (ClaimState::Lapsed, own::DEADLINE));
    world.pass(121);
    assert_eq!(world.sweep().await.wasted, 1, "as stock");
}

pub(super) async fn a_token_that_died_in_stock_is_wasted(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    world.pass(240);
    assert_eq!(world.sweep().await.wasted, 0);
    world.tick();
    assert_eq!(world.sweep().await.wasted, 1);
    assert_eq!(world.sweep().await.wasted, 0);
    assert_eq!(crate::tokens_in_stock(world.records.as_ref(), world.now()).await, 0);
}

pub(super) async fn a_shared_answer_that_aged_out_is_not_wasted(world: World) {
    world.serve(world.image(b"a picture"), "t1").await;
    world.pass(241);
    assert_eq!(world.sweep().await.wasted, 0);
    assert!(matches!(world.admit(world.image(b"a picture")).await, Admission::Opened(_)));
}

pub(super) async fn a_reused_key_outlives_its_first_claim(world: World) {
    let keyed = |world: &World| {
        let mut new = world.turnstile("a");
        new.key = named(&new, "k");
        new
    };
    let first = world.serve(keyed(&world), "t1").await;
    world.fetch(&first).await;
    world.pass(90 * 86_400 - 3600);
    let second = world.open(keyed(&world)).await;
    world.pass(3600);
    world.store.withdraw(second.id, None, world.now()).await.unwrap();
    world.sweep().await;
    assert!(world.store.find_claim(first.id).await.unwrap().is_none());
    match world.admit(keyed(&world)).await {
        Admission::Replayed(claim) => assert_eq!(claim.id, second.id),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_sweep_is_limited(world: World) {
    for _ in 0..5 {
        world.open(world.turnstile("a")).await;
    }
    world.pass(120);
    for expected in [2, 2, 1, 0] {
        let swept = world.store.sweep(SweepRequest::plain(2), world.now()).await.unwrap();
        assert_eq!(swept.lapsed.len(), expected);
    }
}

pub(super) async fn old_records_are_dropped_and_numbers_go_on(world: World) {
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
    // The first sweep drops challenges, the second the records that refer to them.
    world.sweep().await;
    world.sweep().await;
    assert!(world.store.find_claim(served.id).await.unwrap().is_none());
    assert!(world.records.explain(served.id).await.unwrap().is_empty());
    world.open(world.turnstile("a")).await;
    let next = world.entries().await.last().unwrap().seq;
    assert_eq!(next, last + 1);
}
