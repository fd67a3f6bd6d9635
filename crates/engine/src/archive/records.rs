//! The readings of a store and its archive as one. What is alive, and what is summed up, the store knows; history the
//! archive has, and the store what happened since it was last told.

use std::{cmp::Reverse, sync::Arc};

use async_trait::async_trait;
use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Total},
    ports::{
        ActiveSolve, Archive, ClaimFilter, Cursor, DaySpending, DeadLetterFilter, LearnedMargin,
        Lot, Paged, PoolState, Records, Scope, StockLevel, StoreError, TotalsAsk,
    },
    time::{Day, Timestamp},
};

/// A store's readings and its archive's.
#[derive(Debug)]
pub(crate) struct WithArchive {
    pub(crate) store: Arc<dyn Records>,
    pub(crate) archive: Arc<dyn Archive>,
}

#[async_trait]
impl Records for WithArchive {
    async fn history(&self, filter: ClaimFilter) -> Result<Paged<Claim>, StoreError> {
        let limit = filter.limit;
        // The store first: what leaves it meanwhile is in the archive.
        let recent = self.store.history(filter.clone()).await?;
        let archived = self.archive.history(filter).await?;
        Ok(merge(recent, archived, limit))
    }

    async fn explain(&self, claim: ClaimId) -> Result<Vec<Entry>, StoreError> {
        let recent = self.store.explain(claim).await?;
        match self.archive.explain(claim).await {
            Ok(archived) => Ok(told(archived, recent)),
            // Most that is asked for is of today, and the store has all of it.
            Err(_) if !recent.is_empty() => Ok(recent),
            Err(error) => Err(error),
        }
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.archive.entries(from, limit).await
    }

    async fn active(&self, scope: Scope, limit: usize) -> Result<Vec<ActiveSolve>, StoreError> {
        self.store.active(scope, limit).await
    }

    async fn totals(&self, ask: TotalsAsk) -> Result<Vec<Total>, StoreError> {
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

    async fn lot(&self, after: Option<Entry>, limit: usize) -> Result<Lot, StoreError> {
        self.store.lot(after, limit).await
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

    async fn stock_levels(&self, now: Timestamp) -> Result<Vec<StockLevel>, StoreError> {
        self.store.stock_levels(now).await
    }
}

/// One page of two, newest first. A claim in both is shown as the store has it.
fn merge(recent: Paged<Claim>, archived: Paged<Claim>, limit: usize) -> Paged<Claim> {
    // A page that goes on says nothing about what is older than its end.
    let end = recent.next.max(archived.next);
    let mut items = recent.items;
    items.extend(archived.items);
    // Stable: of two the store's comes first, and the other goes.
    items.sort_by_key(|claim| Reverse(place(claim)));
    items.dedup_by_key(|claim| claim.id);
    items.retain(|claim| end.is_none_or(|end| place(claim) >= end));
    if items.len() <= limit {
        return Paged { items, next: end };
    }
    items.truncate(limit);
    let next = items.last().map(place);
    Paged { items, next }
}

fn place(claim: &Claim) -> Cursor {
    Cursor { at: claim.opened_at, id: claim.id.number() }
}

/// The archive's story, and what of the store's it does not have yet.
fn told(archived: Vec<Entry>, recent: Vec<Entry>) -> Vec<Entry> {
    let known = |entry: &Entry| archived.iter().any(|known| known.says_the_same(entry));
    let news: Vec<Entry> = recent.into_iter().filter(|entry| !known(entry)).collect();
    let mut story = archived;
    story.extend(news);
    story.sort_by_key(|entry| entry.at);
    story
}
