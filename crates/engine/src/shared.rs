//! The state that all parts of one engine share: its ports, its configuration and the parts themselves. Each part owns
//! its locks.

use std::{sync::Arc, time::Duration};

use domain::{
    budget::Budgets,
    challenge::Challenge,
    declarations::{Declarations, Guard},
    money::Money,
    ports::StoreError,
    time::Timestamp,
};
use parking_lot::RwLock;

use crate::{
    EngineConfig, Ports, Tasks,
    maintenance::Maintenance,
    pipeline::reread::Rereads,
    polling::{Family, TaskPoller},
    scheduler::Scheduler,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) config: EngineConfig,
    /// The declarations in force; a reload replaces them.
    pub(crate) declarations: RwLock<Arc<Declarations>>,
    /// The budgets in force; a reload replaces them.
    pub(crate) budgets: RwLock<Arc<Budgets>>,
    pub(crate) scheduler: Scheduler,
    pub(crate) poller: TaskPoller,
    pub(crate) maintenance: Maintenance,
    pub(crate) rereads: Rereads,
    pub(crate) tasks: Tasks,
}

impl Shared {
    /// The price of one attempt, which is reserved for it. Under a plan it is an estimate: the time that attempts of this
    /// kind took so far, and an assumption about the kind before the first.
    pub(crate) fn price_of(&self, challenge: &Challenge) -> Option<Money> {
        let expected = || {
            let family = Family::of(challenge.kind(), challenge);
            self.config.polling.memory.timing(&family).mean
        };
        self.config.prices.of(challenge, expected)
    }

    /// Nothing runs yet.
    pub(crate) fn new(ports: Ports, config: EngineConfig) -> Self {
        let shared = Self {
            declarations: RwLock::new(Arc::clone(&config.declarations)),
            budgets: RwLock::default(),
            scheduler: Scheduler::new(&config, &ports),
            poller: TaskPoller::default(),
            maintenance: Maintenance::default(),
            rereads: Rereads::default(),
            tasks: Tasks::default(),
            ports,
            config,
        };
        shared.set_budgets(shared.config.budgets.clone());
        shared
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub(crate) fn declarations(&self) -> Arc<Declarations> {
        Arc::clone(&self.declarations.read())
    }

    pub(crate) fn budgets(&self) -> Arc<Budgets> {
        Arc::clone(&self.budgets.read())
    }

    /// Replaces the budgets of the account and the workers. Those of the pools are configured with them.
    pub(crate) fn set_budgets(&self, budgets: Budgets) {
        let declared = self.declarations();
        let limited = self.config.pools.iter().filter(|wish| wish.budget.is_limited());
        let pools = limited.filter_map(|wish| Some((wish.fingerprint(&declared)?, wish.budget)));
        let pools = pools.collect();
        *self.budgets.write() = Arc::new(Budgets { pools, ..budgets });
    }

    /// The declarations and budgets in force, as a decision carries them.
    pub(crate) fn guard(&self) -> Guard {
        Guard::new(self.declarations()).with_budgets(self.budgets())
    }

    /// Whether the clock is known to be wrong, so that the store refuses every decision.
    pub(crate) fn is_clock_wrong(&self) -> bool {
        self.maintenance.health.clock_error.lock().is_some()
    }

    /// Sleeps, and goes on sleeping while the clock is wrong; `false` once the driver has stopped and background services may
    /// end.
    pub(crate) async fn pause(&self, length: Duration) -> bool {
        while self.rest(length).await {
            if !self.is_clock_wrong() {
                return true;
            }
        }
        false
    }

    /// Sleeps; `false` once the driver has stopped.
    pub(crate) async fn rest(&self, length: Duration) -> bool {
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
        let error = match &result {
            // The store answers; the gateway itself is in trouble, which `clock_error` says.
            Ok(_) | Err(StoreError::WrongClock(_)) => None,
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Corrupt { .. })) => {
                Some(error.to_string())
            }
        };
        *self.maintenance.health.store_error.lock() = error;
        result
    }
}
