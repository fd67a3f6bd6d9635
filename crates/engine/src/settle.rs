//! Step 5 of a claim: a fact goes to the store, which allots and ends; then the waiting are woken. A fact is never
//! dropped while the process lives: it may be the only trace of money. Before: submit.rs, poll.rs. After: fetch.rs.

use std::{sync::atomic::Ordering, time::Duration};

use domain::{
    id::{ClaimId, SolveId, TaskId},
    ports::Settled,
    retry::{Class, Code, Effect, RetryMoment, Verdict},
    solve::{Fact, Solve, Solved},
    time::Timestamp,
};

use crate::Inner;

/// The task a fact names.
fn task_of(fact: &Fact) -> Option<&TaskId> {
    match fact {
        Fact::Accepted { task, .. } | Fact::Solved(Solved { task, .. }) => Some(task),
        Fact::NotAccepted { .. }
        | Fact::Withheld { .. }
        | Fact::ReplyLost { .. }
        | Fact::TaskOver { .. } => None,
    }
}

const STORE_AGAIN: Duration = Duration::from_millis(500);

impl Inner {
    /// Tells whoever waits for these claims that something changed.
    pub(crate) fn ring(&self, claims: impl IntoIterator<Item = ClaimId>) {
        for claim in claims {
            self.ports.doorbell.ring(claim);
        }
        if self.has_callbacks.load(Ordering::Relaxed) {
            self.outbox.notify_one();
        }
    }

    /// Tells the store a fact, until it takes it.
    pub(crate) async fn settle(&self, solve: SolveId, attempt: u32, fact: Fact) -> Settled {
        loop {
            let result = self.ports.store.settle(solve, attempt, fact.clone(), self.now()).await;
            self.noted(&result);
            match result {
                Ok(settled) => {
                    self.ring(settled.ended.iter().copied());
                    if settled.orphan.is_some() {
                        self.wake.notify_one();
                    }
                    return settled;
                }
                Err(error) => {
                    // Should the process end before the store takes it, this line is all that is left of a paid task.
                    let task = task_of(&fact);
                    tracing::error!(%solve, attempt, ?task, %error, "failed to write a fact, retrying");
                    self.ports.clock.sleep_until(self.now().plus(STORE_AGAIN)).await;
                }
            }
        }
    }

    /// What a code means for the solve; account codes open the breaker on the way. `answer` is when the question left and
    /// what `Retry-After` came back.
    pub(crate) fn verdict(
        &self,
        solve: &Solve,
        code: &Code,
        (sent_at, retry_after): (Timestamp, Option<Duration>),
    ) -> Verdict {
        let now = self.now();
        let rule = self.config.retry.rule(code);
        if rule.class == Class::Account {
            let floor = rule.floor.max(retry_after.unwrap_or_default());
            self.breakers.account.open(code.clone(), floor, sent_at, now);
        }
        let at = RetryMoment { now, retry_after, chance: &*self.ports.chance };
        let verdict = self.config.retry.verdict(code, &solve.failures, at);
        // A provider that is away is no fault of the solve that finds it so.
        if rule.effect == Effect::ProviderDown && self.breakers.provider.is_open() {
            return Verdict::Again { due: now, counted: false };
        }
        verdict
    }
}
