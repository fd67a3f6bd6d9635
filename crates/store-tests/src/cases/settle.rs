//! Facts: accepted from any gateway, once.

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
    let settled = world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    assert!(settled.fresh && settled.ended == [claim.id] && settled.orphan.is_none());
    assert_eq!(settled.solve.stage, Stage::Ready);
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.source), (ClaimState::Served, Some(Source::Upstream)));
    assert_eq!((claim.attempts, claim.polls, claim.cost), (1, 3, Some(PRICE)));
    assert_eq!((token_of(&claim), claim.ended_at), (Some("token-t1"), Some(world.now())));
    assert!(matches!(world.fetch(&claim).await, Delivery::Token(_)));
}

pub(super) async fn facts_settled_twice_change_nothing(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let id = lease.solve.id;
    for fact in [accepted("t1"), world.solved("t1")] {
        assert!(world.settle(id, 1, fact.clone()).await.fresh);
        let entries = world.entries().await;
        world.pass(1);
        let again = world.settle(id, 1, fact).await;
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
        assert!(!world.settle(id, 1, fact).await.fresh);
    }
    assert_eq!(world.entries().await, entries);
}

pub(super) async fn a_refused_attempt_is_queued_again(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let due = world.now().plus(Duration::from_secs(3));
    let again = Verdict::Again { due, counted: true };
    let settled = world.settle(lease.solve.id, 1, refused("ERROR_NO_SLOT_AVAILABLE", again)).await;
    assert_eq!(
        (settled.solve.stage, settled.solve.due, settled.ended.len()),
        (Stage::Queued, due, 0)
    );
    world.pass(3);
    assert_eq!(world.intend(&lease).await.unwrap().attempt, 2);
    assert_eq!(world.find(&claim).await.state, ClaimState::Waiting);
}

pub(super) async fn a_refusal_for_good_leaves_a_dead_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    world.intend(&lease).await.unwrap();
    let settled = world.settle(lease.solve.id, 1, refused("ERROR_BAD", Verdict::GiveUp)).await;
    assert_eq!((settled.solve.stage, settled.ended), (Stage::Failed, vec![claim.id]));
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, Some(Money::ZERO)));
    let dead_letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!((dead_letter.code.as_str(), dead_letter.attempts), ("ERROR_BAD", 1));
    assert_eq!((dead_letter.sitekey.as_deref(), dead_letter.closed), (Some("a"), None));
}

pub(super) async fn a_task_that_ends_is_tried_again_and_costs_add_up(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    let again = Verdict::Again { due: world.now(), counted: true };
    let settled = world.settle(lease.solve.id, 1, over("ERROR_CAPTCHA_UNSOLVABLE", again)).await;
    assert_eq!((settled.solve.stage, settled.solve.failures.len()), (Stage::Queued, 1));
    world.submit(&claim, "t2").await;
    world.settle(lease.solve.id, 2, world.solved("t2")).await;
    let claim = world.find(&claim).await;
    assert_eq!((claim.attempts, claim.cost), (2, Some(PRICE + PRICE)));
}

pub(super) async fn an_unknown_cost_stays_unknown(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    let Fact::Solved(mut solved) = world.solved("t1") else { unreachable!() };
    solved.cost = None;
    world.settle(claim.solve.unwrap(), 1, Fact::Solved(solved)).await;
    assert_eq!(world.find(&claim).await.cost, None);
    let ask = domain::ports::TotalsFilter {
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
    let settled = world.settle(lease.solve.id, 1, accepted("t1")).await;
    let orphan = settled.orphan.unwrap();
    assert!(settled.fresh && orphan == lease.solve.id.orphan(1));
    let again = world.settle(lease.solve.id, 1, accepted("t1")).await;
    assert!(!again.fresh && again.orphan.is_none());
    // An attempt has one task: a second task id does not replace the first.
    let other = world.settle(lease.solve.id, 1, accepted("t9")).await;
    assert!(!other.fresh && other.orphan.is_none());
    let holder = world.holder(7).await;
    let harvest = world.lease(holder).await.remove(0);
    assert_eq!((harvest.solve.id, harvest.solve.stage), (orphan, Stage::Overdue));
    assert_eq!(harvest.solve.origin, Origin::Orphan(lease.solve.id));
    assert_eq!((harvest.solve.task, harvest.challenge), (Some(task("t1")), lease.challenge));
    world.settle(lease.solve.id, 2, world.solved("t2")).await;
    let settled = world.settle(orphan, harvest.solve.attempt, world.solved("t1")).await;
    assert!(settled.fresh && settled.ended.is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::Banked { .. })).await, 1);
}

