//! A replica is refused, and so is a write the server would reject, without harm to the writes batched with it.

use store_tests::servers::{PostgresOptions, PostgresServer, shared_postgres};

use crate::{
    gateways::{gateways, skew::OffClock},
    prefix,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_but_can_be_examined() {
    let extra = ["wal_level=replica", "max_wal_senders=4"].map(Into::into).into();
    let primary = PostgresServer::start(&PostgresOptions { extra, ..PostgresOptions::default() });
    let schema = prefix();
    stores::migrate(&format!("{}?schema={schema}", primary.url())).await.expect("it is there");
    let standby = primary.standby();
    assert_eq!(standby.psql("SELECT pg_is_in_recovery()"), "t");
    let url = format!("{}?schema={schema}", standby.url());
    let error = stores::connect(&url).await.expect_err("it cannot write").to_string();
    assert!(error.contains("it is a replica (pg_is_in_recovery)"), "{error}");
    assert!(error.ends_with("give the address of the primary"), "{error}");
    let seen = stores::examine(&url, &OffClock(0)).await.expect("it answers");
    assert!(seen.iter().any(|finding| finding.what.contains("it is a replica")), "{seen:?}");
    let seen = stores::examine(&primary.url(), &OffClock(0)).await.expect("it answers");
    assert!(seen.iter().any(|finding| finding.what.starts_with("1 replicas, and")), "{seen:?}");
}

/// A name that does not fit into an index entry, even compressed.
fn long_name() -> String {
    (0..6000).map(|_| fastrand::alphanumeric()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_too_long_for_the_index_is_refused_alone() {
    let all = gateways(&shared_postgres().url(), &prefix(), 1).await;
    let world = &all[0].world;
    for round in 0..5 {
        let name = long_name();
        let site = format!("beside-{round}");
        let (first, refused, second) = tokio::join!(
            world.store.set_memo("short", vec![round]),
            world.store.set_memo(&name, vec![round]),
            world.open(world.turnstile(&site)),
        );
        first.expect("the other write does not affect it");
        let error = refused.expect_err("no index takes it").to_string();
        assert!(error.contains("more than 2,000 bytes") && !error.contains(&name), "{error}");
        assert_eq!(world.find(&second).await, second);
    }
    let memos = world.store.memos("").await.expect("the server is up");
    assert_eq!(memos, [("short".to_owned(), vec![4])]);
}
