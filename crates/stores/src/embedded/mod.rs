//! `embedded:DIR` the store of a single process: one file, durable before anything is answered, safe against kill -9 at
//! any instruction. On redb.
//!
//! - `open`: the directory, its lock and its format; `disk`: the file
//! - `writer`: the one thread that writes, many decisions to an fsync
//! - `rows`, `codec`: the shelf and how a row is written

mod codec;
mod disk;
mod open;
mod rows;
mod writer;

#[cfg(all(test, feature = "conformance"))]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
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
        ActiveSolve, ClaimFilter, DaySpending, DeadLetterFilter, LearnedMargin, LeaseAsk, Note,
        Paged, PoolState, Records, Refill, Refilled, Revival, Revive, Scope, Settled, StockLevel,
        Store, StoreError, SweepAsk, Swept, TotalsAsk, Withdrawal,
    },
    solve::{Decision, Fact, Refused, Solve},
    time::{Day, Timestamp},
};
use redb::{ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::{
    OpenError, readings, rules,
    shelf::Shelf,
    tables::{Claims, DeadLetters, Solves},
};

use rows::OpenRows;
use writer::{Shared, Writer, guarded, unavailable};

const NAME: &str = "embedded";
const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// A store in a directory of its own, for one process.
pub struct EmbeddedStore {
    // Before the rest: the writer ends, then the file is closed, then the directory is free.
    writer: Writer,
    shared: Arc<Shared>,
    dir: PathBuf,
    fsyncs: Arc<AtomicU64>,
    #[cfg(test)]
    broken: Arc<std::sync::atomic::AtomicBool>,
}

/// The rows, open to read.
type ReadRows = OpenRows<ReadOnlyTable<&'static [u8], &'static [u8]>>;

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// Opens the store in `dir`, which is made when it is not there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref().to_owned();
        let opened = open::open(&dir)?;
        let shared = Arc::new(Shared::new(opened.database, opened.lock));
        let writer = Writer::start(Arc::clone(&shared))
            .map_err(|source| OpenError::Directory { dir: dir.clone(), source })?;
        Ok(Self {
            writer,
            shared,
            dir,
            fsyncs: opened.fsyncs,
            #[cfg(test)]
            broken: opened.broken,
        })
    }

    /// How often the disk was asked to keep what it has.
    pub fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }

    /// How many transactions were committed.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// How many decisions were made.
    pub fn decisions(&self) -> u64 {
        self.shared.decisions.load(Ordering::Relaxed)
    }

    /// Reads at once: a look-up of one record takes microseconds.
    fn read<T>(
        &self,
        read: impl FnOnce(&ReadRows) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        read_rows(&self.shared, read)
    }

    /// Reads apart from the threads that answer: a list may take longer.
    async fn read_apart<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadRows) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || read_rows(&shared, read));
        reading.await.unwrap_or_else(|why| Err(unavailable(why)))
    }
}

/// Sees everything that was ever answered.
fn read_rows<T>(
    shared: &Shared,
    read: impl FnOnce(&ReadRows) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    shared.check()?;
    guarded(|| {
        let transaction = shared.database.begin_read().map_err(unavailable)?;
        let rows = transaction.open_table(ROWS).map_err(unavailable)?;
        read(&OpenRows::new(rows))
    })
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        self.writer.ask(move |rows| rules::admit(rows, &claim, now)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.read(|rows| rows.get::<Claims>(&id))
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.read(|rows| rows.get::<Solves>(&id))
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.writer.ask(move |rows| rules::deliver(rows, id, now)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.writer.ask(move |rows| rules::withdraw(rows, id, now)).await
    }

    async fn hold(&self, holder: Holder, _now: Timestamp) -> Result<(), StoreError> {
        self.writer.ask(move |rows| rules::hold(rows, holder)).await
    }

    async fn release(&self, holder: HolderId, _now: Timestamp) -> Result<(), StoreError> {
        self.writer.ask(move |rows| rules::release(rows, holder)).await
    }

    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.writer.ask(move |rows| rules::lease(rows, ask, now)).await
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError> {
        let lease = lease.clone();
        self.writer.ask(move |rows| rules::advance(rows, &lease, &decision, now)).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.writer.ask(move |rows| rules::settle(rows, solve, attempt, &fact, now)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.writer.ask(move |rows| rules::note(rows, &note, now)).await
    }

    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError> {
        self.writer.ask(move |rows| rules::revive(rows, &ask, now)).await
    }

    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.writer.ask(move |rows| rules::purge(rows, letter, by.clone(), now)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        self.writer.ask(move |rows| rules::callbacks(rows, limit, now)).await
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        let callback = callback.clone();
        self.writer.ask(move |rows| rules::called_back(rows, &callback, now)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.writer.ask(move |rows| rules::set_pool(rows, fingerprint, order.clone(), now)).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.writer.ask(move |rows| rules::expect(rows, pool, expectation, now)).await
    }

    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError> {
        self.writer.ask(move |rows| rules::refill(rows, &ask, now)).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.writer.ask(move |rows| rules::set_memo(rows, &name, value.clone())).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.read(|rows| rules::memos(rows, prefix))
    }

    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError> {
        self.writer.ask(move |rows| rules::sweep(rows, &ask, now)).await
    }
}

#[async_trait]
impl Records for EmbeddedStore {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        self.read_apart(move |rows| readings::history(rows, &filter)).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.read_apart(move |rows| readings::active(rows, &scope, limit)).await
    }

    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError> {
        self.read_apart(move |rows| readings::totals(rows, &ask)).await
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Paged<DeadLetter>, StoreError> {
        self.read_apart(move |rows| readings::dead_letters(rows, &filter)).await
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError> {
        self.read(|rows| rows.get::<DeadLetters>(&id))
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        self.read_apart(move |rows| readings::explain(rows, claim)).await
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.read_apart(move |rows| readings::entries(rows, from, limit)).await
    }

    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError> {
        self.read_apart(move |rows| readings::spending(rows, day)).await
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
        self.read_apart(move |rows| readings::pools(rows, now)).await
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.read_apart(readings::margins).await
    }

    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
        self.read_apart(move |rows| readings::stock_levels(rows, now)).await
    }
}
