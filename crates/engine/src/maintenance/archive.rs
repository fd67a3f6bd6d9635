//! Copies the ledger to the archive, so that the store need only hold what is alive. The archive knows its own position,
//! so nothing is lost or copied twice, whichever side dies in between. Nothing else waits for the archive; while it is
//! unavailable the store keeps everything.
//!
//! Any number of gateways may share a store and its archive. A gateway that finds another one copying backs off and checks
//! again later, so that one of them does the work as long as it lives.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{
    chain::LedgerItem,
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Total},
    ports::{
        ActiveSolve, Archive, ArchiveBatch, AuditFilter, ClaimFilter, Cursor, DaySpending,
        DeadLetterFilter, LearnedMargin, Paged, PoolState, Records, Scope, StoreError,
        TotalsFilter,
    },
    time::{Day, Timestamp},
};

use crate::Shared;

const BATCH: usize = 500;
const EVERY: Duration = Duration::from_secs(1);
/// The wait after finding another gateway at work; up to half as much is added at random.
const BACK_OFF: Duration = Duration::from_secs(5);
/// How often expired entries are dropped from the archive.
const DROP_EVERY: Duration = Duration::from_secs(60);
const DROP_LIMIT: usize = 500;

/// Reads a store and its archive as one. The store has everything alive and all totals. The archive has the history, and
/// the store has the part of it that is not yet copied.
#[derive(Debug)]
pub(crate) struct WithArchive {
    pub(crate) store: Arc<dyn Records>,
    pub(crate) archive: Arc<dyn Archive>,
}

struct Archiver {
    shared: Arc<Shared>,
    /// Reads the store itself, without its archive.
    source: Arc<dyn Records>,
    archive: Arc<dyn Archive>,
    /// The archive's position when this gateway last read or moved it; `None` before that.
    seen: Option<CopiedTo>,
    is_failing: bool,
    next_drop: Timestamp,
}

/// The last entry in the archive, if it has any.
#[derive(PartialEq, Eq)]
struct CopiedTo(Option<Entry>);

pub(crate) async fn run(shared: Arc<Shared>, source: Arc<dyn Records>, archive: Arc<dyn Archive>) {
    let next_drop = shared.now();
    let mut archiver =
        Archiver { shared, source, archive, seen: None, is_failing: false, next_drop };
    loop {
        let result = archiver.round().await;
        let wait = archiver.report(result);
        if !archiver.shared.pause(wait).await {
            return;
        }
    }
}

impl Archiver {
    /// Copies one batch, and drops expired entries when it is time; returns how long to wait for the next round.
    async fn round(&mut self) -> Result<Duration, StoreError> {
        let next = self.archive_next().await?;
        let now = self.shared.now();
        if self.next_drop <= now {
            let dropped = self.archive.drop_old(DROP_LIMIT, now).await?;
            let wait = if dropped == 0 { DROP_EVERY } else { EVERY };
            self.next_drop = now.plus(wait);
        }
        Ok(next)
    }

    async fn archive_next(&mut self) -> Result<Duration, StoreError> {
        let after = self.archive.archived().await?;
        self.shared.maintenance.archived.lock().clone_from(&after);
        let before = self.seen.replace(CopiedTo(after.clone()));
        if before.is_some_and(|before| before.0 != after) {
            return Ok(self.back_off());
        }
        let batch = self.source.archive_batch(after, BATCH).await?;
        if batch.entries.is_empty() {
            return Ok(EVERY);
        }
        if batch.from_start && batch.after.is_some() {
            tracing::warn!("ledger differs from the archived one, archiving again from its start");
        }
        let is_full = batch.entries.len() == BATCH;
        let last = batch.entries.last().cloned();
        if !self.archive.archive(batch).await? {
            return Ok(self.back_off());
        }
        self.shared.maintenance.archived.lock().clone_from(&last);
        self.seen = Some(CopiedTo(last));
        Ok(if is_full { Duration::ZERO } else { EVERY })
    }

