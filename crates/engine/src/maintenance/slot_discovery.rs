//! Reads the account's threads from the provider: at the start, every minute, and soon after a refusal for want of one.

use std::{sync::Arc, time::Duration};

use crate::Shared;

const EVERY: Duration = Duration::from_secs(60);
/// An idle gateway asks rarely, because the provider counts these calls against the number of submissions.
const EVERY_IDLE: Duration = Duration::from_secs(600);
const MIN_GAP: Duration = Duration::from_secs(5);

pub(crate) async fn run(shared: Arc<Shared>) {
    let scheduler = &shared.scheduler;
    loop {
        if discover(&shared).await {
            scheduler.wake();
        }
        if !shared.pause(MIN_GAP).await {
            return;
        }
        let is_idle = scheduler.slots.used() + scheduler.ready() == 0;
        let every = match scheduler.slots.limit() {
            0 => MIN_GAP,
            _ if is_idle => EVERY_IDLE,
            _ => EVERY,
        };
        tokio::select! {
            biased;
            () = shared.maintenance.slot_discovery.notified() => {}
            more = shared.pause(every) => if !more { return },
        }
    }
}

/// Reads the threads once; `false` when it did not, because another call with a bad key brings the account closer to a
/// ban.
pub(crate) async fn discover(shared: &Shared) -> bool {
    let scheduler = &shared.scheduler;
    if scheduler.breakers.account.is_open() {
        return false;
    }
    match shared.ports.provider.threads().await {
        Ok(threads) if threads.total > 0 => {
            scheduler.slots.set_reported(threads, scheduler.account_share.used_by_others());
        }
        Ok(_) | Err(_) => scheduler.slots.set_unreported(),
    }
    true
}
