//! Arriving claims: opened, and kept within budgets.

use domain::{
    claim::{Admission, Allowance, ClaimState, Source},
    id::WorkerName,
    ledger::Event,
    money::Money,
    solve::Stage,
};

use crate::{PRICE, World, token_of};

pub(super) async fn a_new_claim_opens_one_solve(world: World) {
    let new = world.turnstile("a");
    let claim = world.open(new.clone()).await;
    assert_eq!(
        (claim.id, claim.solve, claim.state),
        (new.id, Some(new.solve), ClaimState::Waiting)
    );
    assert_eq!(world.find(&claim).await, claim);
    let lease = world.lease_of(&claim).await;
    assert_eq!((lease.solve.stage, lease.solve.claims), (Stage::Queued, vec![claim.id]));
    assert_eq!(lease.challenge, new.challenge);
    let entries = world.entries().await;
    let basis = "own shop".to_owned();
    assert_eq!((entries.len(), &entries[0].event), (1, &Event::Opened { basis }));
}

pub(super) async fn a_name_that_is_taken_is_drawn_again(world: World) {
    let first = world.turnstile("a");
    world.open(first.clone()).await;
    let mut same_claim = world.turnstile("b");
    same_claim.id = first.id;
    assert!(matches!(world.admit(same_claim).await, Admission::NameTaken));
    let mut same_solve = world.turnstile("b");
    same_solve.solve = first.solve;
    assert!(matches!(world.admit(same_solve).await, Admission::NameTaken));
    assert_eq!(world.entries().await.len(), 1);
}

pub(super) async fn a_claim_that_collects_takes_the_stocked_token_with_the_answer(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    let mut new = world.turnstile("a");
    new.collect = true;
    let Admission::Stocked(claim) = world.admit(new).await else { panic!("not stocked") };
    assert_eq!((claim.state, claim.source), (ClaimState::Served, Some(Source::Stock)));
    assert_eq!((token_of(&claim), claim.cost), (Some("token-t1"), Some(Money::ZERO)));
    assert_eq!(claim.delivered_at, Some(world.now()));
    assert_eq!(world.find(&claim).await, claim);
    assert_eq!(world.count(|event| matches!(event, Event::Delivered { .. })).await, 1);
}

pub(super) async fn the_budget_of_solves_holds(world: World) {
    for n in 0..3 {
        let mut new = world.turnstile("a");
        new.allowance = Allowance { solves_per_day: Some(2), ..Allowance::default() };
        match world.admit(new).await {
            Admission::Opened(_) => assert!(n < 2),
            Admission::OverBudget(reached) => {
                assert_eq!(
                    (n, reached.limit, reached.until),
                    (2, "solves_per_day", world.now().day().end())
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn the_budget_of_money_holds(world: World) {
    let limit = Money::from_micros(PRICE.micros() * 2);
    for n in 0..3 {
        let mut new = world.turnstile("a");
        new.allowance = Allowance { cost_per_day: Some(limit), ..Allowance::default() };
        match world.admit(new).await {
            Admission::Opened(_) => assert!(n < 2),
            Admission::OverBudget(reached) => assert_eq!((n, reached.limit), (2, "cost_per_day")),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn a_budget_is_per_worker_and_day(world: World) {
    let one = Allowance { solves_per_day: Some(1), ..Allowance::default() };
    let mut new = world.turnstile("a");
    new.allowance = one;
    world.open(new).await;
    let mut other = world.turnstile("a");
    (other.allowance, other.worker) = (one, WorkerName::new("bob").unwrap());
    world.open(other).await;
    world.pass_days(1);
    let mut tomorrow = world.turnstile("a");
    tomorrow.allowance = one;
    world.open(tomorrow).await;
}

pub(super) async fn a_refused_claim_changes_nothing(world: World) {
    let mut new = world.turnstile("a");
    new.allowance = Allowance { solves_per_day: Some(0), ..Allowance::default() };
    new.key = crate::named(&new, "k");
    let again = new.clone();
    assert!(matches!(world.admit(new).await, Admission::OverBudget(_)));
    assert_eq!(world.entries().await, []);
    assert!(world.store.find_claim(again.id).await.unwrap().is_none());
    // The refused claim used up neither its ids nor its key.
    let mut again = again;
    again.allowance = Allowance::default();
    world.open(again).await;
}
