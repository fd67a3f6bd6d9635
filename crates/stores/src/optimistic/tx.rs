//! The transaction a decision runs on: the cached rows under the decision's own writes, with a record of what it read.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use domain::ledger::Entry;

use crate::{
    Result,
    decisions::support::ledger,
    schema::codec::{Codec, corrupt},
    schema::seal::Keyring,
    schema::tables::{LedgerIndex, Pages, Table as _},
    tx::{KeyRange, Order, ReadRow, ReadTx, RowKey, RowValue, Stored, WriteTx},
};

use super::{RawKey, ReadSet, RowCache, ScanRange};

pub(crate) struct OptimisticTx<'a> {
    kind: BackendKind,
    cache: &'a RowCache,
    writes: BTreeMap<RawKey, Write>,
    /// The writes that were replaced since the savepoint.
    undo: Vec<(RawKey, Option<Write>)>,
    reads: RefCell<ReadSet>,
    /// The entries of the pages that are appended, in their order. The commit numbers them; until then their rows have
    /// numbers that no ledger reaches.
    appended: Vec<Vec<Entry>>,
    /// How many of them there were at the savepoint.
    appended_before: usize,
    last_unnumbered: u64,
    sum_lane: u8,
    doubtful: bool,
    durable: bool,
    written_bytes: usize,
    /// Values are encoded here.
    scratch: Vec<u8>,
    /// The value of every row that is nothing but its key.
    no_value: Arc<[u8]>,
}

/// The properties of a backend that a transaction needs. They are data and not a type parameter, so that decisions are compiled
/// once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendKind {
    pub(crate) codec: Codec,
    /// Bytes in one commit. The last decision may exceed it, because challenges can be large.
    pub(crate) max_bytes: usize,
    /// Why the backend cannot store a key. Only the decision that writes such a key fails; the server would refuse the batch.
    pub(crate) refuses: fn(&[u8]) -> Option<&'static str>,
}

/// What a transaction read, and what it wants to write.
pub(crate) struct FinishedTx {
    pub(crate) reads: ReadSet,
    pub(crate) writes: BTreeMap<RawKey, Write>,
    /// The pages that the ledger is to have at its end.
    pub(crate) appended: Vec<Vec<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Put(Arc<[u8]>),
    Delete,
}

/// What the hash of an entry adds to a page.
const HASH_BYTES: usize = 32;

// === impl BackendKind ===

impl BackendKind {
    /// The backend's name in messages.
    pub(crate) fn name(&self) -> &'static str {
        self.codec.backend
    }

    /// The backend with the encryption keys of its store.
    pub(crate) fn sealing_with(self, keys: Option<&'static Keyring>) -> Self {
        Self { codec: Codec { keys, ..self.codec }, ..self }
    }
}

// === impl OptimisticTx ===

impl<'a> OptimisticTx<'a> {
    /// `doubtful`: the cached rows may be older than an answer that was already given.
    pub(crate) fn new(kind: BackendKind, cache: &'a RowCache, doubtful: bool) -> Self {
        Self {
            kind,
            cache,
            writes: BTreeMap::new(),
            undo: Vec::new(),
            reads: RefCell::default(),
            appended: Vec::new(),
            appended_before: 0,
            last_unnumbered: ledger::LAST_NUMBER,
            sum_lane: 0,
            doubtful,
            durable: false,
            written_bytes: 0,
            scratch: Vec::new(),
            no_value: Arc::from([]),
        }
    }

    pub(crate) fn set_savepoint(&mut self) {
        self.undo.clear();
        self.appended_before = self.appended.len();
    }

