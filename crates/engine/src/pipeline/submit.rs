//! Submission: intent, submission, lost reply. Money first: the intent is durable before the first byte leaves. The first one
//! may be written with the claim already (start.rs). Before: scheduler/driver.rs. After: poll.rs.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Challenge,
    id::{AttemptName, Nonce},
    ports::{Advanced, Submission},
    retry::{Class, Code, Effect, RetryMoment, Verdict, own},
    solve::{AMBIGUOUS_WAIT, AmbiguousPolicy, Decision, Fact, Origin, Refused, Solve, Stage},
    time::Timestamp,
};

use crate::{
    Shared, Slots,
    scheduler::{
        active::{ActiveSolve, NextStep},
        circuit_breaker::Contact,
        estimate,
        paused::PAUSE_CHECK,
        starts::StartedSolve,
    },
};

use super::{
    poll,
    settle::{self, settle},
};

/// How a fenced decision ended.
enum Advance {
    Done,
    Refused(Refused),
    StoreFailed,
}

/// The pause after "slow down" when the provider does not name one.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// `Queued → Intent`, the submission, and the fact that came of it.
pub(crate) async fn submit(shared: Arc<Shared>, mut active: Box<ActiveSolve>) -> NextStep {
    let solve = &active.lease.solve;
    let breakers = &shared.scheduler.breakers;
    let is_refill = solve.origin == Origin::Refill && solve.claims.is_empty();
    if is_refill && solve.wanted_until < shared.now() {
        // The demand it was ordered for may be gone.
        breakers.hand_back(shared.now());
        return lapse(shared, active).await;
    }
    let Some(challenge) = full_challenge(&shared, &active).await else {
        breakers.hand_back(shared.now());
        return NextStep::Resync;
    };
    let nonce = Nonce::draw(&*shared.ports.chance);
    let waiting = active.lease.solve.claims.clone();
    let next = match advance(
        &shared,
        &mut active,
        Decision::Intend { nonce, guard: shared.guard() },
    )
    .await
    {
        // A budget has no room for another attempt.
        Advance::Done if active.lease.solve.stage.is_final() => {
            tracing::warn!(solve = %active.lease.solve.id, "budget used up, no further attempt");
            settle::notify_ended(&shared, waiting);
            NextStep::Released
        }
        Advance::Done => {
            let fact = send(&shared, &active, &challenge, nonce).await;
            return settle_submission(&shared, active, fact).await;
        }
        // If nobody else has it, because our own lease ran out, the resync takes it up again.
        Advance::Refused(Refused::LeaseLost) => NextStep::Resync,
        Advance::Refused(Refused::Undeclared) => {
            breakers.hand_back(shared.now());
            return forbid(shared, active).await;
        }
        Advance::Refused(Refused::Paused) => {
            breakers.hand_back(shared.now());
            return wait_for_resume(&shared, active);
        }
        Advance::Refused(Refused::Moved | Refused::Wanted | Refused::Budget) => NextStep::Released,
        Advance::StoreFailed => {
            // The store's reply to the intent was lost, and nothing has left: say so under the intent's nonce.
            let (solve, fact) = (&active.lease.solve, Fact::Withheld { nonce });
            settle::record(&shared, solve.id, solve.attempt + 1, fact).await;
            NextStep::Resync
        }
    };
    // Nothing was sent. If it would have been the probe, the next submission is.
    breakers.hand_back(shared.now());
    next
}

/// The submission of a solve whose first intent the admission of its claim has written.
pub(crate) async fn send_started(shared: Arc<Shared>, started: StartedSolve) -> NextStep {
    let StartedSolve { active, challenge, nonce } = started;
    let fact = send(&shared, &active, &challenge, nonce).await;
    settle_submission(&shared, active, fact).await
}

/// Keeps a paused solve as it is. The driver hears of the pause at once, and leaves the others alone.
fn wait_for_resume(shared: &Shared, active: Box<ActiveSolve>) -> NextStep {
    shared.maintenance.pauses.refresh_soon();
    NextStep::At(shared.now().plus(PAUSE_CHECK), active)
}

