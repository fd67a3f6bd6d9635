//! Tells the ledger to the archive, so that the store need only hold what is alive. The archive knows how far it was told:
//! nothing is lost or told twice, whoever dies in between. Nothing else waits for the archive; while it is away the store
//! keeps everything.
//!
//! Any number of gateways may share a store and its archive. Who finds that another goes on stands back and looks again
//! after a while, so that one of them does the work as long as it lives.

mod records;

use std::{sync::Arc, time::Duration};

use domain::{
    ledger::Entry,
    ports::{Archive, History, Records, StoreError},
    time::Timestamp,
};

use crate::Inner;

pub(crate) use records::WithArchive;

/// Entries in one lot.
const LOT: usize = 500;
const EVERY: Duration = Duration::from_secs(1);
/// Who stands back looks again after this, and up to half as much again.
const STAND_BACK: Duration = Duration::from_secs(5);
/// What is old in the archive is looked for so often.
const DROP_EVERY: Duration = Duration::from_secs(60);
const DROP_LIMIT: usize = 500;

/// Tells what one gateway knows.
struct Archivist {
    inner: Arc<Inner>,
    /// The store's own readings.
    source: Arc<dyn Records>,
    archive: Arc<dyn Archive>,
    /// How far the archive was when it was last looked at; `None` before that.
    seen: Option<HowFar>,
    is_away: bool,
    next_drop: Timestamp,
}

/// How far the archive was told.
#[derive(PartialEq, Eq)]
struct HowFar(Option<Entry>);

/// What a round leaves to do.
enum Next {
    /// There is more to tell.
    AtOnce,
    /// All was told.
    Soon,
    /// Another tells it.
    StandBack,
}

/// Runs until the driver is done. The store is `source`'s.
pub(crate) async fn run(inner: Arc<Inner>, source: Arc<dyn Records>, archive: Arc<dyn Archive>) {
    let next_drop = inner.now();
    let mut archivist = Archivist { inner, source, archive, seen: None, is_away: false, next_drop };
    loop {
        let result = archivist.round().await;
        let wait = archivist.noted(result);
        if !archivist.inner.pause(wait).await {
            return;
        }
    }
}

impl Archivist {
    /// Tells one lot, and has what is old dropped.
    async fn round(&mut self) -> Result<Next, StoreError> {
        let next = self.tell().await?;
        let now = self.inner.now();
        if self.next_drop <= now {
            let dropped = self.archive.drop_old(DROP_LIMIT, now).await?;
            let wait = if dropped == 0 { DROP_EVERY } else { EVERY };
            self.next_drop = now.plus(wait);
        }
        Ok(next)
    }

    async fn tell(&mut self) -> Result<Next, StoreError> {
        let after = self.archive.archived().await?;
        self.inner.set_archived(after.clone());
        let before = self.seen.replace(HowFar(after.clone()));
        if before.is_some_and(|before| before.0 != after) {
            return Ok(Next::StandBack);
        }
        let lot = self.source.lot(after, LOT).await?;
        if lot.entries.is_empty() {
            return Ok(Next::Soon);
        }
        if lot.is_anew && lot.after.is_some() {
            tracing::warn!("ledger differs from the archived one, archiving again from its start");
        }
        let is_full = lot.entries.len() == LOT;
        let last = lot.entries.last().cloned();
        if !self.archive.archive(lot).await? {
            return Ok(Next::StandBack);
        }
        self.inner.set_archived(last.clone());
        self.seen = Some(HowFar(last));
        Ok(if is_full { Next::AtOnce } else { Next::Soon })
    }

    /// Says once that the archive is away, and once that it is back; the result is how long to wait.
    fn noted(&mut self, result: Result<Next, StoreError>) -> Duration {
        match result {
            Ok(next) => {
                if std::mem::take(&mut self.is_away) {
                    tracing::info!("archiving resumed");
                }
                match next {
                    Next::AtOnce => Duration::ZERO,
                    Next::Soon => EVERY,
                    Next::StandBack => STAND_BACK + self.jitter(),
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(%error, "failed to archive history, the store keeps it until a retry succeeds");
                }
                EVERY
            }
        }
    }

    fn jitter(&self) -> Duration {
        let half = u64::try_from(STAND_BACK.as_millis() / 2).unwrap_or(1);
        Duration::from_millis(self.inner.ports.chance.draw() % half)
    }
}

impl Inner {
    /// Where the store's history is kept for long, for its sweep.
    pub(crate) fn history(&self) -> History {
        if self.config.archive.is_none() {
            return History::Here;
        }
        let archived = self.archived.lock().expect("no holder of this lock can panic");
        History::Archived(archived.clone().map(Box::new))
    }

    fn set_archived(&self, last: Option<Entry>) {
        *self.archived.lock().expect("no holder of this lock can panic") = last;
    }
}
