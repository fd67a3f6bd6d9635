//! How the engine is doing, for `/readyz` and status pages. Never used to decide about money.

use domain::pause::Pause;
use parking_lot::Mutex;

use crate::Engine;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes claims.
    pub ready: bool,
    /// What is wrong, one line each.
    pub troubles: Vec<String>,
    /// The parts that are in trouble, one word each, for callers who may not see the details.
    pub failing: Vec<&'static str>,
    /// Tasks at the provider.
    pub in_flight: usize,
    /// Solves waiting for a slot or their time.
    pub queued: usize,
}

#[derive(Debug, Default)]
pub(crate) struct HealthMonitor {
    /// The store's last error, until it answers again.
    pub(crate) store_error: Mutex<Option<String>>,
    /// How wrong the clock is, until it agrees with the store's server again.
    pub(crate) clock_error: Mutex<Option<String>>,
    pub(crate) panicked: Mutex<Option<&'static str>>,
}

impl Engine {
    pub fn health(&self) -> Health {
        let (scheduler, monitor) = (&self.0.scheduler, &self.0.maintenance.health);
        let store_error = monitor.store_error.lock().clone();
        let draining = scheduler.is_draining();
        let clock_error = monitor.clock_error.lock().clone();
        let mut troubles: Vec<String> = store_error.iter().chain(&clock_error).cloned().collect();
        let panicked = *monitor.panicked.lock();
        troubles.extend(panicked.map(|part| format!("the {part} panicked: restart the gateway")));
        troubles.extend(draining.then(|| "draining".to_owned()));
        let pauses = self.known_pauses();
        troubles.extend(pauses.iter().map(|Pause { scope, since, by }| {
            let by = &by.name;
            format!("submissions of {scope} are paused since {since} by {by}: `solvegate resume` ends it")
        }));
        troubles.extend(scheduler.breakers.troubles());
        let mut failing: Vec<_> = store_error.iter().map(|_| "store").collect();
        failing.extend(clock_error.as_ref().map(|_| "clock"));
        failing.extend(panicked.map(|_| "engine"));
        failing.extend(draining.then_some("draining"));
        failing.extend((!pauses.is_empty()).then_some("paused"));
        failing.extend(scheduler.breakers.failing());
        Health {
            ready: store_error.is_none() && clock_error.is_none() && !draining,
            troubles,
            failing,
            in_flight: scheduler.slots.used(),
            queued: scheduler.queued(),
        }
    }
}
