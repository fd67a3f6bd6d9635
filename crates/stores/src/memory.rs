//! `memory:` the store for tests, trials and single processes that may forget: ordered maps behind one lock. It is the
//! model the other stores are compared with.

use std::{fmt, sync::Mutex};

use async_trait::async_trait;
use domain::{
    callback::Callback,
    claim::{Admission, Claim, Delivery, NewClaim},
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, SolveId, WorkerName},
    lease::{Holder, Lease},
    ledger::{Entry, Total},
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        ActiveSolve, ClaimFilter, DaySpending, DeadLetterFilter, LearnedMargin, LeaseAsk, Note,
        Paged, PoolState, Records, Refill, Refilled, Revival, Revive, Scope, Settled, StockLevel,
        Store, StoreError, SweepAsk, Swept, TotalsAsk, Withdrawal,
    },
    solve::{Decision, Fact, Refused, Solve},
    time::{Day, Timestamp},
};

use crate::{
    readings, rules,
    shelf::Shelf,
    tables::{Claims, DeadLetters, Maps, Solves},
};

/// A store that lives as long as its process.
#[derive(Default)]
pub struct MemoryStore {
    maps: Mutex<Maps>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(
        &self,
        decide: impl FnOnce(&mut Maps) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A rule that panicked may have left half a decision behind: nothing is built on that.
        let mut maps = self.maps.lock().map_err(|_| StoreError::Unavailable {
            backend: "memory",
            source: "an earlier decision panicked; restart the process".into(),
        })?;
        decide(&mut maps)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        self.with(|maps| rules::admit(maps, &claim, now))
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.with(|maps| maps.get::<Claims>(&id))
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.with(|maps| maps.get::<Solves>(&id))
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.with(|maps| rules::deliver(maps, id, now))
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.with(|maps| rules::withdraw(maps, id, now))
    }

    async fn hold(&self, holder: Holder, _now: Timestamp) -> Result<(), StoreError> {
        self.with(|maps| rules::hold(maps, holder))
    }

    async fn release(&self, holder: HolderId, _now: Timestamp) -> Result<(), StoreError> {
        self.with(|maps| rules::release(maps, holder))
    }

    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.with(|maps| rules::lease(maps, ask, now))
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError> {
        self.with(|maps| rules::advance(maps, lease, &decision, now))
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.with(|maps| rules::settle(maps, solve, attempt, &fact, now))
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.with(|maps| rules::note(maps, &note, now))
    }

    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError> {
        self.with(|maps| rules::revive(maps, &ask, now))
    }

    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.with(|maps| rules::purge(maps, letter, by, now))
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        self.with(|maps| rules::callbacks(maps, limit, now))
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        self.with(|maps| rules::called_back(maps, callback, now))
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.with(|maps| rules::set_pool(maps, fingerprint, order, now))
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.with(|maps| rules::expect(maps, pool, expectation, now))
    }

    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError> {
        self.with(|maps| rules::refill(maps, &ask, now))
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.with(|maps| rules::set_memo(maps, name, value))
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(|maps| rules::memos(maps, prefix))
    }

    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError> {
        self.with(|maps| rules::sweep(maps, &ask, now))
    }
}

#[async_trait]
impl Records for MemoryStore {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        self.with(|maps| readings::history(maps, &filter))
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.with(|maps| readings::active(maps, &scope, limit))
    }

    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError> {
        self.with(|maps| readings::totals(maps, &ask))
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Paged<DeadLetter>, StoreError> {
        self.with(|maps| readings::dead_letters(maps, &filter))
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError> {
        self.with(|maps| maps.get::<DeadLetters>(&id))
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        self.with(|maps| readings::explain(maps, claim))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.with(|maps| readings::entries(maps, from, limit))
    }

    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError> {
        self.with(|maps| readings::spending(maps, day))
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
        self.with(|maps| readings::pools(maps, now))
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.with(|maps| readings::margins(maps))
    }

    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
        self.with(|maps| readings::stock_levels(maps, now))
    }
}
