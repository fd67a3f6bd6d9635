//! The tests of all shared stores, on PostgreSQL and through a pooler.

use domain::id::ClaimId;
use store_tests::servers::{PostgresOptions, PostgresServer, shared_postgres};

use super::pooled_postgres_url;
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
/// The limit of an index entry. All names that come from outside are shorter.
const LONGEST_NAME: usize = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_that_starts_again_gives_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| one_after_another(comparison, shared_postgres().url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_in_turn_give_the_same_history() {
    let happened =
        compare_all(SEEDS, |comparison| three_in_turn(comparison, shared_postgres().url())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_gateways_at_the_same_time_give_the_same_history_of_each_claim() {
    let happened = compare_side_by_side(FEW, &shared_postgres().url()).await;
    assert!(happened.len() > EVENTS / 3, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_behind_a_pooler_give_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| three_in_turn(comparison, pooled_postgres_url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_callers_with_one_key_open_one_solve() {
    concurrent_callers::three_hundred_with_one_key(
        &gateways(&shared_postgres().url(), &prefix(), 3).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nine_hundred_callers_are_all_admitted() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let all = gateways(&server.url(), &prefix(), 3).await;
    let before = commits(&server);
    concurrent_callers::nine_hundred(&all).await;
    let took = commits(&server) - before;
    eprintln!("900 claims at 3 gateways: {took} commits");
    // One commit per claim would mean that claims are not batched.
    assert!(took < 900, "{took} commits");
}

fn commits(server: &PostgresServer) -> u64 {
    let schemas = server.psql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'case%'");
    let counts =
        schemas.lines().map(|schema| server.psql(&format!("SELECT commits FROM {schema}.head")));
    counts.map(|count| count.parse::<u64>().expect("a number")).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers() {
    concurrent_callers::solves_by_twenty(
        &gateways(&shared_postgres().url(), &prefix(), 3).await,
        200,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_takers_at_three_gateways_get_five_hundred_tokens() {
    concurrent_callers::a_thousand_takers(&gateways(&shared_postgres().url(), &prefix(), 3).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_that_comes_later_holds_at_three_gateways() {
    budgets::a_limit_that_comes_later(&gateways(&shared_postgres().url(), &prefix(), 3).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buyers_at_three_gateways_share_the_budget_of_the_account() {
    budgets::one_budget_for_all(&gateways(&shared_postgres().url(), &prefix(), 3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_behind_a_pooler() {
    concurrent_callers::solves_by_twenty(
        &gateways(&pooled_postgres_url(), &prefix(), 3).await,
        200,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_less_than_ten_seconds_ahead_takes_nothing_over() {
    below_ten_seconds(&shared_postgres().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_off_is_refused() {
    skew::a_clock_an_hour_off_is_refused(&shared_postgres().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_a_clock_that_is_off() {
    skew::doctor_names_a_clock_that_is_off(&shared_postgres().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_sixteen_seconds_ahead_takes_over_and_nothing_is_paid_twice() {
    sixteen_seconds_ahead(&shared_postgres().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_is_kept_and_read_back() {
    texts_come_back(&shared_postgres().url(), LONGEST_NAME).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_workers_and_projects_are_kept_apart() {
    names_are_kept_apart(&shared_postgres().url()).await;
}

/// An id that no column can hold is unknown, and a query for it does not fail the queries batched with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_beyond_what_is_kept_is_unknown() {
    let all = gateways(&shared_postgres().url(), &prefix(), 1).await;
    let world = &all[0].world;
    let claim = world.open(world.turnstile("a")).await;
    for number in [u64::MAX, i64::MAX as u64, i64::MAX as u64 + 1] {
        let odd = ClaimId::from_number(number);
        let (found, delivered, known) = tokio::join!(
            world.store.find_claim(odd),
            world.store.deliver(odd, world.now()),
            world.store.deliver(claim.id, world.now()),
        );
        assert!(matches!(found, Ok(None)), "{found:?}");
        assert!(matches!(delivered, Ok(None)), "{delivered:?}");
        assert!(matches!(known, Ok(Some(_))), "{known:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_at_every_gateway_at_once() {
    a_pause_holds_at_every_gateway(&shared_postgres().url()).await;
}
