//! Every method of the ports, once for all backends: each is a rule or a reading run on whatever shelf the backend has.

use std::{fmt, future::Future, ops::Deref};

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
    readings, rules,
    shelf::{Shelf, ShelfMut},
    tables::{Archived, Claims, DeadLetters, Solves},
};

/// A store: decisions and readings on the shelf of a backend.
pub struct Desk<S>(pub(crate) S);

/// What a backend does for its desk.
pub(crate) trait Shelved: fmt::Debug + Send + Sync + 'static {
    /// The shelf during a decision.
    type Writable<'a>: ShelfMut;
    /// The shelf during a reading.
    type Readable<'a>: Shelf;

    /// Makes a decision: all of its writes or none, and what is answered stays. `decide` may be run more than once;
    /// only the last run counts.
    fn decide<T, F>(&self, decide: F) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send + 'static,
        F: FnMut(&mut Self::Writable<'_>) -> Result<T, StoreError> + Send + 'static;

    /// Reads one record, as it stands after everything that was answered.
    fn look<T, F>(&self, read: F) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Readable<'_>) -> Result<T, StoreError> + Send + 'static;

    /// Reads a list; it may take a while.
    fn read<T, F>(&self, read: F) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send + 'static,
        F: Fn(&Self::Readable<'_>) -> Result<T, StoreError> + Send + 'static;
}

// === impl Desk ===

impl<S> Deref for Desk<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: fmt::Debug> fmt::Debug for Desk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl<S: Shelved> Store for Desk<S> {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        self.0.decide(move |rows| rules::admit(rows, &claim, now)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.0.look(move |rows| rows.get::<Claims>(&id)).await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.0.look(move |rows| rows.get::<Solves>(&id)).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.0.decide(move |rows| rules::deliver(rows, id, now)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.0.decide(move |rows| rules::withdraw(rows, id, now)).await
    }

    async fn hold(&self, holder: Holder, _now: Timestamp) -> Result<(), StoreError> {
        self.0.decide(move |rows| rules::hold(rows, holder)).await
    }

    async fn release(&self, holder: HolderId, _now: Timestamp) -> Result<(), StoreError> {
        self.0.decide(move |rows| rules::release(rows, holder)).await
    }

    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.0.decide(move |rows| rules::lease(rows, ask, now)).await
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError> {
        let lease = lease.clone();
        self.0.decide(move |rows| rules::advance(rows, &lease, &decision, now)).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.0.decide(move |rows| rules::settle(rows, solve, attempt, &fact, now)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.0.decide(move |rows| rules::note(rows, &note, now)).await
    }

    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError> {
        self.0.decide(move |rows| rules::revive(rows, &ask, now)).await
    }

    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.0.decide(move |rows| rules::purge(rows, letter, by.clone(), now)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        self.0.decide(move |rows| rules::callbacks(rows, limit, now)).await
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        let callback = callback.clone();
        self.0.decide(move |rows| rules::called_back(rows, &callback, now)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.0.decide(move |rows| rules::set_pool(rows, fingerprint, order.clone(), now)).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.0.decide(move |rows| rules::expect(rows, pool, expectation, now)).await
    }

    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError> {
        self.0.decide(move |rows| rules::refill(rows, &ask, now)).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.0.decide(move |rows| rules::set_memo(rows, &name, value.clone())).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let prefix = prefix.to_owned();
        self.0.read(move |rows| rules::memos(rows, &prefix)).await
    }

    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError> {
        self.0.decide(move |rows| rules::sweep(rows, &ask, now)).await
    }
}

#[async_trait]
impl<S: Shelved> Records for Desk<S> {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        self.0.read(move |rows| readings::history(rows, &filter)).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.0.read(move |rows| readings::active(rows, &scope, limit)).await
    }

    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError> {
        self.0.read(move |rows| readings::totals(rows, &ask)).await
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Paged<DeadLetter>, StoreError> {
        self.0.read(move |rows| readings::dead_letters(rows, &filter)).await
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError> {
        self.0.look(move |rows| rows.get::<DeadLetters>(&id)).await
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        self.0.read(move |rows| readings::explain(rows, claim)).await
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.0.read(move |rows| readings::entries(rows, from, limit)).await
    }

    async fn lot(&self, after: Option<Entry>, limit: usize) -> Result<Lot, StoreError> {
        self.0.read(move |rows| readings::lot(rows, after.as_ref(), limit)).await
    }

    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError> {
        self.0.read(move |rows| readings::spending(rows, day)).await
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
        self.0.read(move |rows| readings::pools(rows, now)).await
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.0.read(|rows| readings::margins(rows)).await
    }

    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
        self.0.read(move |rows| readings::stock_levels(rows, now)).await
    }
}

#[async_trait]
impl<S: Shelved> Archive for Desk<S> {
    async fn archived(&self) -> Result<Option<Entry>, StoreError> {
        let progress = self.0.look(|rows| rows.get::<Archived>(&rules::HOW_FAR)).await?;
        Ok(progress.map(|progress| progress.last))
    }

    async fn archive(&self, lot: Lot) -> Result<bool, StoreError> {
        self.0.decide(move |rows| rules::archive(rows, &lot)).await
    }

    async fn archived_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.find_claim(id).await
    }

    async fn drop_old(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        self.0.decide(move |rows| rules::drop_archived(rows, limit, now)).await
    }
}