/// The challenge with its pictures, which are read from the store when their turn comes. `None`: nothing was sent, and the
/// solve has to be leased again.
async fn full_challenge(shared: &Shared, active: &ActiveSolve) -> Option<Arc<Challenge>> {
    let lease = &active.lease;
    if lease.file_bytes == 0 {
        return Some(Arc::clone(&lease.challenge));
    }
    let solve = lease.solve.id;
    match shared.record_store_health(shared.ports.store.find_challenge(solve).await) {
        Ok(found) => {
            if found.is_none() {
                // It is deleted an hour after the end of its solve, so another gateway has ended it.
                tracing::warn!(%solve, "challenge is gone, leasing again");
            }
            found
        }
        Err(error) => {
            tracing::error!(%solve, %error, "failed to read the pictures of a challenge");
            None
        }
    }
}

/// Writes the fact; an accepted task is polled from then on.
async fn settle_submission(shared: &Shared, active: Box<ActiveSolve>, fact: Fact) -> NextStep {
    let is_accepted = matches!(fact, Fact::Accepted { .. });
    match settle(shared, active, fact).await {
        NextStep::At(_, active) if is_accepted => poll::start(shared, active),
        next @ (NextStep::At(..) | NextStep::Released | NextStep::Resync) => next,
    }
}

/// Sends the submission and returns what is now known about the attempt.
async fn send(shared: &Shared, active: &ActiveSolve, challenge: &Challenge, nonce: Nonce) -> Fact {
    let solve = &active.lease.solve;
    let scheduler = &shared.scheduler;
    if !scheduler.lease.is_valid(shared.now()) {
        // Writing the intent took so long that another gateway may have the solve by now. Nothing has left.
        scheduler.breakers.hand_back(shared.now());
        let code = Code::from(own::NOT_SENT);
        let verdict = Verdict::Again { due: shared.now(), counted: false };
        return Fact::NotAccepted { verdict, code };
    }
    let sent_at = shared.now();
    let attempt = AttemptName { solve: solve.id, attempt: solve.attempt, nonce };
    match shared.ports.provider.submit(challenge, attempt).await {
        Submission::Accepted(task) => {
            let now = shared.now();
            scheduler.breakers.reached(sent_at, now);
            scheduler.breakers.account.close(sent_at, now);
            scheduler.slots.accepted();
            Fact::Accepted { task, sent_at }
        }
        Submission::Rejected { code, retry_after } => {
            let code = check_for_no_slot(shared, code).await;
            apply_effects(shared, &code, (sent_at, retry_after));
            let verdict = verdict(shared, solve, &code, (sent_at, retry_after));
            Fact::NotAccepted { verdict, code }
        }
        Submission::NotSent(why) => {
            tracing::warn!(solve = %solve.id, why, "submission not sent, retrying with backoff");
            scheduler.breakers.missed(Contact::NotConnected, sent_at, shared.now());
            let code = Code::from(own::NOT_SENT);
            Fact::NotAccepted { verdict: verdict(shared, solve, &code, (sent_at, None)), code }
        }
        Submission::Ambiguous { why, retry_after } => {
            tracing::warn!(solve = %solve.id, attempt = solve.attempt, why, "lost the reply to a submission, attempt is ambiguous");
            scheduler.breakers.missed(Contact::ReplyLost, sent_at, shared.now());
            if let Some(wait) = retry_after {
                // It holds for the whole account, so also for the attempt that may follow this one.
                scheduler.breakers.pause(wait, shared.now());
            }
            Fact::ReplyLost { why: Code::new(why), due: shared.now().plus(AMBIGUOUS_WAIT) }
        }
    }
}

