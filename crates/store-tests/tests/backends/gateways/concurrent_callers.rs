//! Concurrent callers at several gateways: every caller is served, and no token is given twice.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    claim::Admission,
    id::{ClaimId, HolderId},
    ledger::Event,
    ports::LeaseRequest,
};
use store_tests::{accepted, check, named, token_of};

use super::{Gateway, all_at_once};

/// Three hundred equal claims open one solve, and after its failure another one.
pub(crate) async fn three_hundred_with_one_key(all: &[Gateway]) {
    let first = open_once(all).await;
    let world = &all[0].world;
    let claim = world.store.find_claim(first).await.expect("the server is up");
    world.fail_solve(&claim.expect("it was opened"), "ERROR_CAPTCHA_UNSOLVABLE").await;
    world.pass(30);
    assert_eq!(open_once(all).await, first, "a failure does not burn a key");
    let reopened = world.count(|event| matches!(event, Event::Reopened { .. })).await;
    assert_eq!(reopened, 1);
    check(world.records.as_ref()).await;
}

/// Three hundred equal claims, of which one opens a solve; returns the id that all have.
async fn open_once(all: &[Gateway]) -> ClaimId {
    let admissions = all_at_once(all, 300, |_, at| async move {
        let mut new = at.world.turnstile("a");
        new.key = named(&new, "k");
        new.reopens_after = Some(Duration::from_secs(30));
        at.world.admit(new).await
    })
    .await;
    let opened = admissions.iter().filter(|one| matches!(one, Admission::Opened(_))).count();
    let ids: BTreeSet<_> = admissions
        .iter()
        .map(|admission| match admission {
            Admission::Opened(claim) | Admission::Replayed(claim) => claim.id,
            Admission::Stocked(_)
            | Admission::Joined(_)
            | Admission::Started(..)
            | Admission::Mismatch(_)
            | Admission::OverBudget(_)
            | Admission::TooLate
            | Admission::NameTaken => panic!("{admission:?}"),
        })
        .collect();
    assert_eq!((opened, ids.len()), (1, 1));
    ids.into_iter().next().expect("there is one")
}

/// Nine hundred different claims are all admitted.
pub(crate) async fn nine_hundred(all: &[Gateway]) {
    let admissions = all_at_once(all, 900, |number, at| async move {
        at.world.admit(at.world.turnstile(&format!("site-{number}"))).await
    })
    .await;
    assert!(admissions.iter().all(|one| matches!(one, Admission::Opened(_))));
    check(all[0].world.records.as_ref()).await;
    assert_eq!(all[1].world.entries().await.len(), 900);
}

/// Twenty callers run solves of six decisions each, and each token goes to one claim.
pub(crate) async fn solves_by_twenty(all: &[Gateway], solves: u64) {
    let delivered = all_at_once(all, 20, move |number, at| async move {
        let holder = at.world.holder(1 + number as u64).await;
        let mut tokens = Vec::new();
        for _ in 0..solves / 20 {
            at.world.open(at.world.turnstile("a")).await;
            tokens.push(solve_one(&at, holder).await);
        }
        tokens
    })
    .await;
    let tokens: BTreeSet<String> = delivered.into_iter().flatten().collect();
    assert_eq!(tokens.len() as u64, solves, "every token went to one claim");
    check(all[0].world.records.as_ref()).await;
}

/// Runs a solve of any caller to its end and returns the delivered token.
async fn solve_one(at: &Gateway, holder: HolderId) -> String {
    let ask = LeaseRequest::any(holder, 1);
    let leases = at.backend.store.lease(ask, at.world.now()).await.expect("the server is up");
    let lease = leases.first().expect("there are as many solves as callers");
    let solve = at.world.intend(lease).await.expect("its lease is good");
    let task = format!("t{}", solve.id);
    at.world.settle(solve.id, solve.attempt, accepted(&task)).await;
    let settled = at.world.settle(solve.id, solve.attempt, at.world.solved(&task)).await;
    let claim = settled.ended.first().expect("a claim waited for it");
    at.backend.notifier.notify(*claim);
    let delivered = at.backend.store.deliver(*claim, at.world.now()).await;
    match delivered.expect("the server is up") {
        Some(domain::claim::Delivery::Token(claim)) => token_of(&claim).expect("one").to_owned(),
        other => panic!("{other:?}"),
    }
}

/// A thousand claims compete for five hundred tokens.
pub(crate) async fn a_thousand_takers(all: &[Gateway]) {
    let world = &all[0].world;
    let mut claims = Vec::new();
    for number in 0..500 {
        claims.push(world.serve(world.turnstile("a"), &format!("t{number}")).await);
    }
    for claim in &claims {
        world.withdraw(claim).await;
    }
    let admissions =
        all_at_once(
            all,
            1000,
            |_, at| async move { at.world.admit(at.world.turnstile("a")).await },
        )
        .await;
    let mut tokens = BTreeSet::new();
    let mut opened = 0;
    for admission in &admissions {
        if let Admission::Stocked(claim) = admission {
            assert!(
                tokens.insert(token_of(claim).expect("one").to_owned()),
                "a token was given twice"
            );
        }
        opened += usize::from(matches!(admission, Admission::Opened(_)));
    }
    assert_eq!((tokens.len(), opened), (500, 500));
    check(world.records.as_ref()).await;
}
