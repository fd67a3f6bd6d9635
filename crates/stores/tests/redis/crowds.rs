//! Many callers at three gateways: everybody is served, nothing is given twice, and how many calls it takes is printed.

use std::collections::BTreeSet;

use domain::{claim::Admission, id::HolderId, ports::LeaseAsk};
use stores::conformance::{
    accepted, check, named,
    servers::{RedisOptions, RedisServer},
    token_of,
};

use crate::{
    gateways::{Gateway, all_at_once, gateways},
    prefix,
};

/// A server nobody else counts on.
async fn three() -> (RedisServer, Vec<Gateway>) {
    let server = RedisServer::start(&RedisOptions::default());
    let all = gateways(&server.url(), &prefix(), 3).await;
    (server, all)
}

/// How often the server was asked for something.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["info", "commandstats"]);
    let begin = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number of calls"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_callers_with_one_key_open_one_solve() {
    let (server, all) = three().await;
    let before = calls(&server, "evalsha");
    let admissions = all_at_once(&all, 300, |_, at| async move {
        let mut new = at.world.turnstile("a");
        new.key = named(&new, "k");
        at.world.admit(new).await
    })
    .await;
    eprintln!("300 equal claims at 3 gateways: {} calls", calls(&server, "evalsha") - before);
    let opened = admissions.iter().filter(|one| matches!(one, Admission::Opened(_))).count();
    let ids: BTreeSet<_> = admissions
        .iter()
        .map(|admission| match admission {
            Admission::Opened(claim) | Admission::Replayed(claim) => claim.id,
            Admission::Stocked(_)
            | Admission::Joined(_)
            | Admission::Mismatch(_)
            | Admission::OverBudget { .. }
            | Admission::TooLate
            | Admission::NameTaken => panic!("{admission:?}"),
        })
        .collect();
    assert_eq!((opened, ids.len()), (1, 1));
    check(all[0].world.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nine_hundred_callers_are_all_admitted() {
    let (server, all) = three().await;
    let before = calls(&server, "evalsha");
    let admissions = all_at_once(&all, 900, |number, at| async move {
        at.world.admit(at.world.turnstile(&format!("site-{number}"))).await
    })
    .await;
    let took = calls(&server, "evalsha") - before;
    eprintln!("900 claims at 3 gateways: {took} calls");
    assert!(admissions.iter().all(|one| matches!(one, Admission::Opened(_))));
    // One each would mean that nothing is written together.
    assert!(took < 900, "{took} calls");
    check(all[0].world.records.as_ref()).await;
    assert_eq!(all[1].world.entries().await.len(), 900);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_solves_by_twenty_callers() {
    const SOLVES: u64 = 200;
    let (server, all) = three().await;
    let before = (calls(&server, "evalsha"), calls(&server, "publish"));
    let delivered = all_at_once(&all, 20, |number, at| async move {
        let holder = at.world.holder(1 + number as u64).await;
        let mut tokens = Vec::new();
        for _ in 0..SOLVES / 20 {
            at.world.open(at.world.turnstile("a")).await;
            tokens.push(solve_one(&at, holder).await);
        }
        tokens
    })
    .await;
    let (evals, publishes) =
        (calls(&server, "evalsha") - before.0, calls(&server, "publish") - before.1);
    eprintln!("{SOLVES} solves of 6 decisions at 3 gateways: {evals} calls, {publishes} publishes");
    let tokens: BTreeSet<String> = delivered.into_iter().flatten().collect();
    assert_eq!(tokens.len() as u64, SOLVES, "every token went to one");
    assert!(publishes <= SOLVES, "a ring is published once at most");
    check(all[0].world.records.as_ref()).await;
}

/// Takes a solve, whoever opened it, to its end; the token that was delivered.
async fn solve_one(at: &Gateway, holder: HolderId) -> String {
    let ask = LeaseAsk { holder, limit: 1 };
    let leases = at.backend.store.lease(ask, at.world.now()).await.expect("the server is there");
    let lease = leases.first().expect("there are as many solves as callers");
    let solve = at.world.intend(lease).await.expect("its lease is good");
    let task = format!("t{}", solve.id);
    at.world.tell(solve.id, solve.attempt, accepted(&task)).await;
    let told = at.world.tell(solve.id, solve.attempt, at.world.solved(&task)).await;
    let claim = told.ended.first().expect("somebody waited for it");
    at.backend.doorbell.ring(*claim);
    let delivered = at.backend.store.deliver(*claim, at.world.now()).await;
    match delivered.expect("the server is there") {
        Some(domain::claim::Delivery::Token(claim)) => token_of(&claim).expect("one").to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_takers_at_three_gateways_get_five_hundred_tokens() {
    let (server, all) = three().await;
    let world = &all[0].world;
    let mut claims = Vec::new();
    for number in 0..500 {
        claims.push(world.serve(world.turnstile("a"), &format!("t{number}")).await);
    }
    for claim in &claims {
        world.withdraw(claim).await;
    }
    let before = calls(&server, "evalsha");
    let admissions =
        all_at_once(
            &all,
            1000,
            |_, at| async move { at.world.admit(at.world.turnstile("a")).await },
        )
        .await;
    eprintln!("1000 takers at 3 gateways: {} calls", calls(&server, "evalsha") - before);
    let mut tokens = BTreeSet::new();
    let mut opened = 0;
    for admission in &admissions {
        if let Admission::Stocked(claim) = admission {
            assert!(tokens.insert(token_of(claim).expect("one").to_owned()), "a token twice");
        }
        opened += usize::from(matches!(admission, Admission::Opened(_)));
    }
    assert_eq!((tokens.len(), opened), (500, 500));
    check(world.records.as_ref()).await;
}
