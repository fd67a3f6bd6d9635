//! The same schedule gives the same answers and the same history here as in memory: asked through one connection that is
//! made anew now and then, through three that take turns, and with an answer lost at every place.

use std::collections::BTreeSet;

use store_tests::servers::{
    FaultProxy, RedisOptions, RedisServer, shared_cluster, shared_redis, wait_for,
};

use crate::{
    connect,
    gateways::turns::{one_after_another, three_in_turn},
    prefix,
    schedule::{EVENTS, Race, race_all},
};

/// So many reach everything that can happen.
const SEEDS: u64 = 32;
/// At a cluster, where the rules are the same and connecting takes its time.
const FEW: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_that_starts_again_gives_the_same_history() {
    let happened = race_all(SEEDS, |race| one_after_another(race, shared_redis().url())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_in_turn_give_the_same_history() {
    let happened = race_all(SEEDS, |race| three_in_turn(race, shared_redis().url())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_at_a_cluster_gives_the_same_history() {
    let happened = race_all(FEW, |race| one_after_another(race, shared_cluster().url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_at_a_cluster_give_the_same_history() {
    let happened = race_all(FEW, |race| three_in_turn(race, shared_cluster().url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

// === lost answers ===

const SHORT: usize = 60;

/// The server acts on a request and its answer never comes: at every place of a schedule, in the first and in the second
/// round trip from there. Nothing is done twice and nothing that was answered is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_lost_at_any_place_changes_nothing() {
    let server = RedisServer::start(&RedisOptions::default());
    let proxy = FaultProxy::start(server.port());
    let mut opened = 0;
    for place in 0..SHORT {
        for trip in 1..=2 {
            let happened = with_a_loss(&server, &proxy, place, trip).await;
            opened += usize::from(happened.contains("Opened"));
        }
    }
    assert_eq!(opened, 2 * SHORT, "every schedule decides something");
}

async fn with_a_loss(
    server: &RedisServer,
    proxy: &FaultProxy,
    place: usize,
    trip: u32,
) -> BTreeSet<String> {
    let prefix = prefix();
    let other = connect(&format!("redis://127.0.0.1:{}", proxy.port()), &prefix).await;
    // Its listener must be done with its own requests: the loss is for a decision.
    let bell = format!("{{{prefix}:0}}:bell");
    wait_for("the bells are heard", || server.cli(&["pubsub", "numsub", &bell]).ends_with('1'));
    let connections = proxy.accepted();
    let mut race = Race::new(place as u64 % 4);
    for step in 0..SHORT {
        if step == place {
            proxy.lose_answer(trip);
        }
        // What only looked is not sent again by itself.
        race.step(&other, 1).await;
    }
    // The last one's second round trip is a reading.
    other.records.entries(0, 1).await.ok();
    let happened = race.finish(&other).await;
    assert!(proxy.accepted() > connections, "place {place}, trip {trip}: no answer was lost");
    happened
}
