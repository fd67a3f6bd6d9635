//! The server as this process sees it. A commit is one transaction (`locked`), two round trips without a conflict. It locks the
//! one row of `head`, which serialises the writers of all gateways. Validating takes one round trip, without a lock, on a
//! snapshot.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::ports::{BoxError, ServerTime, StoreError};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    backends::server::backoff,
    optimistic::{
        self, BatchRun, Commit, CommitOutcome, CommitSeq, ReadSet, RowCache, Validator,
        meta::StoreMeta, restore::LossyServer,
    },
    schema::{codec::Codec, tables::LAST_TAG},
};

use super::{
    connection::{Pool, QueryError, QueryErrorKind, SqlStep},
    head::{Head, Lock},
    health,
    locked::LockedCommit,
    sql::{Fetch, Statement, TableSql},
    validate::ReadSetQuery,
};

/// The server as this process sees it.
pub(super) struct PostgresServer {
    /// One connection: commits go one after the other.
    pub(super) writer_pool: Pool,
    /// Several connections: queries run side by side.
    pub(super) reader_pool: Pool,
    /// In the order of their tags, which begin at one.
    tables: Vec<TableSql>,
    /// The random id of this process among the writers.
    pub(super) writer: i64,
    /// The last sequence number of this process that the server is known to have recorded.
    pub(super) acknowledged: AtomicU64,
    meta: Mutex<StoreMeta>,
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
pub(super) const ROLLBACK: SqlStep = SqlStep::Plain("ROLLBACK");

/// A transaction is given up after this many attempts.
const MAX_ATTEMPTS: u32 = 4;

// === impl PostgresServer ===

impl PostgresServer {
    pub(super) fn new(
        (writer_pool, reader_pool): (Pool, Pool),
        codec: Codec,
        writer: i64,
        meta: StoreMeta,
    ) -> Self {
        let table = |tag| TableSql::new(&writer_pool.address.schema, tag);
        Self {
            tables: (1..=LAST_TAG).map(table).collect(),
            writer_pool,
            reader_pool,
            writer,
            acknowledged: AtomicU64::new(0),
            meta: Mutex::new(meta),
            retries: AtomicU64::new(0),
            codec,
        }
    }

    /// Continues on data that was opened again. Its sequence numbers start at one.
    pub(super) fn replace_meta(&self, meta: StoreMeta) {
        *self.meta.lock() = meta;
        self.acknowledged.store(0, Ordering::Relaxed);
    }

    /// What this gateway knows: the metadata, and the last of its own commits that the server has.
    pub(super) fn known(&self) -> (StoreMeta, u64) {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        (self.meta().clone(), acknowledged)
    }

    pub(super) fn table(&self, tag: u8) -> &TableSql {
        &self.tables[usize::from(tag) - 1]
    }

    pub(super) fn schema(&self) -> &str {
        &self.writer_pool.address.schema
    }

    /// Whether a retry makes sense. Waits before the second and later retries.
    pub(super) async fn may_retry(
        &self,
        error: &QueryError,
        attempts: u32,
        outcome_unknown: bool,
    ) -> bool {
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

    pub(super) fn unavailable(&self, error: &QueryError, attempts: u32) -> StoreError {
        if attempts <= 1 {
            return unavailable(error.message.clone());
        }
        let total = self.retries.load(Ordering::Relaxed);
        unavailable(format!("{error} (after {attempts} attempts; {total} retries so far)"))
    }

    /// One transaction on a connection of its own.
    pub(super) async fn try_commit(
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
}

impl PostgresServer {
    /// Compares a read set on one snapshot.
    pub(super) async fn compare(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        // Read before the snapshot, which can only be newer.
        let (known, acknowledged) = self.known();
        let (mut steps, query) = (vec![SqlStep::Plain(BEGIN_READ)], ReadSetQuery::new(self, reads));
        steps.extend(Head::steps(self.schema(), self.writer, Lock::None));
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
        let head = Head::read(&mut results)?;
        if head.is_behind(&known, acknowledged) {
            return Ok(CommitOutcome::DataLost);
        }
        head.update(&mut self.meta());
        let mut conflicts = query.read_rows(&mut results)?;
        for (range, rows) in query.read_ranges(&mut results, Fetch::Rows)? {
            conflicts.extend(range.conflict_if_changed(rows));
        }
        Ok(CommitOutcome::of_conflicts(conflicts))
    }
}

impl LossyServer for PostgresServer {
    fn meta(&self) -> MutexGuard<'_, StoreMeta> {
        self.meta.lock()
    }

    async fn extend_settling(&self) -> Result<(), StoreError> {
        let text = format!(
            "UPDATE \"{}\".head SET lost_at = clock_timestamp() \
             RETURNING floor(extract(epoch FROM lost_at) * 1000)::bigint",
            self.schema()
        );
        let rows = self.writer_pool.query(Statement::new(text)).await;
        let rows = rows.map_err(|error| self.unavailable(&error, 1))?;
        if let Some(since) = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok()) {
            // This gateway must not take its own announcement for a new loss.
            self.meta().since = since.cast_unsigned();
        }
        Ok(())
    }

    async fn trust_stock(&self) -> Result<(), StoreError> {
        let text = format!("UPDATE \"{}\".head SET stock_is_doubtful = false", self.schema());
        let written = self.writer_pool.query(Statement::new(text)).await;
        written.map(drop).map_err(|error| self.unavailable(&error, 1))
    }
}

impl Validator for PostgresServer {
    async fn validate(&self, reads: &ReadSet) -> Result<CommitOutcome, StoreError> {
        self.meta().check_settled(super::NAME)?;
        self.compare(reads).await
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
