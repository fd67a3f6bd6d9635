//! Restores this gateway's records after the server lost writes. Until every gateway has had time to do so, no other decision is
//! committed; for some time longer, no money is spent on what the rows say (`meta`). An interrupted restore continues later,
//! however often it is interrupted. The writer (`writer`) runs and commits the steps.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    time::Duration,
};

use domain::{ports::StoreError, time::Timestamp};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use crate::{
    Result,
    adapter::{self, DecideFn, ResultSlot},
    decisions::{self, RecoveryRecord, RestoreOrder as Phase, Restored, StockPlace},
    schema::codec::Codec,
};

use super::{RawKey, RowCache, Write, meta::StoreMeta, recovery::RecoveryBuffer};

/// A server that may lose writes it has acknowledged.
pub(crate) trait LossyServer: Sync {
    fn meta(&self) -> MutexGuard<'_, StoreMeta>;

    /// Makes the other gateways wait on, because this one is still restoring its records.
    fn extend_settling(&self) -> impl Future<Output = Result<()>> + Send;

    /// The stock was checked, so that no other gateway does it again.
    fn trust_stock(&self) -> impl Future<Output = Result<()>> + Send;
}

/// The records that this gateway keeps, and the restore that is under way.
pub(crate) struct Restorer {
    recovery: RecoveryBuffer,
    /// Records that must be restored before the next batch.
    pending: Option<PendingRestore>,
}

/// What remains to be restored.
struct PendingRestore {
    /// In the order of their phases.
    records: VecDeque<(Phase, RecoveryRecord)>,
    stock: StockCheck,
    /// When the loss was found.
    since: Instant,
    /// The same by the server's clock.
    now: Timestamp,
    /// When the other gateways were last asked to wait longer.
    announced: Instant,
    restored: usize,
    voided: usize,
    /// The step that is being committed.
    step: Option<RestoreStep>,
    /// Records at the front that are restored one by one, because one of them contradicts the store.
    one_by_one: usize,
}

enum RestoreStep {
    VoidStock(ResultSlot<(usize, Option<StockPlace>)>),
    Records { phase: Phase, records: Vec<RecoveryRecord>, slot: ResultSlot<Vec<Restored>> },
}

/// Tokens in stock may have been delivered before the loss, so they are discarded.
#[derive(Clone, Copy)]
enum StockCheck {
    /// The stock is checked up to here.
    From(Option<StockPlace>),
    /// All of it is checked, but the server does not know that yet.
    Checked,
    Trusted,
}

/// Records in one commit.
const BATCH: usize = 100;
/// How long claims wait for the solves that other gateways restore.
const OTHERS_DELAY: Duration = Duration::from_secs(3);
/// A restore that takes longer than this asks the other gateways to wait on, every few seconds, but not for ever.
const SLOW: Duration = Duration::from_secs(4);
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
const MAX_ANNOUNCED: Duration = Duration::from_secs(20);

// === impl PendingRestore ===

impl PendingRestore {
    fn new(mut records: Vec<(Phase, RecoveryRecord)>, meta: &StoreMeta) -> Self {
        let now = Instant::now();
        records.sort_by_key(|(phase, _)| *phase);
        let stock =
            if meta.stock_is_doubtful { StockCheck::From(None) } else { StockCheck::Trusted };
        Self {
            records: records.into(),
            stock,
            since: now,
            now: Timestamp::from_millis(meta.opened_at),
            announced: now,
            restored: 0,
            voided: 0,
            step: None,
            one_by_one: 0,
        }
    }

    /// A gateway that has just started has no records, but it can see that the stock was not checked after a loss.
    fn of_stock(meta: &StoreMeta) -> Option<Self> {
        meta.stock_is_doubtful.then(|| Self::new(Vec::new(), meta))
    }

    fn must_announce(&self) -> bool {
        self.announced.elapsed() > ANNOUNCE_EVERY
            && (SLOW..MAX_ANNOUNCED).contains(&self.since.elapsed())
    }

    fn void_stock(&mut self, from: Option<StockPlace>) -> DecideFn {
        let now = self.now;
        let (decide, slot) =
            adapter::decision(move |tx| decisions::void_stock(tx, from, BATCH, now));
        self.step = Some(RestoreStep::VoidStock(slot));
        decide
    }

    /// Restores the next records of one phase.
    fn restore_records(&mut self, phase: Phase) -> DecideFn {
        let (now, limit) = (self.now, if self.one_by_one > 0 { 1 } else { BATCH });
        let next = self.records.iter().take(limit).take_while(|(other, _)| *other == phase);
        let records: Vec<RecoveryRecord> = next.map(|(_, record)| record.clone()).collect();
        let batch = records.clone();
        let (decide, slot) = adapter::decision(move |tx| {
            batch.iter().map(|record| decisions::restore(tx, record, now)).collect()
        });
        self.step = Some(RestoreStep::Records { phase, records, slot });
        decide
    }

