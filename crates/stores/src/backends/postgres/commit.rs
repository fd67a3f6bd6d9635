//! Commits batches and validates read sets.
//!
//! A commit is one transaction (`locked.rs`), two round trips without a conflict. It locks the one row of `head`, which
//! serialises the writers of all gateways. Validating takes one round trip, without a lock, on a snapshot.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use domain::ports::{BoxError, ServerTime, StoreError};
use tokio_postgres::Row as SqlRow;

use crate::{
    backends::server::backoff,
    optimistic::{
        self, BatchRun, Commit, CommitError, CommitOutcome, CommitSeq, Committer, ReadSet,
        RowCache, Validator,
    },
    schema::{codec::Codec, tables::LAST_TAG},
};

use super::{
    connection::{Pool, QueryError, QueryErrorKind, SqlStep},
    health,
    locked::LockedCommit,
    sql::{Fetch, TableSql},
    validate::ReadSetQuery,
};

/// The server as this process sees it.
pub(super) struct PostgresServer {
    /// One connection: commits go one after the other.
    writer_pool: Pool,
    /// Several connections: queries run side by side.
    pub(super) reader_pool: Pool,
    /// In the order of their tags, which begin at one.
    tables: Vec<TableSql>,
    /// The random id of this process among the writers.
    pub(super) writer: i64,
    /// The commits of all gateways, as last seen.
    commits: AtomicI64,
    retries: AtomicU64,
    /// Reads the parts of rows that have columns of their own.
    pub(super) codec: Codec,
}

/// Why an attempt failed: because of the server, or because of stored data.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum AttemptError {
    Query(#[from] QueryError),
    Store(#[from] StoreError),
}

/// An acknowledged commit is on the server's disk. A gateway that stops between its two round trips blocks the others only for
/// the idle timeout. Every statement is written for an index, so the planner must not choose otherwise because of old statistics.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true); \
    SET LOCAL lock_timeout = '1500ms'; SET LOCAL statement_timeout = '10s'; \
    SET LOCAL idle_in_transaction_session_timeout = '2s'; \
    SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = '10s'; \
    SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
pub(super) const COMMIT: SqlStep = SqlStep::Plain("COMMIT");

/// A transaction is given up after this many attempts.
const MAX_ATTEMPTS: u32 = 4;

// === impl PostgresServer ===

impl Committer for Arc<PostgresServer> {
    async fn validate(
        &mut self,
        _: &mut RowCache,
        reads: &ReadSet,
    ) -> Result<CommitOutcome, StoreError> {
        Validator::validate(&**self, reads).await
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
        let (mut attempts, mut outcome_unknown) = (0, false);
        let error = loop {
            attempts += 1;
            let attempt = self.try_commit((cache, commit, run), seq, &mut outcome_unknown);
            match attempt.await {
                Ok(outcome) => return Ok(outcome),
                Err(AttemptError::Store(error)) => break error,
                Err(AttemptError::Query(error)) => {
                    if !self.may_retry(&error, attempts, outcome_unknown).await {
                        break self.unavailable(&error, attempts);
                    }
                }
            }
        };
        Err(CommitError { error, outcome_unknown })
    }
}

impl PostgresServer {
    pub(super) fn new(writer_pool: Pool, reader_pool: Pool, codec: Codec) -> Self {
        let table = |tag| TableSql::new(&writer_pool.address.schema, tag);
        Self {
            tables: (1..=LAST_TAG).map(table).collect(),
            writer_pool,
            reader_pool,
            writer: fastrand::i64(1..),
            commits: AtomicI64::new(0),
            retries: AtomicU64::new(0),
            codec,
        }
    }

    pub(super) fn table(&self, tag: u8) -> &TableSql {
        &self.tables[usize::from(tag) - 1]
    }

    pub(super) fn schema(&self) -> &str {
        &self.writer_pool.address.schema
    }

    /// Whether a retry makes sense. Waits before the second and later retries.
    async fn may_retry(&self, error: &QueryError, attempts: u32, outcome_unknown: bool) -> bool {
        let may_retry = attempts < MAX_ATTEMPTS
            && match error.kind {
                // If an administrator closed the connections, the next one may be good.
                QueryErrorKind::Broken | QueryErrorKind::Conflict => true,
                // Only the server knows whether the commit was applied.
                QueryErrorKind::Unreachable | QueryErrorKind::Starting => outcome_unknown,
                QueryErrorKind::Refused => false,
            };
        if may_retry {
            let total = self.retries.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(%error, attempts, total, "retrying transaction");
            if attempts > 1 {
                tokio::time::sleep(backoff::delay(attempts - 2)).await;
            }
        }
        may_retry
    }

    fn unavailable(&self, error: &QueryError, attempts: u32) -> StoreError {
        if attempts <= 1 {
            return unavailable(error.message.clone());
        }
        let total = self.retries.load(Ordering::Relaxed);
        unavailable(format!("{error} (after {attempts} attempts; {total} retries so far)"))
    }

    /// One transaction on a connection of its own.
    async fn try_commit(
        &self,
        (cache, commit, run): (&mut RowCache, &mut Commit, &mut BatchRun<'_>),
        seq: CommitSeq,
        outcome_unknown: &mut bool,
    ) -> Result<CommitOutcome, AttemptError> {
        let connection = self.writer_pool.get().await?;
        let locked = LockedCommit { server: self, connection: &connection, cache, commit, seq };
        let outcome = locked.attempt(run, outcome_unknown).await?;
        connection.release();
        Ok(outcome)
    }

    /// A server with fewer commits than before is another one: a replica that took over too early, or a backup.
    /// Without its row nothing is locked, so nothing may be decided.
    pub(super) fn check_commits(&self, result: Option<Vec<SqlRow>>) -> Result<(), StoreError> {
        let commits = result.and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok());
        let commits = commits.ok_or_else(|| {
            StoreError::corrupt(
                "postgres",
                "the table `head`",
                "its row is gone, so nothing can be locked; restore the database from a backup",
            )
        })?;
        let before = self.commits.swap(commits, Ordering::Relaxed);
        if commits < before {
            tracing::error!(
                before,
                now = commits,
                "PostgreSQL has forgotten commits it had confirmed: a replica without them has taken over, or a \
                 backup was restored; solves of that time may be paid again"
            );
        }
        Ok(())
    }
}

impl Validator for PostgresServer {
    /// Compares a read set on one snapshot.
    async fn validate(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        let (mut steps, query) = (vec![SqlStep::Plain(BEGIN_READ)], ReadSetQuery::new(self, reads));
        query.add_steps(&mut steps, Fetch::Rows)?;
        steps.push(COMMIT);
        let mut attempts = 0;
        let results = loop {
            attempts += 1;
            match self.reader_pool.run(&steps).await {
                Err(error) if self.may_retry(&error, attempts, false).await => {}
                results => break results.map_err(|error| self.unavailable(&error, attempts))?,
            }
        };
        let mut results = results.into_iter().skip(1);
        let mut conflicts = query.read_rows(&mut results)?;
        for (range, rows) in query.read_ranges(&mut results, Fetch::Rows)? {
            conflicts.extend(range.conflict_if_changed(rows));
        }
        Ok(CommitOutcome::of_conflicts(conflicts))
    }

    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match health::server_time(&self.reader_pool).await {
                Err(error) if self.may_retry(&error, attempts, false).await => {}
                time => return time.map_err(|error| self.unavailable(&error, attempts)),
            }
        }
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    optimistic::unavailable(super::NAME, why)
}
