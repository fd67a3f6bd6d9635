//! An archive that is now and then not as it should be.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::{
    claim::Claim,
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Total},
    ports::{
        ActiveSolve, Archive, ClaimFilter, DaySpending, DeadLetterFilter, LearnedMargin, Lot,
        Paged, PoolState, Records, Scope, StockLevel, StoreError, TotalsAsk,
    },
    time::{Day, Timestamp},
};

/// How the archive behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Well,
    /// Every call fails.
    Away,
    /// No call comes back.
    Hanging,
    /// What it is told is kept, and every reply is lost.
    ReplyLost,
}

/// An archive and its mood.
#[derive(Debug)]
pub(super) struct FarArchive {
    pub(super) archive: Arc<dyn Archive>,
    pub(super) mood: Mutex<Mood>,
}

impl FarArchive {
    pub(super) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mood = *self.mood.lock().unwrap();
        let away = || StoreError::Unavailable { backend: "archive", source: "cut off".into() };
        match mood {
            Mood::Well => call.await,
            Mood::Away => Err(away()),
            Mood::Hanging => std::future::pending().await,
            Mood::ReplyLost => {
                call.await?;
                Err(away())
            }
        }
    }
}

macro_rules! far {
    ($port:ident: $($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl $port for FarArchive {
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
    archive(lot: Lot) -> bool;
    archived_claim(id: ClaimId) -> Option<Claim>;
    drop_old(limit: usize, now: Timestamp) -> usize;
}

far! { Records:
    history(filter: ClaimFilter) -> Paged<Claim>;
    active(scope: Scope, limit: usize) -> Vec<ActiveSolve>;
    totals(ask: TotalsAsk) -> Vec<Total>;
    dead_letters(filter: DeadLetterFilter) -> Paged<DeadLetter>;
    dead_letter(id: SolveId) -> Option<DeadLetter>;
    explain(claim: ClaimId) -> Vec<Entry>;
    entries(from: u64, limit: usize) -> Vec<Entry>;
    lot(after: Option<Entry>, limit: usize) -> Lot;
    spending(day: Day) -> DaySpending;
    pools(now: Timestamp) -> Vec<PoolState>;
    margins() -> Vec<LearnedMargin>;
    stock_levels(now: Timestamp) -> Vec<StockLevel>;
}
