//! Tasks that are asked for together, where the provider answers for several in one call. One call asks for all that are
//! worth asking for, at the moment the lag that has piled up is worth a call (polling/batch.rs). Calls keep in step: the
//! next one waits until those that the last one asked for may be asked for again, or there would soon be two calls for
//! half of the tasks each.

use std::{collections::BTreeMap, time::Duration};

use domain::{id::SolveId, time::Timestamp};

use crate::{
    Inner,
    held::{Held, Lot},
    polling::batch::{BatchRule, BatchTask},
};

/// Tasks that wait for the next call.
#[derive(Debug, Default)]
pub(crate) struct Afloat {
    tasks: BTreeMap<SolveId, Box<Held>>,
    last_call: Option<Timestamp>,
    /// All that came back from the last call may be asked for again from here on.
    in_step: Timestamp,
    /// When the next call is due; `None` when it has to be thought about again.
    next: Option<Timestamp>,
}

/// A task for stock is worth a tenth of one somebody waits for.
const FOR_STOCK: f64 = 0.1;
/// So many calls go out at one moment: the rest of a crowd is asked for at the next.
const MOST_CALLS: usize = 100;

impl Afloat {
    pub(crate) fn insert(&mut self, inner: &Inner, held: Box<Held>) {
        let soon = inner.now().plus(inner.config.polling.min_gap());
        if held.polls > 0 && held.not_before <= soon {
            self.in_step = self.in_step.max(held.not_before);
        }
        self.next = None;
        self.tasks.insert(held.lease.solve.id, held);
    }

    pub(crate) fn remove(&mut self, id: SolveId) -> Option<Box<Held>> {
        self.tasks.remove(&id)
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Held>> {
        std::mem::take(&mut self.tasks).into_values()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Held> {
        self.tasks.values().map(AsRef::as_ref)
    }

    /// When the next call is due, or when to think about it.
    pub(crate) fn next_call(&mut self, inner: &Inner, now: Timestamp) -> Option<Timestamp> {
        if self.tasks.is_empty() {
            return None;
        }
        let rule = rule(inner);
        let soonest = self.soonest(rule.min_gap);
        if now < soonest {
            return Some(soonest);
        }
        if self.next.is_none() {
            let tasks = self.seen(now, rule.min_gap);
            let wait = rule.next_call(&tasks, rule.min_gap, self.chance(inner, &tasks));
            self.next = Some(now.plus(wait));
        }
        self.next
    }

    /// In step with the last call; but a lot that is long on its way does not stop the others.
    fn soonest(&self, gap: Duration) -> Timestamp {
        let Some(last) = self.last_call else { return Timestamp::default() };
        self.in_step.clamp(last.plus(gap), last.plus(2 * gap))
    }

    /// Takes out what is to be asked for now, one lot per call.
    pub(crate) fn due(&mut self, inner: &Inner, now: Timestamp) -> Vec<Lot> {
        if self.next_call(inner, now).is_none_or(|at| now < at) {
            return Vec::new();
        }
        let rule = rule(inner);
        let tasks = self.seen(now, Duration::ZERO);
        let all = BatchRule { most_ids: rule.most_ids * MOST_CALLS, ..rule };
        let chosen = all.choose(&tasks, self.chance(inner, &tasks));
        let ids: Vec<SolveId> = self.tasks.keys().copied().collect();
        let chosen: Vec<SolveId> = chosen.into_iter().map(|i| ids[i]).collect();
        self.next = None;
        if chosen.is_empty() {
            // Nobody may be asked for yet: think again in a moment.
            self.next = Some(now.plus(rule.min_gap / 4));
            return Vec::new();
        }
        self.last_call = Some(now);
        let lots = chosen.chunks(rule.most_ids);
        lots.map(|lot| lot.iter().filter_map(|id| self.tasks.remove(id)).collect()).collect()
    }

    /// The tasks in their order. One that has to wait for longer than `patience` counts from then on only.
    fn seen(&self, now: Timestamp, patience: Duration) -> Vec<BatchTask> {
        self.tasks.values().map(|held| held.batch_task(now, patience)).collect()
    }

    fn chance<'a>(
        &'a self,
        inner: &'a Inner,
        tasks: &'a [BatchTask],
    ) -> impl Fn(usize, Duration) -> f64 + 'a {
        let families: Vec<_> = self.tasks.values().map(|held| &held.family).collect();
        move |i, age| inner.config.polling.chance_ready(families[i], tasks[i].asked, age)
    }
}

/// No two calls are closer than two polls of a task may be.
fn rule(inner: &Inner) -> BatchRule {
    let rule = BatchRule::default();
    BatchRule { min_gap: rule.min_gap.max(inner.config.polling.min_gap()), ..rule }
}

impl Held {
    fn batch_task(&self, now: Timestamp, patience: Duration) -> BatchTask {
        let solve = &self.lease.solve;
        let sent = solve.accepted_at.unwrap_or(solve.opened_at);
        let waiting = u32::try_from(solve.claims.len()).unwrap_or(u32::MAX);
        let waits = self.not_before > now.plus(patience);
        let not_before = if waits { self.not_before.since(sent) } else { Duration::ZERO };
        BatchTask {
            asked: self.not_ready.map_or(Duration::ZERO, |at| at.since(sent)),
            age: now.since(sent),
            weight: if waiting == 0 { FOR_STOCK } else { f64::from(waiting) },
            from: self.worth_asking_from.max(not_before),
        }
    }
}
