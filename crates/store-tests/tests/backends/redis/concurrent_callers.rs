//! Concurrent callers at three gateways: every caller is served, no token is given twice, and the number of calls is
//! printed.

use store_tests::servers::{RedisOptions, RedisServer};

use crate::{
    gateways::{Gateway, budgets, concurrent_callers, gateways},
    prefix,
};

/// A private server, because its command statistics are read.
async fn three() -> (RedisServer, Vec<Gateway>) {
    let server = RedisServer::start(&RedisOptions::default());
    let all = gateways(&server.url(), &prefix(), 3).await;
    (server, all)
}

/// How many times a command was called.
pub(super) fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["info", "commandstats"]);
    let begin = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number of calls"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_callers_with_one_key_open_one_solve() {
    let (server, all) = three().await;
    let before = calls(&server, "evalsha");
    concurrent_callers::three_hundred_with_one_key(&all).await;
    eprintln!("300 equal claims at 3 gateways: {} calls", calls(&server, "evalsha") - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nine_hundred_callers_are_all_admitted() {
    let (server, all) = three().await;
    let before = calls(&server, "evalsha");
    concurrent_callers::nine_hundred(&all).await;
    let took = calls(&server, "evalsha") - before;
    eprintln!("900 claims at 3 gateways: {took} calls");
    // One call per claim would mean that claims are not batched.
    assert!(took < 900, "{took} calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers() {
    const SOLVES: u64 = 200;
    let (server, all) = three().await;
    let before = (calls(&server, "evalsha"), calls(&server, "publish"));
    concurrent_callers::solves_by_twenty(&all, SOLVES).await;
    let (evals, publishes) =
        (calls(&server, "evalsha") - before.0, calls(&server, "publish") - before.1);
    eprintln!("{SOLVES} solves of 6 decisions at 3 gateways: {evals} calls, {publishes} publishes");
    assert!(publishes <= SOLVES, "a notification is published at most once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_takers_at_three_gateways_get_five_hundred_tokens() {
    let (server, all) = three().await;
    let before = calls(&server, "evalsha");
    concurrent_callers::a_thousand_takers(&all).await;
    eprintln!(
        "1000 takers at 3 gateways: {} calls, its preparation included",
        calls(&server, "evalsha") - before
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buyers_at_three_gateways_share_the_budget_of_the_account() {
    let (_server, all) = three().await;
    budgets::one_budget_for_all(&all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claims_of_all_waiting_callers_are_read_in_one_call() {
    let (server, all) = three().await;
    let world = &all[0].world;
    let mut ids = Vec::new();
    for number in 0..50 {
        ids.push(world.open(world.turnstile(&format!("s{number}"))).await.id);
    }
    let unknown = world.turnstile("x").id;
    let asked = ids.iter().copied().chain([unknown]).collect();
    let before = calls(&server, "evalsha");
    let found = all[1].backend.store.find_claims(asked).await.expect("the server is up");
    assert_eq!(calls(&server, "evalsha") - before, 1);
    assert_eq!(found.iter().map(|claim| claim.id).collect::<Vec<_>>(), ids);
    assert_eq!(found[7], world.find(&found[7]).await);
}
