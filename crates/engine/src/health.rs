//! How the engine is doing, for `/readyz` and status pages. Never used to decide about money.

use domain::ports::StoreError;
use parking_lot::Mutex;

use crate::Shared;

/// How the engine is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes claims.
    pub ready: bool,
    /// What is wrong, one line each.
    pub troubles: Vec<String>,
    /// Tasks at the provider.
    pub in_flight: usize,
    /// Solves waiting for a slot or their time.
    pub queued: usize,
}

#[derive(Debug, Default)]
pub(crate) struct HealthMonitor {
    /// The store's last error, until it answers again.
    store_error: Mutex<Option<String>>,
    panicked: Mutex<Option<&'static str>>,
}

pub(crate) fn check(shared: &Shared) -> Health {
    let (scheduler, monitor) = (&shared.scheduler, &shared.maintenance.health);
    let store_error = monitor.store_error.lock().clone();
    let draining = scheduler.is_draining();
    let mut troubles: Vec<String> = store_error.iter().cloned().collect();
    let panicked = *monitor.panicked.lock();
    troubles.extend(panicked.map(|part| format!("the {part} panicked: restart the gateway")));
    troubles.extend(draining.then(|| "draining".to_owned()));
    troubles.extend(scheduler.breakers.troubles());
    Health {
        ready: store_error.is_none() && !draining,
        troubles,
        in_flight: scheduler.slots.used(),
        queued: scheduler.queued(),
    }
}

impl HealthMonitor {
    pub(crate) fn record_panic(&self, part: &'static str) {
        *self.panicked.lock() = Some(part);
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        *self.store_error.lock() = Some(error.to_string());
    }

    pub(crate) fn store_answered(&self) {
        *self.store_error.lock() = None;
    }
}
