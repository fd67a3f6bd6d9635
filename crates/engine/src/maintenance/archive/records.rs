//! Reads a store and its archive as one. The store has everything alive and all totals. The archive has the history, and
//! the store has the part of it that is not yet copied.

use std::{cmp::Reverse, sync::Arc};

use async_trait::async_trait;
use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Total},
    ports::{
        ActiveSolve, Archive, ArchiveBatch, ClaimFilter, Cursor, DaySpending, DeadLetterFilter,
        LearnedMargin, Paged, PoolState, Records, Scope, StoreError, TotalsFilter,
    },
    time::{Day, Timestamp},
};

#[derive(Debug)]
pub(crate) struct WithArchive {
    pub(crate) store: Arc<dyn Records>,
    pub(crate) archive: Arc<dyn Archive>,
}

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
