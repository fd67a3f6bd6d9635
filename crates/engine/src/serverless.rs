//! The engine where no process stays, such as AWS Lambda: claims come in as always, and solves move in rounds that the
//! host starts. A round is the driver's own loop with an end (scheduler/driver.rs).
//!
//! Pools, callbacks, alerts and the archive need a process that stays, so they do not run here.

use std::sync::Arc;

use domain::{
    claim::ClaimState,
    id::{ClaimId, SolveId},
    ports::StoreError,
    solve::Stage,
    time::Timestamp,
};

use crate::{
    Engine, EngineConfig, Ports, Shared,
    maintenance::{
        lease_renewal, pauses,
        sweeper::{self, SWEEP_LIMIT},
    },
    scheduler::driver,
};

/// An engine that moves solves only in rounds.
///
/// Dropping a round is like a crash: another round recovers its solves once its lease has expired.
#[derive(Debug)]
pub struct ServerlessDriver(Engine);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundReport {
    /// Claims whose deadline had passed.
    pub lapsed: usize,
    pub leased: usize,
    /// Submissions, whatever their result.
    pub submitted: usize,
    pub polled: usize,
    /// Polled tasks that need no further poll.
    pub over: usize,
    /// A reply of the store was lost; a later round finds out what is left to do.
    pub unsure: bool,
}

impl ServerlessDriver {
    /// Leases and runs nothing before the first round.
    pub fn new(ports: Ports, mut config: EngineConfig) -> Self {
        // A task that waits for a batch poll would wait for the next round.
        config.batches = false;
        config.keeps_pools = false;
        // Rounds are too short to wait for others to give.
        config.shares_account = false;
        Self(Engine(Arc::new(Shared::new(ports, config))))
    }

    pub fn engine(&self) -> &Engine {
        &self.0
    }

    /// Submits the claim's solve if it is queued and due. Otherwise does nothing and leases nothing, so that a worker
    /// that fetches often does not cause polls.
    pub async fn submit(
        &mut self,
        id: ClaimId,
        until: Timestamp,
    ) -> Result<RoundReport, StoreError> {
        match self.due_solve(id).await? {
            Some(solve) => self.round(Some(solve), until).await,
            None => Ok(RoundReport::default()),
        }
    }

    async fn due_solve(&self, id: ClaimId) -> Result<Option<SolveId>, StoreError> {
        let shared = &*self.0.0;
        let now = shared.now();
        let claim = shared.ports.store.find_claim(id).await?;
        let waiting =
            claim.filter(|claim| claim.state == ClaimState::Waiting && now < claim.deadline);
        let Some(solve) = waiting.and_then(|claim| claim.solve) else { return Ok(None) };
        let solve = shared.ports.store.find_solve(solve).await?;
        let due = solve.filter(|solve| solve.stage == Stage::Queued && solve.due <= now);
        Ok(due.map(|solve| solve.id))
    }

    /// Ends claims past their deadline, polls every task once and submits what is due. Starts nothing from `until` on.
    pub async fn run_all(&mut self, until: Timestamp) -> Result<RoundReport, StoreError> {
        let shared = &*self.0.0;
        let mut lapsed = 0;
        // Sweep first, so that nothing is paid for solves that nobody waits for.
        loop {
            let swept = sweeper::sweep(shared).await?;
            lapsed += swept.lapsed.len();
            let most = swept.lapsed.len().max(swept.wasted).max(swept.banked).max(swept.dropped);
            if most < SWEEP_LIMIT || shared.now() >= until {
                break;
            }
        }
        let report = self.round(None, until).await?;
        Ok(RoundReport { lapsed, ..report })
    }

    /// Each round has a holder name of its own, so that whatever an earlier round left behind counts as abandoned.
    async fn round(
        &mut self,
        only: Option<SolveId>,
        until: Timestamp,
    ) -> Result<RoundReport, StoreError> {
        let shared = &self.0.0;
        shared.scheduler.lease.restart(&*shared.ports.chance);
        lease_renewal::renew(shared).await?;
        pauses::refresh(shared).await?;
        let renew_for_ever = async {
            lease_renewal::run(Arc::clone(shared)).await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            report = driver::run_round(Arc::clone(shared), only, until) => Ok(report),
            never = renew_for_ever => never,
        }
    }

    /// Waits for background work, such as reports to the provider. Afterwards the process may be frozen.
    pub async fn finish(&self) {
        self.0.0.tasks.finish().await;
    }
}
