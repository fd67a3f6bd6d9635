//! Commits batches and validates read sets.
//!
//! A commit is one transaction of two round trips. The first locks the one row of `head`, which serialises the writers of all
//! gateways, and compares the read set. The second writes and commits, or fetches the current rows after a conflict. Validating
//! takes one round trip, without a lock, on a snapshot.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use domain::ports::{BoxError, ServerTime, StoreError};
use tokio_postgres::Row as SqlRow;

use crate::{
    backends::server::backoff,
    optimistic::{
        self, Commit, CommitError, CommitOutcome, CommitSeq, Committer, Conflict, ReadSet,
        RowCache, Validator,
    },
    schema::{codec::Codec, tables::LAST_TAG},
};

use super::{
    connection::{Pool, PooledConnection, QueryError, QueryErrorKind, SqlStep},
    health,
    sql::{Fetch, Statement, TableSql, partition},
    validate::{RangeCheck, ReadSetQuery},
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
    writer: i64,
    /// The commits of all gateways, as last seen.
    commits: AtomicI64,
    retries: AtomicU64,
    /// Reads the parts of rows that have columns of their own.
    codec: Codec,
}

/// Why an attempt failed: because of the server, or because of stored data.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum AttemptError {
    Query(#[from] QueryError),
    Store(#[from] StoreError),
}

/// An acknowledged commit is on the server's disk. A gateway that stops between its two round trips blocks the others only for
/// the idle timeout. Every statement is written for an index, so the planner must not choose otherwise because of old statistics.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
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
const COMMIT: SqlStep = SqlStep::Plain("COMMIT");
const ROLLBACK: SqlStep = SqlStep::Plain("ROLLBACK");

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
        seq: CommitSeq,
    ) -> Result<CommitOutcome, CommitError> {
        let (mut attempts, mut outcome_unknown) = (0, false);
        let error = loop {
            attempts += 1;
            let number = seq.number.cast_signed();
            match self.try_commit(cache, commit, number, &mut outcome_unknown).await {
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

    /// One attempt. `outcome_unknown`: the writes were sent, and only the sequence number shows whether they were applied.
    async fn try_commit(
        &self,
        cache: &mut RowCache,
        commit: &mut Commit,
        seq: i64,
        outcome_unknown: &mut bool,
    ) -> Result<CommitOutcome, AttemptError> {
        let connection = self.writer_pool.get().await?;
        let query = ReadSetQuery::new(self, &commit.reads);
        let end_query = ReadSetQuery::new(self, &commit.ledger_end).ranges_only();
        let steps = self.compare_steps(&query, &end_query)?;
        let mut results = connection.run(&steps).await?.into_iter().skip(1);
        if *outcome_unknown && self.is_applied(&connection, seq).await? {
            connection.run(&[ROLLBACK]).await?;
            connection.release();
            return Ok(CommitOutcome::Accepted);
        }
        *outcome_unknown = false;
        self.check_commits(results.next())?;
        let rows = query.read_rows(&mut results)?;
        let changed = query.changed_ranges(&mut results)?;
        let end = end_query.read_ranges(&mut results, Fetch::Rows)?.into_iter();
        let end: Vec<_> = end.map(|(range, rows)| range.conflict(rows)).collect();
        let outcome = if rows.is_empty() && changed.is_empty() {
            if end.iter().any(|end| commit.has_other_end(end)) {
                // Nobody else can append before this transaction ends.
                for conflict in end {
                    cache.apply_conflict(conflict);
                }
                commit.number_pages(cache)?;
            }
            let written = connection.run(&self.write_steps(commit, seq)?).await;
            // Statements that the server refused were not applied.
            *outcome_unknown =
                written.as_ref().is_err_and(|error| error.kind == QueryErrorKind::Broken);
            written?;
            CommitOutcome::Accepted
        } else {
            let ranges = self.fetch_ranges(&connection, changed).await?;
            CommitOutcome::Conflicts(rows.into_iter().chain(ranges).chain(end).collect())
        };
        connection.release();
        Ok(outcome)
    }

    /// The first round trip. Once `head` is locked, no other gateway can change what this one reads. The last page of the
    /// ledger is fetched and not compared: the pages of this commit are numbered after it.
    fn compare_steps(
        &self,
        query: &ReadSetQuery<'_>,
        ledger_end: &ReadSetQuery<'_>,
    ) -> Result<Vec<SqlStep>, StoreError> {
        let lock = format!("SELECT commits FROM \"{}\".head FOR UPDATE", self.schema());
        let lock = Statement::new(lock);
        let mut steps = vec![SqlStep::Plain(BEGIN), SqlStep::Query(lock)];
        query.add_steps(&mut steps, Fetch::Keys)?;
        ledger_end.add_steps(&mut steps, Fetch::Rows)?;
        Ok(steps)
    }

    /// The second round trip: the writes by table, the commit counter and the sequence number.
    fn write_steps(&self, commit: &Commit, seq: i64) -> Result<Vec<SqlStep>, StoreError> {
        let mut steps = Vec::new();
        let writes: Vec<_> = commit.writes.iter().collect();
        for writes in writes.chunk_by(|a, b| a.0[0] == b.0[0]) {
            let table = self.table(writes[0].0[0]);
            let (puts, deletes) = partition(writes);
            if !puts.is_empty() {
                steps.push(SqlStep::Query(table.put(&puts, (self.codec, commit.version))?));
            }
            if !deletes.is_empty() {
                steps.push(SqlStep::Query(table.delete(&deletes)?));
            }
        }
        let schema = self.schema();
        let count = format!(
            "WITH counted AS (UPDATE \"{schema}\".head SET commits = commits + 1) \
             INSERT INTO \"{schema}\".turns (writer, turn, at) VALUES ($1, $2, now()) \
             ON CONFLICT (writer) DO UPDATE SET turn = excluded.turn, at = excluded.at"
        );
        steps.push(SqlStep::Query(Statement::new(count).number(self.writer).number(seq)));
        steps.push(COMMIT);
        Ok(steps)
    }

    /// Whether a commit of this gateway was applied. Called while `head` is locked: an earlier copy of the commit that is still
    /// running would hold the lock.
    async fn is_applied(
        &self,
        connection: &PooledConnection<'_>,
        seq: i64,
    ) -> Result<bool, QueryError> {
        let last = format!("SELECT turn FROM \"{}\".turns WHERE writer = $1", self.schema());
        let statement = Statement::new(last).number(self.writer);
        let results = connection.run(&[SqlStep::Query(statement)]).await?;
        let last: Option<i64> = results.iter().flatten().next().and_then(|row| row.try_get(0).ok());
        Ok(last == Some(seq))
    }

    /// The current rows of the ranges that have changed, in the same transaction, which then ends.
    async fn fetch_ranges(
        &self,
        connection: &PooledConnection<'_>,
        changed: Vec<RangeCheck<'_>>,
    ) -> Result<Vec<Conflict>, AttemptError> {
        let query = ReadSetQuery::of_ranges(changed);
        let mut steps = Vec::new();
        query.add_steps(&mut steps, Fetch::Rows)?;
        steps.push(ROLLBACK);
        let mut results = connection.run(&steps).await?.into_iter();
        let ranges = query.read_ranges(&mut results, Fetch::Rows)?;
        Ok(ranges.into_iter().map(|(range, rows)| range.conflict(rows)).collect())
    }

    /// A server with fewer commits than before is another one: a replica that took over too early, or a backup.
    /// Without its row nothing is locked, so nothing may be decided.
    fn check_commits(&self, result: Option<Vec<SqlRow>>) -> Result<(), StoreError> {
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
