//! The log of commits as this process follows it: how far it has read, and what has changed since the last compaction. The current
//! rows are those of the segments with these changes on top.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::{
    account_share::ASKED,
    ports::{Notifier, StoreError},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    LocalNotifier,
    optimistic::RawKey,
    schema::codec::{Codec, corrupt, read_key},
    schema::tables::{Claims, Holders, Table},
};

use super::{
    NAME,
    connection::{ItemRange, TableClient},
    error::unavailable,
    layout::{
        BLOCK, LogEntry, Nonce, StoredValue, TableMeta, decode, log_partition, meta_key,
        read_commit, read_meta,
    },
};

pub(super) struct Log {
    pub(super) client: TableClient,
    state: Mutex<State>,
    /// The number of the last finished read. One task reads at a time; a task that waited for it may not have to read again.
    reading: tokio::sync::Mutex<u64>,
    begun: AtomicU64,
    pub(super) notifier: Arc<LocalNotifier>,
    /// Signals that a compaction is due.
    pub(super) is_full: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) incarnation: u64,
    /// The last commit that was read.
    pub(super) slot: u64,
    /// The last commit that is in the segments.
    pub(super) compacted: u64,
    /// The changes since then, with the slot of the last change of each key.
    pub(super) recent: BTreeMap<RawKey, (u64, Option<StoredValue>)>,
    /// The sizes of the commits since then.
    sizes: VecDeque<usize>,
    bytes: usize,
    /// Commits of other gateways that the writer has not applied to its cache yet, oldest first.
    pub(super) pending: Vec<Arc<LogEntry>>,
    /// How often the writer had to empty its cache, because it cannot follow the log.
    pub(super) resets: u64,
    /// A compaction is due after this many commits.
    max_commits: usize,
    /// New work is slowed down when more commits than this are not compacted, and refused at twice as many.
    pub(super) max_lag: u64,
}

/// A compaction is due after this many bytes of commits, because a gateway that starts has to read all of them.
const MAX_LOG_BYTES: usize = 256 << 10;
/// Every gateway keeps the changes of the commits that are not compacted in memory, and one that starts has to read them all.
const MAX_LAG: u64 = 4096;
const MAX_LAG_BYTES: usize = 64 << 20;
/// The longest delay of new work. It is shorter than the time after which a request is refused.
const MAX_ADMISSION_DELAY: Duration = Duration::from_millis(500);
/// Commits that are kept for a writer that does not commit.
const MAX_PENDING: usize = 4096;

// === impl Log ===

