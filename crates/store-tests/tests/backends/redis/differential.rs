//! The same schedule gives the same answers and the same history as in memory: through one connection that is reopened
//! now and then, through three in turn, and with a reply lost at every step.

use std::collections::BTreeSet;

use store_tests::servers::{
    FaultProxy, RedisOptions, RedisServer, shared_cluster, shared_redis, wait_for,
};

use crate::{
    connect,
    gateways::schedules::{one_after_another, three_in_turn},
    prefix,
    schedule::{Comparison, EVENTS, compare_all, side_by_side::compare_side_by_side},
};

/// Enough seeds that every event occurs.
const SEEDS: u64 = 32;
/// Fewer on a cluster, where the decisions are the same and connecting is slow.
const FEW: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_that_starts_again_gives_the_same_history() {
    let happened =
        compare_all(SEEDS, |comparison| one_after_another(comparison, shared_redis().url())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_in_turn_give_the_same_history() {
    let happened =
        compare_all(SEEDS, |comparison| three_in_turn(comparison, shared_redis().url())).await;
    assert_eq!(happened.len(), EVENTS, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_gateways_at_the_same_time_give_the_same_history_of_each_claim() {
    let happened = compare_side_by_side(FEW, &shared_redis().url()).await;
    assert!(happened.len() > EVENTS / 3, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_at_a_cluster_gives_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| one_after_another(comparison, shared_cluster().url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_at_a_cluster_give_the_same_history() {
    let happened =
        compare_all(FEW, |comparison| three_in_turn(comparison, shared_cluster().url())).await;
    assert!(happened.len() > EVENTS / 2, "{happened:?}");
}

// === lost replies ===

const SHORT: usize = 60;

/// The server acts on a request and its reply is lost: at every step of a schedule, in the first and in the second
/// round trip from there. Nothing is done twice, and no acknowledged write is lost.
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
    // The subscription must be complete, so that the lost reply is that of a decision.
    let bell = format!("{{{prefix}:0}}:bell");
    wait_for("the gateway is subscribed", || {
        server.cli(&["pubsub", "numsub", &bell]).ends_with('1')
    });
    // The connection of the readers must be open, so that no reply to its handshake is lost: then it backs off.
    other.records.entries(0, 1).await.expect("the server is up");
    let connections = proxy.accepted();
    let mut comparison = Comparison::new(place as u64 % 4);
    for step in 0..SHORT {
        if step == place {
            proxy.lose_answer(trip);
        }
        // The store does not retry plain reads.
        comparison.step(&other, 1).await;
    }
    // The second round trip of the last step is a read.
    other.records.entries(0, 1).await.ok();
    let happened = comparison.finish(&other).await;
    assert!(proxy.accepted() > connections, "place {place}, trip {trip}: no answer was lost");
    happened
}
