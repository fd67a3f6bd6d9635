//! Implements the store ports. Each method runs a decision (`decisions/`) or a query (`queries.rs`) in a transaction of the
//! backend, which implements [`TransactionRunner`].

mod keys;
mod runner;

pub(crate) use keys::REGISTERED_KEYS;
pub use runner::Counters;
pub(crate) use runner::{DecideFn, Extent, Lane, ReadFn, ResultSlot, TransactionRunner, decision};

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{
    account_share::Standing,
    actor::Actor,
    admin_action::AdminAction,
    callback::Callback,
    chain::LedgerItem,
    challenge::Challenge,
    claim::{Admission, Claim, Delivery, NewClaim, Repeats},
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, SolveId},
    lease::{Holder, Lease},
    ledger::{Entry, Total},
    money::Money,
    pause::Pauses,
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        ActiveSolve, Advanced, Archive, ArchiveBatch, AuditFilter, ClaimFilter, DaySpending,
        DeadLetterFilter, LearnedMargin, LeaseRequest, Note, Paged, PauseRequest, PauseResult,
        PoolState, Records, RefillRequest, Refilled, Revival, ReviveRequest, Scope, Settled, Store,
        SweepRequest, Swept, TotalsFilter, Withdrawal,
    },
    solve::{Decision, Fact, Solve},
    time::{Day, Timestamp},
};

use crate::{
    OpenError, Result, audit,
    backends::embedded::Embedded,
    backends::memory::Memory,
    decisions::{
        self,
        support::{
            context::{Attribution, DecisionCtx},
            ledger, repeats,
            retention::{self, Archival},
        },
    },
    queries,
    schema::{
        keys::Text,
        tables::{Archived, Challenges, Claims, DeadLetters, Memos, Solves, Table},
    },
    timing::Timing,
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use runner::query;

/// The store ports on any backend. One adapter serves all backends, so the ports are compiled once.
#[derive(Clone, Debug)]
pub struct StoreAdapter {
    runner: Arc<dyn TransactionRunner>,
    timing: Arc<Timing>,
}

// === impl StoreAdapter ===

impl StoreAdapter {
    /// An empty store that lives as long as this process.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(Memory::new(None)))
    }

    /// Opens the embedded store in `dir`, which is created when it does not exist.
    pub fn embedded(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::new(Arc::new(Embedded::open(dir.as_ref(), None)?)))
    }

    pub(crate) fn new(runner: Arc<dyn TransactionRunner>) -> Self {
        Self { runner, timing: Arc::default() }
    }

    pub(crate) fn timing(&self) -> Arc<Timing> {
        Arc::clone(&self.timing)
    }

    pub fn counters(&self) -> Counters {
        self.runner.counters()
    }

    async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnMut(&mut dyn WriteTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.decide_in(Lane::Normal, decide).await
    }

    async fn decide_in<T: Send + 'static>(
        &self,
        lane: Lane,
        decide: impl FnMut(&mut dyn WriteTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (decide, slot) = decision(decide);
        self.runner.decide(decide, lane).await?;
        slot.take()
    }

    /// Runs a decision that writes to the ledger, unless the clock is wrong or it has waited too long.
    async fn decide_at<T: Send + 'static>(
        &self,
        asked: Timestamp,
        mut decide: impl FnMut(&mut DecisionCtx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.timing.check()?;
        let (timing, mut has_begun) = (self.timing(), false);
        self.decide(move |tx| {
            // Once it has begun it goes on, or one that conflicts again and again would never be made.
            if !has_begun {
                timing.check_wait(asked)?;
                has_begun = true;
            }
            DecisionCtx::run(tx, timing.at_decision(asked), &mut decide)
        })
        .await
    }

    /// Records a fact, or stops submissions. A fact may be the only trace of money. Both go first and are never refused.
    async fn record_at<T: Send + 'static>(
        &self,
        asked: Timestamp,
        mut decide: impl FnMut(&mut DecisionCtx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let timing = self.timing();
        self.decide_in(Lane::Urgent, move |tx| {
            DecisionCtx::run(tx, timing.at_decision(asked), &mut decide)
        })
        .await
    }

    /// Slows down or refuses a request that opens new work, while the backend does not keep up.
    #[expect(clippy::disallowed_methods, reason = "it slows down real callers, not decisions")]
    async fn wait_for_room(&self) -> Result<()> {
        let delay = self.runner.admission_delay()?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    async fn get<T: Table>(&self, key: T::Key) -> Result<Option<T::Value>> {
        self.read(Extent::OneRow, move |tx| tx.get::<T>(&key)).await
    }

    async fn scan<T: Send + 'static>(
        &self,
        read: impl Fn(&dyn ReadTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.read(Extent::Scan, read).await
    }

    async fn read<T: Send + 'static>(
        &self,
        extent: Extent,
        read: impl Fn(&dyn ReadTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (read, slot) = query(read);
        self.runner.read(read, extent).await?;
        slot.take()
    }
}

