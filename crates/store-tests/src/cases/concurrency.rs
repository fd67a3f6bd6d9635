//! Concurrent callers.

use std::{collections::BTreeSet, future::Future};

use domain::{
    claim::{Admission, Allowance, Delivery},
    ledger::Event,
};
use tokio::task::JoinSet;

use crate::{World, named, token_of};

/// Runs `count` futures at once, on all threads.
pub(super) async fn all_at_once<F>(count: u64, one: impl Fn(u64) -> F) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    (0..count).map(one).collect::<JoinSet<F::Output>>().join_all().await
}

pub(super) async fn fifty_callers_with_one_key_open_one_solve(world: World) {
    let admissions = all_at_once(50, |_| {
        let world = world.clone();
        async move {
            let mut new = world.turnstile("a");
            new.key = named(&new, "k");
            world.admit(new).await
        }
    })
    .await;
    let ids: BTreeSet<_> = admissions
        .iter()
        .map(|admission| match admission {
            Admission::Opened(claim) | Admission::Replayed(claim) => claim.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Opened { .. })).await, 1);
}

pub(super) async fn twenty_callers_with_a_budget_of_one_open_one_solve(world: World) {
    let admissions = all_at_once(20, |_| {
        let world = world.clone();
        async move {
            let mut new = world.turnstile("a");
            new.allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
            world.admit(new).await
        }
    })
    .await;
    let opened = admissions.iter().filter(|one| matches!(one, Admission::Opened(_))).count();
    let refused = admissions.iter().filter(|one| matches!(one, Admission::OverBudget(_)));
    assert_eq!((opened, refused.count()), (1, 19));
}

pub(super) async fn two_keys_never_share_an_exclusive_token(world: World) {
    let mut first = Vec::new();
    for n in 0..10 {
        first.push(world.serve(world.turnstile("a"), &format!("t{n}")).await);
    }
    for claim in first {
        world.withdraw(&claim).await;
    }
    let admissions = all_at_once(30, |n| {
        let world = world.clone();
        async move {
            let mut new = world.turnstile("a");
            new.key = named(&new, &format!("k{}", n % 15));
            new.collect = true;
            (n % 15, world.admit(new).await)
        }
    })
    .await;
    let mut tokens = BTreeSet::new();
    for (key, admission) in admissions {
        match admission {
            Admission::Stocked(claim) | Admission::Replayed(claim) => {
                tokens.extend(token_of(&claim).map(|token| (token.to_owned(), key)));
            }
            Admission::Opened(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // Each of the ten tokens is seen under one key only.
    assert_eq!(tokens.len(), 10);
    assert_eq!(tokens.iter().map(|(token, _)| token).collect::<BTreeSet<_>>().len(), 10);
    assert_eq!(tokens.iter().map(|(_, key)| key).collect::<BTreeSet<_>>().len(), 10);
}

pub(super) async fn ten_holders_never_get_the_same_lease(world: World) {
    for _ in 0..40 {
        world.open(world.turnstile("a")).await;
    }
    let leases = all_at_once(10, |n| {
        let world = world.clone();
        async move {
            let holder = world.holder(n + 1).await;
            let mut leases = world.lease_some(holder, 3).await;
            leases.extend(world.lease_some(holder, 3).await);
            leases
        }
    })
    .await;
    let all: Vec<_> = leases.iter().flatten().map(|lease| lease.solve.id).collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
}

pub(super) async fn fifty_fetches_of_one_token_are_one_claims(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    let fetched = all_at_once(50, |_| {
        let (world, claim) = (world.clone(), claim.clone());
        async move { world.fetch(&claim).await }
    })
    .await;
    assert!(fetched.iter().all(|one| matches!(one, Delivery::Token(_))));
    let delivered = world.find(&claim).await.delivered_at;
    assert_eq!(delivered, Some(world.now()));
}

pub(super) async fn one_image_from_fifty_callers_is_one_solve(world: World) {
    let admissions = all_at_once(50, |_| {
        let world = world.clone();
        async move { world.admit(world.image(b"one picture")).await }
    })
    .await;
    let opened = admissions.iter().filter(|one| matches!(one, Admission::Opened(_))).count();
    let joined = admissions.iter().filter(|one| matches!(one, Admission::Joined(_))).count();
    assert_eq!((opened, joined), (1, 49));
    let holder = world.holder(1).await;
    let lease = world.lease(holder).await.remove(0);
    assert_eq!(lease.solve.claims.len(), 50);
    world.intend(&lease).await.unwrap();
    world.settle(lease.solve.id, 1, crate::accepted("t1")).await;
    assert_eq!(world.settle(lease.solve.id, 1, world.solved("t1")).await.ended.len(), 50);
}
