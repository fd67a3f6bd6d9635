//! A notification from one gateway reaches the others, also after the connection was killed, and behind a pooler if a
//! direct address is given. The startup findings report when notifications cannot arrive.

use std::time::Duration;

use store_tests::servers::{PgBouncer, PostgresOptions, PostgresServer};
use stores::{Backend, Weight};

use super::through_pooler;
use crate::{
    connect,
    gateways::notifications::{median, until_notified},
    prefix,
};

async fn two(url: &str) -> (Backend, Backend) {
    let schema = prefix();
    (connect(url, &schema).await, connect(url, &schema).await)
}

fn receives_notifications(backend: &Backend) -> bool {
    let hints =
        backend.findings.iter().find(|finding| finding.what.starts_with("notifications from"));
    hints.expect("the finding is always reported").weight == Weight::Good
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_from_one_gateway_reaches_another() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let (a, b) = two(&server.url()).await;
    assert!(receives_notifications(&a) && receives_notifications(&b));
    assert!(median(&a, &b).await < Duration::from_millis(50));
    for _ in 0..3 {
        assert_eq!(server.terminate("query LIKE 'LISTEN%'"), 2, "one of each gateway");
        until_notified(&a, &b).await;
        until_notified(&b, &a).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_swallows_hints_is_named_and_can_be_passed() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let bouncer = PgBouncer::start(&server);
    let deaf = connect(&bouncer.url(), &prefix()).await;
    assert!(!receives_notifications(&deaf), "{:?}", deaf.findings);
    let (a, b) = two(&through_pooler(&bouncer.url(), &server)).await;
    assert!(receives_notifications(&a) && receives_notifications(&b));
    assert!(median(&a, &b).await < Duration::from_millis(50));
}
