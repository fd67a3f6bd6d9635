//! Runs the decisions of a batch on cached rows, as often as rows turn out to have changed. The last run counts.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{BackendKind, Commit, OptimisticTx, RowCache, batch::Batch, queued::QueuedDecision};

pub(crate) struct BatchRun<'a> {
    kind: BackendKind,
    batch: &'a mut Batch,
    /// Whether the rows may be older than an answer that was already given.
    pub(super) is_doubtful: bool,
    /// Decisions that did not fit into the commit.
    deferred: VecDeque<QueuedDecision>,
    /// Which decisions of the last run need a durable commit.
    durable: Vec<bool>,
}

// === impl BatchRun ===

impl<'a> BatchRun<'a> {
    pub(super) fn new(kind: BackendKind, batch: &'a mut Batch) -> Self {
        let (deferred, durable) = <_>::default();
        Self { kind, batch, is_doubtful: false, deferred, durable }
    }

    /// Runs as many decisions of the batch as fit into one commit, and defers the others.
    pub(crate) fn run(&mut self, cache: &RowCache) -> Commit {
        let mut tx = OptimisticTx::new(self.kind, cache, self.is_doubtful);
        self.durable.clear();
        for queued in self.batch.iter_mut() {
            if tx.written_bytes() > self.kind.max_bytes {
                break;
            }
            tx.set_savepoint();
            // A decision that panics or fails must not take the rest of the batch with it.
            let succeeded = catch_unwind(AssertUnwindSafe(|| queued.run(&mut tx)));
            if !succeeded.unwrap_or(false) {
                tx.rollback_to_savepoint();
            }
            self.durable.push(tx.take_durable());
        }
        let commit = Commit::new(self.kind, tx.finish());
        self.defer(self.durable.len());
        commit
    }

    pub(super) fn defer_half(&mut self) {
        self.defer(self.batch.len().div_ceil(2));
    }

    /// Moves all but the first decisions of the batch to the next one.
    fn defer(&mut self, keep: usize) {
        for queued in self.batch.drain(keep.min(self.batch.len())..).rev() {
            self.deferred.push_front(queued);
        }
    }

    /// Which decisions of the batch need a durable commit, and those that were deferred.
    pub(super) fn end(&mut self) -> (Vec<bool>, VecDeque<QueuedDecision>) {
        (mem::take(&mut self.durable), mem::take(&mut self.deferred))
    }
}