/// Applies what a rejection says about the provider, the account and the slots.
fn apply_effects(
    shared: &Shared,
    code: &Code,
    (sent_at, retry_after): (Timestamp, Option<Duration>),
) {
    let now = shared.now();
    let breakers = &shared.scheduler.breakers;
    let rule = shared.config.retry.rule(code);
    if rule.effect == Effect::ProviderDown {
        breakers.missed(Contact::ReplyLost, sent_at, now);
        return;
    }
    breakers.reached(sent_at, now);
    if rule.effect == Effect::SlowDown {
        // One submission was refused, but the limit holds for the whole account.
        breakers.pause(rule.floor.max(retry_after.unwrap_or(MIN_PAUSE)), now);
        breakers.account.learned_nothing(now);
        return;
    }
    if rule.effect == Effect::NoSlot {
        shared.scheduler.slots.refused(sent_at, now);
        shared.maintenance.slot_discovery.notify_one();
    }
    if rule.class != Class::Account {
        breakers.account.close(sent_at, now);
    }
}

/// Some codes mean either that all threads are busy or that the account has a problem. The account's threads tell which.
/// A thread may have become free since, so the first such answer in a row counts as "no slot".
async fn check_for_no_slot(shared: &Shared, code: Code) -> Code {
    if shared.config.retry.effect(&code) != Effect::MaybeNoSlot {
        return code;
    }
    let Some(no_slot) = shared.config.retry.no_slot_code() else { return code };
    let Ok(threads) = shared.ports.provider.threads().await else { return code };
    if threads.total == 0 {
        return code;
    }
    let slots = &shared.scheduler.slots;
    if shared.config.slots == Slots::Auto {
        slots.set_reported(threads, shared.scheduler.account_share.used_by_others());
    }
    let doubted_before = slots.doubted_before();
    if threads.working >= threads.total || !doubted_before { no_slot } else { code }
}

/// `Ambiguous → Queued` by an AUTHORISE, or the end. The store refuses to authorise twice or beyond the
/// day's budget, and writes the attempt off when no claim waits.
pub(crate) async fn decide_ambiguous(
    shared: Arc<Shared>,
    mut active: Box<ActiveSolve>,
) -> NextStep {
    if shared.now() < active.lease.solve.due {
        return await_late_reply(&shared, active).await;
    }
    if active.lease.solve.policy.ambiguous == AmbiguousPolicy::ResubmitOnce {
        let due = shared.now();
        match advance(&shared, &mut active, Decision::Authorise { due, guard: shared.guard() })
            .await
        {
            Advance::Done => return NextStep::At(due, active),
            Advance::Refused(Refused::Undeclared) => return forbid(shared, active).await,
            Advance::Refused(Refused::Paused) => return wait_for_resume(&shared, active),
            Advance::Refused(Refused::Budget | Refused::Moved | Refused::Wanted) => {}
            Advance::Refused(Refused::LeaseLost) | Advance::StoreFailed => return NextStep::Resync,
        }
    }
    let waiting = active.lease.solve.claims.clone();
    match advance(&shared, &mut active, Decision::WriteOff).await {
        Advance::Done => {
            settle::notify_ended(&shared, waiting);
            NextStep::Released
        }
        // A late fact has moved it on, or another gateway has it.
        Advance::Refused(_) | Advance::StoreFailed => NextStep::Resync,
    }
}

/// The holder from which the solve was taken over may still bring the reply. It writes that to the store, so this looks there
/// again and again until the end of the grace period.
async fn await_late_reply(shared: &Shared, mut active: Box<ActiveSolve>) -> NextStep {
    let (id, fence) = (active.lease.solve.id, active.lease.fence);
    let found = shared.ports.store.find_solve(id).await;
    let Ok(Some(solve)) = shared.record_store_health(found) else { return NextStep::Resync };
    let is_ours = solve.holder == Some(shared.scheduler.lease.holder()) && solve.fence == fence;
    if !is_ours || solve.stage.is_final() {
        return NextStep::Released;
    }
    let (stage, due) = (solve.stage, solve.due);
    active.lease.solve = solve;
    match stage {
        Stage::Ambiguous => NextStep::At(shared.now().plus(AMBIGUOUS_WAIT).min(due), active),
        Stage::Submitted | Stage::Overdue => {
            tracing::info!(solve = %id, "the reply to a submission arrived after a takeover");
            poll::start(shared, active)
        }
        // It was not accepted, and may go again when it is due.
        Stage::Queued => NextStep::At(due, active),
        Stage::Intent | Stage::Ready | Stage::Failed => NextStep::Resync,
    }
}

