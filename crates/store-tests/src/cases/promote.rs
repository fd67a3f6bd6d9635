//! Revived work beside live claims for the same challenge: live claims do not wait behind it, nothing is paid twice,
//! and a token nobody waited for goes to the next claim.

use std::time::Duration;

use domain::{
    claim::{Admission, Claim, ClaimState},
    ledger::Event,
    ports::{Revival, Scope},
    retry::own,
    secret::Secret,
    solve::{Origin, Solve, Stage},
};

use crate::{PRICE, World, derived, named, token_of, world::worker};

const UNSOLVABLE: &str = "ERROR_CAPTCHA_UNSOLVABLE";
const DAY: Duration = Duration::from_secs(86_400);

/// Revives the dead letter with a deadline of a day, as an operator does.
async fn reopen_for_a_day(world: &World, failed: &Claim) -> Claim {
    let mut ask = world.revive(failed);
    ask.deadline = world.now().plus(DAY);
    match world.store.revive(ask, world.now()).await.unwrap() {
        Revival::Back(Admission::Opened(claim)) => claim,
        other => panic!("expected a new solve, got {other:?}"),
    }
}

async fn solve_of(world: &World, claim: &Claim) -> Solve {
    world.store.find_solve(claim.solve.unwrap()).await.unwrap().unwrap()
}

async fn under_way(world: &World) -> usize {
    world.records.active(Scope::All, 99).await.unwrap().len()
}

async fn wasted(world: &World) -> usize {
    world.count(|event| matches!(event, Event::Wasted { .. })).await
}

fn assert_passed_on(claim: &Claim) {
    let code = claim.code.as_ref().map(domain::retry::Code::as_str);
    assert_eq!((claim.state, code), (ClaimState::Withdrawn, Some(own::PASSED_ON)));
}

pub(super) async fn a_live_claim_replaces_a_revived_claim_nobody_waits_for(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    world.lease_of(&back).await;
    world.pass(60);
    let mut new = world.turnstile("a");
    new.key = derived(&new, 60);
    let Admission::Joined(live) = world.admit(new.clone()).await else { panic!("not joined") };
    assert_eq!((live.id, live.deadline), (new.id, new.deadline));
    assert_passed_on(&world.find(&back).await);
    // The solve gets a new id, because the holder of the revived solve has it in the wrong queue.
    let (old, solve) = (solve_of(&world, &back).await, solve_of(&world, &live).await);
    assert_eq!((old.stage, solve.id), (Stage::Failed, new.solve));
    assert_eq!((&solve.origin, solve.wanted_until), (&Origin::Claim(live.id), live.deadline));
    assert_eq!(under_way(&world).await, 1);
    let fresh = world.turnstile("a");
    (new.id, new.solve) = (fresh.id, fresh.solve);
    assert!(matches!(world.admit(new).await, Admission::Replayed(claim) if claim.id == live.id));
    world.submit(&live, "t1").await;
    world.settle(solve.id, 1, world.solved("t1")).await;
    let served = world.find(&live).await;
    assert_eq!((token_of(&served), served.cost), (Some("token-t1"), Some(PRICE)));
}

pub(super) async fn a_live_claim_waits_for_a_revived_task_that_is_paid(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    world.submit(&back, "t1").await;
    let Admission::Joined(live) = world.admit(world.turnstile("a")).await else {
        panic!("it would be paid twice")
    };
    assert_eq!((live.solve, under_way(&world).await), (back.solve, 1));
    assert_eq!(solve_of(&world, &live).await.origin, Origin::Claim(live.id), "its retry is live");
    world.settle(live.solve.unwrap(), 1, world.solved("t1")).await;
    let served = world.find(&live).await;
    assert_eq!((token_of(&served), served.cost), (Some("token-t1"), Some(PRICE)));
    assert_passed_on(&world.find(&back).await);
}

pub(super) async fn a_token_nobody_waited_for_serves_the_next_claim(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    world.submit(&back, "t1").await;
    world.settle(back.solve.unwrap(), 1, world.solved("t1")).await;
    let ended = world.find(&back).await;
    assert_passed_on(&ended);
    assert_eq!((ended.cost, ended.token), (Some(PRICE), None));
    world.pass(100);
    let mut new = world.turnstile("a");
    new.worker = worker("bob");
    let Admission::Stocked(live) = world.admit(new).await else { panic!("not from stock") };
    assert_eq!(token_of(&live), Some("token-t1"));
    world.pass(600);
    world.sweep().await;
    world.fetch(&live).await;
    assert_eq!(world.count(|event| matches!(event, Event::Accepted { .. })).await, 1);
}

pub(super) async fn a_token_nobody_waited_for_serves_a_waiting_claim(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let mut new = world.turnstile("a");
    new.worker = worker("bob");
    let waiting = world.open(new).await;
    world.submit(&back, "t1").await;
    world.settle(back.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&waiting).await), Some("token-t1"));
    assert_eq!((under_way(&world).await, wasted(&world).await), (0, 0), "one was enough");
}

