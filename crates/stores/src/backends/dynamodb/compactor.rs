//! Compaction: merges the changes of the log into the segments, so that a gateway that starts does not have to read a long log. One
//! gateway compacts at a time. If its heartbeat stops for a whole lease, another one takes over.
//!
//! A compactor that was taken for dead may continue for a while. Its transactions check that it is still the compactor. Its other
//! writes only replace segments that are older than its compaction, and the new compactor has rewritten all of those.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem};
use domain::ports::StoreError;
use futures_util::future::try_join_all;

use crate::{
    optimistic::RawKey,
    schema::tables::{Joinable, Keys, Pools, Spare, Stock, Table, Tasks, Waiting},
};

use super::{
    connection::{Condition, WriteResult},
    error::unavailable,
    layout::{
        COMPACTED, COMPACTOR, Changes, EDITION, HEARTBEAT, PK, Segment, StoredValue, key, meta_key,
        number, read_meta, segment_partition, table_least,
    },
    log::Log,
    overflow::{keep_parts, release_parts},
};

struct Compactor {
    name: u64,
    /// The compactor and heartbeat that were last seen, and since when they have not changed.
    watched: Option<((u64, u64), Instant)>,
}

/// One run.
struct Compaction<'l> {
    log: &'l Log,
    compactor: u64,
    /// The last commit to be merged.
    slot: u64,
    /// The compactor before may still be writing older segments.
    is_takeover: bool,
}

