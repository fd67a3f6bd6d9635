//! Commits batches: each commit is one item of the log. The writer of the item in the next slot has decided on everything before
//! it. A writer whose slot is taken reads the item that is there, and runs its decisions again if that changes what they read.
//!
//! Values larger than one item are stored in overflow items (`overflow`), written before the commit that references them.

use std::{mem, sync::Arc};

use domain::ports::StoreError;

use crate::optimistic::{
    BatchRun, Commit, CommitError, CommitOutcome, CommitSeq, Committer, Conflict, RawKey, ReadSet,
    RowCache, Write, commit::new_version,
};

use super::{
    cached_ranges::CachedRanges,
    connection::{Condition, WriteResult},
    error::RequestErrorKind,
    layout::{
        BODY, Changes, GATEWAY, GC_AT, Item, LogEntry, MAX_INLINE, MAX_ITEM, NONCE, Nonce,
        OverflowRef, PARTS, StoredValue, bytes, encode, number, read_commit, slot_key,
    },
    log::Log,
    overflow::{TTL, expires_after, put_parts},
    view::row,
};

pub(super) struct DynamoDbCommitter {
    log: Arc<Log>,
    /// The ranges of the row cache that are complete.
    cached: CachedRanges,
    last: Option<Nonce>,
    /// The resets of the log (`State::resets`) that this writer has followed.
    resets: u64,
    gateway: u64,
    /// Large values of the current batch, by their rows, that are already stored in overflow items. The batch may be retried.
    stored: Vec<(LargeRow, StoredValue)>,
}

/// The key of a row and its bytes.
type LargeRow = (RawKey, Arc<[u8]>);

/// An encoded commit.
struct CommitRecord {
    changes: Changes,
    body: Vec<u8>,
    overflow: Option<OverflowRef>,
}

