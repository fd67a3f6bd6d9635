//! A store that can be made unavailable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    account_share::Standing,
    actor::Actor,
    admin_action::AdminAction,
    callback::Callback,
    challenge::Challenge,
    claim::{Admission, Claim, Delivery, NewClaim, Repeats},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, SolveId},
    lease::{Holder, Lease},
    money::Money,
    pause::Pauses,
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        Advanced, LeaseRequest, Note, PauseRequest, PauseResult, RefillRequest, Refilled, Revival,
        ReviveRequest, Settled, Store, StoreError, SweepRequest, Swept, Withdrawal,
    },
    solve::{Decision, Fact, Solve},
    time::Timestamp,
};

/// Passes every call on until it is set unavailable.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    away: AtomicBool,
    panics: AtomicBool,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, away: AtomicBool::new(false), panics: AtomicBool::new(false) }
    }

    /// From now on every decision fails; or none does.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// From now on reading a claim panics.
    pub(crate) fn set_panics(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::SeqCst) {
            let why = "canary-store-address refused the connection";
            return Err(StoreError::unavailable("faulty", why));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        self.check()?;
        self.inner.admit(claim, now).await
    }

    async fn withhold_start(
        &self,
        claim: ClaimId,
        solve: SolveId,
        nonce: Nonce,
        now: Timestamp,
    ) -> Result<Option<Claim>, StoreError> {
        self.check()?;
        self.inner.withhold_start(claim, solve, nonce, now).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        assert!(!self.panics.load(Ordering::SeqCst), "this store panics");
        self.check()?;
        self.inner.find_claim(id).await
    }

    async fn find_claims(&self, ids: Vec<ClaimId>) -> Result<Vec<Claim>, StoreError> {
        self.check()?;
        self.inner.find_claims(ids).await
    }

    async fn find_challenge(&self, id: SolveId) -> Result<Option<Arc<Challenge>>, StoreError> {
        self.check()?;
        self.inner.find_challenge(id).await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.check()?;
        self.inner.find_solve(id).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.check()?;
        self.inner.deliver(id, now).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.check()?;
        self.inner.withdraw(id, by, now).await
    }

    async fn count_fetches(&self, fetches: Vec<(ClaimId, u64)>) -> Result<(), StoreError> {
        self.check()?;
        self.inner.count_fetches(fetches).await
    }

    async fn repeats(&self, id: ClaimId) -> Result<Repeats, StoreError> {
        self.check()?;
        self.inner.repeats(id).await
    }

    async fn compare_clock(&self) -> Result<(), StoreError> {
        self.check()?;
        self.inner.compare_clock().await
    }

    async fn hold(&self, holder: Holder) -> Result<Standing, StoreError> {
        self.check()?;
        self.inner.hold(holder).await
    }

    async fn release(&self, holder: HolderId) -> Result<(), StoreError> {
        self.check()?;
        self.inner.release(holder).await
    }

    async fn lease(&self, ask: LeaseRequest, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.check()?;
        self.inner.lease(ask, now).await
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Advanced, StoreError> {
        self.check()?;
        self.inner.advance(lease, decision, now).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.check()?;
        self.inner.settle(solve, attempt, fact, now).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.check()?;
        self.inner.note(note, now).await
    }

    async fn revive(&self, ask: ReviveRequest, now: Timestamp) -> Result<Revival, StoreError> {
        self.check()?;
        self.inner.revive(ask, now).await
    }

    async fn purge(&self, letter: SolveId, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        self.check()?;
        self.inner.purge(letter, by, now).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        self.check()?;
        self.inner.callbacks(limit, now).await
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        self.check()?;
        self.inner.called_back(callback, now).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.check()?;
        self.inner.set_pool(fingerprint, order, by, now).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.check()?;
        self.inner.expect(pool, expectation, by, now).await
    }

    async fn refill(&self, ask: RefillRequest, now: Timestamp) -> Result<Refilled, StoreError> {
        self.check()?;
        self.inner.refill(ask, now).await
    }

    async fn set_pause(
        &self,
        request: PauseRequest,
        now: Timestamp,
    ) -> Result<PauseResult, StoreError> {
        self.check()?;
        self.inner.set_pause(request, now).await
    }

    async fn pauses(&self) -> Result<Pauses, StoreError> {
        self.check()?;
        self.inner.pauses().await
    }

    async fn administer(
        &self,
        by: Actor,
        action: AdminAction,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.check()?;
        self.inner.administer(by, action, now).await
    }

    async fn ask_balance(
        &self,
        least_gap: Duration,
        now: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        self.check()?;
        self.inner.ask_balance(least_gap, now).await
    }

    async fn record_balance(
        &self,
        number: u32,
        amount: Money,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.check()?;
        self.inner.record_balance(number, amount, now).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.check()?;
        self.inner.set_memo(name, value).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.check()?;
        self.inner.memos(prefix).await
    }

    async fn sweep(&self, ask: SweepRequest, now: Timestamp) -> Result<Swept, StoreError> {
        self.check()?;
        self.inner.sweep(ask, now).await
    }
}
