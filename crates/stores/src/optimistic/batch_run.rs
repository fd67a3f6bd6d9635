//! Runs the decisions of a batch on cached rows, as often as rows turn out to have changed. The last run counts.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    BackendKind, Commit, Conflict, OptimisticTx, ReadSet, RowCache, batch::Batch,
    counters::WriteCounters, queued::QueuedDecision, sum_lane::SumLane,
};

pub(crate) struct BatchRun<'a> {
    kind: BackendKind,
    batch: &'a mut Batch,
    /// Whether the rows may be older than an answer that was already given.
    pub(super) is_doubtful: bool,
    /// Decisions that did not fit into the commit.
    deferred: VecDeque<QueuedDecision>,
    /// Which decisions of the last run need a durable commit.
    durable: Vec<bool>,
    sum_lane: SumLane,
    counters: Arc<WriteCounters>,
}

/// What a run leaves to its writer.
pub(super) struct EndedRun {
    /// Which decisions of the batch need a durable commit.
    pub(super) durable: Vec<bool>,
    pub(super) deferred: VecDeque<QueuedDecision>,
    pub(super) sum_lane: SumLane,
}

// === impl BatchRun ===

impl<'a> BatchRun<'a> {
    pub(super) fn new(
        kind: BackendKind,
        batch: &'a mut Batch,
        sum_lane: SumLane,
        counters: &Arc<WriteCounters>,
    ) -> Self {
        let ((deferred, durable), counters) = (<_>::default(), Arc::clone(counters));
        Self { kind, batch, is_doubtful: false, deferred, durable, sum_lane, counters }
    }

    pub(super) fn len(&self) -> usize {
        self.batch.len()
    }

    /// Runs as many decisions of the batch as fit into one commit, and defers the others.
    pub(crate) fn run(&mut self, cache: &RowCache) -> Commit {
        let tx = OptimisticTx::new(self.kind, cache, self.is_doubtful);
        let mut tx = tx.in_lane(self.sum_lane.number());
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

    /// Takes the current rows into the cache. Returns what is known to be current as of the request that returned them.
    pub(crate) fn learn(
        &mut self,
        cache: &mut RowCache,
        reads: ReadSet,
        conflicts: Vec<Conflict>,
    ) -> ReadSet {
        self.counters.conflicted();
        let current = cache.learn(reads, conflicts);
        self.leave_shared_lane(&current, cache);
        current
    }

    pub(super) fn leave_shared_lane(&mut self, reads: &ReadSet, cache: &RowCache) {
        self.sum_lane.leave_if_shared(reads, cache);
    }

    pub(super) fn end(self) -> EndedRun {
        let Self { durable, deferred, sum_lane, .. } = self;
        EndedRun { durable, deferred, sum_lane }
    }
}
