//! A notification from one gateway reaches the others quickly, also after the connection broke, however many subscribe.

use std::time::Duration;

use store_tests::servers::{RedisCluster, RedisOptions, RedisServer, Replicas, wait_for};
use stores::Backend;
use tokio::time::timeout;

use crate::{
    connect,
    gateways::{
        PATIENCE,
        notifications::{claim, median, until_notified},
    },
    prefix,
};

/// Two gateways that receive each other's notifications.
async fn two(url: &str) -> (Backend, Backend, String) {
    let prefix = prefix();
    let pair = (connect(url, &prefix).await, connect(url, &prefix).await);
    until_notified(&pair.0, &pair.1).await;
    (pair.0, pair.1, format!("{{{prefix}:0}}:bell"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_from_one_gateway_reaches_another() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, _) = two(&server.url()).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
    assert!(median(&b, &a).await < Duration::from_millis(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_crosses_a_cluster() {
    let cluster = RedisCluster::start(Replicas::None);
    let (a, b, bell) = two(&cluster.url()).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
    let node = cluster.master_of(&bell);
    assert_eq!(kill_listeners(node), 2, "one of each gateway");
    until_notified(&a, &b).await;
    assert!(median(&a, &b).await < Duration::from_millis(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_resume_after_their_connection_was_killed() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, _) = two(&server.url()).await;
    for _ in 0..3 {
        assert_eq!(kill_listeners(&server), 2, "one of each gateway");
        until_notified(&a, &b).await;
        until_notified(&b, &a).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_listens_on_one_connection_for_all_its_claims() {
    let server = RedisServer::start(&RedisOptions::default());
    let (a, b, bell) = two(&server.url()).await;
    let before = clients(&server, &[]);
    let subscriptions: Vec<_> =
        (1..=1000).map(|number| b.notifier.subscribe(claim(number))).collect();
    for number in 1..=1000 {
        a.notifier.notify(claim(number));
    }
    for notified in subscriptions {
        timeout(PATIENCE, notified).await.expect("every notification arrives");
    }
    assert_eq!(clients(&server, &["type", "pubsub"]), 2, "one of each gateway");
    assert_eq!(clients(&server, &[]), before, "and no others were made");
    drop((a, b));
    wait_for("a dropped gateway unsubscribes", || {
        server.cli(&["pubsub", "numsub", &bell]).ends_with('0')
    });
}

fn kill_listeners(node: &RedisServer) -> usize {
    node.cli(&["client", "kill", "type", "pubsub"]).parse().expect("a number of clients")
}

fn clients(server: &RedisServer, which: &[&str]) -> usize {
    let list = server.cli(&[&["client", "list"], which].concat());
    // Excludes the connection of this command.
    list.lines().filter(|line| line.contains(" addr=") && !line.contains("cmd=client")).count()
}
