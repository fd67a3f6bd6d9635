//! Copies the ledger to the archive, so that the store need only hold what is alive. The archive knows its own position,
//! so nothing is lost or copied twice, whichever side dies in between. Nothing else waits for the archive; while it is
//! unavailable the store keeps everything.
//!
//! Any number of gateways may share a store and its archive. A gateway that finds another one copying backs off and checks
//! again later, so that one of them does the work as long as it lives.

mod records;

use std::{sync::Arc, time::Duration};

use domain::{
    ledger::Entry,
    ports::{Archive, History, Records, StoreError},
    time::Timestamp,
};
use parking_lot::Mutex;

use crate::{EngineConfig, Shared};

pub(crate) use records::WithArchive;

/// The last ledger entry that is in the archive, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct ArchivePosition(Mutex<Option<Entry>>);

/// Entries in one batch.
const BATCH: usize = 500;
const EVERY: Duration = Duration::from_secs(1);
/// The wait after finding another gateway at work; up to half as much is added at random.
const BACK_OFF: Duration = Duration::from_secs(5);
/// How often expired entries are dropped from the archive.
const DROP_EVERY: Duration = Duration::from_secs(60);
const DROP_LIMIT: usize = 500;

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

/// What a round leaves to do.
enum RoundResult {
    /// There is more to copy.
    AtOnce,
    /// Everything is copied.
    Soon,
    /// Another gateway copies.
    BackOff,
}

/// Runs until the driver has stopped.
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
    /// Copies one batch, and drops expired entries when it is time.
    async fn round(&mut self) -> Result<RoundResult, StoreError> {
        let next = self.archive_next().await?;
        let now = self.shared.now();
        if self.next_drop <= now {
            let dropped = self.archive.drop_old(DROP_LIMIT, now).await?;
            let wait = if dropped == 0 { DROP_EVERY } else { EVERY };
            self.next_drop = now.plus(wait);
        }
        Ok(next)
    }

    async fn archive_next(&mut self) -> Result<RoundResult, StoreError> {
        let after = self.archive.archived().await?;
        self.shared.maintenance.archive.set(after.clone());
        let before = self.seen.replace(CopiedTo(after.clone()));
        if before.is_some_and(|before| before.0 != after) {
            return Ok(RoundResult::BackOff);
        }
        let batch = self.source.archive_batch(after, BATCH).await?;
        if batch.entries.is_empty() {
            return Ok(RoundResult::Soon);
        }
        if batch.from_start && batch.after.is_some() {
            tracing::warn!("ledger differs from the archived one, archiving again from its start");
        }
        let is_full = batch.entries.len() == BATCH;
        let last = batch.entries.last().cloned();
        if !self.archive.archive(batch).await? {
            return Ok(RoundResult::BackOff);
        }
        self.shared.maintenance.archive.set(last.clone());
        self.seen = Some(CopiedTo(last));
        Ok(if is_full { RoundResult::AtOnce } else { RoundResult::Soon })
    }

    /// Logs the first failure and the recovery; returns how long to wait.
    fn report(&mut self, result: Result<RoundResult, StoreError>) -> Duration {
        match result {
            Ok(next) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("archiving resumed");
                }
                match next {
                    RoundResult::AtOnce => Duration::ZERO,
                    RoundResult::Soon => EVERY,
                    RoundResult::BackOff => BACK_OFF + self.jitter(),
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "failed to archive history, the store keeps it until a retry succeeds");
                }
                EVERY
            }
        }
    }

    fn jitter(&self) -> Duration {
        let half = u64::try_from(BACK_OFF.as_millis() / 2).unwrap_or(1);
        Duration::from_millis(self.shared.ports.chance.draw() % half)
    }
}

// === impl ArchivePosition ===

impl ArchivePosition {
    /// Where history is kept, for the store's sweep.
    pub(crate) fn history(&self, config: &EngineConfig) -> History {
        if config.archive.is_none() {
            return History::InStore;
        }
        History::Archived(self.0.lock().clone().map(Box::new))
    }

    fn set(&self, last: Option<Entry>) {
        *self.0.lock() = last;
    }
}