impl Log {
    pub(super) fn new(client: TableClient, meta: &TableMeta, notifier: Arc<LocalNotifier>) -> Self {
        let max_commits = client.address.compact_every;
        Self {
            client,
            state: Mutex::new(State::new(meta, 0, max_commits)),
            reading: tokio::sync::Mutex::new(0),
            begun: AtomicU64::new(0),
            notifier,
            is_full: Arc::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reads the log up to its end, so that everything written before this call is known. Returns whether there was anything new.
    pub(super) async fn catch_up(&self) -> Result<bool, StoreError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.reading.lock().await;
        if *last > before {
            // Another task began to read after this call, and has finished.
            return Ok(false);
        }
        let begun = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        if self.client.was_missing.load(Ordering::Relaxed) {
            self.refresh_meta().await?;
        }
        let mut found = false;
        loop {
            let next = self.state().slot + 1;
            let block = ItemRange {
                partition: log_partition(next),
                least: Some(next.to_be_bytes().to_vec()),
                ..ItemRange::default()
            };
            let items = self.client.query(&block).await?;
            found |= !items.is_empty();
            for item in &items {
                let (slot, nonce, body) = read_commit(item)?;
                self.apply_entry(slot, nonce, &body).await?;
            }
            if items.is_empty() || !(self.state().slot + 1).is_multiple_of(BLOCK) {
                break;
            }
        }
        *last = begun;
        Ok(found)
    }

    /// Applies a commit of another gateway.
    pub(super) async fn apply_entry(
        &self,
        slot: u64,
        nonce: Nonce,
        body: &StoredValue,
    ) -> Result<(), StoreError> {
        let body = self.value(body).await?;
        let entry = Arc::new(LogEntry { slot, nonce, changes: decode(&body)? });
        {
            let mut state = self.state();
            let next = state.slot + 1;
            if slot > next {
                return Err(corrupt(NAME, "log", state.missing(slot)));
            }
            if slot < next {
                return Ok(());
            }
            state.apply(&entry, body.len());
            state.add_pending(&entry);
        }
        self.notify(&entry);
        self.notify_if_full();
        Ok(())
    }

    /// Applies a commit of this process, unless a reader was faster.
    pub(super) fn committed(&self, entry: &LogEntry, size: usize) {
        {
            let mut state = self.state();
            if state.slot + 1 == entry.slot {
                state.apply(entry, size);
            }
        }
        self.notify_if_full();
    }

    fn notify_if_full(&self) {
        if self.state().is_full() {
            self.is_full.notify_one();
        }
    }

    fn notify(&self, entry: &LogEntry) {
        for (key, value) in &entry.changes {
            if key.first() == Some(&Claims::TAG)
                && let Ok(claim) = read_key::<Claims>(NAME, key)
            {
                self.notifier.notify(claim);
            }
            if key.first() == Some(&Holders::TAG)
                && let Some(StoredValue::Inline(row)) = value
                && let Ok(row) = Codec::plain(NAME).read_row::<Holders>(key, row)
                && (row.slots.is_hungry() || row.submits.is_hungry())
            {
                self.notifier.notify(ASKED);
            }
        }
    }

    /// Reads how far the log is compacted. If this is another table than before, starts over.
    pub(super) async fn refresh_meta(&self) -> Result<TableMeta, StoreError> {
        let Some(item) = self.client.get(meta_key()).await? else {
            self.client.was_missing.store(true, Ordering::Relaxed);
            return Err(unavailable("the table was emptied; restart the gateway to use it again"));
        };
        let meta = read_meta(&item)?;
        self.client.was_missing.store(false, Ordering::Relaxed);
        let mut state = self.state();
        if meta.incarnation == state.incarnation {
            state.compacted_up_to(meta.compacted);
        } else {
            tracing::error!(
                "the DynamoDB table was replaced: records of the old table are lost, and their solves may be paid again"
            );
            let max_lag = state.max_lag;
            *state = State::new(&meta, state.resets + 1, state.max_commits);
            state.max_lag = max_lag;
        }
        Ok(meta)
    }
}

// === impl State ===

impl State {
    fn new(meta: &TableMeta, resets: u64, max_commits: usize) -> Self {
        Self {
            incarnation: meta.incarnation,
            slot: meta.compacted,
            compacted: meta.compacted,
            recent: BTreeMap::new(),
            sizes: VecDeque::new(),
            bytes: 0,
            pending: Vec::new(),
            resets,
            max_commits,
            max_lag: MAX_LAG,
        }
    }

    /// How long new work waits because the compaction is behind; `None`: it is refused.
    pub(super) fn admission_delay(&self) -> Option<Duration> {
        let per_mille = |behind: u64, most: u64| behind.saturating_mul(1000) / most;
        let commits = per_mille(self.slot.saturating_sub(self.compacted), self.max_lag);
        let bytes = per_mille(self.bytes as u64, MAX_LAG_BYTES as u64);
        match u32::try_from(commits.max(bytes)).unwrap_or(u32::MAX) {
            behind @ 0..2000 => Some(MAX_ADMISSION_DELAY * behind.saturating_sub(1000) / 1000),
            _ => None,
        }
    }

    fn apply(&mut self, entry: &LogEntry, size: usize) {
        self.slot = entry.slot;
        self.sizes.push_back(size);
        self.bytes += size;
        for (key, value) in &entry.changes {
            self.recent.insert(key.clone(), (entry.slot, value.clone()));
        }
    }

