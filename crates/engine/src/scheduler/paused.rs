//! Which solves the driver leaves alone because an operator paused them. The store checks the pauses again in the
//! transaction that would spend; this keeps paused work from asking it in vain.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Sharing,
    pause::Pauses,
    solve::{AmbiguousPolicy, Stage},
    time::Timestamp,
};

use crate::Shared;

use super::{active::ActiveSolve, fair_queue::FairQueue};

/// The pauses that the driver's queue was last sorted by.
#[derive(Debug)]
pub(super) struct PauseFilter(Arc<Pauses>);

/// A paused solve that is not in the queue is considered again after this time.
pub(crate) const PAUSE_CHECK: Duration = Duration::from_secs(1);

impl PauseFilter {
    pub(super) fn new(shared: &Shared) -> Self {
        Self(shared.maintenance.pauses.in_force())
    }

    /// Sorts the queue again if the pauses have changed.
    pub(super) fn follow(&mut self, shared: &Shared) {
        let in_force = shared.maintenance.pauses.in_force();
        if !Arc::ptr_eq(&in_force, &self.0) {
            self.0 = in_force;
            let queue: &mut FairQueue<Box<ActiveSolve>> = &mut shared.scheduler.queue.lock();
            queue.sort_parked(shared.now(), |active| self.stops(active));
        }
    }

    /// Whether nothing may be submitted for it. Claims of several workers may wait for an answer that can be shared, and the
    /// driver does not see them all, so there only the store knows whether a worker's pause stops it.
    pub(super) fn stops(&self, active: &ActiveSolve) -> bool {
        let (solve, challenge) = (&active.lease.solve, &active.lease.challenge);
        if self.0.is_empty() {
            return false;
        }
        let has_one_worker = solve.kind.sharing() == Sharing::Exclusive;
        self.0.stopping_page(challenge.pageurl()).is_some()
            || (has_one_worker && self.0.stopping_worker(&solve.worker).is_some())
    }

    /// When a paused solve is considered again whose lost reply would be followed by another attempt. Nothing holds back a
    /// write-off, because it spends nothing.
    pub(super) fn hold_until(&self, active: &ActiveSolve, now: Timestamp) -> Option<Timestamp> {
        let solve = &active.lease.solve;
        let may_resubmit = solve.stage == Stage::Ambiguous
            && solve.policy.ambiguous == AmbiguousPolicy::ResubmitOnce
            && now < solve.wanted_until;
        (may_resubmit && self.stops(active)).then(|| now.plus(PAUSE_CHECK))
    }
}
