//! Failures: what is tried again, what becomes a dead letter, and how it is revived.

use domain::{
    actor::Actor,
    budget::Budgets,
    claim::{Allowance, ClaimState},
    id::WorkerName,
    ports::Scope,
};
use engine::{BulkRequest, ClaimRefusal, ClaimRequest, DeadLetterSelection, Outcome, Revived};

use crate::{
    gateway::{World, failure, open, request, seconds, token},
    provider::{Reply, code},
};

fn revive(which: DeadLetterSelection) -> BulkRequest {
    BulkRequest {
        which,
        by: Actor::process(WorkerName::new("admin").unwrap()),
        rate: 10,
        dry_run: false,
        allowances: [(WorkerName::new("ann").unwrap(), Allowance::default())].into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_a_slot_is_retried_and_does_not_count_as_a_failure() {
    let world = World::new();
    world.provider.on_submit(std::iter::repeat_n(Reply::Reject("ERROR_NO_SLOT_AVAILABLE"), 4));
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-5");
    assert_eq!(world.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_the_provider_could_not_solve_is_submitted_again() {
    let world = World::new();
    world.provider.on_poll([code("ERROR_CAPTCHA_UNSOLVABLE")]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-2");
    assert_eq!(world.provider.submissions()[1].1.attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn what_fails_too_often_becomes_a_dead_letter_and_revival_pays_for_one_new_solve() {
    let world = World::new();
    world.provider.on_poll(std::iter::repeat_n(code("ERROR_CAPTCHA_UNSOLVABLE"), 3));
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(failure(&engine, id).await, "ERROR_CAPTCHA_UNSOLVABLE");
    assert_eq!(world.provider.submissions().len(), 3);
    let letters = world.dead_letters().await;
    assert_eq!(
        letters.iter().map(|letter| letter.code.as_str()).collect::<Vec<_>>(),
        ["ERROR_CAPTCHA_UNSOLVABLE"]
    );

    let request = revive(DeadLetterSelection::Ids(vec![letters[0].id]));
    let report = engine.revive(&request).await.unwrap();
    let [(_, Revived::Opened(revived))] = report.items[..] else { panic!("{report:?}") };
    world.provider.submitted(4).await;
    world.pass(seconds(10)).await;
    let claim = engine.find_claim(&Scope::All, revived).await.unwrap();
    assert_eq!(claim.state, ClaimState::Served);
    assert_eq!(world.provider.submissions().len(), 4);
    let again = engine.revive(&request).await.unwrap();
    assert!(matches!(again.items[..], [(_, Revived::Closed(_))]), "{again:?}");
}

/// The key would open the claim again after its failure window, and be refused until midnight.
#[tokio::test(start_paused = true)]
async fn a_claim_that_lacked_budget_promises_no_retry_before_there_is_room() {
    let mut world = World::new();
    world.provider.on_poll([code("ERROR_CAPTCHA_UNSOLVABLE")]);
    let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
    world.config.budgets.workers.insert(WorkerName::new("ann").unwrap(), allowance);
    let engine = world.gateway(1).await;
    let ask = || ClaimRequest { allowance, ..request("a") };
    let Outcome::Waiting { claim, .. } = engine.claim(ask()).await.unwrap().outcome else {
        panic!("it has to wait")
    };
    assert_eq!(failure(&engine, claim.id).await, "ERROR_BUDGET_EXCEEDED");
    let ended = engine.find_claim(&Scope::All, claim.id).await.unwrap();
    let midnight = world.clock.now().day().end();
    assert_eq!(engine.reopens_at(&ended), Some(midnight));
    world.pass(world.config.failure_window).await;
    let refused = engine.claim(ask()).await.unwrap_err();
    assert!(
        matches!(&refused, ClaimRefusal::OverBudget(reached) if reached.until == midnight),
        "{refused:?}"
    );
    // Without the limit, nothing but the failure window counts.
    engine.set_budgets(Budgets::default());
    let window = world.config.failure_window;
    assert_eq!(engine.reopens_at(&ended), ended.ended_at.map(|at| at.plus(window)));
}
