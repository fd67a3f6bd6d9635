//! A batch on its way to the server: what its decisions read and want to write, and the pages they append to the ledger.
//!
//! The number and the hash of a page follow from the last page of the ledger. No decision depends on them, so they are not in
//! the read set of the decisions. They are given when the batch is sent, and given again when another gateway was faster;
//! the decisions do not run again for that.

use std::{collections::BTreeMap, mem};

use domain::ledger::Entry;

use crate::{Result, decisions::support::ledger::LedgerEnd};

use super::{
    BackendKind, Conflict, OptimisticTx, RawKey, ReadSet, RowCache, RowVersion, Write,
    tx::FinishedTx,
};

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    kind: BackendKind,
    /// What the decisions read.
    pub(crate) reads: ReadSet,
    /// The last page of the ledger, which the pages are numbered after; empty without pages.
    pub(crate) ledger_end: ReadSet,
    /// With the pages, once they are numbered.
    pub(crate) writes: BTreeMap<RawKey, Write>,
    /// The version of every row that is written.
    pub(crate) version: RowVersion,
    /// The entries of the pages, in their order.
    appended: Vec<Vec<Entry>>,
    /// The rows of the pages under their present numbers.
    page_rows: Vec<RawKey>,
}

// === impl Commit ===

impl Commit {
    pub(crate) fn new(kind: BackendKind, finished: FinishedTx) -> Self {
        let FinishedTx { reads, writes, appended } = finished;
        let (ledger_end, version) = (ReadSet::default(), new_version());
        Self { kind, reads, ledger_end, writes, version, appended, page_rows: Vec::new() }
    }

    /// A commit of the same gateway that reads and changes nothing.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn without_changes(&self) -> Self {
        let (reads, writes, appended) = <_>::default();
        Self::new(self.kind, FinishedTx { reads, writes, appended })
    }

    /// Whether it changes nothing, not even the ledger.
    pub(crate) fn is_read_only(&self) -> bool {
        self.writes.is_empty() && self.appended.is_empty()
    }

    /// Numbers the pages after the last one that is cached, and computes their hashes.
    pub(crate) fn number_pages(&mut self, cache: &RowCache) -> Result<()> {
        if self.appended.is_empty() {
            return Ok(());
        }
        for key in self.page_rows.drain(..) {
            self.writes.remove(&key);
        }
        // An archive writes pages under the numbers they have. Those are in the writes and not in the cache.
        let writes = mem::take(&mut self.writes);
        let mut tx = OptimisticTx::new(self.kind, cache, false).with_writes(writes);
        let mut end = LedgerEnd::read(&tx)?;
        for entries in &self.appended {
            end = end.append(&mut tx, entries.clone())?;
        }
        self.page_rows = tx.written_since_savepoint();
        let numbered = tx.finish();
        (self.ledger_end, self.writes) = (numbered.reads, numbered.writes);
        for read in self.ledger_end.scans.values_mut() {
            read.is_exact = true;
        }
        Ok(())
    }

    /// Whether the pages follow the last one that is cached.
    pub(crate) fn is_numbered_after(&self, cache: &RowCache) -> bool {
        self.ledger_end.scans.iter().all(|(scan, read)| {
            let part = scan.covered(read.until.as_ref());
            cache.range(&part, scan.order()).map(|(key, _)| key).eq(&read.keys)
        })
    }

    /// Whether the current end of the ledger is not the one that the pages follow. After a failover, another page may have
    /// the number of the one that is known.
    pub(crate) fn has_other_end(&self, end: &Conflict) -> bool {
        let Conflict::Range { rows, .. } = end else { return true };
        let known =
            self.ledger_end.rows.iter().filter_map(|(key, version)| Some((key, (*version)?)));
        !rows.iter().map(|(key, row)| (key, row.version)).eq(known)
    }

    /// Whether only the end of the ledger has changed, and nothing that the decisions read.
    pub(crate) fn is_ledger_end_only(&self, conflicts: &[Conflict]) -> bool {
        let is_of_end = |conflict: &Conflict| match conflict {
            Conflict::Row(key, _) => {
                self.ledger_end.rows.contains_key(key) && !self.reads.rows.contains_key(key)
            }
            Conflict::Range { scan, .. } => {
                self.ledger_end.scans.contains_key(scan) && !self.reads.scans.contains_key(scan)
            }
        };
        !conflicts.is_empty() && conflicts.iter().all(is_of_end)
    }
}

pub(crate) fn new_version() -> RowVersion {
    fastrand::u64(..).to_be_bytes()
}

#[cfg(test)]
mod tests;