    /// Undoes the writes since the savepoint. The reads stay: the failure depends on them.
    pub(crate) fn rollback_to_savepoint(&mut self) {
        self.appended.truncate(self.appended_before);
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(write) => self.writes.insert(key, write),
                None => self.writes.remove(&key),
            };
        }
    }

    /// Whether a durable commit was required since the last call.
    pub(crate) fn take_durable(&mut self) -> bool {
        std::mem::take(&mut self.durable)
    }

    pub(crate) fn finish(mut self) -> FinishedTx {
        if !self.appended.is_empty() {
            self.writes.retain(|key, _| !is_unnumbered(key));
        }
        let (reads, writes) = (self.reads.into_inner(), self.writes);
        FinishedTx { reads, writes, appended: self.appended }
    }

    pub(crate) fn written_since_savepoint(&self) -> Vec<RawKey> {
        self.undo.iter().map(|(key, _)| key.clone()).collect()
    }

    /// Bytes written so far, including those that were overwritten.
    pub(crate) fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// Adds to the sums in this lane.
    pub(crate) fn in_lane(self, sum_lane: u8) -> Self {
        Self { sum_lane, ..self }
    }

    /// Continues with the writes of a transaction that has finished.
    pub(crate) fn with_writes(self, writes: BTreeMap<RawKey, Write>) -> Self {
        Self { writes, ..self }
    }

    fn set(&mut self, key: RawKey, write: Write) {
        if let Write::Put(bytes) = &write {
            self.written_bytes += bytes.len();
        }
        let before = self.writes.insert(key.clone(), write);
        self.undo.push((key, before));
    }

    /// The row as this transaction sees it.
    fn visible(&self, key: &RawKey) -> Option<Arc<[u8]>> {
        match self.writes.get(key) {
            Some(Write::Put(bytes)) => Some(bytes.clone()),
            Some(Write::Delete) => None,
            None => {
                let row = self.cache.get(key);
                let version = row.map(|row| row.version);
                self.reads.borrow_mut().rows.insert(key.clone(), version);
                row.map(|row| row.bytes.clone())
            }
        }
    }

    /// The rows of a range as this transaction sees them: its own writes merged over the cached rows.
    fn visible_range(&self, scan: &ScanRange, limit: usize) -> Vec<(RawKey, Arc<[u8]>)> {
        let order = scan.order();
        let range = scan.least.clone()..=scan.most.clone();
        let mut cached = self.cache.range(&range, order).peekable();
        let mut written = order.apply(self.writes.range(range.clone())).peekable();
        let mut found = Vec::new();
        let mut seen = Vec::new();
        while found.len() < limit {
            let ours = written.peek().map(|(key, _)| *key);
            let theirs = cached.peek().map(|(key, _)| *key);
            let Some(next) = first_of(order, ours, theirs).cloned() else { break };
            let row = cached.next_if(|(key, _)| **key == next);
            seen.extend(row);
            let own = written.next_if(|(key, _)| **key == next);
            match (own, row) {
                (Some((_, Write::Put(bytes))), _) => found.push((next, bytes.clone())),
                (Some((_, Write::Delete)), _) | (None, None) => {}
                (None, Some((_, row))) => found.push((next, row.bytes.clone())),
            }
        }
        let until =
            if found.len() < limit { None } else { found.last().map(|(key, _)| key.clone()) };
        self.reads.borrow_mut().add_scan(scan, until, &seen, limit);
        found
    }
}

fn first_of<'k>(order: Order, a: Option<&'k RawKey>, b: Option<&'k RawKey>) -> Option<&'k RawKey> {
    match (a, b) {
        (Some(a), Some(b)) => Some(match order {
            Order::Rising => a.min(b),
            Order::Falling => a.max(b),
        }),
        (one, None) | (None, one) => one,
    }
}

impl ReadTx for OptimisticTx<'_> {
    fn codec(&self) -> Codec {
        self.kind.codec
    }

    fn find(&self, key: &[u8], read: ReadRow<'_>) -> Result<()> {
        match self.visible(&key.into()) {
            Some(bytes) => read(key, stored(&bytes)),
            None => Ok(()),
        }
    }

    fn find_range(&self, range: &KeyRange, read: ReadRow<'_>) -> Result<()> {
        let scan = ScanRange {
            least: range.least.as_slice().into(),
            most: range.most.as_slice().into(),
            falling: range.order == Order::Falling,
        };
        let rows = self.visible_range(&scan, range.limit);
        rows.iter().try_for_each(|(key, bytes)| read(key, stored(bytes)))
    }
}

impl WriteTx for OptimisticTx<'_> {
    fn write(&mut self, key: RowKey<'_>, value: Box<dyn RowValue>) -> Result<()> {
        if let Some(why) = (self.kind.refuses)(key.bytes) {
            return Err(corrupt(self.kind.name(), key.table, why));
        }
        let bytes: Arc<[u8]> = if key.is_plain {
            self.no_value.clone()
        } else {
            self.kind.codec.write_row(key, &*value, &mut self.scratch)?;
            self.scratch.as_slice().into()
        };
        self.set(key.bytes.into(), Write::Put(bytes));
        Ok(())
    }

    fn remove(&mut self, key: RowKey<'_>, read: ReadRow<'_>) -> Result<()> {
        let name: RawKey = key.bytes.into();
        let before = if key.is_plain {
            // No decision depends on whether a row without a value existed, so it is not added to the read set.
            self.cache.get(&name).map(|row| row.bytes.clone())
        } else {
            self.visible(&name)
        };
        if let Some(bytes) = &before {
            read(key.bytes, stored(bytes))?;
        }
        if before.is_some() || key.is_plain {
            self.set(name, Write::Delete);
        }
        Ok(())
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<()> {
        let after = self.last_unnumbered;
        self.written_bytes += (1 + entries.len()) * HASH_BYTES;
        self.last_unnumbered = ledger::write_unnumbered(self, after, entries.clone())?;
        self.appended.push(entries);
        Ok(())
    }

    fn sum_lane(&self) -> u8 {
        self.sum_lane
    }

    fn require_durable(&mut self) {
        self.durable = true;
    }

    fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

/// Whether a row belongs to a page that has no number yet. The keys of the ledger and of its index end with the number.
fn is_unnumbered(key: &[u8]) -> bool {
    let is_of_ledger = key.first().is_some_and(|tag| [Pages::TAG, LedgerIndex::TAG].contains(tag));
    let number = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    is_of_ledger && number.is_some_and(|number| number > ledger::LAST_NUMBER)
}

/// An encoded value is never empty, because it begins with its checksum.
fn stored(bytes: &[u8]) -> Stored<'_> {
    if bytes.is_empty() { Stored::Plain } else { Stored::Encoded(bytes) }
}
