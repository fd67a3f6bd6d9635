//! Step 4 of a claim: ask for the answer, and what the reply means. A poll fault never leads to a submission.
//! Before: submit.rs. After: settle.rs.

use std::{sync::Arc, time::Duration};

use domain::{
    id::TaskId,
    money::Money,
    ports::{Poll, Polled},
    retry::{Class, Code, Verdict, own},
    solve::{Fact, Solve, Solved},
};

use crate::{
    Inner,
    driver::{Held, Then},
};

/// Asks once.
pub(crate) async fn poll(inner: Arc<Inner>, mut held: Box<Held>) -> Then {
    let Some(task) = held.lease.solve.task.clone() else {
        tracing::error!(solve = %held.lease.solve.id, "a submitted solve without a task");
        return Then::Gone;
    };
    // A "not ready" was true some time after the question left: from then on the token can have been made.
    let asked = inner.now();
    if let Some(sent) = inner.sent().get_mut(&held.lease.solve.id) {
        sent.polled = Some((asked, held.polls + 1));
    }
    let polled = inner.ports.provider.poll(&task).await;
    held.polls += 1;
    match read(&inner, &held, task, polled) {
        Reading::Fact(fact) => held.settle(&inner, fact).await,
        Reading::NotReady => {
            held.not_ready = Some(asked);
            held.poll_again(&inner, Duration::ZERO).await
        }
        Reading::NothingLearned { wait } => held.poll_again(&inner, wait).await,
    }
}

/// A `Retry-After` or a ban puts a poll off by no more.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

enum Reading {
    Fact(Fact),
    NotReady,
    NothingLearned { wait: Duration },
}

fn read(inner: &Inner, held: &Held, task: TaskId, polled: Polled) -> Reading {
    let solve = &held.lease.solve;
    match polled.poll {
        Poll::NotReady => Reading::NotReady,
        Poll::Fault(fault) => {
            tracing::warn!(solve = %solve.id, %fault, "poll failed; the task is asked for again");
            Reading::NothingLearned { wait: fault.retry_after.unwrap_or_default() }
        }
        Poll::Solved(answer) => {
            let ready_lower = held.not_ready.or(solve.accepted_at).unwrap_or(solve.opened_at);
            let accepted = solve.accepted_at.unwrap_or(solve.opened_at);
            inner.health.solved_in(&solve.kind, inner.now().since(accepted));
            let life = inner.config.shelf_life(&solve.kind);
            let cost = polled.price.or(solve.price);
            Reading::Fact(Fact::Solved(Solved {
                task,
                answer,
                ready_lower,
                life,
                cost,
                polls: held.polls,
            }))
        }
        Poll::Code(code) => read_code(inner, held, &code),
    }
}

fn read_code(inner: &Inner, held: &Held, code: &Code) -> Reading {
    let rule = inner.config.retry.rule(code);
    match rule.class {
        Class::Wait => Reading::NotReady,
        Class::Transient => Reading::NothingLearned { wait: rule.floor },
        Class::Account => {
            // The task still exists: keep its name and ask later.
            inner.breakers.account.open(code.clone(), rule.floor, inner.now());
            Reading::NothingLearned { wait: rule.floor.max(inner.config.probe_every) }
        }
        Class::Permanent | Class::TaskOver => Reading::Fact(over(inner, held, code.clone())),
    }
}

fn over(inner: &Inner, held: &Held, code: Code) -> Fact {
    let solve = &held.lease.solve;
    let cost = match inner.config.retry.rule(&code).charged {
        Some(false) => Some(Money::ZERO),
        Some(true) => solve.price,
        None => None,
    };
    Fact::TaskOver { verdict: inner.verdict(solve, &code, None), code, cost, polls: held.polls }
}

impl Held {
    /// When to ask again; or the end, when the provider has forgotten the task or was asked often enough.
    async fn poll_again(self: Box<Self>, inner: &Inner, at_least: Duration) -> Then {
        let now = inner.now();
        let accepted = self.lease.solve.accepted_at.unwrap_or(self.lease.solve.opened_at);
        let forgotten = now.since(accepted) >= inner.config.harvest;
        if forgotten || self.polls >= inner.config.polling.most() {
            let code = Code::from(own::NEVER_READY);
            let fact =
                Fact::TaskOver { code, verdict: Verdict::GiveUp, cost: None, polls: self.polls };
            return self.settle(inner, fact).await;
        }
        // No answer of the provider can park a paid task until it is forgotten.
        let gap = inner.config.polling.gap(self.polls).max(at_least.min(LONGEST_WAIT));
        let last = accepted.plus(inner.config.harvest);
        Then::at(now.plus(gap).min(last.max(now.plus(inner.config.polling.gap(1)))), self)
    }

    /// How often a task that has been out for a while must have been asked for already.
    pub(crate) fn polls_until_now(inner: &Inner, solve: &Solve) -> u32 {
        let out = inner.now().since(solve.accepted_at.unwrap_or(solve.opened_at));
        let polling = &inner.config.polling;
        let mut asked = Duration::ZERO;
        let count = (0..polling.most()).take_while(|n| {
            asked += polling.gap(*n);
            asked <= out
        });
        // At least two are left: the answer may be there, and a first "not ready" may be needed to know its age.
        u32::try_from(count.count()).unwrap_or(u32::MAX).min(polling.most().saturating_sub(2))
    }
}
