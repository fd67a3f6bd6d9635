//! Commits batches with `commit.lua`. A commit whose reply is lost is sent once more, with the same sequence number: the server
//! applies each number at most once. When the server turns out to have lost writes, `restore` takes over.

use std::{sync::Arc, sync::atomic::Ordering};

use domain::ports::StoreError;

use crate::{
    adapter::DecideFn,
    optimistic::{
        Commit, CommitError, CommitOutcome, CommitSeq, Committer, ReadSet, RowCache,
        recovery::RecoveryBuffer,
    },
    schema::codec::Codec,
};

use super::{
    call::{CallSeq, CommitReply},
    replicas::Replicas,
    restore::PendingRestore,
    server::{CallError, RedisServer, unavailable},
};

pub(super) struct RedisCommitter {
    pub(super) server: Arc<RedisServer>,
    pub(super) recovery: RecoveryBuffer,
    /// Records that must be restored before the next batch.
    pub(super) pending: Option<PendingRestore>,
    replicas: Replicas,
}

impl RedisCommitter {
    pub(super) fn new(server: Arc<RedisServer>, codec: Codec, replicas: Replicas) -> Self {
        // The gateway that reopened the store after a loss may have died before it had checked the stock.
        let pending = PendingRestore::of_stock(&server.meta());
        Self { server, recovery: RecoveryBuffer::new(codec), pending, replicas }
    }

    /// Calls the script, a second time if the first reply is lost. Also returns whether one of the calls may still be on its way.
    async fn call(
        &mut self,
        commit: &Commit,
        seq: CommitSeq,
    ) -> (Result<CommitReply, CallError>, bool) {
        let acknowledged = self.server.acknowledged.load(Ordering::Relaxed);
        let resent = seq.follows_unknown || self.server.connection.is_cluster();
        let mut call_seq = CallSeq { number: seq.number, acknowledged, resent };
        let mut reply = self.server.commit(commit, call_seq).await;
        let outcome_unknown = reply.as_ref().is_err_and(|error| error.outcome_unknown);
        if outcome_unknown {
            tracing::debug!(seq = seq.number, "no reply to a commit, sending it again");
            call_seq.resent = true;
            reply = self.server.commit(commit, call_seq).await;
        }
        let is_recorded = match &reply {
            Ok(CommitReply::Done { .. } | CommitReply::ConflictBefore) => true,
            Ok(CommitReply::Conflict { .. }) => call_seq.resent,
            Ok(CommitReply::Lost) | Err(_) => false,
        };
        if is_recorded {
            self.server.acknowledged.store(seq.number, Ordering::Relaxed);
        }
        (reply, outcome_unknown)
    }

    async fn outcome_of(&mut self, reply: CommitReply) -> Result<CommitOutcome, StoreError> {
        if let CommitReply::Lost = reply {
            self.start_over().await?;
        }
        Ok(reply.into())
    }
}

impl Committer for RedisCommitter {
    async fn validate(
        &mut self,
        _: &mut RowCache,
        reads: &ReadSet,
    ) -> Result<CommitOutcome, StoreError> {
        let reply = self.server.compare(reads).await?;
        self.outcome_of(reply).await
    }

    async fn commit(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
        seq: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        let (reply, outcome_unknown) = self.call(commit, seq).await;
        let outcome = match reply {
            Ok(reply) => self.outcome_of(reply).await,
            Err(error) => Err(error.into()),
        };
        if let Ok(CommitOutcome::Accepted) = outcome {
            self.recovery.record_books_read(&commit.reads, cache);
            self.recovery.record(&commit.writes, cache);
        }
        outcome.map_err(|error| CommitError { error, outcome_unknown })
    }

    fn is_doubtful(&self) -> bool {
        self.server.meta().is_doubtful()
    }

    async fn confirm_durable(&mut self) -> Result<(), StoreError> {
        if self.replicas.confirm(&self.server).await {
            return Ok(());
        }
        Err(unavailable("no replica confirmed the write within 500 ms; no money is spent on it"))
    }

    fn is_restoring(&self) -> bool {
        self.pending.is_some()
    }

    async fn next_restore_step(&mut self) -> Result<Option<DecideFn>, StoreError> {
        self.next_step().await
    }

    fn finish_restore_step(&mut self) -> Result<(), StoreError> {
        self.finish_step()
    }

    fn check_ready(&self) -> Result<(), StoreError> {
        self.server.check_settled()
    }
}
