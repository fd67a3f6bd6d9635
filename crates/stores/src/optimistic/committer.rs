//! The commit protocol between the writer and a backend, whose `commit.rs` implements it.

use std::future::Future;

use domain::ports::StoreError;

use crate::{Result, adapter::DecideFn};

use super::{BatchRun, Commit, Conflict, ReadSet, RowCache};

/// What a backend does for the writer. Only `validate` and `commit` are needed; the rest are hooks with defaults.
pub(crate) trait Committer: Send + 'static {
    /// Compares the read set with the server's rows and writes nothing.
    fn validate(
        &mut self,
        cache: &mut RowCache,
        reads: &ReadSet,
    ) -> impl Future<Output = Result<CommitOutcome>> + Send;

    /// Compares the read set and writes, all or nothing. When the ledger has grown since its pages were numbered, the backend
    /// numbers them again or returns its end as a conflict. A backend that can hold the rows still runs the decisions again
    /// after a conflict, which replaces the commit. Once a commit has succeeded, the server applies no earlier commit of this
    /// writer that is still on its way.
    fn commit(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
        run: &mut BatchRun<'_>,
        seq: CommitSeq,
    ) -> impl Future<Output = Result<CommitOutcome, CommitError>> + Send;

    /// The writer has emptied its cache, because it was full.
    fn cache_cleared(&mut self) {}

    /// Whether the rows may be older than an answer that was already given. Decisions spend no money on such rows.
    fn is_doubtful(&self) -> bool {
        false
    }

    /// Makes sure that the last commit survives the loss of the server. Called when money is about to be spent on it.
    fn confirm_durable(&mut self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Whether records must be restored before the next batch, because the server lost data.
    fn is_restoring(&self) -> bool {
        false
    }

    /// The next decision that restores records; `None` when all are restored.
    fn next_restore_step(&mut self) -> impl Future<Output = Result<Option<DecideFn>>> + Send {
        async { Ok(None) }
    }

    /// The step was committed, and its decision has left its result.
    fn finish_restore_step(&mut self) -> Result<()> {
        Ok(())
    }

    /// Fails while batches must wait for other gateways to restore their records.
    fn check_ready(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) enum CommitOutcome {
    /// The read set is current, and the writes are stored.
    Accepted,
    /// The read set is out of date; nothing was written. These are the current rows.
    Conflicts(Vec<Conflict>),
    /// An earlier copy of this commit conflicted, and its reply was lost. Nothing was written; the decisions must run again,
    /// and the next try learns the current rows.
    Retry,
    /// The server lost acknowledged writes, so the cache and the sequence numbers are worthless.
    DataLost,
}

/// The sequence number of a commit. The server applies each number of a writer at most once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitSeq {
    pub(crate) number: u64,
    /// The outcome of an earlier commit is unknown, because its reply was lost.
    pub(crate) follows_unknown: bool,
}

#[derive(Debug)]
pub(crate) struct CommitError {
    pub(crate) error: StoreError,
    /// The server may have applied the commit, or may still do so when the request arrives.
    pub(crate) outcome_unknown: bool,
}

// === impl CommitOutcome ===

impl CommitOutcome {
    pub(crate) fn of_conflicts(conflicts: Vec<Conflict>) -> Self {
        if conflicts.is_empty() { Self::Accepted } else { Self::Conflicts(conflicts) }
    }
}

// === impl CommitError ===

#[cfg(feature = "dynamodb")]
impl CommitError {
    /// Nothing was written, and nothing will be.
    pub(crate) fn not_applied(error: StoreError) -> Self {
        Self { error, outcome_unknown: false }
    }
}
