//! Keeps this process's copy of what is paused, read from the store every second, and pauses and resumes. The copy only
//! spares questions: the store checks the pauses itself in every decision that spends.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    claim::Claim,
    pause::{Pause, PauseScope, Pauses},
    ports::{PauseRequest, PauseResult, StoreError},
    site::PageUrl,
};
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::{Engine, Shared};

/// What is paused, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct PauseCopy {
    in_force: RwLock<Arc<Pauses>>,
    stale: Notify,
}

const EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.maintenance.pauses.stale.notified() => {}
            more = shared.pause(EVERY) => if !more { return },
        }
        if let Err(error) = refresh(&shared).await {
            tracing::warn!(%error, "failed to read what is paused");
        }
    }
}

/// Reads what is paused.
pub(crate) async fn refresh(shared: &Shared) -> Result<(), StoreError> {
    let pauses = shared.ports.store.pauses().await?;
    take_over(shared, pauses);
    Ok(())
}

fn take_over(shared: &Shared, pauses: Pauses) {
    let before = shared.maintenance.pauses.in_force();
    if *before == pauses {
        return;
    }
    for Pause { scope, since, by } in pauses.iter().filter(|pause| !before.has(&pause.scope)) {
        tracing::warn!(%scope, %since, by = %by.name, "submissions paused");
    }
    for Pause { scope, .. } in before.iter().filter(|pause| !pauses.has(&pause.scope)) {
        tracing::warn!(%scope, "submissions resumed");
    }
    *shared.maintenance.pauses.in_force.write() = Arc::new(pauses);
    shared.scheduler.wake();
}

// --- what operators do ---

impl Engine {
    /// Pauses or resumes submissions on all gateways. Paid tasks are polled on, and claims are admitted and wait.
    pub async fn set_pause(
        &self,
        scope: PauseScope,
        paused: bool,
        by: Actor,
    ) -> Result<PauseResult, StoreError> {
        let request = PauseRequest { scope, paused, by };
        let result = self.0.ports.store.set_pause(request, self.0.now()).await?;
        if let PauseResult::Done { pauses, .. } = &result {
            take_over(&self.0, pauses.clone());
        }
        Ok(result)
    }

    /// What is paused, from the store.
    pub async fn pauses(&self) -> Result<Pauses, StoreError> {
        self.0.ports.store.pauses().await
    }

    /// What is paused, at most a second old.
    pub fn known_pauses(&self) -> Arc<Pauses> {
        self.0.maintenance.pauses.in_force()
    }

    /// The pause in force that keeps a waiting claim from being submitted, or kept it until its end.
    pub fn pause_that_stopped(&self, claim: &Claim) -> Option<Pause> {
        let pauses = self.0.maintenance.pauses.in_force();
        if pauses.is_empty() {
            return None;
        }
        let page = claim.pageurl.as_ref().and_then(|page| PageUrl::parse(page).ok());
        let pause = pauses
            .stopping_page(page.as_ref())
            .or_else(|| pauses.stopping_worker(&claim.worker))?;
        let was_unsent = claim.attempts == 0;
        let ended = claim.ended_at.unwrap_or(claim.deadline);
        (was_unsent && pause.since < ended).then(|| pause.clone())
    }
}

// === impl PauseCopy ===

impl PauseCopy {
    pub(crate) fn in_force(&self) -> Arc<Pauses> {
        Arc::clone(&self.in_force.read())
    }

    /// The store refused something as paused, so the copy is behind.
    pub(crate) fn refresh_soon(&self) {
        self.stale.notify_one();
    }
}
