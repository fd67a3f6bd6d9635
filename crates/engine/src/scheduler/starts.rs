//! Solves that the admission of their claim starts (pipeline/start.rs), because a slot is free and nothing waits. A permit has
//! everything that a submission needs; the driver sends what was started under one.

use std::sync::Arc;

use domain::{
    challenge::Challenge,
    id::{Nonce, WorkerName},
    lease::Lease,
};

use crate::Shared;

use super::{
    active::{ActiveSolve, Turn},
    submissions::Submissions,
};

/// The admissions that may start a solve, between their permit and the driver.
#[derive(Debug, Default)]
pub(super) struct StartList {
    /// The driver knows which slots are taken, has queued all that it leased, and takes up what is started.
    is_open: bool,
    /// Permits that are in use, and started solves.
    under_way: usize,
    started: Vec<StartedSolve>,
}

/// A solve whose first intent is durable, and of which nothing was sent yet.
#[derive(Debug)]
pub(crate) struct StartedSolve {
    pub(crate) active: Box<ActiveSolve>,
    /// With its pictures.
    pub(crate) challenge: Arc<Challenge>,
    pub(crate) nonce: Nonce,
}

/// A slot, a place in the submit rate and a worker's turn, for one submission. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct StartPermit {
    shared: Arc<Shared>,
    turn: Turn,
    is_used: bool,
}

// === impl StartList ===

impl StartList {
    /// Whether permits are given from now on. Those that are in use stay.
    pub(super) fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// Whether an admission may still start a solve, or has started one that the driver has not taken up.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    pub(super) fn take_started(&mut self) -> Vec<StartedSolve> {
        self.under_way -= self.started.len();
        std::mem::take(&mut self.started)
    }
}

// === impl StartPermit ===

impl StartPermit {
    /// Takes everything that a submission for this worker needs, if it can leave now.
    pub(crate) fn take(shared: &Arc<Shared>, worker: &WorkerName) -> Option<Self> {
        let scheduler = &shared.scheduler;
        let mut submissions = scheduler.submissions.lock();
        // Read under the lock, so that the submit rate sees times in order.
        let now = shared.now();
        let may_submit = submissions.starts.is_open
            && !scheduler.is_draining()
            && scheduler.lease.is_valid(now)
            && !shared.is_clock_wrong();
        if !may_submit {
            return None;
        }
        let turn = Submissions::start(scheduler, worker, now)?;
        submissions.starts.under_way += 1;
        Some(Self { shared: Arc::clone(shared), turn, is_used: false })
    }

    /// The store has started a solve: the driver sends it.
    pub(crate) fn start(mut self, lease: Lease, challenge: Arc<Challenge>, nonce: Nonce) {
        let mut active = Box::new(ActiveSolve::new(lease, 0));
        active.slot = true;
        active.turn = Some(self.turn.clone());
        self.is_used = true;
        let scheduler = &self.shared.scheduler;
        let started = StartedSolve { active, challenge, nonce };
        scheduler.submissions.lock().starts.started.push(started);
        scheduler.starts_changed.notify_one();
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let scheduler = &self.shared.scheduler;
        let mut submissions = scheduler.submissions.lock();
        submissions.starts.under_way -= 1;
        Submissions::give_back(scheduler, &self.turn);
        drop(submissions);
        // What waits may have missed just this slot. Otherwise the driver sleeps on: most claims need none.
        if scheduler.queue.lock().has_ready() || scheduler.is_draining() {
            scheduler.starts_changed.notify_one();
        }
    }
}
