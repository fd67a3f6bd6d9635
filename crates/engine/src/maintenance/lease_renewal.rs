//! Keeps the process's one lease, renewed at a third of its term, and earlier when the shares of the account change. A
//! renewal says what this gateway uses of the account and brings its shares (`scheduler/account_share.rs`). What other
//! gateways can do about it, they hear through the notifier.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    account_share::{ASKED, GIVEN},
    id::{HolderId, Place},
    lease::Holder,
    ports::{Chance, LeaseRequest, StoreError, Subscription},
    time::Timestamp,
};

use tokio::sync::{Mutex, Notify};

use crate::{Shared, scheduler::account_share};

/// The process's lease, as far as the process knows.
#[derive(Debug)]
pub(crate) struct GatewayLease {
    place: Option<Place>,
    holder: AtomicU64,
    /// In milliseconds. Checked again just before a submission leaves.
    until: AtomicU64,
    /// How many gateways held a lease at the last renewal, this one included.
    gateways: AtomicUsize,
    /// A renewal that runs.
    renewing: Mutex<()>,
    asked: Notify,
}

/// How often it is checked whether a renewal before its time would help, which is also the least time between two.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After an announcement: the announcements of several gateways are followed by one renewal.
const GATHER: Duration = Duration::from_millis(50);

/// Why a renewal may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Time,
    /// The driver asked for it.
    Driver,
    /// Another gateway waits for a share.
    Asked,
    /// Another gateway has given a share.
    Given,
}

/// What the other gateways announce.
struct Announcements {
    asked: Subscription,
    given: Subscription,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut renewed_at = shared.now();
    let mut announced = Announcements::subscribe(&shared);
    while let Some(cause) = next_check(&shared, &mut announced).await {
        let scheduler = &shared.scheduler;
        let (now, since) = (shared.now(), shared.now().since(renewed_at));
        let is_wanted = match cause {
            Cause::Time => since >= LeaseRequest::TERM / 3,
            Cause::Driver => scheduler.account_share.is_shared(),
            Cause::Asked => account_share::can_give(scheduler, now),
            Cause::Given => account_share::is_owed(scheduler, now),
        };
        if !is_wanted && !account_share::wants_renewal(scheduler, since, now) {
            continue;
        }
        renewed_at = shared.now();
        match renew(&shared).await {
            // A wrong clock was logged when it was found.
            Ok(()) | Err(StoreError::WrongClock(_)) => {}
            Err(error) => tracing::error!(%error, "failed to renew the gateway's lease"),
        }
    }
}

/// Waits for the next moment at which a renewal may be due; `None` when the driver has stopped.
async fn next_check(shared: &Shared, announced: &mut Announcements) -> Option<Cause> {
    let cause = tokio::select! {
        biased;
        more = shared.rest(CHECK_EVERY) => return more.then_some(Cause::Time),
        () = shared.scheduler.lease.asked.notified() => return Some(Cause::Driver),
        () = &mut announced.asked => Cause::Asked,
        () = &mut announced.given => Cause::Given,
    };
    let more = shared.rest(GATHER).await;
    *announced = Announcements::subscribe(shared);
    more.then_some(cause)
}

/// Takes the lease, or renews it, if the clock agrees with the store's server.
pub(crate) async fn renew(shared: &Shared) -> Result<(), StoreError> {
    let lease = &shared.scheduler.lease;
    // The results of two renewals at once could be obeyed in the wrong order.
    let _turn = lease.renewing.lock().await;
    if let Err(error) = compare_clock(shared).await {
        if matches!(error, StoreError::WrongClock(_)) {
            lease.until.store(0, Ordering::SeqCst);
        }
        return Err(error);
    }
    let now = shared.now();
    let until = now.plus(LeaseRequest::TERM);
    let account = shared.config.shares_account;
    let account = account.then(|| account_share::current_use(&shared.scheduler, now));
    let held = shared.ports.store.hold(Holder { id: lease.holder(), until, account }).await;
    let standing = shared.record_store_health(held)?;
    lease.gateways.store(standing.gateways.max(1), Ordering::Relaxed);
    shared.poller.quota.share_among(standing.gateways);
    if let Some(said) = account {
        // Before the lease is known to run: without one nothing is submitted.
        let announced = account_share::obey(&shared.scheduler, said, standing, shared.now());
        for what in announced {
            shared.ports.notifier.notify(what);
        }
    }
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

impl Announcements {
    fn subscribe(shared: &Shared) -> Self {
        let notifier = &shared.ports.notifier;
        Self { asked: notifier.subscribe(ASKED), given: notifier.subscribe(GIVEN) }
    }
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
            renewing: Mutex::default(),
            asked: Notify::new(),
        }
    }

    /// Begins a new life under a new name: an earlier life that left something behind counts as dead.
    pub(crate) fn restart(&self, chance: &dyn Chance) {
        self.holder.store(draw(self.place, chance).number(), Ordering::SeqCst);
    }

    pub(crate) fn holder(&self) -> HolderId {
        HolderId::from_number(self.holder.load(Ordering::SeqCst))
    }

    /// Asks for a renewal before its time. Ignored if there is nothing to share.
    pub(crate) fn renew_soon(&self) {
        self.asked.notify_one();
    }

    /// How many gateways share the store. While the store is unavailable this is the last known number.
    pub(crate) fn gateways(&self) -> usize {
        self.gateways.load(Ordering::Relaxed)
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        now.millis() < self.until.load(Ordering::SeqCst)
    }
}