/// `Queued → Failed`: no answer can come in time. While the account's circuit breaker is open nothing is known about the
/// time an answer takes, so only solves past their deadline end. What a circuit breaker is open for is the claims' code.
pub(crate) async fn lapse(shared: Arc<Shared>, mut active: Box<ActiveSolve>) -> NextStep {
    let waiting = active.lease.solve.claims.clone();
    let scheduler = &shared.scheduler;
    let soonest = estimate::soonest_answer(scheduler, &active.lease.solve.kind, shared.now());
    let decision = Decision::Lapse { soonest, trouble: scheduler.breakers.code() };
    match advance(&shared, &mut active, decision).await {
        Advance::Done => {
            settle::notify_ended(&shared, waiting);
            NextStep::Released
        }
        Advance::Refused(Refused::Moved) => NextStep::Released,
        Advance::Refused(
            Refused::Wanted
            | Refused::LeaseLost
            | Refused::Budget
            | Refused::Undeclared
            | Refused::Paused,
        )
        | Advance::StoreFailed => NextStep::Resync,
    }
}

/// Ends the claims that the declarations in force no longer allow, and the solve with the last of them. Nothing that is
/// already paid is touched.
pub(crate) async fn forbid(shared: Arc<Shared>, mut active: Box<ActiveSolve>) -> NextStep {
    let waiting = active.lease.solve.claims.clone();
    match advance(&shared, &mut active, Decision::Forbid { guard: shared.guard() }).await {
        Advance::Done => {
            let solve = &active.lease.solve;
            tracing::warn!(solve = %solve.id, "stopped work whose declaration was withdrawn");
            let left = &solve.claims;
            let lost = waiting.into_iter().filter(|id| !left.contains(id));
            settle::notify_ended(&shared, lost);
            if solve.stage.is_final() {
                return NextStep::Released;
            }
            NextStep::At(solve.due.max(shared.now()), active)
        }
        Advance::Refused(Refused::Moved) => NextStep::Released,
        Advance::Refused(
            Refused::LeaseLost
            | Refused::Wanted
            | Refused::Budget
            | Refused::Undeclared
            | Refused::Paused,
        )
        | Advance::StoreFailed => NextStep::Resync,
    }
}

/// Writes a fenced decision and takes over the solve as the store returns it.
async fn advance(shared: &Shared, active: &mut ActiveSolve, decision: Decision) -> Advance {
    let id = active.lease.solve.id;
    let result = shared.ports.store.advance(&active.lease, decision, shared.now()).await;
    match shared.record_store_health(result) {
        Ok(Advanced::Done(solve)) => {
            active.lease.solve = solve;
            Advance::Done
        }
        Ok(Advanced::Refused(refused)) => {
            tracing::debug!(solve = %id, %refused, "decision refused");
            Advance::Refused(refused)
        }
        Err(error) => {
            tracing::error!(solve = %id, %error, "failed to write a decision");
            Advance::StoreFailed
        }
    }
}

/// The verdict about the solve. An account code opens the account's circuit breaker. `sent_at` is when the request left
/// that was answered with the code.
pub(super) fn verdict(
    shared: &Shared,
    solve: &Solve,
    code: &Code,
    (sent_at, retry_after): (Timestamp, Option<Duration>),
) -> Verdict {
    let now = shared.now();
    let breakers = &shared.scheduler.breakers;
    let rule = shared.config.retry.rule(code);
    if rule.class == Class::Account {
        let floor = rule.floor.max(retry_after.unwrap_or_default());
        breakers.account.open(code.clone(), floor, sent_at, now);
    }
    let at = RetryMoment { now, retry_after, chance: &*shared.ports.chance };
    let verdict = shared.config.retry.verdict(code, &solve.failures, at);
    // A provider that is down does not use up the tries of the solves that meet it.
    if rule.effect == Effect::ProviderDown && breakers.provider.is_open() {
        return Verdict::Again { due: now, counted: false };
    }
    verdict
}
