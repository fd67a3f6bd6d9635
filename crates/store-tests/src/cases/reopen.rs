//! A failure does not burn a key: after the failure window the same key opens its claim again, as the next generation.

use std::time::Duration;

use domain::{
    claim::{Admission, Allowance, Claim, ClaimState, NewClaim},
    dead_letter::Closing,
    ledger::Event,
    ports::{ClaimFilter, Revival, Scope, SweepRequest},
    retry::{Verdict, own},
    secret::Secret,
    solve::{Decision, Fact, Stage},
};

use super::concurrency::all_at_once;
use crate::world::{World, derived, named, over, token_of, worker};

const UNSOLVABLE: &str = "ERROR_CAPTCHA_UNSOLVABLE";
const WINDOW: Duration = Duration::from_secs(30);

/// A request with the key `k`.
fn keyed(world: &World) -> NewClaim {
    let mut new = world.turnstile("a");
    new.key = named(&new, "k");
    new.reopens_after = Some(WINDOW);
    new
}

/// Repeats the key, which must replay the claim.
async fn replayed(world: &World) -> Claim {
    match world.admit(keyed(world)).await {
        Admission::Replayed(claim) => claim,
        other => panic!("expected a replay, got {other:?}"),
    }
}

/// The key of a claim that failed, after its window.
async fn failed_and_over(world: &World) -> Claim {
    let failed = world.fail(keyed(world), UNSOLVABLE).await;
    world.pass(30);
    failed
}

pub(super) async fn a_failed_key_is_opened_again_after_its_window(world: World) {
    let failed = world.fail(keyed(&world), UNSOLVABLE).await;
    assert_eq!(failed.reopens_at(Some(WINDOW)), Some(world.now().plus(WINDOW)));
    world.pass(29);
    assert_eq!(replayed(&world).await, failed);
    world.pass(1);
    let again = world.open(keyed(&world)).await;
    assert_eq!((again.id, again.state, again.generation()), (failed.id, ClaimState::Waiting, 2));
    assert_eq!((again.opened_at, again.ended_at, &again.code), (world.now(), None, &None));
    assert_eq!(again.deadline, world.now().plus(Duration::from_secs(120)));
    assert_ne!(again.solve, failed.solve);
    assert_eq!(replayed(&world).await, again, "the work is under way");
    world.submit(&again, "t2").await;
    world.settle(again.solve.unwrap(), 1, world.solved("t2")).await;
    let served = replayed(&world).await;
    assert_eq!((served.id, token_of(&served)), (failed.id, Some("token-t2")));
    let history = world.records.history(ClaimFilter::all(Scope::All, 9)).await.unwrap().items;
    assert_eq!(history, [world.find(&failed).await], "it is listed once");
}

pub(super) async fn a_failure_is_replayed_to_the_last_millisecond_of_its_window(world: World) {
    world.fail(keyed(&world), UNSOLVABLE).await;
    let mut soon = keyed(&world);
    soon.reopens_after = Some(Duration::from_millis(1_501));
    world.pass(1);
    for _ in 0..500 {
        world.tick();
    }
    assert!(matches!(world.admit(soon.clone()).await, Admission::Replayed(_)));
    world.tick();
    assert!(matches!(world.admit(soon).await, Admission::Opened(_)));
}

pub(super) async fn a_key_is_opened_again_once_per_failure(world: World) {
    let failed = failed_and_over(&world).await;
    let admissions = all_at_once(20, |_| {
        let world = world.clone();
        async move { world.admit(keyed(&world)).await }
    })
    .await;
    let mut opened = 0;
    for admission in admissions {
        match admission {
            Admission::Opened(claim) => {
                opened += 1;
                assert_eq!((claim.id, claim.generation()), (failed.id, 2));
            }
            Admission::Replayed(claim) => assert_eq!(claim.id, failed.id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(opened, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Reopened { .. })).await, 1);
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap().len(), 1);
}

pub(super) async fn a_lapsed_key_is_opened_again(world: World) {
    let lapsed = world.open(keyed(&world)).await;
    world.pass(120);
    let trouble = Some("ERROR_ZERO_BALANCE".into());
    let sweep = SweepRequest { trouble, ..SweepRequest::plain(9) };
    world.store.sweep(sweep, world.now()).await.unwrap();
    assert_eq!(replayed(&world).await.state, ClaimState::Lapsed);
    world.pass(30);
    let again = world.open(keyed(&world)).await;
    assert_eq!((again.id, again.generation()), (lapsed.id, 2));
    assert!(again.deadline > lapsed.deadline);
    world.submit(&again, "t1").await;
    world.settle(again.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&lapsed).await), Some("token-t1"));
}