    /// Why the log does not go on with the next commit, but with this one. Time to live deletes the oldest commits first.
    fn missing(&self, slot: u64) -> String {
        let next = self.slot + 1;
        if next > self.compacted + 1 {
            return format!("commit {next} is missing");
        }
        format!(
            "the commits {next} to {} were deleted by time to live before they were compacted, because no gateway had opened \
             the table for 120 days; restore the table to a time before that (point-in-time recovery), or use another table and \
             check the provider's account for solves of these commits",
            slot - 1
        )
    }

    /// Keeps a commit for the writer. A gateway that reads and never commits would keep them for ever, so beyond a limit the writer
    /// has to start with an empty cache.
    fn add_pending(&mut self, entry: &Arc<LogEntry>) {
        if self.pending.len() >= MAX_PENDING {
            self.pending.clear();
            self.resets += 1;
        }
        self.pending.push(Arc::clone(entry));
    }

    pub(super) fn is_full(&self) -> bool {
        self.sizes.len() >= self.max_commits || self.bytes >= MAX_LOG_BYTES
    }

    /// Drops changes that are in the segments. No older segment is read after this.
    pub(super) fn compacted_up_to(&mut self, compacted: u64) {
        // A process that is behind reads the log first, and then knows at least as much as the segments.
        let compacted = compacted.min(self.slot);
        if compacted <= self.compacted {
            return;
        }
        self.recent.retain(|_, (slot, _)| *slot > compacted);
        for _ in self.compacted..compacted {
            self.bytes -= self.sizes.pop_front().unwrap_or(0);
        }
        self.compacted = compacted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(slot: u64) -> Arc<LogEntry> {
        let key: RawKey = [1, u8::try_from(slot % 7).unwrap()].as_slice().into();
        Arc::new(LogEntry { slot, nonce: [0; 8], changes: vec![(key, None)] })
    }

    #[test]
    fn only_a_gap_after_the_compacted_commits_is_blamed_on_time_to_live() {
        let meta = TableMeta { incarnation: 1, compacted: 5, compactor: None };
        let mut state = State::new(&meta, 0, 256);
        assert!(state.missing(9).starts_with("the commits 6 to 8 were deleted by time to live"));
        state.apply(&entry(6), 10);
        assert_eq!(state.missing(9), "commit 7 is missing");
    }

    #[test]
    fn new_work_waits_longer_the_further_the_compaction_is_behind() {
        let meta = TableMeta { incarnation: 1, compacted: 0, compactor: None };
        let mut state = State::new(&meta, 0, 256);
        let delay_at = |state: &mut State, slot: u64| {
            state.slot = slot;
            state.admission_delay()
        };
        assert_eq!(delay_at(&mut state, MAX_LAG), Some(Duration::ZERO));
        assert_eq!(delay_at(&mut state, MAX_LAG * 3 / 2), Some(MAX_ADMISSION_DELAY / 2));
        assert_eq!(delay_at(&mut state, 2 * MAX_LAG), None);
        state.compacted_up_to(2 * MAX_LAG - 10);
        assert_eq!(state.admission_delay(), Some(Duration::ZERO));
        // A few large commits count as much as many small ones.
        state.apply(&entry(2 * MAX_LAG + 1), 2 * MAX_LAG_BYTES);
        assert_eq!(state.admission_delay(), None);
    }

    #[test]
    fn a_gateway_that_never_commits_keeps_a_bounded_number_of_commits() {
        let meta = TableMeta { incarnation: 1, compacted: 0, compactor: None };
        let mut state = State::new(&meta, 0, 256);
        for slot in 1..=20_000 {
            let entry = entry(slot);
            state.apply(&entry, 10);
            state.add_pending(&entry);
            state.compacted_up_to(slot.saturating_sub(300));
        }
        assert!(state.pending.len() <= MAX_PENDING && state.resets == 4, "{}", state.resets);
        assert_eq!((state.slot, state.compacted, state.sizes.len()), (20_000, 19_700, 300));
        assert_eq!(state.bytes, 3000);
        assert_eq!(state.recent.len(), 7);
    }
}
