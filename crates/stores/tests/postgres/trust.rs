//! What is refused, and that it is refused alone.

use stores::conformance::servers::shared_postgres;

use crate::{gateways::gateways, prefix};

/// A name that the server's index would not take, and that nothing makes shorter.
fn long_name() -> String {
    (0..6000).map(|_| fastrand::alphanumeric()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_too_long_for_the_index_is_refused_alone() {
    let all = gateways(&shared_postgres().url(), &prefix(), 1).await;
    let world = &all[0].world;
    for round in 0..5 {
        let name = long_name();
        let site = format!("beside {round}");
        let (first, refused, second) = tokio::join!(
            world.store.set_memo("short", vec![round]),
            world.store.set_memo(&name, vec![round]),
            world.open(world.turnstile(&site)),
        );
        first.expect("it has nothing to do with the other");
        let error = refused.expect_err("no index takes it").to_string();
        assert!(error.contains("more than 2,000 bytes") && !error.contains(&name), "{error}");
        assert_eq!(world.find(&second).await, second);
    }
    let memos = world.store.memos("").await.expect("the server is there");
    assert_eq!(memos, [("short".to_owned(), vec![4])]);
}