    /// Logs the first failure and the recovery; returns how long to wait.
    fn report(&mut self, result: Result<Duration, StoreError>) -> Duration {
        match result {
            Ok(wait) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("archiving resumed");
                }
                wait
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "failed to archive history, the store keeps it until a retry succeeds");
                }
                EVERY
            }
        }
    }

    /// How long to leave the work to another gateway.
    fn back_off(&self) -> Duration {
        let half = u64::try_from(BACK_OFF.as_millis() / 2).unwrap_or(1);
        BACK_OFF + Duration::from_millis(self.shared.ports.chance.draw() % half)
    }
}

// === impl WithArchive ===

#[async_trait]
impl Records for WithArchive {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        let limit = filter.limit;
        // The store first: a claim that leaves it in the meantime is in the archive.
        let recent = self.store.history(filter.clone()).await?;
        let archived = self.archive.history(filter).await?;
        Ok(merge(recent, archived, limit))
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        let recent = self.store.explain(claim).await?;
        match self.archive.explain(claim).await {
            Ok(archived) => Ok(merge_entries(archived, recent)),
            // Most readers want claims of today, and the store has all of those.
            Err(_) if !recent.is_empty() => Ok(recent),
            Err(error) => Err(error),
        }
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.archive.entries(from, limit).await
    }

    async fn chain(&self, from: u64, limit: usize) -> Result<Vec<LedgerItem>, StoreError> {
        self.archive.chain(from, limit).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Paged<Entry>, StoreError> {
        self.archive.audit(filter).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.store.active(scope, limit).await
    }

    async fn totals(&self, ask: TotalsFilter) -> Result<Vec<Total>, StoreError> {
        self.store.totals(ask).await
    }

    async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Paged<DeadLetter>, StoreError> {
        self.store.dead_letters(filter).await
    }

    async fn dead_letter(&self, id: SolveId) -> Result<Option<DeadLetter>, StoreError> {
        self.store.dead_letter(id).await
    }

    async fn archive_batch(
        &self,
        after: Option<Entry>,
        limit: usize,
    ) -> Result<ArchiveBatch, StoreError> {
        self.store.archive_batch(after, limit).await
    }

    async fn spending(&self, day: Day) -> Result<DaySpending, StoreError> {
        self.store.spending(day).await
    }

    async fn pools(&self, now: Timestamp) -> Result<Vec<PoolState>, StoreError> {
        self.store.pools(now).await
    }

    async fn margins(&self) -> Result<Vec<LearnedMargin>, StoreError> {
        self.store.margins().await
    }
}

/// Merges two pages into one, newest first. Of a claim in both, the store's version counts.
fn merge(recent: Paged<Claim>, archived: Paged<Claim>, limit: usize) -> Paged<Claim> {
    // An incomplete page says nothing about claims older than its end.
    let end = recent.next.max(archived.next);
    let mut items = recent.items;
    items.extend(archived.items);
    // The sort is stable, so the store's version comes first and the other is dropped.
    items.sort_by_key(|claim| Reverse(cursor(claim)));
    items.dedup_by_key(|claim| claim.id);
    items.retain(|claim| end.is_none_or(|end| cursor(claim) >= end));
    if items.len() <= limit {
        return Paged { items, next: end };
    }
    items.truncate(limit);
    let next = items.last().map(cursor);
    Paged { items, next }
}

fn cursor(claim: &Claim) -> Cursor {
    Cursor { at: claim.opened_at, id: claim.id.number() }
}

/// The archive's entries, and those of the store's that it does not have yet.
fn merge_entries(archived: Vec<Entry>, recent: Vec<Entry>) -> Vec<Entry> {
    let known = |entry: &Entry| archived.iter().any(|known| known.has_same_content(entry));
    let news: Vec<Entry> = recent.into_iter().filter(|entry| !known(entry)).collect();
    let mut story = archived;
    story.extend(news);
    story.sort_by_key(|entry| entry.at);
    story
}
