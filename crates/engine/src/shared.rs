//! The state that all parts of one engine share: its ports, its configuration and the parts themselves. Each part owns
//! its locks.

use std::{sync::Arc, time::Duration};

use domain::{
    declarations::{Declarations, Guard},
    ports::StoreError,
    time::Timestamp,
};
use parking_lot::RwLock;

use crate::{
    EngineConfig, Ports, Tasks, maintenance::Maintenance, polling::TaskPoller, scheduler::Scheduler,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) config: EngineConfig,
    /// The declarations in force; a reload replaces them.
    pub(crate) declarations: RwLock<Arc<Declarations>>,
    pub(crate) scheduler: Scheduler,
    pub(crate) poller: TaskPoller,
    pub(crate) maintenance: Maintenance,
    pub(crate) tasks: Tasks,
}

impl Shared {
    /// Nothing runs yet.
    pub(crate) fn new(ports: Ports, config: EngineConfig) -> Self {
        Self {
            declarations: RwLock::new(Arc::clone(&config.declarations)),
            scheduler: Scheduler::new(&config, &ports),
            poller: TaskPoller::default(),
            maintenance: Maintenance::new(&config),
            tasks: Tasks::default(),
            ports,
            config,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub(crate) fn declarations(&self) -> Arc<Declarations> {
        Arc::clone(&self.declarations.read())
    }

    /// The declarations in force, as a decision carries them.
    pub(crate) fn guard(&self) -> Guard {
        Guard::new(self.declarations())
    }

    /// Sleeps; `false` once the driver has stopped and background services may end.
    pub(crate) async fn pause(&self, length: Duration) -> bool {
        let wake = self.now().plus(length);
        tokio::select! {
            biased;
            () = self.scheduler.stopped() => false,
            () = self.ports.clock.sleep_until(wake) => true,
        }
    }

    /// Remembers for `/readyz` whether the store answers.
    pub(crate) fn record_store_health<T>(
        &self,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        *self.maintenance.health.store_error.lock() =
            result.as_ref().err().map(ToString::to_string);
        result
    }
}
