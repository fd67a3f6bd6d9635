//! Step 3 of a claim: intent, submission, lost reply. Money first: the intent is durable before the first byte leaves.
//! Before: driver.rs. After: poll.rs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    id::{AttemptName, Nonce},
    ports::Submission,
    retry::{Class, Code, Effect, Verdict, own},
    solve::{AMBIGUOUS_WAIT, AmbiguousPolicy, Decision, Fact, Origin, Refused},
    time::Timestamp,
};

use crate::{
    Inner, Slots,
    breaker::Reach,
    held::{Held, Then},
};

/// `Queued → Intent`, the submission, and the fact that came of it.
pub(crate) async fn submit(inner: Arc<Inner>, mut held: Box<Held>) -> Then {
    let solve = &held.lease.solve;
    let is_refill = solve.origin == Origin::Refill && solve.claims.is_empty();
    if is_refill && solve.wanted_until < inner.now() {
        // The demand it was ordered for may be gone.
        inner.breakers.hand_back(inner.now());
        return lapse(inner, held).await;
    }
    let nonce = Nonce::draw(&*inner.ports.chance);
    let then = match decide(&inner, &mut held, Decision::Intend { nonce }).await {
        Decided::Done => {
            let fact = send(&inner, &held, nonce).await;
            return held.settle(&inner, fact).await;
        }
        // Whoever has it now goes on; should it be nobody, because our own lease ran out, we take it up again.
        Decided::Refused(Refused::LeaseLost) => Then::Unsure,
        Decided::Refused(Refused::Moved | Refused::Wanted | Refused::Budget) => Then::Gone,
        Decided::StoreAway => withhold(&inner, &held, nonce).await,
    };
    // Nothing was sent: had it been a probe, the next one is.
    inner.breakers.hand_back(inner.now());
    then
}

/// The intent may have been written, its reply was lost, and nothing has left: say so under its nonce.
async fn withhold(inner: &Inner, held: &Held, nonce: Nonce) -> Then {
    let solve = &held.lease.solve;
    inner.settle(solve.id, solve.attempt + 1, Fact::Withheld { nonce }).await;
    Then::Unsure
}

/// Sends the submission and says what is now known about the attempt.
async fn send(inner: &Inner, held: &Held, nonce: Nonce) -> Fact {
    let solve = &held.lease.solve;
    if !inner.holds_lease(inner.now()) {
        // The intent took so long to write that another holder may have the solve by now. Nothing has left.
        inner.breakers.hand_back(inner.now());
        let code = Code::from(own::NOT_SENT);
        let verdict = Verdict::Again { due: inner.now(), counted: false };
        return Fact::NotAccepted { verdict, code };
    }
    let sent_at = inner.now();
    let attempt = AttemptName { solve: solve.id, attempt: solve.attempt, nonce };
    match inner.ports.provider.submit(&held.lease.challenge, attempt).await {
        Submission::Accepted(task) => {
            let now = inner.now();
            inner.breakers.reached(sent_at, now);
            inner.breakers.account.close(sent_at, now);
            inner.places.accepted();
            inner.empty_in_a_row.store(0, Ordering::Relaxed);
            Fact::Accepted { task, sent_at }
        }
        Submission::Rejected { code, retry_after } => {
            let code = unmask(inner, code).await;
            rejected(inner, &code, (sent_at, retry_after));
            let verdict = inner.verdict(solve, &code, (sent_at, retry_after));
            Fact::NotAccepted { verdict, code }
        }
        Submission::NotSent(why) => {
            tracing::warn!(solve = %solve.id, why, "submission not sent, retrying with backoff");
            inner.breakers.missed(Reach::Unreached, sent_at, inner.now());
            let code = Code::from(own::NOT_SENT);
            Fact::NotAccepted { verdict: inner.verdict(solve, &code, (sent_at, None)), code }
        }
        Submission::Ambiguous { why, retry_after } => {
            tracing::warn!(solve = %solve.id, attempt = solve.attempt, why, "lost the reply to a submission, attempt is ambiguous");
            inner.breakers.missed(Reach::Lost, sent_at, inner.now());
            if let Some(wait) = retry_after {
                // It is meant for all, also for the attempt that may follow this one.
                inner.breakers.pause(wait, inner.now());
            }
            Fact::ReplyLost { why: Code::new(why), due: inner.now().plus(AMBIGUOUS_WAIT) }
        }
    }
}