pub(super) async fn without_a_window_a_failure_is_replayed_for_a_day(world: World) {
    let failed = world.fail(keyed(&world), UNSOLVABLE).await;
    let lasting = || NewClaim { reopens_after: None, ..keyed(&world) };
    world.pass(86_399);
    let Admission::Replayed(again) = world.admit(lasting()).await else { panic!("not replayed") };
    assert_eq!(again, failed);
    world.pass(1);
    let other = world.open(lasting()).await;
    assert_ne!(other.id, failed.id, "the key is free");
}

pub(super) async fn a_withdrawal_is_replayed(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.withdraw(&claim).await;
    world.pass(3600);
    assert_eq!(replayed(&world).await.state, ClaimState::Withdrawn);
}

pub(super) async fn another_challenge_does_not_open_a_key_again(world: World) {
    let failed = failed_and_over(&world).await;
    let before = world.entries().await;
    let mut other = world.turnstile("b");
    (other.key, other.reopens_after) = (named(&other, "k"), Some(WINDOW));
    assert!(matches!(world.admit(other).await, Admission::Mismatch(id) if id == failed.id));
    assert_eq!(world.entries().await, before);
}

pub(super) async fn a_derived_key_gets_a_claim_of_its_own_at_once(world: World) {
    let mut new = world.turnstile("a");
    (new.key, new.reopens_after) = (derived(&new, 60), Some(WINDOW));
    let failed = world.fail(new.clone(), UNSOLVABLE).await;
    (new.id, new.solve) = (world.turnstile("a").id, world.turnstile("a").solve);
    assert_ne!(world.open(new).await.id, failed.id);
}

// === money ===

/// The claim ended, and its key must replay that end although the window is over.
async fn assert_replayed_for_good(world: &World, claim: &Claim) {
    world.pass(30);
    let again = replayed(world).await;
    assert_eq!((again.id, again.generation()), (claim.id, 1));
    assert_eq!(again.reopens_at(Some(WINDOW)), None, "no answer may promise more");
    assert_eq!(world.count(|event| matches!(event, Event::Reopened { .. })).await, 0);
}

pub(super) async fn a_written_off_attempt_is_never_paid_for_again_by_its_key(world: World) {
    let claim = world.open(keyed(&world)).await;
    let lease = world.lose_reply(&claim).await;
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    assert_replayed_for_good(&world, &claim).await;
}

pub(super) async fn a_claim_that_lapses_without_a_reply_is_not_opened_again(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.lose_reply(&claim).await;
    world.pass(120);
    world.sweep().await;
    assert_replayed_for_good(&world, &claim).await;
}

pub(super) async fn a_failure_after_an_authorised_attempt_is_not_opened_again(world: World) {
    let claim = world.open(keyed(&world)).await;
    let lease = world.lose_reply(&claim).await;
    world.authorise(&lease).await.unwrap();
    let solve = world.intend(&lease).await.unwrap();
    let refused = Fact::NotAccepted { code: "ERROR_PAGEURL".into(), verdict: Verdict::GiveUp };
    world.settle(solve.id, solve.attempt, refused).await;
    assert_replayed_for_good(&world, &claim).await;
}

pub(super) async fn a_forbidden_claim_is_opened_again_and_a_forbidden_ambiguous_one_is_not(
    world: World,
) {
    let guard = || domain::declarations::Guard::new(std::sync::Arc::default());
    let claim = world.open(keyed(&world)).await;
    let lease = world.lease_of(&claim).await;
    world.decide(&lease, Decision::Forbid { guard: guard() }).await.unwrap();
    assert_eq!(replayed(&world).await.code, Some(own::SITE_NOT_DECLARED.into()));
    world.pass(30);
    let again = world.open(keyed(&world)).await;
    let lease = world.lose_reply(&again).await;
    world.decide(&lease, Decision::Forbid { guard: guard() }).await.unwrap();
    world.pass(30);
    let last = replayed(&world).await;
    assert_eq!((last.state, last.generation()), (ClaimState::Failed, 2));
    assert!(last.may_have_paid);
}

pub(super) async fn a_generation_keeps_to_the_budget(world: World) {
    let failed = failed_and_over(&world).await;
    let before = world.entries().await;
    let mut new = keyed(&world);
    new.allowance = Allowance { solves_per_day: Some(0), ..Allowance::default() };
    assert!(matches!(world.admit(new).await, Admission::OverBudget(_)));
    let mut late = keyed(&world);
    late.soonest = late.deadline.plus(WINDOW);
    assert!(matches!(world.admit(late).await, Admission::TooLate));
    assert_eq!((world.entries().await, world.find(&failed).await), (before, failed));
}

// === late answers ===

