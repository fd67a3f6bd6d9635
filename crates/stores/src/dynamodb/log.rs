//! The log of commits, as this process follows it: how far it has read, and what was changed since the sheets were
//! filed. What is true is what the sheets say with these changes before them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use domain::{
    id::ClaimId,
    ports::{Doorbell, StoreError},
};
use tokio::sync::Notify;

use crate::{
    LocalDoorbell,
    codec::{corrupt, read_key},
    remote::{Key, Stamp},
    tables::{Claims, Table},
};

use super::{
    NAME,
    failure::{Failure, Trouble, unavailable},
    layout::{
        Apart, BLOCK, Body, Head, Record, Value, apart_key, decode, head_key, log_partition,
        read_commit, read_head, read_part,
    },
    link::{Link, Part},
};

/// The log, shared by all of this process.
pub(super) struct Log {
    pub(super) link: Link,
    state: Mutex<State>,
    /// One reads on at a time. Those who wait meanwhile need not read on themselves.
    reading: tokio::sync::Mutex<u64>,
    begun: AtomicU64,
    bell: Arc<LocalDoorbell>,
    /// There is enough to be filed.
    pub(super) is_full: Arc<Notify>,
}

/// What is known of the log.
#[derive(Debug)]
pub(super) struct State {
    pub(super) incarnation: u64,
    /// The last commit that was read.
    pub(super) slot: u64,
    /// Commits up to this one are in the sheets.
    pub(super) filed: u64,
    /// What was changed since, and by which commit last.
    pub(super) recent: BTreeMap<Key, (u64, Option<Value>)>,
    /// The sizes of the commits since.
    sizes: VecDeque<usize>,
    bytes: usize,
    /// Commits of others, for who decides by them.
    unseen: Vec<Arc<Record>>,
    /// Counts how often whoever decides had to begin anew.
    pub(super) beginning: u64,
    /// The table was away: it may be another one when it is back.
    is_doubtful: bool,
    /// Commits are filed when there are so many.
    many: usize,
}

/// Commits are filed when there are so many bytes of them: who starts has to read them all.
const MUCH: usize = 256 << 10;
/// Commits of others that wait for who decides.
const MOST_UNSEEN: usize = 4096;

// === impl Log ===

impl Log {
    pub(super) fn new(link: Link, head: &Head, bell: Arc<LocalDoorbell>) -> Self {
        let many = link.address.file_every;
        Self {
            link,
            state: Mutex::new(State::new(head, 0, many)),
            reading: tokio::sync::Mutex::new(0),
            begun: AtomicU64::new(0),
            bell,
            is_full: Arc::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often anybody listens for something.
    pub(super) fn listened_for(&self) -> usize {
        self.bell.listened_for()
    }

    /// Reads on: afterwards everything is known that was written before this was asked for. Says whether there was anything.
    pub(super) async fn read_on(&self) -> Result<bool, StoreError> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut last = self.reading.lock().await;
        if *last > asked {
            // Somebody began after this was asked for, and is through.
            return Ok(false);
        }
        let begun = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        self.make_sure().await?;
        let mut found = false;
        loop {
            let next = self.state().slot + 1;
            let block = Part {
                partition: log_partition(next),
                least: Some(next.to_be_bytes().to_vec()),
                most: None,
                falling: false,
                limit: None,
            };
            let items = self.link.query(&block).await.map_err(|failure| self.failed(failure))?;
            found |= !items.is_empty();
            for item in &items {
                let (slot, nonce, body) = read_commit(item)?;
                self.take_in(slot, nonce, body).await?;
            }
            if items.is_empty() || !(self.state().slot + 1).is_multiple_of(BLOCK) {
                break;
            }
        }
        *last = begun;
        Ok(found)
    }

    /// Takes in a commit of somebody else.
    pub(super) async fn take_in(
        &self,
        slot: u64,
        nonce: Stamp,
        body: Body,
    ) -> Result<(), StoreError> {
        let body = match body {
            Body::Here(bytes) => bytes,
            Body::Apart(apart) => self.fetch(apart).await?,
        };
        let record = Arc::new(Record { slot, nonce, changes: decode(&body)? });
        let known = {
            let mut state = self.state();
            if slot > state.slot + 1 {
                let why = format!("commit {} is missing", state.slot + 1);
                return Err(corrupt(NAME, "log", why));
            }
            let is_next = state.slot + 1 == slot;
            if is_next {
                state.apply(&record, body.len());
                state.show(&record);
            }
            is_next
        };
        if known {
            self.ring(&record);
            self.tell_if_full();
        }
        Ok(())
    }

    /// Takes in a commit of this process. Another reader may have been faster.
    pub(super) fn committed(&self, record: &Record, size: usize) {
        {
            let mut state = self.state();
            if state.slot + 1 == record.slot {
                state.apply(record, size);
            }
        }
        self.tell_if_full();
    }

    /// Commits nobody has decided by yet, oldest first.
    pub(super) fn take_unseen(&self) -> Vec<Arc<Record>> {
        std::mem::take(&mut self.state().unseen)
    }

    fn tell_if_full(&self) {
        if self.state().is_full() {
            self.is_full.notify_one();
        }
    }

    fn ring(&self, record: &Record) {
        for (key, _) in &record.changes {
            if key.first() == Some(&Claims::TAG)
                && let Ok(id) = read_key::<Claims>(NAME, key)
            {
                let id: ClaimId = id;
                self.bell.ring(id);
            }
        }
    }

    /// What lies apart.
    pub(super) async fn fetch(&self, apart: Apart) -> Result<Vec<u8>, StoreError> {
        let mut all = Vec::new();
        for part in 0..apart.parts {
            let item = self.link.get(apart_key(apart.nonce, part)).await?;
            let item = item.ok_or_else(|| corrupt(NAME, "apart", "a part is missing"))?;
            all.extend_from_slice(read_part(&item)?);
        }
        Ok(all)
    }

    /// The value of a row.
    pub(super) async fn value(&self, value: &Value) -> Result<Arc<[u8]>, StoreError> {
        match value {
            Value::Here(bytes) => Ok(Arc::clone(bytes)),
            Value::Apart(apart) => Ok(self.fetch(*apart).await?.into()),
        }
    }

    /// What is said of a failure; a table that is away may be another one when it is back.
    pub(super) fn failed(&self, failure: Failure) -> StoreError {
        if failure.sort == Trouble::NoTable {
            self.state().is_doubtful = true;
        }
        failure.into()
    }

    /// Looks at the head again if the table was away.
    async fn make_sure(&self) -> Result<(), StoreError> {
        if self.state().is_doubtful { self.look_at_head().await.map(drop) } else { Ok(()) }
    }

    /// Looks how far the sheets are; if this is not the table it was, everything is begun anew.
    pub(super) async fn look_at_head(&self) -> Result<Head, StoreError> {
        let item = self.link.get(head_key()).await.map_err(|failure| self.failed(failure))?;
        let Some(item) = item else {
            self.state().is_doubtful = true;
            return Err(unavailable(
                "the table was emptied; restart the gateway to begin anew there",
            ));
        };
        let head = read_head(&item)?;
        let mut state = self.state();
        if head.incarnation == state.incarnation {
            state.is_doubtful = false;
            state.is_filed_up_to(head.filed);
        } else {
            tracing::error!(
                "the DynamoDB table is another one than before; what was in the old one is unknown here, and solves \
                 of that time may be paid again"
            );
            *state = State::new(&head, state.beginning + 1, state.many);
        }
        Ok(head)
    }
}

// === impl State ===

impl State {
    fn new(head: &Head, beginning: u64, many: usize) -> Self {
        Self {
            incarnation: head.incarnation,
            slot: head.filed,
            filed: head.filed,
            recent: BTreeMap::new(),
            sizes: VecDeque::new(),
            bytes: 0,
            unseen: Vec::new(),
            beginning,
            is_doubtful: false,
            many,
        }
    }