pub(super) async fn an_orphans_answer_serves_the_claim_that_still_waits(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.authorise(&lease).await.unwrap();
    let orphan = world.settle(lease.solve.id, 1, accepted("t1")).await.orphan.unwrap();
    let settled = world.settle(orphan, 1, world.solved("t1")).await;
    assert_eq!(settled.ended, [claim.id]);
    // The second attempt was not sent yet and is no longer needed.
    assert_eq!(world.intend(&lease).await, Err(domain::solve::Refused::Moved));
    let served = world.find(&claim).await;
    assert_eq!((served.source, token_of(&served)), (Some(Source::Join), Some("token-t1")));
}

pub(super) async fn a_late_task_id_resolves_an_ambiguous_attempt(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    let settled = world.settle(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!((settled.solve.stage, settled.orphan), (Stage::Submitted, None));
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
}

pub(super) async fn two_solves_never_share_a_task(world: World) {
    let first = world.open(world.turnstile("a")).await;
    let second = world.open(world.turnstile("a")).await;
    world.submit(&first, "t1").await;
    let lease = world.lease_of(&second).await;
    world.intend(&lease).await.unwrap();
    let settled = world.settle(lease.solve.id, 1, accepted("t1")).await;
    assert_eq!((settled.solve.stage, settled.ended), (Stage::Failed, vec![second.id]));
    let second = world.find(&second).await;
    assert_eq!((second.code.unwrap().as_str(), second.cost), (own::DUPLICATE_TASK, None));
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().is_some());
    assert_eq!(world.find(&first).await.state, ClaimState::Waiting);
}

pub(super) async fn a_late_answer_closes_the_dead_letter(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    world.settle(lease.solve.id, 1, over(own::NEVER_READY, Verdict::GiveUp)).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Failed);
    let settled = world.settle(lease.solve.id, 1, world.solved("t1")).await;
    assert!(settled.fresh && settled.ended.is_empty());
    let dead_letter = world.records.dead_letter(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(dead_letter.closed.unwrap().how, Closing::LateAnswer);
    assert_eq!(world.find(&claim).await.state, ClaimState::Failed);
    assert_eq!(world.count(|event| matches!(event, Event::DeadLetterClosed)).await, 1);
    assert_eq!(world.count(|event| matches!(event, Event::Banked { .. })).await, 1);
}

pub(super) async fn a_fact_about_an_attempt_never_made_changes_nothing(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let id = claim.solve.unwrap();
    let entries = world.entries().await;
    for (attempt, fact) in [(0, accepted("t1")), (1, accepted("t1")), (7, world.solved("t1"))] {
        let settled = world.settle(id, attempt, fact).await;
        assert!(!settled.fresh && settled.orphan.is_none());
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
    let settled = world.settle(lease.solve.id, 1, world.solved_at("t1", solved_then)).await;
    assert_eq!((settled.solve.stage, settled.ended), (Stage::Ready, vec![claim.id]));
    let claim = world.find(&claim).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Failed, Some(PRICE)));
    assert!(claim.token.is_none());
    assert_eq!(world.count(|event| matches!(event, Event::Wasted { .. })).await, 1);
    assert!(world.records.dead_letter(lease.solve.id).await.unwrap().is_some());
    let refused = world.decide(&lease, Decision::WriteOff).await;
    assert_eq!(refused, Err(domain::solve::Refused::Moved));
}

/// The attempt number alone would also match the next intent, whose task may be paid.
pub(super) async fn an_intent_is_disowned_by_its_own_nonce_only(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lease_of(&claim).await;
    let solve = world.intend(&lease).await.unwrap();
    let own = solve.nonce.unwrap();
    let another = Nonce::from_number(own.number() + 1);
    let settled = world.settle(solve.id, 1, Fact::Withheld { nonce: another }).await;
    assert_eq!((settled.fresh, settled.solve.stage), (false, Stage::Intent));
    let settled = world.settle(solve.id, 1, Fact::Withheld { nonce: own }).await;
    assert_eq!((settled.fresh, settled.solve.stage), (true, Stage::Queued));
    assert!(settled.solve.failures.is_empty(), "nothing was sent, so nothing failed");
}
