//! Commits batches, again after a failure whose outcome is unknown, and restores records when the server has lost commits.

use std::sync::Arc;

use domain::ports::StoreError;

use crate::{
    adapter::DecideFn,
    optimistic::{
        BatchRun, Commit, CommitError, CommitOutcome, CommitSeq, Committer, ReadSet, RowCache,
        meta::StoreMeta,
        restore::{LossyServer as _, Restorer},
    },
};

use super::{
    connection::{QueryError, SqlStep},
    head::{Head, Lock},
    server::{AttemptError, BEGIN, COMMIT, PostgresServer, ROLLBACK, unavailable},
    sql::Statement,
};

pub(super) struct PostgresCommitter {
    server: Arc<PostgresServer>,
    restorer: Restorer,
}

// === impl PostgresCommitter ===

impl PostgresCommitter {
    pub(super) fn new(server: Arc<PostgresServer>) -> Self {
        let restorer = Restorer::new(server.codec, &server.meta());
        Self { server, restorer }
    }

    /// Opens the data again, in a new incarnation. From now on this gateway's records are pending.
    async fn start_over(&mut self) -> Result<(), StoreError> {
        let (known, acknowledged) = self.server.known();
        let mut meta = self.server.reopen().await?;
        tracing::error!(
            commits_known = known.count,
            commits_there = meta.count,
            own_commit = acknowledged,
            "PostgreSQL has forgotten commits it had confirmed: a replica without them has taken over, or a backup was \
             restored; restoring this gateway's records"
        );
        self.restorer.start_over(known.count, &mut meta);
        self.server.replace_meta(meta);
        Ok(())
    }

    async fn outcome_of(&mut self, outcome: CommitOutcome) -> Result<CommitOutcome, StoreError> {
        if let CommitOutcome::DataLost = outcome {
            self.start_over().await?;
        }
        Ok(outcome)
    }
}

impl Committer for PostgresCommitter {
    async fn validate(
        &mut self,
        _: &mut RowCache,
        reads: &ReadSet,
    ) -> Result<CommitOutcome, StoreError> {
        let outcome = self.server.compare(reads).await?;
        self.outcome_of(outcome).await
    }

    /// Compares and writes, all or nothing, and at most once for each sequence number. A commit waits for the lock on `head`.
    /// Behind that lock the outcome of an earlier commit is visible and final.
    async fn commit(
        &mut self,
        cache: &mut RowCache,
        commit: &mut Commit,
        run: &mut BatchRun<'_>,
        seq: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        let server = Arc::clone(&self.server);
        let (mut attempts, mut outcome_unknown) = (0, false);
        let outcome = loop {
            attempts += 1;
            let attempt = server.try_commit((cache, commit, run), seq, &mut outcome_unknown);
            match attempt.await {
                Ok(outcome) => break self.outcome_of(outcome).await,
                Err(AttemptError::Store(error)) => break Err(error),
                Err(AttemptError::Query(error)) => {
                    if !server.may_retry(&error, attempts, outcome_unknown).await {
                        break Err(server.unavailable(&error, attempts));
                    }
                }
            }
        };
        if let Ok(CommitOutcome::Accepted) = outcome {
            self.restorer.record(&commit.writes, cache);
        }
        outcome.map_err(|error| CommitError { error, outcome_unknown })
    }

    fn is_doubtful(&self) -> bool {
        self.server.meta().is_doubtful()
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

// === opening the data again ===

impl PostgresServer {
    /// Begins a new incarnation, unless another gateway has begun it already, and forgets this gateway's commits.
    async fn reopen(&self) -> Result<StoreMeta, StoreError> {
        let failed = |error: QueryError| self.unavailable(&error, 1);
        let (known, acknowledged) = self.known();
        let connection = self.writer_pool.get().await.map_err(failed)?;
        let mut steps = vec![SqlStep::Plain(BEGIN)];
        steps.extend(Head::steps(self.schema(), self.writer, Lock::ForUpdate));
        let mut results = connection.run(&steps).await.map_err(failed)?.into_iter().skip(1);
        let found = Head::read(&mut results)?;
        if !found.is_behind(&known, acknowledged) {
            connection.run(&[ROLLBACK]).await.map_err(failed)?;
            return Err(unavailable(
                "a connection reached another server, with fewer commits; retry later",
            ));
        }
        let mut steps = Vec::new();
        if let Some(number) = found.next_incarnation(&known) {
            let begin = format!(
                "UPDATE \"{}\".head SET incarnation = $1, name = $2, lost_at = clock_timestamp(), stock_is_doubtful = true",
                self.schema()
            );
            let begin = Statement::new(begin).number(number).number(fastrand::i64(1..));
            steps.push(SqlStep::Query(begin));
        }
        let forget = format!("DELETE FROM \"{}\".turns WHERE writer = $1", self.schema());
        steps.push(SqlStep::Query(Statement::new(forget).number(self.writer)));
        let read_from = steps.len();
        steps.extend(Head::steps(self.schema(), self.writer, Lock::None));
        steps.push(COMMIT);
        let results = connection.run(&steps).await.map_err(failed)?;
        connection.release();
        Ok(Head::read(&mut results.into_iter().skip(read_from))?.meta())
    }
}
