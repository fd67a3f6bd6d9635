//! The services that run beside the driver, one per file: lease renewal, sweeping, counting of fetches and refusals, slot
//! discovery, the memory of solve times, pauses, pools, readings of the balance, callbacks, alerts and the archive. Each ends
//! once the driver has stopped.

pub(crate) mod alerts;
pub(crate) mod archive;
pub(crate) mod balance;
pub(crate) mod fetch_counter;
pub(crate) mod lease_renewal;
pub(crate) mod outbox;
pub(crate) mod pauses;
pub(crate) mod polling_memory;
pub(crate) mod pools;
pub(crate) mod refusals;
pub(crate) mod slot_discovery;
pub(crate) mod sweeper;

use std::{panic::AssertUnwindSafe, sync::Arc};

use domain::{ledger::Entry, ports::Records};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Shared, Slots, health::HealthMonitor};

use self::{
    fetch_counter::FetchCounter, outbox::OutboxHints, pauses::PauseCopy, pools::PoolHints,
    refusals::RefusalCounter,
};

/// The services' shared half: what other parts read or signal while they run.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub(crate) health: HealthMonitor,
    pub(crate) pools: PoolHints,
    pub(crate) outbox: OutboxHints,
    pub(crate) fetches: FetchCounter,
    pub(crate) pauses: PauseCopy,
    pub(crate) refusals: RefusalCounter,
    /// Requests to read the provider's threads soon.
    pub(crate) slot_discovery: Notify,
    /// The last ledger entry that is in the archive, as far as this process knows.
    pub(crate) archived: Mutex<Option<Entry>>,
}

/// Starts all services that the configuration needs. `source` reads the store itself, without its archive.
pub(crate) fn start(shared: &Arc<Shared>, source: Arc<dyn Records>) {
    let config = &shared.config;
    spawn(shared, "lease renewal", lease_renewal::run(Arc::clone(shared)));
    spawn(shared, "sweeper", sweeper::run(Arc::clone(shared)));
    spawn(shared, "fetch counter", fetch_counter::run(Arc::clone(shared)));
    spawn(shared, "refusals", refusals::run(Arc::clone(shared)));
    spawn(shared, "polling memory", polling_memory::run(Arc::clone(shared)));
    spawn(shared, "pauses", pauses::run(Arc::clone(shared)));
    spawn(shared, "outbox", outbox::run(Arc::clone(shared)));
    if config.keeps_pools && config.slots != Slots::Fixed(0) {
        spawn(shared, "pools", pools::run(Arc::clone(shared)));
    }
    if config.slots == Slots::Auto {
        spawn(shared, "slot discovery", slot_discovery::run(Arc::clone(shared)));
    }
    if let Some(every) = config.balance_every {
        spawn(shared, "balance", balance::run(Arc::clone(shared), every));
    }
    if let Some(archive) = config.archive.clone() {
        spawn(shared, "archive", archive::run(Arc::clone(shared), source, archive));
    }
    if let Some(alerts) = config.alerts.clone() {
        spawn(shared, "alerts", alerts::run(Arc::clone(shared), alerts));
    }
}

/// Runs a part of the engine. If it panics, the gateway drains and reports that it is not ready, so that somebody
/// restarts it.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    part: &'static str,
    run: impl Future<Output = ()> + Send + 'static,
) {
    let watched = Arc::clone(shared);
    shared.tasks.spawn(async move {
        if AssertUnwindSafe(run).catch_unwind().await.is_err() {
            tracing::error!(part, "engine task panicked, restart the gateway");
            *watched.maintenance.health.panicked.lock() = Some(part);
            watched.scheduler.start_draining();
        }
    });
}
