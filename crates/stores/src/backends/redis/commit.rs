//! Commits batches with `commit.lua`. A commit whose reply is lost is sent once more, with the same sequence number: the server
//! applies each number at most once. When the server turns out to have lost writes, `optimistic::restore` takes over.

use std::{sync::Arc, sync::atomic::Ordering};

use domain::ports::StoreError;

use crate::{
    adapter::DecideFn,
    optimistic::{
        BatchRun, Commit, CommitError, CommitOutcome, CommitSeq, Committer, ReadSet, RowCache,
        restore::{LossyServer as _, Restorer},
    },
    schema::codec::Codec,
};

use super::{
    call::{CallSeq, CommitReply},
    meta::OpenedMeta,
    replicas::Replicas,
    server::{CallError, RedisServer, unavailable},
};

pub(super) struct RedisCommitter {
    pub(super) server: Arc<RedisServer>,
    restorer: Restorer,
    replicas: Replicas,
}

impl RedisCommitter {
    pub(super) fn new(server: Arc<RedisServer>, codec: Codec, replicas: Replicas) -> Self {
        let restorer = Restorer::new(codec, &server.meta());
        Self { server, restorer, replicas }
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

    /// Opens the data again, in a new incarnation. From now on this gateway's records are pending.
    async fn start_over(&mut self) -> Result<(), StoreError> {
        let server = &self.server;
        let known = server.meta().clone();
        let opened = OpenedMeta::open(
            &server.connection,
            &server.meta_script,
            &server.names,
            server.writer,
            Some((&known.incarnation, known.count)),
        );
        let OpenedMeta::Opened(mut meta) = opened.await.map_err(CallError::from)? else {
            return Err(unavailable("its data no longer has this release's format"));
        };
        tracing::error!(
            commits_known = known.count,
            commits_there = meta.count,
            "Redis lost writes it had acknowledged, restoring this gateway's records"
        );
        self.restorer.start_over(known.count, &mut meta);
        server.replace_meta(meta);
        Ok(())
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
        _: &mut BatchRun<'_>,
        seq: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        let (reply, outcome_unknown) = self.call(commit, seq).await;
        let outcome = match reply {
            Ok(reply) => self.outcome_of(reply).await,
            Err(error) => Err(error.into()),
        };
        if let Ok(CommitOutcome::Accepted) = outcome {
            self.restorer.record(&commit.writes, cache);
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
        self.restorer.is_restoring()
    }

    async fn next_restore_step(&mut self) -> Result<Option<DecideFn>, StoreError> {
        self.restorer.next_step(&*self.server).await
    }

    fn finish_restore_step(&mut self) -> Result<(), StoreError> {
        self.restorer.finish_step()
    }

    fn check_ready(&self) -> Result<(), StoreError> {
        self.server.meta().check_settled(super::NAME)
    }
}
