//! Step 3 of a claim: intent, submission, lost reply. Money first: the intent is durable before the first byte leaves.
//! Before: driver.rs. After: poll.rs.

use std::sync::Arc;

use domain::{
    id::{AttemptName, Nonce},
    ports::{Submission, Threads},
    retry::{Class, Code, own},
    solve::{AMBIGUOUS_WAIT, AmbiguousPolicy, Decision, Fact, Refused},
};

use crate::{
    Inner,
    held::{Held, Then},
};

/// The provider has no slot for us: no failure of the solve.
const NO_SLOT: &str = "ERROR_NO_SLOT_AVAILABLE";

/// `Queued → Intent`, the submission, and the fact that came of it.
pub(crate) async fn submit(inner: Arc<Inner>, mut held: Box<Held>) -> Then {
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
        return Fact::NotAccepted { verdict: inner.verdict(solve, &code, None), code };
    }
    let sent_at = inner.now();
    let attempt = AttemptName { solve: solve.id, attempt: solve.attempt, nonce };
    match inner.ports.provider.submit(&held.lease.challenge, attempt).await {
        Submission::Accepted(task) => {
            let now = inner.now();
            inner.breakers.reached(now);
            inner.breakers.account.close(now);
            inner.places.accepted();
            Fact::Accepted { task, sent_at }
        }
        Submission::Rejected { code, retry_after } => {
            let code = unmask(inner, code).await;
            rejected(inner, &code);
            Fact::NotAccepted { verdict: inner.verdict(solve, &code, retry_after), code }
        }
        Submission::NotSent(why) => {
            tracing::warn!(solve = %solve.id, why, "submission did not leave");
            inner.breakers.missed(inner.now());
            let code = Code::from(own::NOT_SENT);
            Fact::NotAccepted { verdict: inner.verdict(solve, &code, None), code }
        }
        Submission::Ambiguous(why) => {
            tracing::warn!(solve = %solve.id, attempt = solve.attempt, why, "reply to a submission was lost");
            inner.breakers.missed(inner.now());
            Fact::ReplyLost { why: Code::new(why), due: inner.now().plus(AMBIGUOUS_WAIT) }
        }
    }
}

/// What a refusal tells about provider, account and slots.
fn rejected(inner: &Inner, code: &Code) {
    let now = inner.now();
    match code.as_str() {
        // It answers, and cannot do its work: as good as away.
        "ERROR_SERVER_ERROR" | "ERROR_INTERNAL_SERVER_ERROR" => inner.breakers.missed(now),
        _ => inner.breakers.reached(now),
    }
    if code.as_str() == NO_SLOT {
        inner.places.refused(now);
        inner.ask_threads.notify_one();
    }
    if inner.config.retry.rule(code).class != Class::Account {
        inner.breakers.account.close(now);
    }
}

/// CaptchaAI says "zero balance" when all threads are busy: ask which of the two it is.
async fn unmask(inner: &Inner, code: Code) -> Code {
    if code.as_str() != "ERROR_ZERO_BALANCE" {
        return code;
    }
    match inner.ports.provider.threads().await {
        Ok(Threads { total, working }) if total > 0 && working >= total => Code::from(NO_SLOT),
        Ok(_) | Err(_) => code,
    }
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
            tracing::error!(solve = %id, %error, "decision could not be written");
            Decided::StoreAway
        }
    }
}
