//! How long the challenge of a dead letter is kept: it has proxies and cookies, so it goes when nobody can revive the letter.

use std::time::Duration;

use domain::{
    claim::{Admission, Claim, ClaimState, NewClaim},
    dead_letter::Closing,
    ports::{Revival, Scope},
    retry::Verdict,
    secret::Secret,
};

use crate::world::{World, admin, over, worker};

const UNSOLVABLE: &str = "ERROR_CAPTCHA_UNSOLVABLE";
const HOUR: u64 = 3600;

async fn has_challenge(world: &World, claim: &Claim) -> bool {
    world.store.find_challenge(claim.solve.unwrap()).await.unwrap().is_some()
}

/// Lets more than an hour pass, which a late reply would have had, and sweeps.
async fn pass_hour(world: &World) {
    world.pass(HOUR + 1);
    world.sweep().await;
}

fn with_callback(mut new: NewClaim) -> NewClaim {
    new.callback_url = Some(Secret::new("https://hooks.example.com/solved"));
    new
}

async fn announce(world: &World) {
    for callback in world.store.callbacks(100, world.now()).await.unwrap() {
        world.store.called_back(&callback, world.now()).await.unwrap();
    }
}

/// Revives a dead letter, as the engine does: the claim has a day.
async fn revive_for_a_day(world: &World, failed: &Claim) -> Claim {
    let mut ask = world.revive(failed);
    ask.deadline = world.now().plus(Duration::from_secs(24 * HOUR));
    match world.store.revive(ask, world.now()).await.unwrap() {
        Revival::Back(Admission::Opened(claim)) => claim,
        other => panic!("expected a new solve, got {other:?}"),
    }
}

async fn how_closed(world: &World, failed: &Claim) -> Closing {
    match world.bring_back(failed).await {
        Revival::Closed(closed) => closed.how,
        other => panic!("expected a closed dead letter, got {other:?}"),
    }
}

pub(super) async fn an_open_dead_letter_keeps_its_challenge(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    for _ in 0..3 {
        pass_hour(&world).await;
    }
    world.pass_days(20);
    world.sweep().await;
    assert!(has_challenge(&world, &failed).await);
    world.reopen(&failed).await;
}

pub(super) async fn a_revived_dead_letter_drops_its_challenge_when_its_successor_ended(
    world: World,
) {
    let failed = world.fail(with_callback(world.turnstile("a")), UNSOLVABLE).await;
    announce(&world).await;
    pass_hour(&world).await;
    let back = revive_for_a_day(&world, &failed).await;
    pass_hour(&world).await;
    assert!(has_challenge(&world, &failed).await, "its successor may still open it again");
    assert!(world.find(&failed).await.callback_url.is_some());
    world.submit(&back, "t1").await;
    world.settle(back.solve.unwrap(), 1, world.solved("t1")).await;
    pass_hour(&world).await;
    assert!(!has_challenge(&world, &failed).await);
    assert!(world.find(&failed).await.callback_url.is_none());
    assert_eq!(how_closed(&world, &failed).await, Closing::Revived);
}

pub(super) async fn a_dead_letter_that_was_answered_late_drops_its_challenge(world: World) {
    let lapsed = world.open(with_callback(world.turnstile("a"))).await;
    world.submit(&lapsed, "t1").await;
    world.pass(120);
    world.sweep().await;
    announce(&world).await;
    world.settle(lapsed.solve.unwrap(), 1, world.solved("t1")).await;
    assert!(has_challenge(&world, &lapsed).await, "replies may still arrive late");
    pass_hour(&world).await;
    assert!(!has_challenge(&world, &lapsed).await);
    assert!(world.find(&lapsed).await.callback_url.is_none());
    assert_eq!(how_closed(&world, &lapsed).await, Closing::LateAnswer);
}

pub(super) async fn a_dead_letter_that_is_opened_again_later_still_has_its_challenge(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    revive_for_a_day(&world, &failed).await;
    for _ in 0..30 {
        pass_hour(&world).await;
    }
    assert!(world.dead_letter(&failed).await.closed.is_none(), "its successor lapsed");
    assert!(has_challenge(&world, &failed).await);
    world.reopen(&failed).await;
}

pub(super) async fn a_claim_that_lapses_after_the_challenge_is_gone_gets_a_dead_letter(
    world: World,
) {
    let failed = world.open(world.image(b"picture")).await;
    let mut other = world.image(b"picture");
    other.worker = worker("bob");
    world.admit(other).await;
    world.fail_solve(&failed, UNSOLVABLE).await;
    let first = revive_for_a_day(&world, &failed).await;
    let active = world.records.active(Scope::All, 9).await.unwrap();
    let second = active[0].claims.iter().find(|id| **id != first.id).copied().unwrap();
    world.withdraw(&first).await;
    pass_hour(&world).await;
    assert!(!has_challenge(&world, &failed).await);
    world.pass_days(1);
    world.sweep().await;
    let lapsed = world.store.find_claim(second).await.unwrap().unwrap();
    assert_eq!(lapsed.state, ClaimState::Lapsed);
    let letter = world.dead_letter(&lapsed).await;
    assert_eq!((letter.claims.as_slice(), letter.closed), (&[second][..], None));
    world.reopen(&lapsed).await;
}

pub(super) async fn a_task_that_is_still_polled_keeps_its_challenge(world: World) {
    let lapsed = world.open(world.turnstile("a")).await;
    world.submit(&lapsed, "t1").await;
    world.pass(120);
    world.sweep().await;
    let Revival::Back(Admission::Joined(back)) = world.bring_back(&lapsed).await else {
        panic!("its task is still out")
    };
    world.withdraw(&back).await;
    pass_hour(&world).await;
    assert!(has_challenge(&world, &lapsed).await, "its task may still end");
    world.settle(lapsed.solve.unwrap(), 1, over(UNSOLVABLE, Verdict::GiveUp)).await;
    pass_hour(&world).await;
    assert!(!has_challenge(&world, &lapsed).await);
}

pub(super) async fn a_purged_dead_letter_has_no_challenge(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    assert!(world.store.purge(failed.solve.unwrap(), admin(), world.now()).await.unwrap());
    assert!(!has_challenge(&world, &failed).await);
}