impl DynamoDbCommitter {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let resets = log.state().resets;
        Self {
            log,
            cached: CachedRanges::default(),
            last: None,
            resets,
            gateway: fastrand::u64(1..),
            stored: Vec::new(),
        }
    }

    /// Applies the commits of other gateways to the cache. Returns whether they change anything in the read set.
    fn apply_log(&mut self, cache: &mut RowCache, reads: &ReadSet) -> bool {
        let resets = self.log.state().resets;
        if resets != self.resets {
            self.resets = resets;
            cache.clear();
            self.cached.clear();
            return true;
        }
        let mut is_changed = false;
        let pending = mem::take(&mut self.log.state().pending);
        for entry in pending {
            if Some(entry.nonce) == self.last {
                continue;
            }
            for (key, value) in &entry.changes {
                is_changed |= is_read(reads, key);
                self.apply_change(cache, key, value.as_ref());
            }
        }
        is_changed
    }

    fn apply_change(&mut self, cache: &mut RowCache, key: &RawKey, value: Option<&StoredValue>) {
        match value {
            _ if !self.cached.has(key) => {}
            Some(StoredValue::Inline(bytes)) => {
                cache.apply_conflict(Conflict::Row(key.clone(), Some(row(bytes.clone()))));
            }
            // A large value is fetched when a decision reads it.
            Some(StoredValue::Overflow(_)) => self.cached.forget(key),
            None => cache.apply_conflict(Conflict::Row(key.clone(), None)),
        }
    }

    /// Compares the read set with the cache, after loading the ranges that were not cached. Returns `None` if it is current as
    /// far as the log was read.
    async fn check(
        &mut self,
        cache: &mut RowCache,
        reads: &ReadSet,
    ) -> Result<Option<CommitOutcome>, StoreError> {
        let is_changed = self.apply_log(cache, reads);
        let missing = self.missing(reads);
        if !missing.is_empty() {
            self.load(cache, &missing).await?;
            self.apply_log(cache, &ReadSet::default());
            return Ok(Some(CommitOutcome::Conflicts(Vec::new())));
        }
        // The log may have grown since it was last read, so this must not count as a validated read set.
        Ok(is_changed.then_some(CommitOutcome::Retry))
    }

    /// The parts of the read set that are not cached.
    fn missing(&self, reads: &ReadSet) -> ReadSet {
        let rows = reads.rows.iter().filter(|(key, _)| !self.cached.has(key));
        let scans = reads
            .scans
            .iter()
            .filter(|(scan, read)| self.cached.gap(&scan.covered(read.until.as_ref())).is_some());
        ReadSet {
            rows: rows.map(|(key, version)| (key.clone(), *version)).collect(),
            scans: scans.map(|(scan, read)| (scan.clone(), read.clone())).collect(),
        }
    }

    async fn load(&mut self, cache: &mut RowCache, missing: &ReadSet) -> Result<(), StoreError> {
        self.log.catch_up().await?;
        let snapshot = self.log.snapshot(missing).await?;
        for segment in snapshot.rows.into_iter().chain(snapshot.ranges.into_iter().flatten()) {
            let mut rows = Vec::with_capacity(segment.rows.len());
            for (key, value) in segment.rows {
                rows.push((key, row(self.log.value(&value).await?)));
            }
            cache.fill_range(segment.least.clone()..segment.until.clone(), rows);
            self.cached.add(segment.least, segment.until);
        }
        Ok(())
    }

    async fn put(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
    ) -> Result<CommitOutcome, CommitError> {
        let mut record = self.encode(commit).await.map_err(CommitError::not_applied)?;
        loop {
            if self.apply_log(cache, &commit.reads) {
                return Ok(CommitOutcome::Retry);
            }
            let numbered = self.number_pages(cache, commit).await;
            if numbered.map_err(CommitError::not_applied)? {
                record = self.encode(commit).await.map_err(CommitError::not_applied)?;
                continue;
            }
            let (slot, nonce) = (self.log.state().slot + 1, commit.version);
            let item = record.item(slot, nonce, self.gateway);
            match self.log.client.put(item, Condition::is_new()).await {
                Ok(WriteResult::Done) => return Ok(self.committed(slot, nonce, &record)),
                Ok(WriteResult::ConditionFailed(item)) => {
                    let own_slot = self.read_winner(item, nonce).await;
                    if let Some(slot) = own_slot.map_err(CommitError::not_applied)? {
                        return Ok(self.committed(slot, nonce, &record));
                    }
                }
                Err(error) => {
                    let outcome_unknown = error.kind == RequestErrorKind::Unknown;
                    return Err(CommitError { error: error.into(), outcome_unknown });
                }
            }
        }
    }

    /// Numbers the pages again if the ledger has grown since. Returns whether it has. Then the commit gets a nonce of its own,
    /// because its overflow items may already be stored under the former one. No item with that nonce can be written any
    /// longer: its slot is taken.
    async fn number_pages(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
    ) -> Result<bool, StoreError> {
        let missing = self.missing(&commit.ledger_end);
        if !missing.is_empty() {
            self.load(cache, &missing).await?;
        } else if commit.is_numbered_after(cache) {
            return Ok(false);
        }
        commit.number_pages(cache)?;
        commit.version = new_version();
        Ok(true)
    }

    /// Reads the commit that took the slot. A request that arrived twice finds its own commit there; then this is its slot.
    async fn read_winner(
        &mut self,
        item: Option<Item>,
        nonce: Nonce,
    ) -> Result<Option<u64>, StoreError> {
        if let Some(item) = item {
            let (slot, other, body) = read_commit(&item)?;
            if other == nonce {
                return Ok(Some(slot));
            }
            self.log.apply_entry(slot, other, &body).await?;
        }
        // A writer that is far behind would never reach the end one slot at a time, because the others go on meanwhile.
        self.log.catch_up().await?;
        Ok(None)
    }

    fn committed(&mut self, slot: u64, nonce: Nonce, record: &CommitRecord) -> CommitOutcome {
        let entry = LogEntry { slot, nonce, changes: record.changes.clone() };
        self.last = Some(nonce);
        self.stored.clear();
        self.log.committed(&entry, record.body.len());
        CommitOutcome::Accepted
    }

    /// Encodes a commit. Values that are too large for its item are stored in overflow items first.
    async fn encode(&mut self, commit: &Commit) -> Result<CommitRecord, StoreError> {
        let mut changes = Vec::with_capacity(commit.writes.len());
        for (key, write) in &commit.writes {
            let value = match write {
                Write::Put(bytes) if bytes.len() > MAX_INLINE => {
                    Some(self.store(key, bytes).await?)
                }
                Write::Put(bytes) => Some(StoredValue::Inline(Arc::clone(bytes))),
                Write::Delete => None,
            };
            changes.push((key.clone(), value));
        }
        CommitRecord::new(&self.log, changes, commit.version).await
    }

    /// Each row has overflow items of its own, so that they expire when it goes.
    async fn store(&mut self, key: &RawKey, bytes: &Arc<[u8]>) -> Result<StoredValue, StoreError> {
        let row = (key.clone(), Arc::clone(bytes));
        if let Some((_, value)) = self.stored.iter().find(|(stored, _)| *stored == row) {
            return Ok(value.clone());
        }
        let nonce = fastrand::u64(..).to_be_bytes();
        let overflow = put_parts(&self.log.client, bytes, nonce, Some(key)).await?;
        let value = StoredValue::Overflow(overflow);
        self.stored.push((row, value.clone()));
        Ok(value)
    }
}