pub(super) async fn a_task_that_is_still_polled_serves_the_next_generation(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.submit(&claim, "t1").await;
    world.pass(120);
    world.sweep().await;
    world.pass(30);
    let Admission::Joined(again) = world.admit(keyed(&world)).await else {
        panic!("its task is paid for and under way")
    };
    assert_eq!((again.id, again.solve, again.generation()), (claim.id, claim.solve, 2));
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active.len(), active[0].stage), (1, Stage::Submitted));
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&claim).await), Some("token-t1"));
    assert_eq!(world.count(|event| matches!(event, Event::Intent { .. })).await, 1);
}

pub(super) async fn a_task_that_fails_for_two_generations_has_one_dead_letter(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.submit(&claim, "t1").await;
    world.pass(120);
    world.sweep().await;
    world.pass(30);
    assert!(matches!(world.admit(keyed(&world)).await, Admission::Joined(_)));
    world.settle(claim.solve.unwrap(), 1, over(UNSOLVABLE, Verdict::GiveUp)).await;
    let letter = world.dead_letter(&claim).await;
    assert_eq!((letter.generation, letter.claims, letter.closed), (2, vec![claim.id], None));
    world.pass(30);
    let third = world.open(keyed(&world)).await;
    assert_eq!((third.id, third.generation()), (claim.id, 3));
}

pub(super) async fn a_late_token_in_stock_serves_the_next_generation(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.submit(&claim, "t1").await;
    world.pass(120);
    world.sweep().await;
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    world.pass(30);
    let Admission::Stocked(again) = world.admit(keyed(&world)).await else { panic!("not stocked") };
    assert_eq!((again.id, token_of(&again)), (claim.id, Some("token-t1")));
    assert_eq!((again.state, again.generation()), (ClaimState::Served, 2));
    assert_eq!(replayed(&world).await.id, claim.id);
}

pub(super) async fn a_late_answer_of_the_last_generation_serves_the_next_one_once(world: World) {
    let claim = world.open(keyed(&world)).await;
    world.submit(&claim, "t1").await;
    let first = claim.solve.unwrap();
    world.settle(first, 1, over(UNSOLVABLE, Verdict::GiveUp)).await;
    world.pass(30);
    let again = world.open(keyed(&world)).await;
    world.settle(first, 1, world.solved("t1")).await;
    let served = world.find(&again).await;
    assert_eq!((served.state, token_of(&served)), (ClaimState::Served, Some("token-t1")));
    assert!(world.records.active(Scope::All, 9).await.unwrap().is_empty(), "nothing is paid again");
    world.fetch(&served).await;
    let other = world.open(world.turnstile("a")).await;
    assert_eq!(other.state, ClaimState::Waiting, "the token is not in stock as well");
}

// === dead letters ===

pub(super) async fn a_key_that_is_opened_again_closes_its_dead_letter(world: World) {
    let failed = failed_and_over(&world).await;
    let again = world.open(keyed(&world)).await;
    let closed = world.dead_letter(&failed).await.closed.unwrap();
    assert_eq!((closed.how, closed.claim), (Closing::Revived, Some(failed.id)));
    let late = world.bring_back(&failed).await;
    assert!(matches!(late, Revival::Closed(_)), "it would be paid for twice: {late:?}");
    world.fail_solve(&again, "ERROR_PAGEURL").await;
    let letter = world.dead_letter(&again).await;
    assert_eq!((letter.generation, letter.revives), (2, failed.solve));
    let codes: Vec<_> = letter.earlier.iter().map(|failure| failure.code.as_str()).collect();
    assert_eq!(codes, [UNSOLVABLE]);
}

pub(super) async fn a_dead_letter_of_others_stays_open_for_them(world: World) {
    let picture = |key: &str, who: &str| {
        let mut new = world.image(b"picture");
        new.worker = worker(who);
        (new.key, new.reopens_after) = (named(&new, key), Some(WINDOW));
        new
    };
    let first = world.open(picture("k", "ann")).await;
    let Admission::Joined(second) = world.admit(picture("k", "bob")).await else {
        panic!("not joined")
    };
    world.fail_solve(&first, UNSOLVABLE).await;
    world.pass(30);
    let again = world.open(picture("k", "ann")).await;
    assert_eq!(again.id, first.id);
    let letter = world.dead_letter(&first).await;
    assert_eq!((letter.claims, letter.closed), (vec![second.id], None));
    assert!(matches!(world.bring_back(&first).await, Revival::Back(Admission::Joined(_))));
    assert_eq!(world.records.active(Scope::All, 9).await.unwrap().len(), 1, "one is paid for");
}

