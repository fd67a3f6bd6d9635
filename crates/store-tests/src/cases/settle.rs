//! Facts: taken from whoever holds them, once.

use std::time::Duration;

use domain::{
    claim::{ClaimState, Delivery, Source},
    dead_letter::Closing,
    id::Nonce,
    ledger::Event,
    money::Money,
    retry::{Verdict, own},
    solve::{Decision, Fact, Origin, Stage},
};

use crate::{PRICE, World, accepted, over, refused, task, token_of};

pub(super) async fn an_answer_serves_the_claim_it_was_solved_for(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    world.pass(17);
    let told = world.tell(claim.solve.unwrap(), 1, world.solved("t1")).await;
    assert!(told.fresh && told.ended == [claim.id] && told.orphan.is_none());
    assert_eq!(told.solve.stage, Stage::Ready);
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.source), (ClaimState::Served, Some(Source::Upstream)));
    assert_eq!((claim.attempts, claim.polls, claim.cost), (1, 3, Some(PRICE)));
    assert_eq!((token_of(&claim), claim.ended_at), (Some("token-t1"), Some(world.now())));
    assert!(matches!(world.fetch(&claim).await, Delivery::Token(_)));
}

pub(super) async fn facts_told_twice_change_nothing(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let id = lease.solve.id;
    for fact in [accepted("t1"), world.solved("t1")] {
        assert!(world.tell(id, 1, fact.clone()).await.fresh);
        let entries = world.entries().await;
        world.pass(1);
        let again = world.tell(id, 1, fact).await;
        assert!(!again.fresh && again.ended.is_empty() && again.orphan.is_none());
        assert_eq!(world.entries().await, entries);
    }
    let late = [
        refused("X", Verdict::GiveUp),
        over("X", Verdict::GiveUp),
        Fact::ReplyLost { why: "X".into(), due: world.now() },
    ];
    let entries = world.entries().await;
    for fact in late {
        assert!(!world.tell(id, 1, fact).await.fresh);
    }
    assert_eq!(world.entries().await, entries);
}

pub(super) async fn a_refused_attempt_is_queued_again(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let due = world.now().plus(Duration::from_secs(3));
    let again = Verdict::Again { due, counted: true };
    let told = world.tell(lease.solve.id, 1, refused("ERROR_NO_SLOT_AVAILABLE", again)).await;
    assert_eq!((told.solve.stage, told.solve.due, told.ended.len()), (Stage::Queued, due, 0));
    world.pass(3);
    assert_eq!(world.intend(&lease).await.unwrap().attempt, 2);
    assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
}

pub(super) async fn a_refusal_for_good_leaves_a_dead_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let told = world.tell(lease.solve.id, 1, refused("ERROR_BAD", Verdict::GiveUp)).await;
    assert_eq!((told.solve.stage, told.ended), (Stage::Failed, vec![claim.id]));
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, Some(Money::ZERO)));
    let letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!((letter.code.as_str(), letter.attempts), ("ERROR_BAD", 1));
    assert_eq!((letter.sitekey.as_deref(), letter.closed), (Some("a"), None));
}

pub(super) async fn a_task_that_ends_is_tried_again_and_costs_add_up(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    let again = Verdict::Again { due: world.now(), counted: true };
    let told = world.tell(lease.solve.id, 1, over("ERROR_CAPTCHA_UNSOLVABLE", again)).await;
    assert_eq!((told.solve.stage, told.solve.failures.len()), (Stage::Queued, 1));
    world.submit(&claim, "t2").await;
    world.tell(lease.solve.id, 2, world.solved("t2")).await;
    let claim = world.find(&claim).await;
    assert_eq!((claim.attempts, claim.cost), (2, Some(PRICE + PRICE)));
}

pub(super) async fn an_unknown_cost_stays_unknown(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    let Fact::Solved(mut solved) = world.solved("t1") else { unreachable!() };
    solved.cost = None;
    world.tell(claim.solve.unwrap(), 1, Fact::Solved(solved)).await;
    assert_eq!(world.find(&claim).await.cost, None);
    let ask = domain::ports::TotalsAsk {
        scope: domain::ports::Scope::All,
        from: world.now().day(),
        to: world.now().day(),
    };
    let counts = world.records.totals(ask).await.unwrap()[0].counts;
    assert_eq!((counts.cost, counts.cost_unknown), (Money::ZERO, 1));
}

