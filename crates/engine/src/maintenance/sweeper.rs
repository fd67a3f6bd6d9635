//! Ends claims that passed their deadline and drops expired records, every second.

use std::{sync::Arc, time::Duration};

use domain::{
    money::Money,
    ports::{History, StoreError, SweepRequest, Swept},
};

use crate::{Shared, pipeline::settle};

const EVERY: Duration = Duration::from_secs(1);
pub(crate) const SWEEP_LIMIT: usize = 500;

pub(crate) async fn run(shared: Arc<Shared>) {
    while shared.pause(EVERY).await {
        if let Err(error) = sweep(&shared).await {
            tracing::error!(%error, "sweep failed");
        }
        probe_idle_account(&shared).await;
    }
}

/// One sweep, of at most [`SWEEP_LIMIT`] records of each sort.
pub(crate) async fn sweep(shared: &Shared) -> Result<Swept, StoreError> {
    let trouble = shared.scheduler.breakers.code();
    let history = match &shared.config.archive {
        Some(_) => History::Archived(shared.maintenance.archived.lock().clone().map(Box::new)),
        None => History::InStore,
    };
    let ask = SweepRequest { limit: SWEEP_LIMIT, trouble, history };
    let swept = shared.record_store_health(shared.ports.store.sweep(ask, shared.now()).await)?;
    settle::notify_ended(shared, swept.lapsed.iter().copied());
    Ok(swept)
}

/// With an empty queue, or one that is paused, no submission can probe the account, so the balance does.
async fn probe_idle_account(shared: &Shared) {
    let account = &shared.scheduler.breakers.account;
    if shared.scheduler.ready() > 0 || !account.take_probe(shared.now()) {
        return;
    }
    match shared.ports.provider.balance().await {
        Ok(balance) if balance > Money::ZERO => account.close(shared.now(), shared.now()),
        Ok(_) | Err(_) => account.learned_nothing(shared.now()),
    }
}
