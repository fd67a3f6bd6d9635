//! A bell rung in one gateway is heard in the others, soon and again after the connection broke, however many listen.

use std::time::Duration;

use store_tests::servers::{RedisCluster, RedisOptions, RedisServer, Replicas, wait_for};
use stores::Backend;
use tokio::time::timeout;

use crate::{
    connect,
    gateways::{
        PATIENCE,
        bells::{claim, median, until_heard},
    },
    prefix,
};

/// Two gateways whose bells are connected.
async fn two(url: &str) -> (Backend, Backend, String) {
    let prefix = prefix();
    let pair = (connect(url, &prefix).await, connect(url, &prefix).await);
    until_heard(&pair.0, &pair.1).await;
    (pair.0, pair.1, format!("{{{prefix}:0}}:bell"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bell_rung_in_one_gateway_is_heard_in_another() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, _) = two(&server.url()).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
    assert!(median(&b, &a).await < Duration::from_millis(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bell_is_heard_across_a_cluster() {
    let cluster = RedisCluster::start(Replicas::None);
    let (a, b, bell) = two(&cluster.url()).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
    let node = cluster.master_of(&bell);
    assert_eq!(kill_listeners(node), 2, "one of each gateway");
    until_heard(&a, &b).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bells_come_back_after_their_connection_was_killed() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, _) = two(&server.url()).await;
    for _ in 0..3 {
        assert_eq!(kill_listeners(&server), 2, "one of each gateway");
        until_heard(&a, &b).await;
        until_heard(&b, &a).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_listens_on_one_connection_for_all_its_claims() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, bell) = two(&server.url()).await;
    let before = clients(&server, &[]);
    let ears: Vec<_> = (1..=1000).map(|number| b.doorbell.listen(claim(number))).collect();
    for number in 1..=1000 {
        a.doorbell.ring(claim(number));
    }
    for ear in ears {
        timeout(PATIENCE, ear).await.expect("every one of them is heard");
    }
    assert_eq!(clients(&server, &["type", "pubsub"]), 2, "one of each gateway");
    assert_eq!(clients(&server, &[]), before, "and no others were made");
    drop((a, b));
    wait_for("a bell that is gone listens no more", || {
        server.cli(&["pubsub", "numsub", &bell]).ends_with('0')
    });
}

fn kill_listeners(node: &RedisServer) -> usize {
    node.cli(&["client", "kill", "type", "pubsub"]).parse().expect("a number of clients")
}

fn clients(server: &RedisServer, which: &[&str]) -> usize {
    let list = server.cli(&[&["client", "list"], which].concat());
    // Not the one that asks.
    list.lines().filter(|line| line.contains(" addr=") && !line.contains("cmd=client")).count()
}
