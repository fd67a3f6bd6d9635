//! Work that was brought back beside live claims for the same: nobody is made to wait behind it, nothing is paid twice,
//! and what came for nobody is for whoever wants it.

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

/// Brings the letter back as people do: it may wait for a day.
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

pub(super) async fn a_live_claim_takes_the_place_of_one_that_waits_for_nobody(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    world.lease_of(&back).await;
    world.pass(60);
    let mut new = world.turnstile("a");
    new.key = derived(&new, 60);
    let Admission::Joined(live) = world.admit(new.clone()).await else { panic!("not joined") };
    assert_eq!((live.id, live.deadline), (new.id, new.deadline));
    assert_passed_on(&world.find(&back).await);
    // Whoever holds the revived solve has it in the wrong queue: it is another one now.
    let (old, solve) = (solve_of(&world, &back).await, solve_of(&world, &live).await);
    assert_eq!((old.stage, solve.id), (Stage::Failed, new.solve));
    assert_eq!((&solve.origin, solve.wanted_until), (&Origin::Claim(live.id), live.deadline));
    assert_eq!(under_way(&world).await, 1);
    let fresh = world.turnstile("a");
    (new.id, new.solve) = (fresh.id, fresh.solve);
    assert!(matches!(world.admit(new).await, Admission::Replayed(claim) if claim.id == live.id));
    world.submit(&live, "t1").await;
    world.tell(solve.id, 1, world.solved("t1")).await;
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
    world.tell(live.solve.unwrap(), 1, world.solved("t1")).await;
    let served = world.find(&live).await;
    assert_eq!((token_of(&served), served.cost), (Some("token-t1"), Some(PRICE)));
    assert_passed_on(&world.find(&back).await);
}

pub(super) async fn a_token_that_came_for_nobody_serves_the_next(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    world.submit(&back, "t1").await;
    world.tell(back.solve.unwrap(), 1, world.solved("t1")).await;
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

pub(super) async fn a_token_that_came_for_nobody_serves_who_waits(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let mut new = world.turnstile("a");
    new.worker = worker("bob");
    let waiting = world.open(new).await;
    world.submit(&back, "t1").await;
    world.tell(back.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&waiting).await), Some("token-t1"));
    assert_eq!((under_way(&world).await, wasted(&world).await), (0, 0), "one was enough");
}

pub(super) async fn a_token_given_back_goes_to_who_waits_for_it(world: World) {
    let served = world.serve(world.turnstile("a"), "t1").await;
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    reopen_for_a_day(&world, &failed).await;
    let mut new = world.turnstile("a");
    new.worker = worker("bob");
    let waiting = world.open(new).await;
    world.withdraw(&served).await;
    assert_eq!(token_of(&world.find(&waiting).await), Some("token-t1"), "somebody waits for it");
}

pub(super) async fn a_live_claim_without_a_chance_leaves_the_revived_one_alone(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let before = world.entries().await.len();
    let mut hopeless = world.turnstile("a");
    hopeless.soonest = hopeless.deadline.plus(Duration::from_secs(1));
    assert!(matches!(world.admit(hopeless).await, Admission::TooLate));
    assert_eq!(world.entries().await.len(), before);
    assert_eq!(world.find(&back).await, back);
}

pub(super) async fn a_revived_claim_asked_for_by_its_key_is_wanted_now(world: World) {
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
        // It may be asked for again and again.
        new.deadline = new.deadline.plus(DAY);
        let fresh = world.turnstile("a");
        (new.id, new.solve) = (fresh.id, fresh.solve);
        assert!(matches!(world.admit(new).await, Admission::Replayed(claim) if claim == again));
        if is_sent {
            world.tell(solve.id, 1, world.solved("t1")).await;
            assert_eq!(token_of(&world.find(&back).await), Some("token-t1"));
        } else {
            world.fail_solve(&again, "ERROR_TWO").await;
            let letter = world.letter(&again).await;
            assert_eq!((letter.generation, letter.revives), (2, failed.solve), "with its history");
        }
    }
}

pub(super) async fn a_revived_claim_with_a_callback_keeps_its_own_solve(world: World) {
    let mut told = world.turnstile("a");
    told.callback_url = Some(Secret::new("https://hooks.example.com/"));
    let failed = [
        world.fail(told.clone(), UNSOLVABLE).await,
        world.fail(world.turnstile("a"), UNSOLVABLE).await,
    ];
    let back = reopen_for_a_day(&world, &failed[0]).await;
    let mut new = world.turnstile("a");
    new.key = derived(&new, 60);
    let live = world.open(new).await;
    assert_eq!(world.find(&back).await, back);
    // Letters still know it, whatever live claims there are.
    let Revival::Back(Admission::Replayed(found)) = world.bring_back(&failed[1]).await else {
        panic!("a second attempt for an equal letter")
    };
    assert_eq!(found.id, back.id);
    world.submit(&back, "t1").await;
    world.tell(back.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&back).await), Some("token-t1"));
    assert_eq!(world.find(&live).await.state, ClaimState::Waiting);
}

pub(super) async fn a_revived_picture_is_hurried_by_who_joins_it(world: World) {
    let failed = world.fail(world.image(b"picture"), UNSOLVABLE).await;
    let back = reopen_for_a_day(&world, &failed).await;
    let Admission::Joined(live) = world.admit(world.image(b"picture")).await else {
        panic!("not joined")
    };
    let solve = solve_of(&world, &live).await;
    assert_eq!((&solve.origin, &solve.claims), (&Origin::Claim(back.id), &vec![back.id, live.id]));
    assert_ne!(Some(solve.id), back.solve);
    world.submit(&live, "t1").await;
    world.tell(solve.id, 1, world.solved("t1")).await;
    for claim in [&back, &live] {
        assert_eq!(token_of(&world.find(claim).await), Some("token-t1"));
    }
}