/// A compactor without a heartbeat for this long counts as dead.
const LEASE: Duration = Duration::from_secs(30);
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// How often to check whether a compaction is due, without a signal.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Changes to one segment at a time: a transaction has at most a hundred items.
const MAX_CHANGES: usize = 60;
/// Writes are billed by the kibibyte. Rows whose keys grow with time fill one segment after the other. Rows with scattered keys
/// change one segment each, so those should be small.
const SEGMENT_BYTES: usize = 3900;
const SMALL_SEGMENT_BYTES: usize = 850;
/// The bytes of a row besides key and value.
const ROW_OVERHEAD: usize = 6;

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
        let compaction = Compaction { log, compactor: self.name, slot, is_takeover };
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

    /// Merges the changes of one table, in the order of their keys.
    async fn compact_table(
        &self,
        changes: &[(RawKey, Option<StoredValue>)],
    ) -> Result<(), StoreError> {
        let mut rest = changes;
        while let Some((first, _)) = rest.first() {
            let segment = self.log.segment_at(first[0], first).await?;
            let Some(segment) = segment.filter(|segment| segment.compacted <= self.slot) else {
                return Err(taken_over());
            };
            let here = rest.partition_point(|(key, _)| *key < segment.until).clamp(1, MAX_CHANGES);
            let (here, later) = rest.split_at(here);
            self.compact_segment(&segment, here).await?;
            rest = later;
        }
        Ok(())
    }

    async fn compact_segment(
        &self,
        segment: &Segment,
        changes: &[(RawKey, Option<StoredValue>)],
    ) -> Result<(), StoreError> {
        let mut rows: BTreeMap<&RawKey, &StoredValue> =
            segment.rows.iter().map(|(key, value)| (key, value)).collect();
        let mut is_changed = false;
        for (key, value) in changes {
            let before = match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(key),
            };
            is_changed |= before != value.as_ref();
        }
        // A segment that the compactor before may still write has to become newer than its writes, changed or not.
        let must_rewrite = self.is_takeover && is_stored(segment);
        if !is_changed && !must_rewrite {
            return Ok(());
        }
        self.update_expiries(segment, &rows).await?;
        if rows.is_empty() && is_stored(segment) && segment.least != table_least(segment.tag()) {
            return self.remove(segment).await;
        }
        let pieces = self.pieces(segment, &rows);
        match pieces.as_slice() {
            [only] if is_stored(segment) => self.replace(segment, only).await,
            _ => self.split(segment, &pieces).await,
        }
    }

    /// Keeps the overflow items of the rows that the segment gets, and releases those of the rows that it loses. The log has
    /// replaced or deleted the latter, so nothing refers to them even if this run fails now.
    async fn update_expiries(
        &self,
        segment: &Segment,
        rows: &BTreeMap<&RawKey, &StoredValue>,
    ) -> Result<(), StoreError> {
        let before: BTreeMap<_, _> = segment.rows.iter().map(|(key, value)| (key, value)).collect();
        let client = &self.log.client;
        for (key, value) in rows {
            let is_kept = segment.is_kept && before.get(key) == Some(value);
            if let (StoredValue::Overflow(overflow), false) = (value, is_kept) {
                keep_parts(client, *overflow).await?;
            }
        }
        for (key, value) in before {
            let is_gone = rows.get(key) != Some(&value);
            if let (StoredValue::Overflow(overflow), true) = (value, is_gone) {
                release_parts(client, key, *overflow).await?;
            }
        }
        Ok(())
    }

    /// Splits the rows of a segment into as many segments as they need.
    fn pieces(&self, segment: &Segment, rows: &BTreeMap<&RawKey, &StoredValue>) -> Vec<Segment> {
        let size_of = |key: &RawKey, value: &StoredValue| key.len() + value.size() + ROW_OVERHEAD;
        let whole: usize = rows.iter().map(|(key, value)| size_of(key, value)).sum();
        let most = match max_size(segment.tag()) {
            // New rows have scattered keys, so each segment needs free space.
            SMALL_SEGMENT_BYTES if whole > SMALL_SEGMENT_BYTES => SMALL_SEGMENT_BYTES * 2 / 3,
            most => most,
        };
        let (mut pieces, mut size) = (Vec::new(), 0);
        let mut last = self.new_segment(segment.least.clone(), segment.until.clone());
        for (key, value) in rows {
            let more = size_of(key, value);
            if size + more > most && !last.rows.is_empty() {
                let next = self.new_segment((*key).clone(), last.until);
                last.until = (*key).clone();
                pieces.push(mem::replace(&mut last, next));
                size = 0;
            }
            size += more;
            last.rows.push(((*key).clone(), (*value).clone()));
        }
        pieces.push(last);
        pieces
    }

    /// An empty segment of this run.
    fn new_segment(&self, least: RawKey, until: RawKey) -> Segment {
        Segment {
            least,
            until,
            compacted: self.slot,
            edition: fastrand::u64(1..),
            is_kept: true,
            rows: Vec::new(),
        }
    }

    async fn replace(&self, before: &Segment, segment: &Segment) -> Result<(), StoreError> {
        match self.log.client.put(segment.item(), self.unchanged_since(before)).await? {
            WriteResult::Done => Ok(()),
            // A request that arrived twice finds itself.
            WriteResult::ConditionFailed(Some(item))
                if Segment::read(&item)?.edition == segment.edition =>
            {
                Ok(())
            }
            WriteResult::ConditionFailed(_) => Err(taken_over()),
        }
    }

    /// Replaces a segment by several, or writes the first ones of a table.
    async fn split(&self, segment: &Segment, pieces: &[Segment]) -> Result<(), StoreError> {
        let mut actions = vec![self.check_compactor()];
        for piece in pieces {
            let is_first = piece.least == segment.least && is_stored(segment);
            let condition =
                if is_first { self.unchanged_since(segment) } else { Condition::is_new() };
            actions.push(self.put_if(piece, &condition));
        }
        self.transact(actions).await
    }

    /// Deletes an empty segment and extends the one before it.
    async fn remove(&self, segment: &Segment) -> Result<(), StoreError> {
        let found = self.log.segments_before(segment.tag(), &segment.least, 2).await?;
        let before = found.into_iter().find(|one| one.until == segment.least);
        let Some(before) = before else { return Err(taken_over()) };
        let longer = Segment {
            is_kept: before.is_kept,
            rows: before.rows.clone(),
            ..self.new_segment(before.least.clone(), segment.until.clone())
        };
        let delete = Delete::builder()
            .table_name(self.log.client.table())
            .set_key(Some(key(segment_partition(segment.tag()), &segment.least)))
            .build()
            .expect("all required fields are set");
        let delete = TransactWriteItem::builder().delete(delete).build();
        self.transact(vec![
            self.check_compactor(),
            self.put_if(&longer, &self.unchanged_since(&before)),
            delete,
        ])
        .await
    }

    async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<(), StoreError> {
        match self.log.client.transact(actions).await? {
            WriteResult::Done => Ok(()),
            WriteResult::ConditionFailed(_) => Err(taken_over()),
        }
    }

    /// Fails the transaction if another gateway has taken over.
    fn check_compactor(&self) -> TransactWriteItem {
        let check = ConditionCheck::builder()
            .table_name(self.log.client.table())
            .set_key(Some(meta_key()))
            .condition_expression("#w = :me")
            .expression_attribute_names("#w", COMPACTOR)
            .expression_attribute_values(":me", number(self.compactor))
            .build()
            .expect("all required fields are set");
        TransactWriteItem::builder().condition_check(check).build()
    }

    /// The segment is older than this run, or was written by it and has not changed since it was read. So a late copy of a request
    /// fails.
    fn unchanged_since(&self, read: &Segment) -> Condition {
        Condition {
            text: "#f < :slot OR (#f = :slot AND #e = :read)",
            names: vec![("#f", COMPACTED), ("#e", EDITION)],
            values: vec![(":slot", number(self.slot)), (":read", number(read.edition))],
        }
    }

    fn put_if(&self, segment: &Segment, condition: &Condition) -> TransactWriteItem {
        let put = Put::builder()
            .table_name(self.log.client.table())
            .set_item(Some(segment.item()))
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names()))
            .set_expression_attribute_values(condition.values())
            .build()
            .expect("all required fields are set");
        TransactWriteItem::builder().put(put).build()
    }
}

/// Whether the segment exists in the table.
fn is_stored(segment: &Segment) -> bool {
    segment.compacted > 0
}

fn max_size(tag: u8) -> usize {
    let scattered =
        [Keys::TAG, Waiting::TAG, Joinable::TAG, Stock::TAG, Tasks::TAG, Pools::TAG, Spare::TAG];
    if scattered.contains(&tag) { SMALL_SEGMENT_BYTES } else { SEGMENT_BYTES }
}

fn taken_over() -> StoreError {
    unavailable("another gateway has taken over the compaction")
}
