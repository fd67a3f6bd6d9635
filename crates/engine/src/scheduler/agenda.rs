//! The active solves that wait for their time. Tasks that are polled in batches wait in a queue of their own.

use std::collections::BTreeMap;

use domain::{id::SolveId, time::Timestamp};

use crate::{Shared, polling::batch::queue::BatchQueue};

use super::active::{ActiveSolve, ActiveSolves};

#[derive(Debug, Default)]
pub(super) struct Agenda {
    scheduled: BTreeMap<(Timestamp, SolveId), Box<ActiveSolve>>,
    batch: BatchQueue,
}

impl Agenda {
    pub(super) fn insert(&mut self, active: Box<ActiveSolve>) {
        self.scheduled.insert((active.not_before, active.lease.solve.id), active);
    }

    pub(super) fn insert_for_batch(&mut self, shared: &Shared, active: Box<ActiveSolve>) {
        self.batch.insert(shared, active);
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Box<ActiveSolve>> {
        let first = self.scheduled.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    pub(super) fn take_due_batches(
        &mut self,
        shared: &Shared,
        now: Timestamp,
    ) -> Vec<ActiveSolves> {
        self.batch.take_due(shared, now)
    }

    /// Takes out the solve that is scheduled for `at` or waits for a batch poll.
    pub(super) fn take(&mut self, id: SolveId, at: Option<Timestamp>) -> Option<Box<ActiveSolve>> {
        let scheduled = at.and_then(|at| self.scheduled.remove(&(at, id)));
        scheduled.or_else(|| self.batch.remove(id))
    }

    /// Takes out everything that matches.
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

    pub(super) fn contains(&self, id: SolveId) -> bool {
        self.values().any(|active| active.lease.solve.id == id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ActiveSolve> {
        self.scheduled.values().map(AsRef::as_ref).chain(self.batch.values())
    }

    /// How many wait for a time of their own.
    pub(super) fn scheduled(&self) -> usize {
        self.scheduled.len()
    }

    /// When the first of them is due.
    pub(super) fn next_at(&mut self, shared: &Shared, now: Timestamp) -> Option<Timestamp> {
        let batch = self.batch.next_call(shared, now);
        let scheduled = self.scheduled.first_key_value().map(|((at, _), _)| *at);
        batch.into_iter().chain(scheduled).min()
    }
}
