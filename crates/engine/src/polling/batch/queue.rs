//! Tasks that wait for the next batch poll. One call polls all tasks that are worth polling, at the moment the expected lag
//! is worth a call (rule.rs). Calls keep in step: the next one waits until the tasks of the last one may be polled again.
//! Otherwise there would soon be two calls for half of the tasks each.

use std::{collections::BTreeMap, time::Duration};

use domain::{id::SolveId, time::Timestamp};

use super::{
    super::STOCK_WEIGHT,
    rule::{BatchRule, BatchTask},
};
use crate::{
    Shared,
    scheduler::active::{ActiveSolve, ActiveSolves},
};

#[derive(Debug, Default)]
pub(crate) struct BatchQueue {
    tasks: BTreeMap<SolveId, Box<ActiveSolve>>,
    last_call: Option<Timestamp>,
    /// From here on all tasks of the last call may be polled again.
    in_step: Timestamp,
    /// When the next call is due; `None` when it has to be computed again.
    next: Option<Timestamp>,
}

/// At most this many calls leave at one moment.
const MAX_CALLS: usize = 100;

impl BatchQueue {
    pub(crate) fn insert(&mut self, shared: &Shared, active: Box<ActiveSolve>) {
        let soon = shared.now().plus(shared.config.polling.min_gap);
        if active.polls > 0 && active.not_before <= soon {
            self.in_step = self.in_step.max(active.not_before);
        }
        self.next = None;
        self.tasks.insert(active.lease.solve.id, active);
    }

    pub(crate) fn remove(&mut self, id: SolveId) -> Option<Box<ActiveSolve>> {
        self.tasks.remove(&id)
    }

    pub(crate) fn take_all(&mut self) -> ActiveSolves {
        std::mem::take(&mut self.tasks).into_values().collect()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &ActiveSolve> {
        self.tasks.values().map(AsRef::as_ref)
    }

    /// When the next call is due, or when to compute it again.
    pub(crate) fn next_call(&mut self, shared: &Shared, now: Timestamp) -> Option<Timestamp> {
        if self.tasks.is_empty() {
            return None;
        }
        let rule = rule(shared);
        let soonest = self.soonest(rule.min_gap);
        if now < soonest {
            return Some(soonest);
        }
        if self.next.is_none() {
            let tasks = self.batch_tasks(now, rule.min_gap);
            let wait = rule.next_call(&tasks, rule.min_gap, self.chance(shared, &tasks));
            self.next = Some(now.plus(wait));
        }
        self.next
    }

    /// In step with the last call; but a slow call does not hold up the other tasks.
    fn soonest(&self, gap: Duration) -> Timestamp {
        let Some(last) = self.last_call else { return Timestamp::default() };
        self.in_step.clamp(last.plus(gap), last.plus(2 * gap))
    }

    /// Takes out the tasks to poll now, one batch per call.
    pub(crate) fn take_due(&mut self, shared: &Shared, now: Timestamp) -> Vec<ActiveSolves> {
        if self.next_call(shared, now).is_none_or(|at| now < at) {
            return Vec::new();
        }
        let rule = rule(shared);
        let tasks = self.batch_tasks(now, Duration::ZERO);
        let all = BatchRule { most_ids: rule.most_ids * MAX_CALLS, ..rule };
        let chosen = all.choose(&tasks, self.chance(shared, &tasks));
        let ids: Vec<SolveId> = self.tasks.keys().copied().collect();
        let chosen: Vec<SolveId> = chosen.into_iter().map(|i| ids[i]).collect();
        self.next = None;
        if chosen.is_empty() {
            // No task may be polled yet.
            self.next = Some(now.plus(rule.min_gap / 4));
            return Vec::new();
        }
        self.last_call = Some(now);
        let batches = chosen.chunks(rule.most_ids);
        batches.map(|batch| batch.iter().filter_map(|id| self.tasks.remove(id)).collect()).collect()
    }

    /// The tasks in their order. A task that may not be polled within `patience` counts only from the time it may.
    fn batch_tasks(&self, now: Timestamp, patience: Duration) -> Vec<BatchTask> {
        self.tasks.values().map(|active| batch_task(active, now, patience)).collect()
    }

    fn chance<'a>(
        &'a self,
        shared: &'a Shared,
        tasks: &'a [BatchTask],
    ) -> impl Fn(usize, Duration) -> f64 + 'a {
        let families: Vec<_> = self.tasks.values().map(|active| &active.family).collect();
        move |i, age| {
            shared.config.polling.memory.chance_ready(families[i], tasks[i].polled_at, age)
        }
    }
}

/// Calls keep at least the minimum gap between two polls of a task.
fn rule(shared: &Shared) -> BatchRule {
    let rule = BatchRule::default();
    BatchRule { min_gap: rule.min_gap.max(shared.config.polling.min_gap), ..rule }
}

fn batch_task(active: &ActiveSolve, now: Timestamp, patience: Duration) -> BatchTask {
    let sent_at = active.sent_at();
    let waiting = u32::try_from(active.lease.solve.claims.len()).unwrap_or(u32::MAX);
    let waits = active.not_before > now.plus(patience);
    let not_before = if waits { active.not_before.since(sent_at) } else { Duration::ZERO };
    BatchTask {
        polled_at: active.not_ready.map_or(Duration::ZERO, |at| at.since(sent_at)),
        age: now.since(sent_at),
        weight: if waiting == 0 { STOCK_WEIGHT } else { f64::from(waiting) },
        from: active.worth_polling_from.max(not_before),
    }
}
