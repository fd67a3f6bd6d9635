//! Picks the next queued solve to submit, when slots, circuit breakers, retry budget and submit rate all allow one. The driver
//! and the admissions that start their solves (`starts.rs`) pick one after the other.

use std::collections::BTreeMap;

use domain::{
    id::WorkerName,
    solve::{Origin, Solve},
    time::Timestamp,
};

use super::{
    Scheduler,
    active::{ActiveSolve, ActiveSolves, Turn},
    estimate,
    fair_queue::{LaneName, QueuedSolve, WorkKind},
    retry_budget::RetryBudget,
    starts::StartList,
};

#[derive(Debug)]
pub(super) struct Submissions {
    retries: RetryBudget,
    pub(super) starts: StartList,
}

impl Submissions {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { retries: RetryBudget::new(now), starts: StartList::default() }
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

    /// Takes everything that the submission of a claim needs which arrives now. `None` while anything waits that may go first,
    /// while a circuit breaker is open, or while a limit is reached. The caller has locked the submissions.
    pub(super) fn start(
        scheduler: &Scheduler,
        worker: &WorkerName,
        now: Timestamp,
    ) -> Option<Turn> {
        let may_be_overtaken =
            scheduler.queue.lock().has_ready() || scheduler.arrivals.has_opened();
        let is_free = scheduler.slots.has_room(now) && scheduler.breakers.are_closed(now);
        if may_be_overtaken || !is_free {
            return None;
        }
        scheduler.submit_rate.lock().pass(now, scheduler.breakers.closed_at()).ok()?;
        scheduler.slots.take(now);
        let lane = LaneName::Worker(worker.clone());
        let priority = priority(scheduler, &lane);
        scheduler.queue.lock().take_turn(&lane, priority, now);
        Some(Turn { lane, since: now })
    }

    /// Gives back what [`Self::start`] took: nothing is sent.
    pub(super) fn give_back(scheduler: &Scheduler, turn: &Turn) {
        scheduler.submit_rate.lock().hand_back(turn.since);
        scheduler.slots.submitted();
        scheduler.queue.lock().cancel_turn(&turn.lane, turn.since);
    }

    /// A solve that was started with its claim is sent.
    pub(super) fn record_started(&mut self) {
        self.retries.record_fresh();
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
    let priority = priority(scheduler, &queued.lane);
    let mut queue = scheduler.queue.lock();
    if is_paused {
        queue.park(queued, priority);
    } else {
        queue.push(queued, priority, now);
    }
}

fn priority(scheduler: &Scheduler, lane: &LaneName) -> u32 {
    match lane {
        LaneName::Worker(worker) => scheduler.priorities.read().get(worker).copied().unwrap_or(1),
        LaneName::Revived => 1,
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