/// What a refusal tells about provider, account and slots.
fn rejected(inner: &Inner, code: &Code, (sent_at, retry_after): (Timestamp, Option<Duration>)) {
    let now = inner.now();
    let rule = inner.config.retry.rule(code);
    if rule.effect == Effect::ProviderDown {
        inner.breakers.missed(Reach::Lost, sent_at, now);
        return;
    }
    inner.breakers.reached(sent_at, now);
    if rule.effect == Effect::SlowDown {
        // It is said to one submission and meant for all.
        inner.breakers.pause(rule.floor.max(retry_after.unwrap_or(LEAST_PAUSE)), now);
        inner.breakers.account.learned_nothing(now);
        return;
    }
    if rule.effect == Effect::NoSlot {
        inner.places.refused(sent_at, now);
        inner.ask_threads.notify_one();
    }
    if rule.class != Class::Account {
        inner.breakers.account.close(sent_at, now);
    }
}

const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Some codes mean either that all threads are busy or that the account has a problem: ask which of the two it is. A thread
/// may have come free since, so the first time the doubt is in the account's favour.
async fn unmask(inner: &Inner, code: Code) -> Code {
    if inner.config.retry.effect(&code) != Effect::MaybeNoSlot {
        return code;
    }
    let Some(no_slot) = inner.config.retry.no_slot_code() else { return code };
    let Ok(threads) = inner.ports.provider.threads().await else { return code };
    if threads.total == 0 {
        return code;
    }
    if inner.config.slots == Slots::Auto {
        inner.places.told(threads);
    }
    let again = inner.empty_in_a_row.fetch_add(1, Ordering::Relaxed) > 0;
    if threads.working >= threads.total || !again { no_slot } else { code }
}

/// `Ambiguous → Queued` by an AUTHORISE, or the end. The store refuses to authorise for nobody, twice, or beyond the
/// day's budget; what may not be tried again is written off.
pub(crate) async fn resolve(inner: Arc<Inner>, mut held: Box<Held>) -> Then {
    let waiting = held.lease.solve.claims.clone();
    if held.lease.solve.policy.ambiguous == AmbiguousPolicy::ResubmitOnce {
        let due = inner.now();
        match decide(&inner, &mut held, Decision::Authorise { due }).await {
            Decided::Done => return Then::at(due, held),
            Decided::Refused(Refused::Budget | Refused::Moved | Refused::Wanted) => {}
            Decided::Refused(Refused::LeaseLost) | Decided::StoreAway => return Then::Unsure,
        }
    }
    match decide(&inner, &mut held, Decision::WriteOff).await {
        Decided::Done => {
            inner.ring(waiting);
            Then::Gone
        }
        // A late fact moved it on meanwhile, or somebody has it: ask the store what we hold.
        Decided::Refused(_) | Decided::StoreAway => Then::Unsure,
    }
}

/// `Queued → Failed`: no answer can come in time any more. While the account is in trouble nothing is known about the
/// time an answer takes, so only what is past its deadline goes, under the trouble's name.
pub(crate) async fn lapse(inner: Arc<Inner>, mut held: Box<Held>) -> Then {
    let waiting = held.lease.solve.claims.clone();
    let soonest = inner.soonest(&held.lease.solve.kind, inner.now());
    let decision = Decision::Lapse { soonest, trouble: inner.breakers.account.code() };
    match decide(&inner, &mut held, decision).await {
        Decided::Done => {
            inner.ring(waiting);
            Then::Gone
        }
        Decided::Refused(Refused::Moved) => Then::Gone,
        Decided::Refused(Refused::Wanted | Refused::LeaseLost | Refused::Budget)
        | Decided::StoreAway => Then::Unsure,
    }
}

enum Decided {
    Done,
    Refused(Refused),
    StoreAway,
}

/// Asks the store for a fenced move and takes over what it says the solve is now.
async fn decide(inner: &Inner, held: &mut Held, decision: Decision) -> Decided {
    let id = held.lease.solve.id;
    let result = inner.ports.store.advance(&held.lease, decision, inner.now()).await;
    inner.noted(&result);
    match result {
        Ok(Ok(solve)) => {
            held.lease.solve = solve;
            Decided::Done
        }
        Ok(Err(refused)) => {
            tracing::debug!(solve = %id, %refused, "decision refused");
            Decided::Refused(refused)
        }
        Err(error) => {
            tracing::error!(solve = %id, %error, "failed to write a decision");
            Decided::StoreAway
        }
    }
}
