//! A plan that sells threads: an attempt costs the time for which it occupied one, and budgets of money hold.

use std::num::NonZeroU32;

use domain::{
    budget::{Allowance, BudgetScope},
    id::WorkerName,
    money::Money,
    ports::Poll,
    prices::{Plan, PriceList},
};
use engine::ClaimRefusal;

use crate::{
    gateway::{World, failure, open, request, token},
    provider::{code, solved},
};

/// A hundredth of the currency for a second of a thread.
fn plan() -> PriceList {
    let monthly = Money::from_micros(10_000 * 2_629_800);
    let plan = Plan { monthly, threads: NonZeroU32::MIN };
    PriceList { plan: Some(plan), ..PriceList::default() }
}

fn seconds_of_a_thread(seconds: i64) -> Money {
    Money::from_micros(10_000 * seconds)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_costs_the_time_of_its_thread_with_or_without_an_answer() {
    let mut world = World::new();
    world.config.prices = plan();
    world.provider.on_poll([Poll::NotReady, code("ERROR_CAPTCHA_UNSOLVABLE")]);
    world.provider.on_poll([Poll::NotReady, Poll::NotReady, solved("at last")]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "at last");
    // The first attempt ended with the poll after 10 s, the second one with that after 15 s.
    let claim = world.backend.store.find_claim(id).await.unwrap().unwrap();
    assert_eq!((claim.attempts, claim.cost), (2, Some(seconds_of_a_thread(25))));
    let day = world.clock.now().day();
    let spending = world.backend.records.spending(day).await.unwrap();
    let used = spending.books[&BudgetScope::Worker(WorkerName::new("ann").unwrap())].month.used();
    assert_eq!((used.solves, used.cost), (2, seconds_of_a_thread(25)));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_given_up_costs_the_time_it_was_waited_for() {
    let mut world = World::new();
    world.config.prices = plan();
    world.config.deadline = crate::gateway::seconds(3000);
    world.provider.on_poll(std::iter::repeat_n(Poll::NotReady, 100));
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    failure(&engine, id).await;
    let claim = world.backend.store.find_claim(id).await.unwrap().unwrap();
    let polls = world.provider.polls();
    let took = polls.last().unwrap().0.since(world.provider.submissions()[0].0);
    let took = i64::try_from(took.as_secs()).unwrap();
    assert_eq!(claim.cost, Some(seconds_of_a_thread(took)));
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_money_reserves_the_expected_time_and_holds() {
    let mut world = World::new();
    world.config.prices = plan();
    let engine = world.gateway(1).await;
    // What is reserved for one attempt, before any time was learned.
    open(&engine, "first").await;
    let day = world.clock.now().day();
    let ann = BudgetScope::Worker(WorkerName::new("ann").unwrap());
    let spending = world.backend.records.spending(day).await.unwrap();
    let estimate = spending.books[&ann].month.outstanding().cost;
    assert!(estimate > seconds_of_a_thread(1), "{estimate}");
    let allowance = Allowance { cost_per_day: Some(estimate + estimate), ..Allowance::default() };
    let mut second = request("second");
    second.allowance = allowance;
    engine.claim(second).await.unwrap();
    let mut third = request("third");
    third.allowance = allowance;
    let refused = engine.claim(third).await.unwrap_err();
    assert!(
        matches!(&refused, ClaimRefusal::OverBudget(reached) if reached.limit == "cost_per_day")
    );
}
