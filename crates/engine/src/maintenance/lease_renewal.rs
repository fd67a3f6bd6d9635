//! Keeps the process's one lease, renewed at a third of its term.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use domain::{
    id::{HolderId, Place},
    lease::Holder,
    ports::{Chance, LeaseRequest, StoreError},
    time::Timestamp,
};

use crate::Shared;

/// The process's lease, as far as the process knows.
#[derive(Debug)]
pub(crate) struct GatewayLease {
    place: Option<Place>,
    holder: AtomicU64,
    /// In milliseconds. Checked again just before a submission leaves.
    until: AtomicU64,
    /// How many gateways held a lease at the last renewal, this one included.
    gateways: AtomicUsize,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    while shared.rest(LeaseRequest::TERM / 3).await {
        match renew(&shared).await {
            // A wrong clock was logged when it was found.
            Ok(()) | Err(StoreError::WrongClock(_)) => {}
            Err(error) => tracing::error!(%error, "failed to renew the gateway's lease"),
        }
    }
}

/// Takes the lease, or renews it, if the clock agrees with the store's server.
pub(crate) async fn renew(shared: &Shared) -> Result<(), StoreError> {
    let lease = &shared.scheduler.lease;
    if let Err(error) = compare_clock(shared).await {
        if matches!(error, StoreError::WrongClock(_)) {
            lease.until.store(0, Ordering::SeqCst);
        }
        return Err(error);
    }
    let now = shared.now();
    let until = now.plus(LeaseRequest::TERM);
    let held = shared.ports.store.hold(Holder { id: lease.holder(), until }).await;
    let gateways = shared.record_store_health(held)?;
    lease.gateways.store(gateways.max(1), Ordering::Relaxed);
    lease.until.store(until.millis(), Ordering::SeqCst);
    Ok(())
}

/// Compares the clock with the store's, and remembers for `/readyz` and for the driver whether it is wrong.
async fn compare_clock(shared: &Shared) -> Result<(), StoreError> {
    let result = shared.ports.store.compare_clock().await;
    let mut known = shared.maintenance.health.clock_error.lock();
    match &result {
        Ok(()) => {
            if known.take().is_some() {
                tracing::info!("the clock agrees with the store's server again");
                shared.scheduler.wake();
            }
        }
        Err(error @ StoreError::WrongClock(_)) => {
            if known.replace(error.to_string()).is_none() {
                tracing::error!(%error, "this gateway decides nothing until its clock is right");
            }
        }
        // Nothing was learned about the clock.
        Err(StoreError::Unavailable { .. } | StoreError::Corrupt { .. }) => {}
    }
    drop(known);
    shared.record_store_health(result)
}

fn draw(place: Option<Place>, chance: &dyn Chance) -> HolderId {
    place.map_or_else(|| HolderId::draw(chance), |place| HolderId::draw_in(place, chance))
}

impl GatewayLease {
    pub(crate) fn new(place: Option<Place>, chance: &dyn Chance) -> Self {
        Self {
            place,
            holder: AtomicU64::new(draw(place, chance).number()),
            until: AtomicU64::new(0),
            gateways: AtomicUsize::new(1),
        }
    }

    /// Begins a new life under a new name: an earlier life that left something behind counts as dead.
    pub(crate) fn restart(&self, chance: &dyn Chance) {
        self.holder.store(draw(self.place, chance).number(), Ordering::SeqCst);
    }

    pub(crate) fn holder(&self) -> HolderId {
        HolderId::from_number(self.holder.load(Ordering::SeqCst))
    }

    /// How many gateways share the store. While the store is unavailable this is the last known number.
    pub(crate) fn gateways(&self) -> usize {
        self.gateways.load(Ordering::Relaxed)
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        now.millis() < self.until.load(Ordering::SeqCst)
    }
}
