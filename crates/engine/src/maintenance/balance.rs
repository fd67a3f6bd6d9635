//! Writes the account's balance to the ledger, so that `reconcile` can compare: at the start, at an interval and at every UTC
//! midnight. Of several gateways on a store one reads it.

use std::{sync::Arc, time::Duration};

use domain::ports::{Fault, StoreError};

use crate::Shared;

/// After a restart, a balance this young is not read again.
const START_GAP: Duration = Duration::from_secs(60);
/// How long after midnight it is read, so that every gateway is on the new day.
const AFTER_MIDNIGHT: Duration = Duration::from_secs(5);

/// The result of a reading.
#[derive(Debug)]
pub(crate) enum ReadResult {
    /// It is in the ledger.
    Recorded,
    /// Somebody read it recently.
    NotDue,
    /// The provider did not say it, or may not be asked now.
    Unknown(String),
}

pub(crate) async fn run(shared: Arc<Shared>, every: Duration) {
    let mut least_gap = START_GAP.min(every);
    let mut read_on = None;
    loop {
        // The provider counts these calls against the number of submissions, so an idle gateway reads once a day.
        let (today, tasks) = (shared.now().day(), shared.poller.quota.tasks());
        if read_on.replace((today, tasks)) == Some((today, tasks)) {
            if !rest(&shared, every).await {
                return;
            }
            continue;
        }
        shared.poller.quota.spend(1);
        match read(&shared, least_gap).await {
            Ok(ReadResult::Recorded | ReadResult::NotDue) => {}
            Ok(ReadResult::Unknown(why)) => {
                read_on = None;
                tracing::info!(%why, "balance not read, reconcile will miss it");
            }
            Err(error) => {
                read_on = None;
                tracing::warn!(%error, "failed to write the balance to the ledger");
            }
        }
        least_gap = every;
        if !rest(&shared, every).await {
            return;
        }
    }
}

/// Sleeps for the interval, or until shortly after midnight; `false` once the driver has stopped.
async fn rest(shared: &Shared, every: Duration) -> bool {
    let now = shared.now();
    let midnight = now.day().end().plus(AFTER_MIDNIGHT).since(now);
    shared.pause(every.min(midnight)).await
}

/// Reads the balance and writes it down, unless one was read less than `least_gap` ago.
pub(crate) async fn read(shared: &Shared, least_gap: Duration) -> Result<ReadResult, StoreError> {
    // With a bad key, another call brings the account closer to a ban.
    if let Some(trouble) = shared.scheduler.breakers.account.trouble() {
        return Ok(ReadResult::Unknown(trouble));
    }
    let store = &shared.ports.store;
    let Some(number) = store.ask_balance(least_gap, shared.now()).await? else {
        return Ok(ReadResult::NotDue);
    };
    match shared.ports.provider.fresh_balance().await {
        Ok(amount) => {
            store.record_balance(number, amount, shared.now()).await?;
            Ok(ReadResult::Recorded)
        }
        Err(Fault { why, .. }) => Ok(ReadResult::Unknown(why)),
    }
}
