//! The driver's loop with an end: what can be done now is done, and everything is given back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{id::SolveId, time::Timestamp};
use futures_util::FutureExt;

use super::{Driver, leases::release};
use crate::{Inner, Slots, keeper, rounds::Tally};

/// The pace lets the next submission go within this time. Whatever takes longer is no matter of the pace, and is left to
/// the next round.
const PATIENCE: Duration = Duration::from_millis(1100);

/// Leases what is due, or `only` the one, and steps each while there is something to do now. From `until` on nothing is
/// started; what is under way ends. Then the lease is given up, which must be held already.
pub(crate) async fn round(inner: Arc<Inner>, only: Option<SolveId>, until: Timestamp) -> Tally {
    // A hint from before is no news: the first thing a driver does is to lease.
    let _: Option<()> = inner.wake.notified().now_or_never();
    let mut driver = Driver::new(&inner, only);
    let mut knows_threads = inner.config.slots != Slots::Auto;
    loop {
        if inner.now() < until {
            driver.start_steps();
        }
        if !knows_threads && inner.queue().len() > 0 {
            keeper::ask_once(&inner).await;
            knows_threads = true;
            continue;
        }
        if driver.is_idle(until) {
            break;
        }
        driver.wait().await;
    }
    driver.give_back();
    let released = release(&inner).await;
    Tally { unsure: driver.unsure || !released, ..driver.tally }
}

impl Driver {
    /// Nothing is under way, and time alone will not help soon.
    fn is_idle(&self, until: Timestamp) -> bool {
        let now = self.inner.now();
        let soon = |at: Timestamp| at <= until.min(now.plus(PATIENCE));
        self.steps.is_empty() && !(now < until && self.submit_at.is_some_and(soon))
    }

    /// The next round leases everything anew; when a task was asked for last is still worth knowing then.
    fn give_back(&mut self) {
        self.forget(&BTreeSet::new());
        for sent in self.inner.sent().values_mut() {
            sent.next = None;
        }
        self.inner.health.set_load(self.inner.places.used(), self.inner.queue().len());
    }
}
