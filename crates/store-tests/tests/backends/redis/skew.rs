//! Gateways whose clocks differ.

use store_tests::servers::{shared_cluster, shared_redis};

use crate::gateways::skew::{self, below_ten_seconds, sixteen_seconds_ahead};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_less_than_ten_seconds_ahead_takes_nothing_over() {
    below_ten_seconds(&shared_redis().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_less_than_ten_seconds_ahead_takes_nothing_over_at_a_cluster() {
    below_ten_seconds(&shared_cluster().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_sixteen_seconds_ahead_takes_over_and_nothing_is_paid_twice() {
    sixteen_seconds_ahead(&shared_redis().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_off_is_refused() {
    skew::a_clock_an_hour_off_is_refused(&shared_redis().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_an_hour_off_is_refused_at_a_cluster() {
    skew::a_clock_an_hour_off_is_refused(&shared_cluster().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_a_clock_that_is_off() {
    skew::doctor_names_a_clock_that_is_off(&shared_redis().url()).await;
}
