//! Settlement: writes a fact to the store, which allots tokens and ends claims, then notifies those who wait. A fact
//! is never dropped while the process lives: it may be the only trace of money. Before: submit.rs, poll.rs. After:
//! fetch.rs.

use std::time::Duration;

use domain::{
    id::{ClaimId, SolveId, TaskId},
    ports::Settled,
    solve::{Fact, Solved},
};

use crate::{
    Shared,
    scheduler::active::{ActiveSolve, NextStep},
};

const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Writes a fact about the current attempt and goes on with the solve as the store returns it.
pub(super) async fn settle(shared: &Shared, mut active: Box<ActiveSolve>, fact: Fact) -> NextStep {
    let solve = &active.lease.solve;
    let settled = record(shared, solve.id, solve.attempt, fact).await.solve;
    // Another gateway may have the solve by now, or this one may have leased it again.
    let is_ours = settled.holder == Some(shared.scheduler.lease.holder())
        && settled.fence == active.lease.fence;
    if !is_ours || settled.stage.is_final() {
        return NextStep::Released;
    }
    let due = settled.due;
    active.lease.solve = settled;
    NextStep::At(due, active)
}

/// Writes a fact to the store, and retries until the store takes it.
pub(crate) async fn record(shared: &Shared, solve: SolveId, attempt: u32, fact: Fact) -> Settled {
    loop {
        let result = shared.ports.store.settle(solve, attempt, fact.clone(), shared.now()).await;
        match shared.record_store_health(result) {
            Ok(settled) => {
                notify_ended(shared, settled.ended.iter().copied());
                if settled.orphan.is_some() {
                    shared.scheduler.wake();
                }
                return settled;
            }
            Err(error) => {
                // If the process ends before the store takes the fact, this line is the only trace of a paid task.
                let task = task_of(&fact);
                tracing::error!(%solve, attempt, ?task, %error, "failed to write a fact, retrying");
                shared.ports.clock.sleep_until(shared.now().plus(RETRY_AFTER)).await;
            }
        }
    }
}

/// Notifies callers that wait for these claims, and the outbox.
pub(crate) fn notify_ended(shared: &Shared, claims: impl IntoIterator<Item = ClaimId>) {
    for claim in claims {
        shared.ports.notifier.notify(claim);
    }
    shared.maintenance.outbox.record_end();
}

fn task_of(fact: &Fact) -> Option<&TaskId> {
    match fact {
        Fact::Accepted { task, .. } | Fact::Solved(Solved { task, .. }) => Some(task),
        Fact::NotAccepted { .. }
        | Fact::Withheld { .. }
        | Fact::ReplyLost { .. }
        | Fact::TaskOver { .. } => None,
    }
}
