//! Dead letters: revived, purged and filtered; and solves that become one before their deadline.

use std::time::Duration;

use domain::{
    claim::{Admission, Allowance, Claim, ClaimState},
    dead_letter::{Closing, DeadLetterClass},
    id::Project,
    ledger::Event,
    ports::{DeadLetterFilter, Revival, Scope, SweepRequest},
    retry::{Verdict, own},
    site::PageUrl,
    solve::{Decision, Refused, Stage},
};

use super::concurrency::all_at_once;
use crate::world::{World, admin, derived, named, over, token_of, worker};

const UNSOLVABLE: &str = "ERROR_CAPTCHA_UNSOLVABLE";

pub(super) async fn a_revived_dead_letter_keeps_its_key(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "order-17");
    let failed = world.fail(new.clone(), "ERROR_PAGEURL").await;
    let back = world.reopen(&failed).await;
    assert_eq!((back.state, back.revives), (ClaimState::Waiting, failed.solve));
    assert_eq!(back.basis.as_ref(), "own shop, second try");
    // The key now belongs to the revived claim; the first claim does not change.
    let fresh = world.turnstile("a");
    (new.id, new.solve) = (fresh.id, fresh.solve);
    let Admission::Replayed(again) = world.admit(new).await else { panic!("not replayed") };
    assert_eq!(again.id, back.id);
    assert_eq!(world.find(&failed).await.state, ClaimState::Failed);
    world.submit(&again, "t1").await;
    world.settle(again.solve.unwrap(), 1, world.solved("t1")).await;
    let served = world.find(&back).await;
    assert_eq!(token_of(&served), Some("token-t1"));
    assert_eq!(served.cost, Some(crate::PRICE), "the revived claim bears the cost");
    let closed = world.dead_letter(&failed).await.closed.unwrap();
    assert_eq!((closed.how, closed.claim), (Closing::Revived, Some(back.id)));
}

pub(super) async fn ten_equal_dead_letters_make_one_attempt(world: World) {
    let mut failed = Vec::new();
    for n in 0..10 {
        let mut new = world.turnstile("a");
        if n % 2 == 0 {
            new.key = derived(&new, 60);
        }
        failed.push(world.fail(new, UNSOLVABLE).await);
    }
    let first = world.reopen(&failed[0]).await;
    for claim in &failed[1..] {
        let Revival::Back(Admission::Replayed(found)) = world.bring_back(claim).await else {
            panic!("a second attempt for an equal dead letter")
        };
        assert_eq!(found.id, first.id);
        assert_eq!(world.dead_letter(claim).await.closed.unwrap().claim, Some(first.id));
    }
    assert_eq!(world.records.active(Scope::All, 99).await.unwrap().len(), 1);
}

pub(super) async fn a_dead_letter_is_revived_once_however_many_revive_it(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let revivals = all_at_once(20, |_| {
        let (world, failed) = (world.clone(), failed.clone());
        async move { world.bring_back(&failed).await }
    })
    .await;
    let mut opened = 0;
    for revival in revivals {
        match revival {
            Revival::Back(Admission::Opened(_)) => opened += 1,
            Revival::Closed(closed) => assert_eq!(closed.how, Closing::Revived),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(opened, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Revived { .. })).await, 1);
}

pub(super) async fn dead_letters_of_different_keys_are_revived_separately(world: World) {
    for key in ["one", "two"] {
        let mut new = world.turnstile("a");
        new.key = named(&new, key);
        let failed = world.fail(new, UNSOLVABLE).await;
        world.reopen(&failed).await;
    }
}

pub(super) async fn a_paid_task_is_waited_for_rather_than_paid_again(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "order-17");
    let lapsed = world.open(new).await;
    world.submit(&lapsed, "t1").await;
    world.pass(120);
    world.sweep().await;
    let Revival::Back(Admission::Joined(back)) = world.bring_back(&lapsed).await else {
        panic!("its task is still out")
    };
    assert_eq!(back.solve, lapsed.solve);
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active.len(), active[0].stage), (1, Stage::Submitted));
    world.settle(lapsed.solve.unwrap(), 1, world.solved("t1")).await;
    assert_eq!(token_of(&world.find(&back).await), Some("token-t1"));
}