    fn finish_records(
        &mut self,
        phase: Phase,
        records: Vec<RecoveryRecord>,
        result: Result<Vec<Restored>>,
    ) -> Result<()> {
        let restored = match result {
            Err(StoreError::Corrupt { source, .. }) if records.len() == 1 => {
                tracing::error!(%source, "failed to restore a record after data loss");
                vec![Restored::Known]
            }
            Err(StoreError::Corrupt { .. }) => {
                // Restore each record in a transaction of its own, so that only the contradicting one fails.
                self.one_by_one = records.len();
                return Ok(());
            }
            result => result?,
        };
        self.records.drain(..records.len());
        self.one_by_one = self.one_by_one.saturating_sub(records.len());
        for (record, restored) in records.into_iter().zip(restored) {
            match restored {
                Restored::New => self.restored += 1,
                Restored::Known => {}
                Restored::ChallengeMissing => self.defer(phase, record),
            }
        }
        Ok(())
    }

    /// Puts a solve back in the queue until the other gateways have had the time to restore its challenge. After that it is
    /// lost.
    fn defer(&mut self, phase: Phase, solve: RecoveryRecord) {
        if phase == Phase::Deferred {
            tracing::error!(
                ?solve,
                "failed to restore a solve after data loss: no gateway has its challenge"
            );
            return;
        }
        let at = self.records.partition_point(|(phase, _)| *phase <= Phase::Deferred);
        self.records.insert(at, (Phase::Deferred, solve));
    }
}

// === impl Restorer ===

impl Restorer {
    /// The gateway that reopened the store after a loss may have died before it had checked the stock.
    pub(crate) fn new(codec: Codec, meta: &StoreMeta) -> Self {
        Self { recovery: RecoveryBuffer::new(codec), pending: PendingRestore::of_stock(meta) }
    }

    /// Keeps what was committed.
    pub(crate) fn record(&mut self, writes: &BTreeMap<RawKey, Write>, cache: &RowCache) {
        self.recovery.record(writes, cache);
    }

    pub(crate) fn is_restoring(&self) -> bool {
        self.pending.is_some()
    }

    /// The server, whose data was opened again as `meta`, lost writes: from now on this gateway's records are pending.
    pub(crate) fn start_over(&mut self, known: u64, meta: &mut StoreMeta) {
        meta.is_restoring = true;
        // The sort is stable, so the ledger says first that it lost entries.
        let loss = RecoveryRecord::Loss { known, found: meta.count };
        let known = std::iter::once(loss).chain(self.recovery.records());
        let mut records: Vec<_> = known.map(|record| (record.order(), record)).collect();
        self.recovery.drop_pages();
        // Pages that an earlier restore has not written yet exist nowhere else.
        let left = self.pending.take().map(|pending| pending.records).unwrap_or_default();
        records.extend(
            left.into_iter().filter(|(_, record)| matches!(record, RecoveryRecord::Page(..))),
        );
        self.pending = Some(PendingRestore::new(records, meta));
    }

    /// The next decision to commit; `None` when everything is restored.
    pub(crate) async fn next_step(
        &mut self,
        server: &impl LossyServer,
    ) -> Result<Option<DecideFn>> {
        while let Some(pending) = &mut self.pending {
            if pending.must_announce() {
                pending.announced = Instant::now();
                server.extend_settling().await?;
                continue;
            }
            match pending.stock {
                StockCheck::From(place) => return Ok(Some(pending.void_stock(place))),
                StockCheck::Checked => {
                    server.trust_stock().await?;
                    pending.stock = StockCheck::Trusted;
                    continue;
                }
                StockCheck::Trusted => {}
            }
            let Some(phase) = pending.records.front().map(|(phase, _)| *phase) else {
                self.finish(server);
                break;
            };
            if phase > Phase::Own {
                tokio::time::sleep(OTHERS_DELAY.saturating_sub(pending.since.elapsed())).await;
            }
            return Ok(Some(pending.restore_records(phase)));
        }
        Ok(None)
    }

    /// Takes the result of the step that was committed.
    pub(crate) fn finish_step(&mut self) -> Result<()> {
        let Some(pending) = &mut self.pending else { return Ok(()) };
        match pending.step.take() {
            Some(RestoreStep::VoidStock(slot)) => {
                let (voided, next) = slot.take()?;
                pending.voided += voided;
                pending.stock =
                    next.map_or(StockCheck::Checked, |place| StockCheck::From(Some(place)));
                Ok(())
            }
            Some(RestoreStep::Records { phase, records, slot }) => {
                pending.finish_records(phase, records, slot.take())
            }
            None => Ok(()),
        }
    }

    fn finish(&mut self, server: &impl LossyServer) {
        let Some(pending) = self.pending.take() else { return };
        server.meta().is_restoring = false;
        tracing::error!(
            restored = pending.restored,
            voided = pending.voided,
            "restored this gateway's records and discarded stock tokens that may have been handed out"
        );
    }
}
