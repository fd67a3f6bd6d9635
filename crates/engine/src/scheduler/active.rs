//! The solves that this process has leased and moves: what the driver, the pipeline and the poller pass between them.

use std::{collections::BTreeMap, time::Duration};

use domain::{id::SolveId, lease::Lease, time::Timestamp};

use crate::{
    Shared,
    polling::{Family, batch::queue::BatchQueue},
};

use super::fair_queue::LaneName;

/// A leased solve, with what this process knows about it and the store need not know.
#[derive(Debug)]
pub(crate) struct ActiveSolve {
    pub(crate) lease: Lease,
    pub(crate) family: Family,
    /// Polls of the current task, alone or in batches.
    pub(crate) polls: u32,
    /// Poll calls of the current task, in hundredths: the tasks of a batch share the cost of its call.
    pub(crate) calls: u32,
    /// Polls in a row that said nothing about the task.
    pub(crate) faults: u32,
    /// When the last poll left that was answered "not ready".
    pub(crate) not_ready: Option<Timestamp>,
    /// Whether it occupies one of the provider's threads.
    pub(crate) slot: bool,
    pub(crate) turn: Option<Turn>,
    /// The driver leaves it alone until then.
    pub(crate) not_before: Timestamp,
    /// Hardly any task of its family is ready before this age.
    pub(crate) worth_polling_from: Duration,
}

pub(crate) type ActiveSolves = Vec<Box<ActiveSolve>>;

/// A worker's turn at a slot, for the fair queue.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) lane: LaneName,
    pub(crate) since: Timestamp,
}

/// The active solves that wait for their time. Tasks that are polled in batches wait in a queue of their own.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    pub(super) scheduled: BTreeMap<(Timestamp, SolveId), Box<ActiveSolve>>,
    pub(super) batch: BatchQueue,
}

/// What the driver does with a solve after a step.
pub(crate) enum NextStep {
    /// Take it up again at that time.
    At(Timestamp, Box<ActiveSolve>),
    /// Nothing: it is over, or another gateway has it.
    Released,
    /// The store may or may not have applied a decision: release everything and lease it again.
    Resync,
}

/// One poll call, in the unit of [`ActiveSolve::calls`]: a call never polls more than a hundred tasks.
pub(crate) const ONE_CALL: u32 = 100;

// === impl ActiveSolve ===

impl ActiveSolve {
    pub(crate) fn new(lease: Lease, polls: u32) -> Self {
        Self {
            family: Family::of(&lease.solve.kind, &lease.challenge),
            lease,
            polls,
            calls: polls.saturating_mul(ONE_CALL),
            faults: 0,
            not_ready: None,
            slot: false,
            turn: None,
            not_before: Timestamp::default(),
            worth_polling_from: Duration::ZERO,
        }
    }

    pub(crate) fn sent_at(&self) -> Timestamp {
        self.lease.solve.accepted_at.unwrap_or(self.lease.solve.opened_at)
    }

    /// Forgets the polls of an earlier task.
    pub(crate) fn reset_polls(&mut self) {
        self.polls = 0;
        self.calls = 0;
        self.faults = 0;
        self.not_ready = None;
    }
}

// === impl Agenda ===

impl Agenda {
    pub(super) fn insert(&mut self, active: Box<ActiveSolve>) {
        self.scheduled.insert((active.not_before, active.lease.solve.id), active);
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Box<ActiveSolve>> {
        let first = self.scheduled.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// Takes out the solve that is scheduled for `at` or waits for a batch poll.
    pub(super) fn take(&mut self, id: SolveId, at: Option<Timestamp>) -> Option<Box<ActiveSolve>> {
        let scheduled = at.and_then(|at| self.scheduled.remove(&(at, id)));
        scheduled.or_else(|| self.batch.remove(id))
    }

    /// Brings forward the next poll of tasks with a pingback. A task that has used half of its polls keeps its schedule, so
    /// that repeated pingbacks cannot use up the rest.
    pub(super) fn bring_forward_pingbacks(&mut self, shared: &Shared, now: Timestamp) {
        let (polling, in_flight) = (&shared.config.polling, &shared.scheduler.in_flight);
        let pingbacks = std::mem::take(&mut *shared.poller.pingbacks.hints.lock());
        for id in pingbacks {
            let Some(task) = in_flight.get(id) else { continue };
            let Some(mut active) = self.take(id, task.next) else { continue };
            let soonest = task.polled.map_or(now, |(at, _)| now.max(at.plus(polling.min_gap)));
            if active.polls < polling.most / 2 {
                active.not_before = active.not_before.min(soonest);
            }
            in_flight.reschedule(id, active.not_before);
            self.insert(active);
        }
    }

    pub(super) fn take_where(
        &mut self,
        shared: &Shared,
        matches: impl Fn(&ActiveSolve) -> bool,
    ) -> ActiveSolves {
        let all = std::mem::take(&mut self.scheduled);
        let (taken, kept): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(_, active)| matches(active));
        self.scheduled = kept;
        let mut taken: Vec<_> = taken.into_values().collect();
        for active in self.batch.take_all() {
            if matches(&active) {
                taken.push(active);
            } else {
                self.batch.insert(shared, active);
            }
        }
        taken
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ActiveSolve> {
        self.scheduled.values().map(AsRef::as_ref).chain(self.batch.values())
    }

    /// When the first of them is due.
    pub(super) fn next_at(&mut self, shared: &Shared, now: Timestamp) -> Option<Timestamp> {
        let batch = self.batch.next_call(shared, now);
        let scheduled = self.scheduled.first_key_value().map(|((at, _), _)| *at);
        batch.into_iter().chain(scheduled).min()
    }
}
