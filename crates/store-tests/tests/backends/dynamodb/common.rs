//! The tests of all shared stores, with commits read from the log and from segments.

use super::{often_compacting, rarely_compacting};
use crate::{
    gateways::{
        budgets, concurrent_callers, gateways,
        pauses::a_pause_holds_at_every_gateway,
        schedules::{one_after_another, three_in_turn},
        skew::{self, below_ten_seconds, sixteen_seconds_ahead},
        texts::{names_are_kept_apart, texts_come_back},
    },
    prefix,
    schedule::{EVENTS, compare_all, side_by_side::compare_side_by_side},
};

/// Enough seeds that every event occurs.
const SEEDS: u64 = 32;
const FEW: u64 = 6;
const LONGEST_NAME: usize = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_that_starts_again_gives_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| one_after_another(comparison, often_compacting())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_in_turn_give_the_same_history() {
    let happened =
        compare_all(SEEDS, |comparison| three_in_turn(comparison, rarely_compacting())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_gateways_at_the_same_time_give_the_same_history_of_each_claim() {
    let happened = compare_side_by_side(FEW, &rarely_compacting()).await;
    assert!(happened.len() > EVENTS / 3, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_that_compact_often_give_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| three_in_turn(comparison, often_compacting())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_callers_with_one_key_open_one_solve() {
    concurrent_callers::three_hundred_with_one_key(
        &gateways(&often_compacting(), &prefix(), 3).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nine_hundred_callers_are_all_admitted() {
    concurrent_callers::nine_hundred(&gateways(&often_compacting(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers() {
    concurrent_callers::solves_by_twenty(&gateways(&rarely_compacting(), &prefix(), 3).await, 200)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers_compacted_often() {
    concurrent_callers::solves_by_twenty(&gateways(&often_compacting(), &prefix(), 3).await, 200)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_takers_at_three_gateways_get_five_hundred_tokens() {
    concurrent_callers::a_thousand_takers(&gateways(&rarely_compacting(), &prefix(), 3).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_that_comes_later_holds_at_three_gateways() {
    budgets::a_limit_that_comes_later(&gateways(&often_compacting(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buyers_at_three_gateways_share_the_budget_of_the_account() {
    budgets::one_budget_for_all(&gateways(&often_compacting(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_less_than_ten_seconds_ahead_takes_nothing_over() {
    below_ten_seconds(&rarely_compacting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_off_is_refused() {
    skew::a_clock_an_hour_off_is_refused(&rarely_compacting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_a_clock_that_is_off() {
    let url = rarely_compacting();
    stores::migrate(&url).await.expect("the table can be created");
    skew::doctor_names_a_clock_that_is_off(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_sixteen_seconds_ahead_takes_over_and_nothing_is_paid_twice() {
    sixteen_seconds_ahead(&rarely_compacting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back() {
    texts_come_back(&often_compacting(), LONGEST_NAME).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_workers_and_projects_are_kept_apart() {
    names_are_kept_apart(&often_compacting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_at_every_gateway_at_once() {
    a_pause_holds_at_every_gateway(&often_compacting()).await;
}