pub(super) async fn a_revived_dead_letter_is_served_from_stock(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "order-17");
    let failed =
        [world.fail(world.turnstile("a"), UNSOLVABLE).await, world.fail(new, UNSOLVABLE).await];
    world.stock(world.turnstile("a"), "t1").await;
    let mut tokens = Vec::new();
    for claim in &failed {
        let Revival::Back(Admission::Stocked(back)) = world.bring_back(claim).await else {
            panic!("there was a token")
        };
        tokens.push(token_of(&world.find(&back).await).map(str::to_owned));
    }
    assert_eq!(tokens, [None, Some("token-t1".into())], "no worker would fetch the first");
}

pub(super) async fn a_revived_dead_letter_that_fails_again_keeps_its_history(world: World) {
    let first = world.fail(world.turnstile("a"), "ERROR_ONE").await;
    let second = world.reopen(&first).await;
    world.fail_solve(&second, "ERROR_TWO").await;
    let third = world.reopen(&second).await;
    world.fail_solve(&third, "ERROR_THREE").await;
    let dead_letter = world.dead_letter(&third).await;
    let codes = |failures: &[domain::attempt::Failure]| {
        failures.iter().map(|failure| failure.code.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((dead_letter.generation, dead_letter.revives), (3, second.solve));
    assert_eq!(codes(&dead_letter.earlier), ["ERROR_ONE", "ERROR_TWO"]);
    assert_eq!(codes(&dead_letter.causes), ["ERROR_THREE"]);
    assert!(dead_letter.closed.is_none());
}

pub(super) async fn an_awaited_task_that_fails_reopens_its_dead_letter(world: World) {
    let lapsed = world.open(world.turnstile("a")).await;
    world.submit(&lapsed, "t1").await;
    world.pass(120);
    world.sweep().await;
    let Revival::Back(Admission::Joined(back)) = world.bring_back(&lapsed).await else {
        panic!("its task is still out")
    };
    world.pass(30);
    world.settle(lapsed.solve.unwrap(), 1, over(UNSOLVABLE, Verdict::GiveUp)).await;
    let dead_letter = world.dead_letter(&lapsed).await;
    assert_eq!(
        (dead_letter.generation, dead_letter.claims.as_slice(), dead_letter.closed),
        (2, &[back.id][..], None)
    );
    assert_eq!(
        (dead_letter.code.as_str(), dead_letter.died_at),
        (UNSOLVABLE, world.now()),
        "it failed again"
    );
    let since =
        DeadLetterFilter { since: Some(world.now()), ..DeadLetterFilter::open(Scope::All, 9) };
    assert_eq!(
        world.records.dead_letters(since).await.unwrap().items.len(),
        1,
        "and is listed at that time"
    );
    assert_eq!(world.count(|event| matches!(event, Event::DeadLettered { .. })).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLetterReopened { .. })).await, 1);
}

pub(super) async fn all_claims_of_a_shared_dead_letter_are_revived(world: World) {
    let first = world.open(world.image(b"picture")).await;
    let mut other = world.image(b"picture");
    other.worker = worker("bob");
    let Admission::Joined(second) = world.admit(other).await else { panic!("not joined") };
    world.fail_solve(&first, UNSOLVABLE).await;
    let back = world.reopen(&first).await;
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active.len(), active[0].claims.len()), (1, 2));
    assert_eq!(world.find(&second).await.state, ClaimState::Failed);
    assert!(active[0].claims.contains(&back.id));
}

pub(super) async fn a_revival_keeps_to_the_budget(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let mut ask = world.revive(&failed);
    let used_up = Allowance { solves_per_day: Some(0), ..Allowance::default() };
    ask.allowances.insert(worker("ann"), used_up);
    let before = world.entries().await.len();
    let refused = world.store.revive(ask, world.now()).await.unwrap();
    assert!(matches!(refused, Revival::Back(Admission::OverBudget(_))), "{refused:?}");
    assert_eq!(world.entries().await.len(), before);
    assert!(world.dead_letter(&failed).await.closed.is_none(), "it can be revived tomorrow");
}

/// The dead letter of an image that two workers wanted.
async fn dead_letter_of_two(world: &World) -> Claim {
    let first = world.open(world.image(b"picture")).await;
    let mut other = world.image(b"picture");
    other.worker = worker("bob");
    world.admit(other).await;
    world.fail_solve(&first, UNSOLVABLE).await;
    first
}

