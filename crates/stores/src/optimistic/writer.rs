//! The write loop: takes a batch of queued decisions, runs them on an optimistic transaction, lets the backend validate and commit
//! it, runs them again after a conflict, and answers the callers.
//!
//! Each process has one writer task per store, so its commits have sequence numbers and are sent one after the other. The queue is
//! in `batch.rs`; the protocol that a backend implements in its `commit.rs` is in `committer.rs`.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use domain::ports::StoreError;
use tokio::time::timeout;

use crate::Result;

use super::{
    BackendKind, BatchRun, Commit, CommitOutcome, CommitSeq, Committer, ReadSet, RowCache,
    WriteQueue,
    batch::{Batch, WriteQueueReceiver, answered},
    counters::WriteCounters,
    queued::QueuedDecision,
    sum_lane::SumLane,
    unavailable,
};

/// The writer task: its committer, its cache, and the state of its sequence numbers.
struct WriterTask<C> {
    kind: BackendKind,
    committer: C,
    cache: RowCache,
    queue: WriteQueueReceiver,
    /// Decisions that did not fit into the last commit.
    deferred: VecDeque<QueuedDecision>,
    sum_lane: SumLane,
    /// The number of the last commit that was sent.
    seq: u64,
    outcome_unknown: bool,
    counters: Arc<WriteCounters>,
}

/// Decisions in one commit. A server does nothing else while it applies one.
const MAX_BATCH: usize = 64;
/// Urgent decisions that join a batch of deferred ones.
const MAX_URGENT: usize = 8;
/// A batch is given up after this many tries.
const MAX_TRIES: usize = 100;
/// Every so many tries, retry with half of the batch: a smaller read set conflicts less.
const HALVE_EVERY: usize = 8;
/// Every so many times that the ledger has grown, the decisions run again.
const MAX_NUMBERED: usize = 50;
/// While records are being restored, the writer waits no longer than this for a decision before it continues.
const RESTORE_RETRY: Duration = Duration::from_millis(100);

pub(crate) fn spawn<C: Committer>(
    kind: BackendKind,
    committer: C,
    cache: RowCache,
    counters: Arc<WriteCounters>,
) -> WriteQueue {
    let (write_queue, queue) = WriteQueue::new(&kind);
    let deferred = VecDeque::new();
    let task = WriterTask {
        kind,
        committer,
        cache,
        queue,
        deferred,
        sum_lane: SumLane::any(),
        seq: 0,
        outcome_unknown: false,
        counters,
    };
    tokio::spawn(task.run());
    write_queue
}

// === impl WriterTask ===

impl<C: Committer> WriterTask<C> {
    async fn run(mut self) {
        loop {
            let wait = if self.committer.is_restoring() { RESTORE_RETRY } else { Duration::MAX };
            match timeout(wait, self.next_batch()).await {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => self.write(batch).await,
                Err(_) => {
                    if let Err(error) = self.restore().await {
                        tracing::warn!(%error, store = self.kind.name(), "restoring records failed, retrying");
                    }
                }
            }
        }
    }

    /// The decisions that were deferred, or else those that wait in the queue; empty when the queue is closed.
    async fn next_batch(&mut self) -> Batch {
        let mut batch = Batch::new();
        if self.deferred.is_empty() {
            self.queue.fill(&mut batch, MAX_BATCH).await;
        } else {
            // What was deferred conflicted in a larger batch, so only a few urgent ones come before it.
            self.queue.add_urgent(&mut batch, MAX_URGENT);
            batch.extend(self.deferred.drain(..));
        }
        batch
    }

    /// Commits a batch and answers its decisions.
    async fn write(&mut self, mut batch: Batch) {
        match self.prepare_and_commit(&mut batch).await {
            Ok(durable) => {
                let confirmed = if durable.contains(&true) {
                    self.committer.confirm_durable().await
                } else {
                    Ok(())
                };
                for (queued, needs_durable) in batch.into_iter().zip(durable) {
                    queued.answer(if needs_durable { confirmed.clone() } else { Ok(()) });
                }
            }
            Err(error) => answer_all(batch, &Err(error)),
        }
    }

    async fn prepare_and_commit(&mut self, batch: &mut Batch) -> Result<Vec<bool>> {
        self.restore().await?;
        self.committer.check_ready()?;
        self.commit(batch).await
    }

    /// Restores records, if the server lost any. After an error the next call continues where this one stopped.
    async fn restore(&mut self) -> Result<()> {
        while let Some(decide) = self.committer.next_restore_step().await? {
            let (queued, answer) = QueuedDecision::new(decide);
            let mut batch = vec![queued];
            let committed = self.commit(&mut batch).await.map(drop);
            answer_all(batch, &committed);
            answered(self.kind.name(), answer).await?;
            self.committer.finish_restore_step()?;
        }
        Ok(())
    }

