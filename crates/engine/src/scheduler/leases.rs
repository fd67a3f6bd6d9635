//! Takes due solves from the store and gives them back. `LeaseCycle` is the driver's memory of where it stands between
//! two lease calls.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::{LeaseRequest, StoreError},
    solve::{AMBIGUOUS_WAIT, Stage},
    time::Timestamp,
};

use crate::{Shared, maintenance::lease_renewal, pipeline::poll};

use super::account_share;

#[derive(Debug, Default)]
pub(super) struct LeaseCycle {
    /// This solve is driven and no other.
    pub(super) only: Option<SolveId>,
    running: bool,
    pub(super) next_at: Timestamp,
    /// A reply of the store was lost: the next lease call releases everything first.
    pub(super) resync: bool,
    /// Submissions that ended while everything was being released. The store did not release them.
    submitted_meanwhile: Option<BTreeSet<SolveId>>,
    /// Everything there was to lease is leased. Only then it is known which slots are taken.
    pub(super) knows_all: bool,
}

/// Without a hint, the driver leases this often.
pub(super) const LEASE_EVERY: Duration = Duration::from_secs(1);
pub(super) const LEASE_LIMIT: usize = 1000;

/// Leases the due solves, or the one that is wanted. A resync releases everything first, except submissions under way.
pub(super) async fn lease(
    shared: &Shared,
    only: Option<SolveId>,
    resync: bool,
) -> Result<Vec<Lease>, StoreError> {
    let holder = shared.scheduler.lease.holder();
    if resync {
        account_share::give_up(&shared.scheduler, shared.now());
        shared.ports.store.release(holder).await?;
        lease_renewal::renew(shared).await?;
    }
    let ask = LeaseRequest { only, ..LeaseRequest::any(holder, LEASE_LIMIT) };
    shared.ports.store.lease(ask, shared.now()).await
}

/// Gives up the process's lease; `false` when others have to wait until it expires.
pub(super) async fn release(shared: &Shared) -> bool {
    let holder = shared.scheduler.lease.holder();
    let released = shared.ports.store.release(holder).await;
    if let Err(error) = &released {
        tracing::error!(%error, "failed to release the gateway's lease, others wait until it expires");
    }
    released.is_ok()
}

/// When a leased solve is taken up, and how often its task was polled. A task that this process itself polled just before a
/// resync is not polled again before its minimum gap.
pub(super) fn first_step(shared: &Shared, lease: &Lease) -> (Timestamp, u32) {
    let (now, solve) = (shared.now(), &lease.solve);
    if solve.stage == Stage::Ambiguous {
        // In its grace period, the driver looks for a late reply every two seconds.
        return (solve.due.min(now.plus(AMBIGUOUS_WAIT)), 0);
    }
    if solve.task.is_none() {
        return (solve.due, 0);
    }
    let polling = &shared.config.polling;
    let polled = shared.scheduler.in_flight.get(solve.id).and_then(|task| task.polled);
    if let Some((at, polls)) = polled {
        return (now.max(at.plus(polling.min_gap)), polls);
    }
    let polls = poll::polls_so_far(shared, lease);
    shared.poller.quota.earn(polling.most.saturating_sub(polls));
    (now, polls)
}

// === impl LeaseCycle ===

impl LeaseCycle {
    pub(super) fn new(only: Option<SolveId>, now: Timestamp) -> Self {
        Self { only, next_at: now, ..Self::default() }
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        !self.running && now >= self.next_at
    }

    /// When the driver next needs to wake for a lease call.
    pub(super) fn wake_at(&self, now: Timestamp) -> Timestamp {
        if self.running { now.plus(LEASE_EVERY) } else { self.next_at }
    }

    /// A call begins; `true` when it is to be a resync.
    pub(super) fn start(&mut self, now: Timestamp) -> bool {
        self.running = true;
        self.next_at = now.plus(LEASE_EVERY);
        let resync = std::mem::take(&mut self.resync);
        self.submitted_meanwhile = resync.then(BTreeSet::new);
        resync
    }

    /// The call is over. Returns the submissions that ended while it ran, if it was a resync.
    pub(super) fn finish(&mut self) -> BTreeSet<SolveId> {
        self.running = false;
        self.submitted_meanwhile.take().unwrap_or_default()
    }

    /// Records how many solves a call brought; `true` when everything is known for the first time since it was not.
    pub(super) fn record_count(&mut self, count: usize) -> bool {
        let knew_all = std::mem::replace(&mut self.knows_all, count < LEASE_LIMIT);
        self.knows_all && !knew_all
    }

    pub(super) fn record_submission(&mut self, solve: SolveId) {
        if let Some(meanwhile) = &mut self.submitted_meanwhile {
            meanwhile.insert(solve);
        }
    }
}