pub(super) async fn a_revived_claim_that_fails_is_opened_again_by_its_key(world: World) {
    let failed = world.fail(keyed(&world), UNSOLVABLE).await;
    let back = world.reopen(&failed).await;
    world.fail_solve(&back, UNSOLVABLE).await;
    world.pass(30);
    let again = world.open(keyed(&world)).await;
    assert_eq!((again.id, again.generation()), (back.id, 2));
    let leases = world.lease_of(&again).await;
    assert!(leases.solve.origin.is_for(again.id));
    // A repeat with a shorter deadline does not shorten that of the work under way.
    let mut hasty = keyed(&world);
    hasty.deadline = world.now().plus(Duration::from_secs(1));
    let Admission::Replayed(same) = world.admit(hasty).await else { panic!("not replayed") };
    assert_eq!(same.deadline, again.deadline);
}

// === what is told and kept ===

pub(super) async fn every_generation_is_explained(world: World) {
    let failed = failed_and_over(&world).await;
    let again = world.open(keyed(&world)).await;
    world.fail_solve(&again, "ERROR_PAGEURL").await;
    world.pass(30);
    let third = world.open(keyed(&world)).await;
    let story = world.records.explain(failed.id).await.unwrap();
    let generations: Vec<u32> = story
        .iter()
        .filter_map(|entry| match entry.event {
            Event::Reopened { generation } => Some(generation),
            _ => None,
        })
        .collect();
    assert_eq!(generations, [2, 3]);
    for solve in [failed.solve, again.solve] {
        let intents = story.iter().filter(|entry| entry.solve == solve);
        assert!(intents.clone().any(|entry| matches!(entry.event, Event::Intent { .. })));
        assert!(intents.clone().any(|entry| matches!(entry.event, Event::DeadLettered { .. })));
    }
    assert!(story.iter().any(|entry| entry.solve == third.solve));
}

pub(super) async fn the_end_of_each_generation_is_announced(world: World) {
    let request = || NewClaim {
        callback_url: Some(Secret::new("https://hooks.example.com/")),
        ..keyed(&world)
    };
    let failed = world.fail(request(), UNSOLVABLE).await;
    let first = world.store.callbacks(9, world.now()).await.unwrap();
    world.pass(30);
    let again = world.open(request()).await;
    world.submit(&again, "t2").await;
    world.settle(again.solve.unwrap(), 1, world.solved("t2")).await;
    // The receiver was away meanwhile: it gets both ends, in order.
    let retried = world.store.callbacks(9, world.now()).await.unwrap();
    assert_eq!(retried.len(), 1);
    assert_eq!(retried[0].message_id(), first[0].message_id());
    let ended = retried[0].ended.as_deref().unwrap();
    assert_eq!((ended.state, &ended.code), (ClaimState::Failed, &failed.code));
    world.store.called_back(&retried[0], world.now()).await.unwrap();
    let next = world.store.callbacks(9, world.now()).await.unwrap();
    assert_eq!(next.len(), 1);
    assert_eq!((next[0].state, next[0].reopened), (ClaimState::Served, 1));
    assert_ne!(next[0].message_id(), first[0].message_id());
    world.store.called_back(&next[0], world.now()).await.unwrap();
    world.pass_days(1);
    assert!(world.store.callbacks(9, world.now()).await.unwrap().is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::CalledBack { .. })).await, 2);
}

pub(super) async fn an_archive_lists_a_claim_once_as_its_last_generation(world: World) {
    let source = super::archive::other();
    let failed = failed_and_over(&source).await;
    let archive = world.archive.as_ref();
    source.copy_to_archive(archive, 100).await;
    let again = source.open(keyed(&source)).await;
    source.fail_solve(&again, "ERROR_PAGEURL").await;
    source.copy_to_archive(archive, 100).await;
    let history = archive.history(ClaimFilter::all(Scope::All, 9)).await.unwrap().items;
    assert_eq!(history, [source.find(&failed).await]);
    assert_eq!(
        archive.explain(failed.id).await.unwrap(),
        source.records.explain(failed.id).await.unwrap()
    );
}

pub(super) async fn a_claim_that_was_opened_again_outlives_its_first_generation(world: World) {
    let archive = super::archive::other();
    let archive = archive.archive.as_ref();
    let failed = world.fail(keyed(&world), UNSOLVABLE).await;
    world.records.dead_letter(failed.solve.unwrap()).await.unwrap().unwrap();
    world.store.purge(failed.solve.unwrap(), crate::admin(), world.now()).await.unwrap();
    world.pass(86_000);
    let again = world.open(keyed(&world)).await;
    for _ in 0..48 {
        world.copy_to_archive(archive, 1000).await;
        world.sweep_archived(archive).await;
        world.pass(1800);
        if world.now().since(again.opened_at) < Duration::from_secs(80_000) {
            assert_eq!(
                world.store.find_claim(again.id).await.unwrap().map(|c| c.id),
                Some(again.id)
            );
        }
    }
}