    /// Runs the decisions and commits them. Returns which of them need a durable commit.
    async fn commit(&mut self, batch: &mut Batch) -> Result<Vec<bool>> {
        if self.cache.clear_if_full() {
            self.committer.cache_cleared();
        }
        let mut run = BatchRun::new(self.kind, batch, self.sum_lane, &self.counters);
        let committed = self.commit_run(&mut run).await;
        let ended = run.end();
        self.sum_lane = ended.sum_lane;
        for queued in ended.deferred.into_iter().rev() {
            self.deferred.push_front(queued);
        }
        committed.map(|()| ended.durable)
    }

    /// Runs the decisions and commits them, again after each conflict.
    async fn commit_run(&mut self, run: &mut BatchRun<'_>) -> Result<()> {
        let mut validated: Option<ReadSet> = None;
        for tries in 1..=MAX_TRIES {
            if tries % HALVE_EVERY == 0 {
                tracing::debug!(tries, "conflicts persist, retrying with half of the batch");
                run.defer_half();
            }
            run.is_doubtful = self.committer.is_doubtful();
            let mut commit = run.run(&self.cache);
            let is_validated = |reads| commit.reads.clone().without(reads).is_empty();
            if commit.is_read_only() && validated.as_ref().is_some_and(is_validated) {
                return Ok(());
            }
            match self.send_after_ledger(&mut commit, run).await? {
                CommitOutcome::Accepted => {
                    self.counters.committed(run.len());
                    self.cache.apply(commit.writes, commit.version);
                    return Ok(());
                }
                CommitOutcome::Conflicts(conflicts) => {
                    tracing::trace!(tries, conflicts = conflicts.len(), "conflict, retrying batch");
                    validated = Some(run.learn(&mut self.cache, commit.reads, conflicts));
                }
                CommitOutcome::Retry => {
                    tracing::trace!(tries, "retrying batch");
                    run.leave_shared_lane(&commit.reads, &self.cache);
                }
                CommitOutcome::DataLost => return Err(self.reset()),
            }
        }
        Err(unavailable(self.kind.name(), "too many conflicts with other gateways; retry later"))
    }

    /// Numbers the pages of a commit and sends it, again as long as only the ledger has grown meanwhile.
    async fn send_after_ledger(
        &mut self,
        commit: &mut Commit,
        run: &mut BatchRun<'_>,
    ) -> Result<CommitOutcome> {
        let mut sent = 0;
        loop {
            commit.number_pages(&self.cache)?;
            let outcome = self.send(commit, run).await?;
            sent += 1;
            let CommitOutcome::Conflicts(conflicts) = outcome else { return Ok(outcome) };
            if sent >= MAX_NUMBERED || !commit.is_ledger_end_only(&conflicts) {
                return Ok(CommitOutcome::Conflicts(conflicts));
            }
            tracing::trace!(sent, "the ledger has grown, numbering pages again");
            self.counters.renumbered();
            for conflict in conflicts {
                self.cache.apply_conflict(conflict);
            }
        }
    }

    /// Validates a commit, or commits it if it writes. While the outcome of an earlier commit is unknown, the next one always
    /// takes a sequence number, even without writes: only a later number keeps the server from applying the earlier commit
    /// when its request arrives late.
    async fn send(&mut self, commit: &mut Commit, run: &mut BatchRun<'_>) -> Result<CommitOutcome> {
        if commit.is_read_only() && !self.outcome_unknown {
            return self.committer.validate(&mut self.cache, &commit.reads).await;
        }
        self.seq += 1;
        let seq = CommitSeq { number: self.seq, follows_unknown: self.outcome_unknown };
        let outcome = self.committer.commit(&mut self.cache, commit, run, seq).await;
        tracing::trace!(seq = seq.number, writes = commit.writes.len(), ?outcome, "sent commit");
        self.outcome_unknown = match &outcome {
            Ok(_) => false,
            Err(failed) => self.outcome_unknown || failed.outcome_unknown,
        };
        outcome.map_err(|failed| failed.error)
    }

    /// Starts over on a server that lost writes. No request of the time before can be applied there.
    fn reset(&mut self) -> StoreError {
        self.cache.clear();
        (self.seq, self.outcome_unknown) = (0, false);
        unavailable(
            self.kind.name(),
            "it lost acknowledged writes; the gateways are restoring them",
        )
    }
}

fn answer_all(batch: Batch, result: &Result<()>) {
    for queued in batch {
        queued.answer(result.clone());
    }
}

#[cfg(test)]
mod tests;
