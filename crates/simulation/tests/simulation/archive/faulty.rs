//! An archive with faults.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::{
    chain::LedgerItem,
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Total},
    ports::{
        ActiveSolve, Archive, ArchiveBatch, AuditFilter, ClaimFilter, DaySpending,
        DeadLetterFilter, LearnedMargin, Paged, PoolState, Records, Scope, StoreError,
        TotalsFilter,
    },
    time::{Day, Timestamp},
};

/// How the archive behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FaultMode {
    #[default]
    Healthy,
    /// Every call fails.
    Unavailable,
    /// No call returns.
    Hanging,
    /// Every batch is written, and every reply is lost.
    ReplyLost,
}

#[derive(Debug)]
pub(super) struct FaultyArchive {
    pub(super) archive: Arc<dyn Archive>,
    pub(super) mode: Mutex<FaultMode>,
}

impl FaultyArchive {
    pub(super) fn set(&self, mode: FaultMode) {
        *self.mode.lock().unwrap() = mode;
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mode = *self.mode.lock().unwrap();
        let unavailable = || StoreError::unavailable("archive", "cut off");
        match mode {
            FaultMode::Healthy => call.await,
            FaultMode::Unavailable => Err(unavailable()),
            FaultMode::Hanging => std::future::pending().await,
            FaultMode::ReplyLost => {
                call.await?;
                Err(unavailable())
            }
        }
    }
}

macro_rules! far {
    ($port:ident: $($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl $port for FaultyArchive {
            $(
                async fn $method(&self, $($name: $type),*) -> Result<$result, StoreError> {
                    self.call(self.archive.$method($($name),*)).await
                }
            )*
        }
    };
}

far! { Archive:
    archived() -> Option<Entry>;
    archive(batch: ArchiveBatch) -> bool;
    archived_claim(id: ClaimId) -> Option<Claim>;
    drop_old(limit: usize, now: Timestamp) -> usize;
}

far! { Records:
    history(filter: ClaimFilter) -> Paged<Claim>;
    active(scope: Scope, limit: usize) -> Vec<ActiveSolve>;
    totals(ask: TotalsFilter) -> Vec<Total>;
    dead_letters(filter: DeadLetterFilter) -> Paged<DeadLetter>;
    dead_letter(id: SolveId) -> Option<DeadLetter>;
    explain(claim: ClaimId) -> Vec<Entry>;
    entries(from: u64, limit: usize) -> Vec<Entry>;
    chain(from: u64, limit: usize) -> Vec<LedgerItem>;
    audit(filter: AuditFilter) -> Paged<Entry>;
    archive_batch(after: Option<Entry>, limit: usize) -> ArchiveBatch;
    spending(day: Day) -> DaySpending;
    pools(now: Timestamp) -> Vec<PoolState>;
    margins() -> Vec<LearnedMargin>;
}
