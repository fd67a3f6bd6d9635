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
pub(crate) enum BalanceReading {
    /// It is in the ledger.
    Recorded,
    /// Somebody read it recently.
    NotDue,
    /// The provider did not say it, or may not be asked now.
    Unknown(String),
}

pub(crate) async fn run(shared: Arc<Shared>, every: Duration) {
    let mut least_gap = START_GAP.min(every);
    loop {
        match read(&shared, least_gap).await {
            Ok(BalanceReading::Recorded | BalanceReading::NotDue) => {}
            Ok(BalanceReading::Unknown(why)) => {
                tracing::info!(%why, "balance not read, reconcile will miss it");
            }
            Err(error) => tracing::warn!(%error, "failed to write the balance to the ledger"),
        }
        least_gap = every;
        let now = shared.now();
        let midnight = now.day().end().plus(AFTER_MIDNIGHT).since(now);
        if !shared.pause(every.min(midnight)).await {
            return;
        }
    }
}

/// Reads the balance and writes it down, unless one was read less than `least_gap` ago.
pub(crate) async fn read(
    shared: &Shared,
    least_gap: Duration,
) -> Result<BalanceReading, StoreError> {
    // With a bad key, another call brings the account closer to a ban; so does one beyond the quota of calls.
    if let Some(trouble) = shared.scheduler.breakers.account.trouble() {
        return Ok(BalanceReading::Unknown(trouble));
    }
    if !shared.poller.quota.take_spare() {
        return Ok(BalanceReading::Unknown("the quota of calls to the provider is used".into()));
    }
    let store = &shared.ports.store;
    let Some(number) = store.ask_balance(least_gap, shared.now()).await? else {
        return Ok(BalanceReading::NotDue);
    };
    match shared.ports.provider.fresh_balance().await {
        Ok(amount) => {
            store.record_balance(number, amount, shared.now()).await?;
            Ok(BalanceReading::Recorded)
        }
        Err(Fault { why, .. }) => Ok(BalanceReading::Unknown(why)),
    }
}
