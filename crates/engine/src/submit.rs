//! Step 3 of a claim: intent, submission, lost reply. Money first: the intent is durable before the first byte leaves.
//! Before: driver.rs. After: poll.rs.

use std::sync::Arc;

use domain::{
    id::Nonce,
    ports::{Submission, Threads},
    retry::{Class, Code, own},
    solve::{AMBIGUOUS_WAIT, AmbiguousPolicy, Decision, Fact, Refused},
};

use crate::{
    Inner,
    driver::{Held, Then},
};

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
        Decided::Refused(Refused::Moved | Refused::Budget) => Then::Gone,
        Decided::StoreAway => withhold(&inner, &held, nonce).await,
    };
    // Nothing was sent: had it been the account's probe, the next one is.
    inner.breaker.hand_back(inner.now());
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
        inner.breaker.learned_nothing(inner.now());
        let code = Code::from(own::NOT_SENT);
        return Fact::NotAccepted { verdict: inner.verdict(solve, &code, None), code };
    }
    let sent_at = inner.now();
    match inner.ports.provider.submit(&held.lease.challenge, nonce).await {
        Submission::Accepted(task) => {
            inner.breaker.close();
            Fact::Accepted { task, sent_at }
        }
        Submission::Rejected { code, retry_after } => {
            let code = unmask(inner, code).await;
            if inner.config.retry.rule(&code).class != Class::Account {
                inner.breaker.close();
            }
            Fact::NotAccepted { verdict: inner.verdict(solve, &code, retry_after), code }
        }
        Submission::NotSent(why) => {
            tracing::warn!(solve = %solve.id, why, "submission did not leave");
            inner.breaker.learned_nothing(inner.now());
            let code = Code::from(own::NOT_SENT);
            Fact::NotAccepted { verdict: inner.verdict(solve, &code, None), code }
        }
        Submission::Ambiguous(why) => {
            tracing::warn!(solve = %solve.id, attempt = solve.attempt, why, "reply to a submission was lost");
            inner.breaker.learned_nothing(inner.now());
            Fact::ReplyLost { why: Code::new(why), due: inner.now().plus(AMBIGUOUS_WAIT) }
        }
    }
}

/// CaptchaAI says "zero balance" when all threads are busy: ask which of the two it is.
async fn unmask(inner: &Inner, code: Code) -> Code {
    if code.as_str() != "ERROR_ZERO_BALANCE" {
        return code;
    }
    match inner.ports.provider.threads().await {
        Ok(Threads { total, working }) if total > 0 && working >= total => {
            Code::from("ERROR_NO_SLOT_AVAILABLE")
        }
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
            Decided::Refused(Refused::Budget | Refused::Moved) => {}
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