    fn apply(&mut self, record: &Record, size: usize) {
        self.slot = record.slot;
        self.sizes.push_back(size);
        self.bytes += size;
        for (key, value) in &record.changes {
            self.recent.insert(key.clone(), (record.slot, value.clone()));
        }
    }

    /// Keeps a commit for who decides. One that reads and never decides would keep them for ever: beyond some number whoever
    /// decides has to begin anew.
    fn show(&mut self, record: &Arc<Record>) {
        if self.unseen.len() >= MOST_UNSEEN {
            self.unseen.clear();
            self.beginning += 1;
        }
        self.unseen.push(Arc::clone(record));
    }

    pub(super) fn is_full(&self) -> bool {
        self.sizes.len() >= self.many || self.bytes >= MUCH
    }

    /// Forgets changes that are in the sheets by now. Nothing is read from a sheet that is older than this.
    pub(super) fn is_filed_up_to(&mut self, filed: u64) {
        // Who is behind that far reads on first; then it knows at least as much as the sheets.
        let filed = filed.min(self.slot);
        if filed <= self.filed {
            return;
        }
        self.recent.retain(|_, (slot, _)| *slot > filed);
        for _ in self.filed..filed {
            self.bytes -= self.sizes.pop_front().unwrap_or(0);
        }
        self.filed = filed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slot: u64) -> Arc<Record> {
        let key: Key = [1, u8::try_from(slot % 7).unwrap()].as_slice().into();
        Arc::new(Record { slot, nonce: [0; 8], changes: vec![(key, None)] })
    }

    #[test]
    fn a_reader_that_never_decides_keeps_a_bounded_number_of_commits() {
        let head = Head { incarnation: 1, filed: 0, filer: None };
        let mut state = State::new(&head, 0, 256);
        for slot in 1..=20_000 {
            let record = record(slot);
            state.apply(&record, 10);
            state.show(&record);
            state.is_filed_up_to(slot.saturating_sub(300));
        }
        assert!(state.unseen.len() <= MOST_UNSEEN && state.beginning == 4, "{}", state.beginning);
        assert_eq!((state.slot, state.filed, state.sizes.len()), (20_000, 19_700, 300));
        assert_eq!(state.bytes, 3000);
        assert_eq!(state.recent.len(), 7);
    }
}