pub(super) async fn a_dead_letter_is_revived_for_the_workers_that_may_open_a_solve(world: World) {
    let failed = dead_letter_of_two(&world).await;
    let mut ask = world.revive(&failed);
    let used_up = Allowance { solves_per_day: Some(0), ..Allowance::default() };
    ask.allowances.insert(worker("ann"), used_up);
    let Revival::Back(Admission::Opened(back)) =
        world.store.revive(ask, world.now()).await.unwrap()
    else {
        panic!("bob may")
    };
    assert_eq!(back.worker, worker("bob"));
    assert_eq!(world.dead_letter(&failed).await.closed.unwrap().claim, Some(back.id));
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active.len(), active[0].claims.len()), (1, 2), "ann's waits for it, at no cost");
}

pub(super) async fn claims_of_workers_that_are_gone_stay_dead(world: World) {
    let failed = dead_letter_of_two(&world).await;
    let before = world.entries().await.len();
    let mut ask = world.revive(&failed);
    ask.allowances.clear();
    let revival = world.store.revive(ask.clone(), world.now()).await.unwrap();
    assert!(matches!(revival, Revival::Disowned), "{revival:?}");
    assert_eq!(world.entries().await.len(), before);
    assert!(world.dead_letter(&failed).await.closed.is_none());
    ask.allowances.insert(worker("bob"), Allowance::default());
    let revival = world.store.revive(ask, world.now()).await.unwrap();
    let Revival::Back(Admission::Opened(back)) = revival else { panic!("{revival:?}") };
    let active = world.records.active(Scope::All, 9).await.unwrap();
    assert_eq!((active[0].claims.as_slice(), back.worker), (&[back.id][..], worker("bob")));
}

pub(super) async fn a_revival_that_meets_account_trouble_reopens_its_dead_letter(world: World) {
    let trouble = || Some("ERROR_ZERO_BALANCE".into());
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let dead_letter = world.dead_letter(&failed).await;
    for is_swept in [false, true] {
        world.pass(1);
        let back = world.reopen(&failed).await;
        if is_swept {
            world.pass(120);
            let ask = SweepRequest { trouble: trouble(), ..SweepRequest::plain(9) };
            world.store.sweep(ask, world.now()).await.unwrap();
        } else {
            let lease = world.lease_of(&back).await;
            let soonest = back.deadline.plus(Duration::from_secs(1));
            world.decide(&lease, Decision::Lapse { soonest, trouble: trouble() }).await.unwrap();
        }
        assert_eq!(world.find(&back).await.state, ClaimState::Lapsed);
        assert_eq!(world.dead_letter(&failed).await, dead_letter, "as it was");
        assert!(world.records.dead_letter(back.solve.unwrap()).await.unwrap().is_none());
    }
    let reopened = world.count(|event| matches!(event, Event::DeadLetterReopened { .. })).await;
    assert_eq!(reopened, 2);
}

pub(super) async fn a_key_reused_since_is_not_taken_back(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "nightly");
    let failed = world.fail(new.clone(), UNSOLVABLE).await;
    world.pass_days(2);
    let mut other = world.turnstile("b");
    other.key = new.key;
    let newer = world.open(other.clone()).await;
    let back = world.reopen(&failed).await;
    assert_ne!(back.id, newer.id);
    let fresh = world.turnstile("b");
    (other.id, other.solve) = (fresh.id, fresh.solve);
    let Admission::Replayed(still) = world.admit(other).await else { panic!("not replayed") };
    assert_eq!(still.id, newer.id);
}

pub(super) async fn a_purged_dead_letter_is_gone_and_recorded(world: World) {
    let failed = world.fail(world.turnstile("a"), UNSOLVABLE).await;
    let dead_letter = failed.solve.unwrap();
    assert!(world.store.purge(dead_letter, admin(), world.now()).await.unwrap());
    assert!(!world.store.purge(dead_letter, admin(), world.now()).await.unwrap());
    assert!(world.records.dead_letter(dead_letter).await.unwrap().is_none());
    let all = DeadLetterFilter::open(Scope::All, 9);
    assert!(world.records.dead_letters(all).await.unwrap().items.is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::Purged { .. })).await, 1);
    assert!(matches!(world.bring_back(&failed).await, Revival::Unknown));
}

