//! The machine where no process stays: claims come in as always, and solves move in rounds that are asked for from
//! outside. A round is the driver's own loop with an end (driver/round.rs); no rule is written a second time.
//!
//! What wants a process that stays is not done: pools, callbacks, alerts, the archive.

use std::sync::{Arc, atomic::Ordering};

use domain::{
    claim::ClaimState,
    id::{ClaimId, HolderId, SolveId},
    ports::StoreError,
    solve::Stage,
    time::Timestamp,
};

use crate::{
    Engine, EngineConfig, Inner, Ports, driver,
    keeper::{self, SWEEP_LIMIT},
};

/// An engine that moves nothing by itself.
///
/// A round that is dropped is a crash: what it held is recovered after its lease has ended, by rounds of other lives.
#[derive(Debug)]
pub struct Rounds(Engine);

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims whose deadline had passed.
    pub lapsed: usize,
    /// Solves that were leased.
    pub leased: usize,
    /// Submissions, whatever came of them.
    pub submitted: usize,
    /// Tasks that were asked for.
    pub polled: usize,
    /// Those among them that need not be asked for again.
    pub over: usize,
    /// The store did not answer somewhere; a later round finds out what is left to do.
    pub unsure: bool,
}

impl Rounds {
    /// Nothing is leased and nothing runs before a round is asked for.
    pub fn new(ports: Ports, mut config: EngineConfig) -> Self {
        // A question that waits for company would wait for the next round.
        config.batches = false;
        config.keeps_pools = false;
        Self(Engine(Arc::new(Inner::new(ports, config))))
    }

    /// The machine, for doors.
    pub fn engine(&self) -> &Engine {
        &self.0
    }

    /// Submits the claim's solve if that is what it waits for and its time has come. Otherwise, and for everybody else's,
    /// nothing is done and nothing leased: a worker that asks often does not make us ask the provider often.
    pub async fn submit(&mut self, id: ClaimId, until: Timestamp) -> Result<Tally, StoreError> {
        match self.queued(id).await? {
            Some(solve) => self.round(Some(solve), until).await,
            None => Ok(Tally::default()),
        }
    }

    async fn queued(&self, id: ClaimId) -> Result<Option<SolveId>, StoreError> {
        let inner = &*self.0.0;
        let now = inner.now();
        let waits = inner.ports.store.find_claim(id).await?;
        let waits =
            waits.filter(|claim| claim.state == ClaimState::Waiting && now < claim.deadline);
        let Some(solve) = waits.and_then(|claim| claim.solve) else { return Ok(None) };
        let solve = inner.ports.store.find_solve(solve).await?;
        let is_due = solve.filter(|solve| solve.stage == Stage::Queued && solve.due <= now);
        Ok(is_due.map(|solve| solve.id))
    }

    /// Ends what passed its deadline, asks for every task once, submits what is due. From `until` on nothing is started.
    pub async fn everything(&mut self, until: Timestamp) -> Result<Tally, StoreError> {
        // First, so that nothing is paid for whom nobody waits any more.
        let lapsed = self.sweep(until).await?;
        let tally = self.round(None, until).await?;
        Ok(Tally { lapsed, ..tally })
    }

    async fn sweep(&self, until: Timestamp) -> Result<usize, StoreError> {
        let inner = &*self.0.0;
        let mut lapsed = 0;
        loop {
            let swept = keeper::sweep_once(inner).await?;
            lapsed += swept.lapsed.len();
            let most = swept.lapsed.len().max(swept.wasted).max(swept.banked).max(swept.dropped);
            if most < SWEEP_LIMIT || inner.now() >= until {
                return Ok(lapsed);
            }
        }
    }

    /// Each round is a life of its own: should an earlier one have left something behind, it is found dead.
    async fn round(
        &mut self,
        only: Option<SolveId>,
        until: Timestamp,
    ) -> Result<Tally, StoreError> {
        let inner = &self.0.0;
        let holder = HolderId::draw(&*inner.ports.chance);
        inner.holder.store(holder.number(), Ordering::SeqCst);
        keeper::renew(inner).await?;
        tokio::select! {
            biased;
            tally = driver::round(Arc::clone(inner), only, until) => Ok(tally),
            never = keep_on(inner) => match never {},
        }
    }

    /// Waits for what was begun besides: reports to the provider. Afterwards the process may be frozen.
    pub async fn rest(&self) {
        self.0.0.tasks.finish().await;
    }
}

/// Renews the lease for as long as this is polled.
async fn keep_on(inner: &Arc<Inner>) -> std::convert::Infallible {
    keeper::keep(Arc::clone(inner)).await;
    std::future::pending().await
}