#[async_trait]
impl Store for StoreAdapter {
    async fn admit(&self, claim: NewClaim, now: Timestamp) -> Result<Admission> {
        self.wait_for_room().await?;
        self.decide_at(now, move |ctx| decisions::admit(ctx, &claim)).await
    }

    async fn withhold_start(
        &self,
        claim: ClaimId,
        solve: SolveId,
        nonce: Nonce,
        now: Timestamp,
    ) -> Result<Option<Claim>> {
        self.record_at(now, move |ctx| decisions::withhold_start(ctx, claim, solve, nonce)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>> {
        self.get::<Claims>(id).await
    }

    async fn find_claims(&self, ids: Vec<ClaimId>) -> Result<Vec<Claim>> {
        self.scan(move |tx| {
            let found = ids.iter().map(|id| tx.get::<Claims>(id));
            found.filter_map(Result::transpose).collect()
        })
        .await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>> {
        self.get::<Solves>(id).await
    }

    async fn find_challenge(&self, id: SolveId) -> Result<Option<Arc<Challenge>>> {
        self.get::<Challenges>(id).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>> {
        self.decide_at(now, move |ctx| decisions::deliver(ctx, id)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>> {
        self.decide_at(now, move |ctx| decisions::withdraw(ctx, id, by.as_ref())).await
    }

    async fn count_fetches(&self, fetches: Vec<(ClaimId, u64)>) -> Result<()> {
        self.decide(move |tx| repeats::add_fetches(tx, &fetches)).await
    }

    async fn repeats(&self, id: ClaimId) -> Result<Repeats> {
        self.read(Extent::OneRow, move |tx| repeats::repeats(tx, id)).await
    }

    async fn compare_clock(&self) -> Result<()> {
        self.timing.compare(|| self.runner.server_time()).await
    }

    async fn hold(&self, holder: Holder) -> Result<Standing> {
        self.timing.check()?;
        self.decide_in(Lane::Urgent, move |tx| decisions::hold(tx, holder)).await
    }

    async fn release(&self, holder: HolderId) -> Result<()> {
        let mut from = None;
        loop {
            let release = move |tx: &mut dyn WriteTx| decisions::release(tx, holder, from);
            from = self.decide_in(Lane::Urgent, release).await?;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    async fn lease(&self, request: LeaseRequest, now: Timestamp) -> Result<Vec<Lease>> {
        // However long it waits: the driver asks once at a time, and a refusal would have it lease everything again, which is
        // more work for a store that has too much.
        self.timing.check()?;
        let timing = self.timing();
        self.decide(move |tx| {
            DecisionCtx::run(tx, timing.at_decision(now), |ctx| decisions::lease(ctx, request))
        })
        .await
    }

    async fn advance(&self, lease: &Lease, decision: Decision, now: Timestamp) -> Result<Advanced> {
        let lease = lease.clone();
        self.decide_at(now, move |ctx| decisions::advance(ctx, &lease, &decision)).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled> {
        self.record_at(now, move |ctx| decisions::settle(ctx, solve, attempt, &fact)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool> {
        self.decide_at(now, move |ctx| decisions::note(ctx, &note)).await
    }

    async fn revive(&self, request: ReviveRequest, now: Timestamp) -> Result<Revival> {
        self.wait_for_room().await?;
        self.decide_at(now, move |ctx| decisions::revive(ctx, &request)).await
    }

    async fn purge(&self, dead_letter: SolveId, by: Actor, now: Timestamp) -> Result<bool> {
        self.decide_at(now, move |ctx| decisions::purge(ctx, dead_letter, &by)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>> {
        self.decide_at(now, move |ctx| decisions::callbacks(ctx, limit)).await
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<()> {
        let callback = callback.clone();
        self.record_at(now, move |ctx| decisions::called_back(ctx, &callback)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>> {
        self.decide_at(now, move |ctx| {
            decisions::set_pool(ctx, fingerprint, order.as_ref(), by.as_ref())
        })
        .await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>> {
        self.decide_at(now, move |ctx| decisions::expect(ctx, pool, expectation, by.as_ref())).await
    }

    async fn refill(&self, request: RefillRequest, now: Timestamp) -> Result<Refilled> {
        self.wait_for_room().await?;
        self.decide_at(now, move |ctx| decisions::refill(ctx, &request)).await
    }

    async fn set_pause(&self, request: PauseRequest, now: Timestamp) -> Result<PauseResult> {
        let is_stop = request.paused;
        let decide = move |ctx: &mut DecisionCtx<'_>| decisions::set_pause(ctx, &request);
        // The emergency stop must work just when much is wrong.
        if is_stop { self.record_at(now, decide).await } else { self.decide_at(now, decide).await }
    }

    async fn pauses(&self) -> Result<Pauses> {
        self.read(Extent::OneRow, |tx| decisions::pauses(tx)).await
    }

    async fn administer(&self, by: Actor, action: AdminAction, now: Timestamp) -> Result<()> {
        // It has been done already.
        self.record_at(now, move |ctx| {
            ctx.administered(Attribution::of_nobody(by.name.clone()), &by, action.clone());
            Ok(())
        })
        .await
    }

    async fn ask_balance(&self, least_gap: Duration, now: Timestamp) -> Result<Option<u32>> {
        self.decide_at(now, move |ctx| decisions::ask_balance(ctx, least_gap)).await
    }

    async fn record_balance(&self, number: u32, amount: Money, now: Timestamp) -> Result<()> {
        self.decide_at(now, move |ctx| {
            decisions::record_balance(ctx, number, amount);
            Ok(())
        })
        .await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<()> {
        let name = Text::new(name);
        self.decide(move |tx| tx.put::<Memos>(name.clone(), value.clone())).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let prefix = prefix.to_owned();
        self.scan(move |tx| queries::memos(tx, &prefix)).await
    }

    async fn sweep(&self, request: SweepRequest, now: Timestamp) -> Result<Swept> {
        self.decide_at(now, move |ctx| decisions::sweep(ctx, &request)).await
    }
}

#[async_trait]
impl Records for StoreAdapter {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>> {
        self.scan(move |tx| queries::history(tx, &filter)).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>> {
        self.scan(move |tx| queries::active(tx, &scope, limit)).await
    }

    async fn totals(&self, request: TotalsFilter) -> Result<Vec<Total>> {
        self.scan(move |tx| queries::totals(tx, &request)).await
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Paged<DeadLetter>> {
        self.scan(move |tx| queries::dead_letters(tx, &filter)).await
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>> {
        self.get::<DeadLetters>(id).await
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>> {
        self.scan(move |tx| queries::explain(tx, claim)).await
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>> {
        self.scan(move |tx| ledger::entries(tx, from, limit)).await
    }

    async fn chain(&self, from: u64, limit: usize) -> Result<Vec<LedgerItem>> {
        self.scan(move |tx| audit::chain(tx, from, limit)).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Paged<Entry>> {
        self.scan(move |tx| audit::trail(tx, &filter)).await
    }

    async fn archive_batch(&self, after: Option<Entry>, limit: usize) -> Result<ArchiveBatch> {
        self.scan(move |tx| queries::archive_batch(tx, after.as_ref(), limit)).await
    }

    async fn spending(&self, day: Day) -> Result<DaySpending> {
        self.scan(move |tx| queries::spending(tx, day)).await
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>> {
        self.scan(move |tx| queries::pool_states(tx, now)).await
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>> {
        self.scan(|tx| queries::margins(tx)).await
    }
}

#[async_trait]
impl Archive for StoreAdapter {
    async fn archived(&self) -> Result<Option<Entry>> {
        let progress = self.get::<Archived>(decisions::ARCHIVE_PROGRESS).await?;
        Ok(progress.map(|progress| progress.last))
    }

    async fn archive(&self, batch: ArchiveBatch) -> Result<bool> {
        self.decide(move |tx| decisions::archive(tx, &batch)).await
    }

    async fn archived_claim(&self, id: ClaimId) -> Result<Option<Claim>> {
        self.find_claim(id).await
    }

    async fn drop_old(&self, limit: usize, now: Timestamp) -> Result<usize> {
        let archival = Archival::Off;
        self.decide_at(now, move |ctx| retention::delete_expired(ctx, archival, limit)).await
    }
}
