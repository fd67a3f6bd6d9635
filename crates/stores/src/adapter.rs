//! The store ports on any backend: each method runs a decision (`rules/`) or a query (`readings.rs`) in a transaction of
//! the backend, which implements [`Driver`].

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

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
        ActiveSolve, Archive, ClaimFilter, DaySpending, DeadLetterFilter, LearnedMargin, LeaseAsk,
        Lot, Note, Paged, PoolState, Records, Refill, Refilled, Revival, Revive, Scope, Settled,
        StockLevel, Store, StoreError, SweepAsk, Swept, TotalsAsk, Withdrawal,
    },
    solve::{Decision, Fact, Refused, Solve},
    time::{Day, Timestamp},
};

use crate::{
    OpenError,
    embedded::Embedded,
    memory::Memory,
    readings, rules,
    tables::{Archived, Claims, DeadLetters, Solves},
    tx::{ReadTx, TypedRead, WriteTx},
};

/// The store ports on any backend. There is one adapter for all of them, so the ports are compiled once.
#[derive(Clone)]
pub struct StoreAdapter {
    driver: Arc<dyn Driver>,
}

/// What a backend does for the adapter.
#[async_trait]
pub(crate) trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Commits a decision: all of its writes or none, and durably. `decide` may run more than once; only the last run counts.
    async fn decide(&self, decide: DecideFn) -> Result<(), StoreError>;

    /// Reads one record, as it stands after everything that was answered. `read` may run more than once.
    async fn read_one(&self, read: ReadFn) -> Result<(), StoreError>;

    /// Reads a list, which may take a while. `read` may run more than once.
    async fn read_list(&self, read: ReadFn) -> Result<(), StoreError>;

    /// What the backend counted.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// A decision that keeps its own result; `false` when its writes must not be committed.
pub(crate) type DecideFn = Box<dyn FnMut(&mut dyn WriteTx) -> bool + Send>;

/// A query that keeps its own result.
pub(crate) type ReadFn = Box<dyn FnMut(&dyn ReadTx) + Send>;

/// What stores within this process count: for tests and benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows that are kept; only the memory store counts them.
    pub rows: usize,
    /// Decisions that were made.
    pub decisions: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Calls that made the disk keep what it has.
    pub fsyncs: u64,
}

/// Where a decision or query leaves the result of its last run.
pub(crate) struct ResultSlot<T>(Arc<Mutex<Option<Result<T, StoreError>>>>);

// === impl StoreAdapter ===

impl StoreAdapter {
    /// An empty store that lives as long as this process.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(Memory::default()))
    }

    /// Opens the embedded store in `dir`, which is created when it does not exist.
    pub fn embedded(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::new(Arc::new(Embedded::open(dir.as_ref())?)))
    }

    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver }
    }

    /// What the backend counted.
    pub fn counters(&self) -> Counters {
        self.driver.counters()
    }

    async fn decide<T, F>(&self, decide: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn WriteTx) -> Result<T, StoreError> + Send + 'static,
    {
        let (decide, slot) = decision(decide);
        self.driver.decide(decide).await?;
        slot.take()
    }

    async fn read_one<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&dyn ReadTx) -> Result<T, StoreError> + Send + 'static,
    {
        let slot = ResultSlot::new();
        self.driver.read_one(slot.filled_by(read)).await?;
        slot.take()
    }

    async fn read_list<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&dyn ReadTx) -> Result<T, StoreError> + Send + 'static,
    {
        let slot = ResultSlot::new();
        self.driver.read_list(slot.filled_by(read)).await?;
        slot.take()
    }
}

/// A decision to hand to a driver, and where the result of its last run will be.
pub(crate) fn decision<T, F>(mut decide: F) -> (DecideFn, ResultSlot<T>)
where
    T: Send + 'static,
    F: FnMut(&mut dyn WriteTx) -> Result<T, StoreError> + Send + 'static,
{
    let slot = ResultSlot::new();
    let last = slot.clone();
    let run = move |tx: &mut dyn WriteTx| {
        let result = decide(tx);
        let good = result.is_ok();
        last.put(result);
        good
    };
    (Box::new(run), slot)
}

impl fmt::Debug for StoreAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driver.fmt(f)
    }
}

// === impl ResultSlot ===