pub(super) async fn dead_letters_are_filtered(world: World) {
    let old = world.fail(world.turnstile("a"), "ERROR_ONE").await;
    world.pass(3600);
    let mut elsewhere = world.turnstile("b");
    elsewhere.project = Project::new("other").unwrap();
    let page = PageUrl::parse("https://blog.example.com/").unwrap();
    let draft = domain::challenge::ChallengeParts {
        sitekey: Some("b".into()),
        pageurl: Some(page),
        ..domain::challenge::ChallengeParts::default()
    };
    let kind = domain::challenge::Kind::Turnstile;
    elsewhere.challenge = domain::challenge::Challenge::new(kind, draft).unwrap().into();
    let new = world.fail(elsewhere, "ERROR_TWO").await;
    let hour_ago = world.now().minus(Duration::from_secs(3600));
    let open = || DeadLetterFilter::open(Scope::All, 9);
    let filters = [
        (DeadLetterFilter { host: Some("shop.example.com".into()), ..open() }, &old),
        (DeadLetterFilter { host: Some("blog.example.com".into()), ..open() }, &new),
        (DeadLetterFilter { project: Some(Project::new("other").unwrap()), ..open() }, &new),
        (DeadLetterFilter { until: Some(hour_ago), ..open() }, &old),
        (DeadLetterFilter { since: Some(hour_ago.plus(Duration::from_secs(1))), ..open() }, &new),
        (DeadLetterFilter { code: Some("ERROR_ONE".into()), ..open() }, &old),
    ];
    for (filter, wanted) in filters {
        let found = world.records.dead_letters(filter.clone()).await.unwrap().items;
        let ids: Vec<_> = found.iter().map(|dead_letter| dead_letter.id).collect();
        assert_eq!(ids, [wanted.solve.unwrap()], "{filter:?}");
    }
}

pub(super) async fn a_queued_solve_that_is_too_late_is_dropped(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let soonest = claim.deadline.plus(Duration::from_secs(1));
    let solve = world.decide(&lease, Decision::Lapse { soonest, trouble: None }).await.unwrap();
    assert_eq!(solve.stage, Stage::Failed);
    let lapsed = world.find(&claim).await;
    assert_eq!((lapsed.state, lapsed.code.unwrap().as_str()), (ClaimState::Lapsed, own::DEADLINE));
    assert_eq!(world.dead_letter(&claim).await.claims, [claim.id]);
}

pub(super) async fn a_solve_with_a_later_deadline_is_kept(world: World) {
    let claim = world.open(world.image(b"picture")).await;
    let lease = world.lease_of(&claim).await;
    let mut patient = world.image(b"picture");
    patient.deadline = world.now().plus(Duration::from_secs(600));
    world.admit(patient).await;
    let soonest = claim.deadline.plus(Duration::from_secs(1));
    let refused = world.decide(&lease, Decision::Lapse { soonest, trouble: None }).await;
    assert_eq!(refused.unwrap_err(), Refused::Wanted);
    assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
}

pub(super) async fn account_trouble_drops_a_solve_that_can_be_revived(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let soonest = claim.deadline.plus(Duration::from_secs(1));
    let trouble = Some("ERROR_ZERO_BALANCE".into());
    world.decide(&lease, Decision::Lapse { soonest, trouble }).await.unwrap();
    let lapsed = world.find(&claim).await;
    assert_eq!(lapsed.code.unwrap().as_str(), "ERROR_ZERO_BALANCE");
    let letter = world.dead_letter(&claim).await;
    assert_eq!(
        (letter.class, letter.code.as_str()),
        (DeadLetterClass::Lapsed, "ERROR_ZERO_BALANCE")
    );
    world.reopen(&claim).await;
}

pub(super) async fn a_claim_that_no_solve_can_serve_in_time_is_refused(world: World) {
    let mut hopeless = world.turnstile("a");
    hopeless.soonest = hopeless.deadline.plus(Duration::from_secs(1));
    assert!(matches!(world.admit(hopeless.clone()).await, Admission::TooLate));
    assert!(world.entries().await.is_empty());
    // A token in stock is served at once.
    world.stock(world.turnstile("a"), "t1").await;
    assert!(matches!(world.admit(hopeless).await, Admission::Stocked(_)));
}
