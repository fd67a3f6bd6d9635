//! What all shared stores have to do, with commits read from the log and from sheets.

use super::{often, seldom};
use crate::{
    gateways::{
        crowds, gateways,
        skew::{below_ten_seconds, sixteen_seconds_ahead},
        texts::{names_are_kept_apart, texts_come_back},
        turns::{one_after_another, three_in_turn},
    },
    prefix,
    schedule::{EVENTS, race_all},
};

/// So many reach everything that can happen.
const SEEDS: u64 = 32;
const FEW: u64 = 6;
const LONGEST_NAME: usize = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_that_starts_again_gives_the_same_history() {
    let happened = race_all(FEW, |race| one_after_another(race, often())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_in_turn_give_the_same_history() {
    let happened = race_all(SEEDS, |race| three_in_turn(race, seldom())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_that_file_often_give_the_same_history() {
    let happened = race_all(FEW, |race| three_in_turn(race, often())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_callers_with_one_key_open_one_solve() {
    crowds::three_hundred_with_one_key(&gateways(&often(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nine_hundred_callers_are_all_admitted() {
    crowds::nine_hundred(&gateways(&often(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers() {
    crowds::solves_by_twenty(&gateways(&seldom(), &prefix(), 3).await, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers_filed_often() {
    crowds::solves_by_twenty(&gateways(&often(), &prefix(), 3).await, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_takers_at_three_gateways_get_five_hundred_tokens() {
    crowds::a_thousand_takers(&gateways(&seldom(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_less_than_ten_seconds_ahead_takes_nothing_over() {
    below_ten_seconds(&seldom()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_sixteen_seconds_ahead_takes_over_and_nothing_is_paid_twice() {
    sixteen_seconds_ahead(&seldom()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back() {
    texts_come_back(&often(), LONGEST_NAME).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_workers_and_projects_are_kept_apart() {
    names_are_kept_apart(&often()).await;
}