impl<T: Send + 'static> ResultSlot<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn filled_by(
        &self,
        read: impl Fn(&dyn ReadTx) -> Result<T, StoreError> + Send + 'static,
    ) -> ReadFn {
        let last = self.clone();
        Box::new(move |tx| last.put(read(tx)))
    }

    fn put(&self, result: Result<T, StoreError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    pub(crate) fn take(&self) -> Result<T, StoreError> {
        let result = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.expect("the driver ran what it was given before it answered Ok")
    }
}

#[async_trait]
impl Store for StoreAdapter {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        self.decide(move |tx| rules::admit(tx, &claim, now)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.read_one(move |tx| tx.get::<Claims>(&id)).await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.read_one(move |tx| tx.get::<Solves>(&id)).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.decide(move |tx| rules::deliver(tx, id, now)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.decide(move |tx| rules::withdraw(tx, id, now)).await
    }

    async fn hold(&self, holder: Holder, _now: Timestamp) -> Result<(), StoreError> {
        self.decide(move |tx| rules::hold(tx, holder)).await
    }

    async fn release(&self, holder: HolderId, _now: Timestamp) -> Result<(), StoreError> {
        self.decide(move |tx| rules::release(tx, holder)).await
    }

    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.decide(move |tx| rules::lease(tx, ask, now)).await
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError> {
        let lease = lease.clone();
        self.decide(move |tx| rules::advance(tx, &lease, &decision, now)).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.decide(move |tx| rules::settle(tx, solve, attempt, &fact, now)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.decide(move |tx| rules::note(tx, &note, now)).await
    }

    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError> {
        self.decide(move |tx| rules::revive(tx, &ask, now)).await
    }

    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.decide(move |tx| rules::purge(tx, letter, by.clone(), now)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        self.decide(move |tx| rules::callbacks(tx, limit, now)).await
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        let callback = callback.clone();
        self.decide(move |tx| rules::called_back(tx, &callback, now)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.decide(move |tx| rules::set_pool(tx, fingerprint, order.clone(), now)).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.decide(move |tx| rules::expect(tx, pool, expectation, now)).await
    }

    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError> {
        self.decide(move |tx| rules::refill(tx, &ask, now)).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.decide(move |tx| rules::set_memo(tx, &name, value.clone())).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let prefix = prefix.to_owned();
        self.read_list(move |tx| rules::memos(tx, &prefix)).await
    }

    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError> {
        self.decide(move |tx| rules::sweep(tx, &ask, now)).await
    }
}

#[async_trait]
impl Records for StoreAdapter {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        self.read_list(move |tx| readings::history(tx, &filter)).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.read_list(move |tx| readings::active(tx, &scope, limit)).await
    }

    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError> {
        self.read_list(move |tx| readings::totals(tx, &ask)).await
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Paged<DeadLetter>, StoreError> {
        self.read_list(move |tx| readings::dead_letters(tx, &filter)).await
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError> {
        self.read_one(move |tx| tx.get::<DeadLetters>(&id)).await
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        self.read_list(move |tx| readings::explain(tx, claim)).await
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.read_list(move |tx| readings::entries(tx, from, limit)).await
    }

    async fn lot(&self, after: Option<Entry>, limit: usize) -> Result<Lot, StoreError> {
        self.read_list(move |tx| readings::lot(tx, after.as_ref(), limit)).await
    }

    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError> {
        self.read_list(move |tx| readings::spending(tx, day)).await
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
        self.read_list(move |tx| readings::pools(tx, now)).await
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.read_list(|tx| readings::margins(tx)).await
    }

    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
        self.read_list(move |tx| readings::stock_levels(tx, now)).await
    }
}

#[async_trait]
impl Archive for StoreAdapter {
    async fn archived(&self) -> Result<Option<Entry>, StoreError> {
        let progress = self.read_one(|tx| tx.get::<Archived>(&rules::HOW_FAR)).await?;
        Ok(progress.map(|progress| progress.last))
    }

    async fn archive(&self, lot: Lot) -> Result<bool, StoreError> {
        self.decide(move |tx| rules::archive(tx, &lot)).await
    }

    async fn archived_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.find_claim(id).await
    }

    async fn drop_old(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.decide(move |tx| rules::drop_archived(tx, limit, now)).await
    }
}