pub(super) async fn a_returned_token_goes_to_the_waiting_claim(world: World) {
    let served = world.serve(world.turnstile("a"), "t1").await;
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    reopen_for_a_day(&world, &failed).await;
    let mut new = world.turnstile("a");
    new.worker = worker("bob");
    let waiting = world.open(new).await;
    world.withdraw(&served).await;
    assert_eq!(token_of(&world.find(&waiting).await), Some("token-t1"), "a claim waits for it");
}

pub(super) async fn a_live_claim_that_is_too_late_leaves_the_revived_one_alone(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let before = world.entries().await.len();
    let mut hopeless = world.turnstile("a");
    hopeless.soonest = hopeless.deadline.plus(Duration::from_secs(1));
    assert!(matches!(world.admit(hopeless).await, Admission::TooLate));
    assert_eq!(world.entries().await.len(), before);
    assert_eq!(world.find(&back).await, back);
}

pub(super) async fn a_claim_with_the_key_of_a_revived_claim_promotes_it(world: World) {
    for is_sent in [false, true] {
        let mut new = world.turnstile("a");
        new.key = named(&new, &format!("order-{is_sent}"));
        let failed = world.fail(new.clone(), UNSOLVABLE).await;
        let back = reopen_for_a_day(&world, &failed).await;
        world.lease_of(&back).await;
        if is_sent {
            world.submit(&back, "t1").await;
        }
        let fresh = world.turnstile("a");
        (new.id, new.solve, new.deadline) = (fresh.id, fresh.solve, fresh.deadline);
        let Admission::Replayed(again) = world.admit(new.clone()).await else {
            panic!("not replayed")
        };
        assert_eq!((again.id, again.deadline), (back.id, new.deadline));
        assert_eq!(world.find(&back).await, again);
        let solve = solve_of(&world, &again).await;
        let expected = if is_sent { back.solve.unwrap() } else { new.solve };
        assert_eq!((solve.id, &solve.origin), (expected, &Origin::Claim(back.id)));
        assert_eq!((solve.claims, solve.wanted_until), (vec![back.id], new.deadline));
        assert_eq!(under_way(&world).await, 1);
        // Further claims with the same key replay it.
        new.deadline = new.deadline.plus(DAY);
        let fresh = world.turnstile("a");
        (new.id, new.solve) = (fresh.id, fresh.solve);
        assert!(matches!(world.admit(new).await, Admission::Replayed(claim) if claim == again));
        if is_sent {
            world.settle(solve.id, 1, world.solved("t1")).await;
            assert_eq!(token_of(&world.find(&back).await), Some("token-t1"));
        } else {
            world.fail_solve(&again, "ERROR_TWO").await;
            let dead_letter = world.dead_letter(&again).await;
            assert_eq!(
                (dead_letter.generation, dead_letter.revives),
                (2, failed.solve),
                "with its history"
            );
        }
    }
}

pub(super) async fn a_revived_claim_with_a_callback_keeps_its_own_solve(world: World) {
    let mut with_callback = world.turnstile("a");
    with_callback.callback_url = Some(Secret::new("https://hooks.example.com/"));
    let failed = [
        world.fail(with_callback.clone(), UNSOLVABLE).await,
        world.fail(world.turnstile("a"), UNSOLVABLE).await,
    ];
    let back = reopen_for_a_day(&world, &failed[0]).await;
    let mut new = world.turnstile("a");
    new.key = derived(&new, 60);
    let live = world.open(new).await;
    assert_eq!(world.find(&back).await, back);
    // A dead letter with the same key still finds the revived claim, whatever live claims there are.
    let Revival::Back(Admission::Replayed(found)) = world.bring_back(&failed[1]).await else {
        panic!("a second attempt for an equal dead letter")
    };
    assert_eq!(found.id, back.id);
    world.submit(&back, "t1").await;
    world.settle(back.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&back).await), Some("token-t1"));
    assert_eq!(world.find(&live).await.state, ClaimState::Waiting);
}

pub(super) async fn a_claim_that_joins_a_revived_image_promotes_it(world: World) {
    let failed = world.fail(world.image(b"picture"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let Admission::Joined(live) = world.admit(world.image(b"picture")).await else {
        panic!("not joined")
    };
    let solve = solve_of(&world, &live).await;
    assert_eq!((&solve.origin, &solve.claims), (&Origin::Claim(back.id), &vec![back.id, live.id]));
    assert_ne!(Some(solve.id), back.solve);
    world.submit(&live, "t1").await;
    world.settle(solve.id, 1, world.solved("t1")).await;
    for claim in [&back, &live] {
        assert_eq!(token_of(&world.find(claim).await), Some("token-t1"));
    }
}
