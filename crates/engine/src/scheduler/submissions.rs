//! Picks the next queued solve to submit, when slots, circuit breakers, retry budget and submit rate all allow one.

use std::collections::BTreeMap;

use domain::{
    solve::{Origin, Solve},
    time::Timestamp,
};

use super::{
    Scheduler,
    active::{ActiveSolve, ActiveSolves, Turn},
    estimate,
    fair_queue::{LaneName, QueuedSolve, WorkKind},
    retry_budget::RetryBudget,
};

#[derive(Debug)]
pub(super) struct Submissions {
    retries: RetryBudget,
}

impl Submissions {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { retries: RetryBudget::new(now) }
    }

    /// The next solve to submit, with its slot taken; `Err` says when to try again, if time alone will help.
    pub(super) fn next(
        &mut self,
        scheduler: &Scheduler,
        now: Timestamp,
    ) -> Result<Box<ActiveSolve>, Option<Timestamp>> {
        loop {
            if !scheduler.queue.lock().has_ready() {
                return Err(None);
            }
            scheduler.slots.is_free(now)?;
            let retry_at = self.retries.allows(now).err();
            if retry_at.is_some() && scheduler.queue.lock().has_only_retries() {
                return Err(retry_at);
            }
            scheduler.breakers.pass(now).map_err(Some)?;
            let recovered = scheduler.breakers.closed_at();
            if let Err(at) = scheduler.submit_rate.lock().pass(now, recovered) {
                scheduler.breakers.hand_back(now);
                return Err(Some(at));
            }
            let Some(next) = scheduler.queue.lock().pop(retry_at.is_none(), now) else {
                scheduler.breakers.hand_back(now);
                continue;
            };
            match next.kind {
                WorkKind::Retry => self.retries.record_retry(),
                WorkKind::Fresh | WorkKind::Refill => self.retries.record_fresh(),
            }
            let mut active = next.item;
            active.slot = true;
            active.turn = Some(Turn { lane: next.lane, since: now });
            scheduler.slots.take(now);
            return Ok(active);
        }
    }

    /// The submission of a solve did not happen, and the solve waits for its next turn.
    pub(super) fn hand_back(&mut self, solve: &Solve) {
        if work_kind(solve) == WorkKind::Retry {
            self.retries.hand_back();
        }
    }
}

/// Queues a solve; a paused one takes no turn.
pub(super) fn enqueue(
    scheduler: &Scheduler,
    active: Box<ActiveSolve>,
    is_paused: bool,
    now: Timestamp,
) {
    let solve = &active.lease.solve;
    let queued = QueuedSolve {
        lane: LaneName::of(solve),
        opened_at: solve.opened_at,
        solve: solve.id,
        kind: work_kind(solve),
        bytes: active.lease.file_bytes,
        item: active,
    };
    let priority = match &queued.lane {
        LaneName::Worker(worker) => scheduler.priorities.read().get(worker).copied().unwrap_or(1),
        LaneName::Revived => 1,
    };
    let mut queue = scheduler.queue.lock();
    if is_paused {
        queue.park(queued, priority);
    } else {
        queue.push(queued, priority, now);
    }
}

/// Takes out the queued solves that cannot be answered in time, so that nothing is paid for them.
pub(super) fn remove_unanswerable(scheduler: &Scheduler, now: Timestamp) -> ActiveSolves {
    let mut soonest = BTreeMap::new();
    let mut is_unanswerable = |active: &ActiveSolve| {
        let solve = &active.lease.solve;
        let kind = solve.kind.clone();
        let soonest = soonest
            .entry(kind)
            .or_insert_with_key(|kind| estimate::soonest_answer(scheduler, kind, now));
        solve.wanted_until < *soonest
    };
    scheduler.queue.lock().remove_where(|active| is_unanswerable(active))
}

fn work_kind(solve: &Solve) -> WorkKind {
    if solve.origin == Origin::Refill && solve.claims.is_empty() {
        WorkKind::Refill
    } else if solve.failures.is_empty() && solve.authorised == 0 {
        // An attempt that was never sent, because its intent was not durable, does not make the next one a retry.
        WorkKind::Fresh
    } else {
        WorkKind::Retry
    }
}
