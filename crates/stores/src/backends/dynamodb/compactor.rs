//! Compaction: merges the changes of the log into the segments (`merge`), so that a gateway that starts does not have to read a long
//! log. One gateway compacts at a time. If its heartbeat stops for a whole lease, another one takes over.
//!
//! A compactor that was taken for dead may continue for a while. Its transactions check that it is still the compactor. Its other
//! writes only replace segments that are older than its compaction, and the new compactor has rewritten all of those.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use domain::ports::StoreError;
use futures_util::future::try_join_all;
use tokio::sync::Mutex;

use super::{
    connection::{Condition, WriteResult},
    error::unavailable,
    layout::{COMPACTED, COMPACTOR, Changes, HEARTBEAT, PK, number, read_meta},
    log::Log,
};

struct Compactor {
    name: u64,
    /// The compactor and heartbeat that were last seen, and since when they have not changed.
    watched: Option<((u64, u64), Instant)>,
}

/// One run.
pub(super) struct Compaction<'l> {
    pub(super) log: &'l Log,
    pub(super) compactor: u64,
    /// The last commit to be merged.
    pub(super) slot: u64,
    /// The compactor before may still be writing older segments.
    pub(super) is_takeover: bool,
    /// Transactions check the compactor in the same item, so two at a time would be in conflict.
    pub(super) transacting: Mutex<()>,
}

/// A compactor without a heartbeat for this long counts as dead.
const LEASE: Duration = Duration::from_secs(30);
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// How often to check whether a compaction is due, without a signal.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Starts the compactor task, which ends with the log.
pub(super) fn start(log: &Arc<Log>) {
    let is_full = Arc::clone(&log.is_full);
    let log = Arc::downgrade(log);
    tokio::spawn(async move {
        let mut compactor = Compactor { name: fastrand::u64(1..), watched: None };
        loop {
            drop(tokio::time::timeout(CHECK_EVERY, is_full.notified()).await);
            let Some(log) = Weak::upgrade(&log) else { return };
            if !log.state().is_full() {
                continue;
            }
            if let Err(error) = compactor.compact(&log).await {
                tracing::warn!(%error, "compaction failed, retrying");
                tokio::time::sleep(CHECK_EVERY).await;
            }
        }
    });
}

// === impl Compactor ===

impl Compactor {
    /// Compacts the whole log, unless another gateway is compacting.
    async fn compact(&mut self, log: &Log) -> Result<(), StoreError> {
        let meta = log.refresh_meta().await?;
        if !log.state().is_full() {
            return Ok(());
        }
        let Some(is_takeover) = self.may_take_over(meta.compactor) else {
            tokio::time::sleep(CHECK_EVERY).await;
            return Ok(());
        };
        if !self.take(log, meta.compactor).await? {
            return Ok(());
        }
        log.catch_up().await?;
        let (slot, changes) = {
            let state = log.state();
            let changes = state.recent.iter().map(|(key, (_, value))| (key.clone(), value.clone()));
            (state.slot, changes.collect::<Changes>())
        };
        let transacting = Mutex::default();
        let compaction = Compaction { log, compactor: self.name, slot, is_takeover, transacting };
        compaction.run_with_heartbeat(&changes).await?;
        compaction.finish().await?;
        log.state().compacted_up_to(slot);
        self.watched = None;
        Ok(())
    }

    /// Whether this process may become the compactor; `Some(true)`: it takes over from another run.
    fn may_take_over(&mut self, compactor: Option<(u64, u64)>) -> Option<bool> {
        let Some(seen) = compactor else { return Some(false) };
        if seen.0 == self.name {
            // An earlier run of this process, which failed half way.
            return Some(true);
        }
        match self.watched {
            Some((before, since)) if before == seen => (since.elapsed() >= LEASE).then_some(true),
            _ => {
                self.watched = Some((seen, Instant::now()));
                None
            }
        }
    }

    async fn take(&self, log: &Log, before: Option<(u64, u64)>) -> Result<bool, StoreError> {
        let mut condition = Condition {
            text: "attribute_exists(#p) AND attribute_not_exists(#w)",
            names: vec![("#p", PK), ("#w", COMPACTOR), ("#b", HEARTBEAT)],
            values: vec![(":me", number(self.name)), (":new", number(fastrand::u64(..)))],
        };
        if let Some((compactor, heartbeat)) = before {
            condition.text = "attribute_exists(#p) AND #w = :before AND #b = :heartbeat";
            condition
                .values
                .extend([(":before", number(compactor)), (":heartbeat", number(heartbeat))]);
        }
        Ok(match log.client.update_meta("SET #w = :me, #b = :new", condition).await? {
            WriteResult::Done => true,
            // A request that arrived twice finds itself.
            WriteResult::ConditionFailed(item) => {
                let meta = item.and_then(|item| read_meta(&item).ok());
                meta.and_then(|meta| meta.compactor).is_some_and(|(name, _)| name == self.name)
            }
        })
    }
}

// === impl Compaction ===

impl Compaction<'_> {
    async fn run_with_heartbeat(&self, changes: &Changes) -> Result<(), StoreError> {
        let tables: Vec<_> = changes.chunk_by(|a, b| a.0[0] == b.0[0]).collect();
        let work = try_join_all(tables.into_iter().map(|table| self.compact_table(table)));
        tokio::select! {
            done = work => done.map(drop),
            failed = self.heartbeat() => Err(failed),
        }
    }

    /// Sends heartbeats. Returns when another gateway has taken over.
    async fn heartbeat(&self) -> StoreError {
        loop {
            tokio::time::sleep(HEARTBEAT_EVERY).await;
            let condition = Condition {
                text: "#w = :me",
                names: vec![("#w", COMPACTOR), ("#b", HEARTBEAT)],
                values: vec![(":me", number(self.compactor)), (":new", number(fastrand::u64(..)))],
            };
            match self.log.client.update_meta("SET #b = :new", condition).await {
                Ok(WriteResult::Done) => {}
                Ok(WriteResult::ConditionFailed(_)) => return taken_over(),
                Err(error) => return error.into(),
            }
        }
    }

    /// Publishes the compaction: from now on the log is read from after its last commit.
    async fn finish(&self) -> Result<(), StoreError> {
        let condition = Condition {
            text: "#w = :me",
            names: vec![("#w", COMPACTOR), ("#b", HEARTBEAT), ("#f", COMPACTED)],
            values: vec![(":me", number(self.compactor)), (":slot", number(self.slot))],
        };
        match self.log.client.update_meta("SET #f = :slot REMOVE #w, #b", condition).await? {
            WriteResult::Done => Ok(()),
            // A request that arrived twice finds itself, or a later compactor that has merged at least as much.
            WriteResult::ConditionFailed(_) => match self.log.refresh_meta().await? {
                meta if meta.compacted >= self.slot => Ok(()),
                _ => Err(taken_over()),
            },
        }
    }
}

pub(super) fn taken_over() -> StoreError {
    unavailable("another gateway has taken over the compaction")
}