pub(super) async fn a_late_task_id_after_authorise_is_harvested_apart(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.authorise(&lease).await.unwrap();
    world.submit(&claim, "t2").await;
    let told = world.tell(lease.solve.id, 1, accepted("t1")).await;
    let orphan = told.orphan.unwrap();
    assert!(told.fresh && orphan == lease.solve.id.orphan(1));
    let again = world.tell(lease.solve.id, 1, accepted("t1")).await;
    assert!(!again.fresh && again.orphan.is_none());
    // One attempt has one task: another name for it does not take the first one's place.
    let other = world.tell(lease.solve.id, 1, accepted("t9")).await;
    assert!(!other.fresh && other.orphan.is_none());
    let holder = world.holder(7).await;
    let harvest = world.lease(holder).await.remove(0);
    assert_eq!((harvest.solve.id, harvest.solve.stage), (orphan, Stage::Overdue));
    assert_eq!(harvest.solve.origin, Origin::Orphan(lease.solve.id));
    assert_eq!((harvest.solve.task, harvest.challenge), (Some(task("t1")), lease.challenge));
    world.tell(lease.solve.id, 2, world.solved("t2")).await;
    let told = world.tell(orphan, harvest.solve.attempt, world.solved("t1")).await;
    assert!(told.fresh && told.ended.is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::Banked { .. })).await, 1);
}

pub(super) async fn an_orphans_answer_serves_who_still_waits(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.authorise(&lease).await.unwrap();
    let orphan = world.tell(lease.solve.id, 1, accepted("t1")).await.orphan.unwrap();
    let told = world.tell(orphan, 1, world.solved("t1")).await;
    assert_eq!(told.ended, [claim.id]);
    // The second attempt was not sent yet: it is not needed any more.
    assert_eq!(world.intend(&lease).await, Err(domain::solve::Refused::Moved));
    let served = world.find(&claim).await;
    assert_eq!((served.source, token_of(&served)), (Some(Source::Join), Some("token-t1")));
}

pub(super) async fn a_late_task_id_resolves_an_ambiguous_attempt(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    let told = world.tell(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!((told.solve.stage, told.orphan), (Stage::Submitted, None));
    world.tell(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
}

pub(super) async fn two_solves_never_share_a_task(world: World) {
    let first = world.open(world.turnstile("a")).await;
    let second = world.open(world.turnstile("a")).await;
    world.submit(&first, "t1").await;
    let lease = world.lease_of(&second).await;
    world.intend(&lease).await.unwrap();
    let told = world.tell(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!((told.solve.stage, told.ended), (Stage::Failed, vec![second.id]));
    let second = world.find(&second).await;
    assert_eq!((second.code.unwrap().as_str(), second.cost), (own::DUPLICATE_TASK, None));
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().is_some());
    assert_eq!(world.find(&first).await.state, ClaimState::Waiting);
}

pub(super) async fn a_late_answer_closes_the_dead_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    world.tell(lease.solve.id, 1, over(own::NEVER_READY, Verdict::GiveUp)).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Failed);
    let told = world.tell(lease.solve.id, 1, world.solved("t1")).await;
    assert!(told.fresh && told.ended.is_empty());
    let letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(letter.closed.unwrap().how, Closing::LateAnswer);
    assert_eq!(world.find(&claim).await.state, ClaimState::Failed);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLetterClosed)).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Banked { .. })).await, 1);
}

pub(super) async fn a_fact_about_an_attempt_never_made_changes_nothing(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let id = claim.solve.unwrap();
    let entries = world.entries().await;
    for (attempt, fact) in [(0, accepted("t1")), (1, accepted("t1")), (7, world.solved("t1"))] {
        let told = world.tell(id, attempt, fact).await;
        assert!(!told.fresh && told.orphan.is_none());
    }
    assert_eq!(world.entries().await, entries);
}

pub(super) async fn an_answer_that_died_on_the_way_fails_the_claim(world: World) {
    let mut new = world.turnstile("a");
    new.deadline = world.now().plus(Duration::from_secs(600));
    let claim = world.open(new).await;
    let lease = world.submit(&claim, "t1").await;
    let solved_then = world.now();
    world.pass(300);
    let told = world.tell(lease.solve.id, 1, world.solved_at("t1", solved_then)).await;
    assert_eq!((told.solve.stage, told.ended), (Stage::Ready, vec![claim.id]));
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, Some(PRICE)));
    assert!(claim.token.is_none());
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().is_some());
    let refused = world.decide(&lease, Decision::WriteOff).await;
    assert_eq!(refused, Err(domain::solve::Refused::Moved));
}

/// The number alone would also fit the next intent, whose task may be paid.
pub(super) async fn an_intent_is_disowned_by_its_own_nonce_only(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let solve = world.intend(&lease).await.unwrap();
    let own = solve.nonce.unwrap();
    let another = Nonce::from_number(own.number() + 1);
    let told = world.tell(solve.id, 1, Fact::Withheld { nonce: another }).await;
    assert_eq!((told.fresh, told.solve.stage), (false, Stage::Intent));
    let told = world.tell(solve.id, 1, Fact::Withheld { nonce: own }).await;
    assert_eq!((told.fresh, told.solve.stage), (true, Stage::Queued));
    assert!(told.solve.failures.is_empty(), "nothing was sent, so nothing failed");
}