fn is_read(reads: &ReadSet, key: &RawKey) -> bool {
    let is_scanned =
        || reads.scans.iter().any(|(scan, read)| scan.covered(read.until.as_ref()).contains(key));
    reads.rows.contains_key(key) || is_scanned()
}

impl Committer for DynamoDbCommitter {
    async fn validate(
        &mut self,
        cache: &mut RowCache,
        reads: &ReadSet,
    ) -> Result<CommitOutcome, StoreError> {
        if let Some(outcome) = self.check(cache, reads).await? {
            return Ok(outcome);
        }
        // The read set is current if nothing was written in the meantime.
        self.log.catch_up().await?;
        let is_changed = self.apply_log(cache, reads);
        Ok(if is_changed { CommitOutcome::Conflicts(Vec::new()) } else { CommitOutcome::Accepted })
    }

    /// After a commit whose outcome is unknown, an empty commit takes the next slot first. Then the log shows whether the earlier
    /// one was applied, and it cannot be applied later.
    async fn commit(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
        _: &mut BatchRun<'_>,
        seq: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        if seq.follows_unknown {
            self.put(cache, &mut commit.without_changes()).await?;
            return Ok(CommitOutcome::Retry);
        }
        let checked = self.check(cache, &commit.reads).await;
        match checked.map_err(CommitError::not_applied)? {
            Some(outcome) => Ok(outcome),
            None => self.put(cache, commit).await,
        }
    }

    fn cache_cleared(&mut self) {
        self.cached.clear();
    }
}

// === impl CommitRecord ===

impl CommitRecord {
    async fn new(log: &Log, changes: Changes, nonce: Nonce) -> Result<Self, StoreError> {
        let body = encode(&changes);
        let overflow = if body.len() > MAX_ITEM {
            Some(put_parts(&log.client, &body, nonce, None).await?)
        } else {
            None
        };
        Ok(Self { changes, body, overflow })
    }

    fn item(&self, slot: u64, nonce: Nonce, gateway: u64) -> Item {
        let mut item = slot_key(slot);
        item.insert(NONCE.into(), bytes(&nonce));
        item.insert(GATEWAY.into(), number(gateway));
        item.insert(GC_AT.into(), number(expires_after(TTL)));
        match self.overflow {
            Some(overflow) => item.insert(PARTS.into(), number(overflow.parts.into())),
            None => item.insert(BODY.into(), bytes(&self.body)),
        };
        item
    }
}
