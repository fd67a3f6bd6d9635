//! A bell rung in one gateway is heard in the others, again after the connection was killed, and past a pooler where a direct
//! address is given. Where it cannot be heard, that is said at the start.

use std::time::Duration;

use store_tests::servers::{PgBouncer, PostgresOptions, PostgresServer};
use stores::{Backend, Weight};

use super::through_pooler;
use crate::{
    connect,
    gateways::bells::{median, until_heard},
    prefix,
};

async fn two(url: &str) -> (Backend, Backend) {
    let schema = prefix();
    (connect(url, &schema).await, connect(url, &schema).await)
}

fn says_heard(backend: &Backend) -> bool {
    let hints = backend.findings.iter().find(|finding| finding.what.starts_with("hints from"));
    hints.expect("it is always said").weight == Weight::Good
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bell_rung_in_one_gateway_is_heard_in_another() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let (a, b) = two(&server.url()).await;
    assert!(says_heard(&a) && says_heard(&b));
    assert!(median(&a, &b).await < Duration::from_millis(50));
    for _ in 0..3 {
        assert_eq!(server.terminate("query LIKE 'LISTEN%'"), 2, "one of each gateway");
        until_heard(&a, &b).await;
        until_heard(&b, &a).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_swallows_hints_is_named_and_can_be_passed() {
    let server = PostgresServer::start(&PostgresOptions::default());
    let bouncer = PgBouncer::start(&server);
    let deaf = connect(&bouncer.url(), &prefix()).await;
    assert!(!says_heard(&deaf), "{:?}", deaf.findings);
    let (a, b) = two(&through_pooler(&bouncer.url(), &server)).await;
    assert!(says_heard(&a) && says_heard(&b));
    assert!(median(&a, &b).await < Duration::from_millis(50));
}
