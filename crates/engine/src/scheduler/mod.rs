//! Decides which solve moves next, and what holds submissions back.
//!
//! # Layout
//! - `driver`: the loop that owns all active solves; `steps`: runs its steps
//! - `queue_room`: whether a worker may queue one more solve
//! - `leases`: taking solves from the store and giving them back
//! - `fair_queue`: solves that wait for a slot; `submissions`: when the next of them is submitted
//! - `starts`: claims that arrive while nothing waits are submitted at once
//! - `slots`, `submit_rate`, `retry_budget`, `circuit_breaker`: the limits on submissions
//! - `account_share`: this gateway's shares of the limits that hold for all gateways together
//! - `paused`: which solves wait because an operator paused them
//! - `active`: the solves in the hands of this process; `in_flight`: the tasks it has at the provider
//! - `estimate`: how long an answer will take

pub(crate) mod account_share;
pub(crate) mod active;
pub(crate) mod circuit_breaker;
mod declared;
pub(crate) mod driver;
pub(crate) mod estimate;
pub(crate) mod fair_queue;
mod in_flight;
mod leases;
pub(crate) mod paused;
pub(crate) mod queue_room;
mod retry_budget;
pub(crate) mod slots;
pub(crate) mod starts;
mod steps;
mod submissions;
mod submit_rate;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use domain::id::WorkerName;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::{EngineConfig, Ports, maintenance::lease_renewal::GatewayLease};

use self::{
    account_share::AccountShare,
    active::ActiveSolve,
    circuit_breaker::Breakers,
    estimate::SolveTimes,
    fair_queue::FairQueue,
    in_flight::InFlightTasks,
    queue_room::{Arrivals, QueueLimits},
    slots::SlotCounter,
    submissions::Submissions,
    submit_rate::SubmitRate,
};

/// The driver's shared half: what other parts read or signal while the driver runs.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) lease: GatewayLease,
    pub(crate) slots: SlotCounter,
    pub(crate) submit_rate: Mutex<SubmitRate>,
    pub(crate) account_share: AccountShare,
    pub(crate) breakers: Breakers,
    pub(crate) in_flight: InFlightTasks,
    pub(crate) solve_times: SolveTimes,
    queue: Mutex<FairQueue<Box<ActiveSolve>>>,
    /// Locked before the queue and the limits.
    submissions: Mutex<Submissions>,
    /// The driver has something to send, or a slot that was missing is free again.
    starts_changed: Notify,
    /// Shares of the slots; a reload replaces them.
    pub(crate) priorities: RwLock<BTreeMap<WorkerName, u32>>,
    pub(crate) queue_limits: QueueLimits,
    pub(crate) arrivals: Arrivals,
    wake: Notify,
    /// Set once: nothing new is admitted or submitted.
    draining: AtomicBool,
    /// Set once: the driver has ended.
    stopped: watch::Sender<bool>,
    /// Solves queued at the driver's last pass, so that readers need no lock.
    queued: AtomicUsize,
    /// The paused ones among them.
    parked: AtomicUsize,
}

impl Scheduler {
    pub(crate) fn new(config: &EngineConfig, ports: &Ports) -> Self {
        Self {
            lease: GatewayLease::new(config.place, &*ports.chance),
            slots: SlotCounter::new(config.slots, ports.clock.now()),
            submit_rate: Mutex::new(SubmitRate::new(config.submits_per_second)),
            account_share: AccountShare::default(),
            breakers: Breakers::new(config.probe_every),
            in_flight: InFlightTasks::default(),
            solve_times: SolveTimes::default(),
            queue: Mutex::new(FairQueue::new()),
            submissions: Mutex::new(Submissions::new(ports.clock.now())),
            starts_changed: Notify::new(),
            priorities: RwLock::new(config.priorities.clone()),
            queue_limits: RwLock::new(config.queue_limits.clone()),
            arrivals: Arrivals::default(),
            wake: Notify::new(),
            draining: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            queued: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
        }
    }

    /// Makes the driver lease again at once: there may be new work.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Returns once the driver has ended.
    pub(crate) async fn stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        // The sender is a field of `self`, so waiting cannot fail.
        drop(stopped.wait_for(|stopped| *stopped).await);
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// The queued solves that are not paused.
    pub(crate) fn ready(&self) -> usize {
        self.queued().saturating_sub(self.parked.load(Ordering::Relaxed))
    }

    fn record_load(&self) {
        let queue = self.queue.lock();
        self.queued.store(queue.len(), Ordering::Relaxed);
        self.parked.store(queue.parked(), Ordering::Relaxed);
    }
}
