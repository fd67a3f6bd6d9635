//! The transaction of a commit. Its first round trip locks the row of `head` and compares what the decisions read; the last one
//! writes and commits. When rows have changed, the decisions run again between the two: while `head` is locked, no other gateway
//! can change the rows they read now, so a gateway that lost a race is not overtaken once more.

use std::{mem, sync::atomic::Ordering, time::Duration};

use domain::ports::StoreError;
use tokio::time::Instant;
use tokio_postgres::Row as SqlRow;

use crate::optimistic::{
    BatchRun, Commit, CommitOutcome, CommitSeq, Conflict, ReadSet, RowCache,
    restore::LossyServer as _,
};

use super::{
    connection::{PooledConnection, QueryErrorKind, SqlStep},
    head::{Head, Lock},
    server::{AttemptError, BEGIN, COMMIT, PostgresServer, ROLLBACK},
    sql::{Fetch, Statement, partition},
    validate::{RangeCheck, ReadSetQuery},
};

/// A commit in its transaction.
pub(super) struct LockedCommit<'a> {
    pub(super) server: &'a PostgresServer,
    pub(super) connection: &'a PooledConnection<'a>,
    pub(super) cache: &'a mut RowCache,
    pub(super) commit: &'a mut Commit,
    pub(super) seq: CommitSeq,
}

/// Compares what was read. The last page of the ledger is fetched and not compared, because the pages are numbered after it.
struct ComparisonQuery<'a> {
    reads: ReadSetQuery<'a>,
    ledger_end: ReadSetQuery<'a>,
}

/// What a comparison found.
#[derive(Default)]
struct Comparison {
    conflicts: Vec<Conflict>,
    /// The last page of the ledger, if the commit has pages.
    ledger_end: Vec<Conflict>,
}

/// How the first round trip ended.
enum Locked {
    Compared(Comparison),
    /// The outcome is known without writing.
    Ended(CommitOutcome),
}

/// The decisions run again at most this often while the lock is held.
const MAX_RERUNS: usize = 3;
/// They do not run again when the lock has been held for longer.
const MAX_LOCKED: Duration = Duration::from_millis(500);

// === impl LockedCommit ===

impl LockedCommit<'_> {
    /// One attempt. `outcome_unknown`: the writes were sent, and only the sequence number shows whether they were applied.
    pub(super) async fn attempt(
        mut self,
        run: &mut BatchRun<'_>,
        outcome_unknown: &mut bool,
    ) -> Result<CommitOutcome, AttemptError> {
        let found = self.lock_and_compare(*outcome_unknown).await?;
        *outcome_unknown = false;
        let found = match found {
            Locked::Compared(found) => found,
            Locked::Ended(outcome) => {
                self.connection.run(&[ROLLBACK]).await?;
                return Ok(outcome);
            }
        };
        let Comparison { conflicts, ledger_end } = self.rerun_if_changed(found, run).await?;
        if !conflicts.is_empty() {
            self.connection.run(&[ROLLBACK]).await?;
            return Ok(CommitOutcome::Conflicts(conflicts.into_iter().chain(ledger_end).collect()));
        }
        if self.commit.is_read_only() && !self.seq.follows_unknown {
            self.connection.run(&[ROLLBACK]).await?;
            return Ok(CommitOutcome::Accepted);
        }
        self.number_pages_after(ledger_end)?;
        let written = self.connection.run(&self.write_steps()?).await;
        // Statements that the server refused were not applied.
        *outcome_unknown =
            written.as_ref().is_err_and(|error| error.kind == QueryErrorKind::Broken);
        written?;
        self.server.acknowledged.store(self.seq.number, Ordering::Relaxed);
        Ok(CommitOutcome::Accepted)
    }

    /// The first round trip. Once `head` is locked, no other gateway can change what this one reads: an earlier copy of this
    /// commit that is still running would hold the lock.
    async fn lock_and_compare(&self, outcome_unknown: bool) -> Result<Locked, AttemptError> {
        let server = self.server;
        let (known, acknowledged) = server.known();
        let mut steps = vec![SqlStep::Plain(BEGIN)];
        steps.extend(Head::steps(server.schema(), server.writer, Lock::ForUpdate));
        let query = ComparisonQuery::new(server, &self.commit.reads, &self.commit.ledger_end);
        query.add_steps(&mut steps)?;
        let mut results = self.connection.run(&steps).await?.into_iter().skip(1);
        let head = Head::read(&mut results)?;
        if head.is_behind(&known, acknowledged) {
            return Ok(Locked::Ended(CommitOutcome::DataLost));
        }
        head.update(&mut server.meta());
        if outcome_unknown && head.is_applied(self.seq) {
            return Ok(Locked::Ended(CommitOutcome::Accepted));
        }
        self.compare(&query, results).await.map(Locked::Compared)
    }

    /// Runs the decisions again on the current rows, until what they read is current. Returns the last comparison.
    async fn rerun_if_changed(
        &mut self,
        mut found: Comparison,
        run: &mut BatchRun<'_>,
    ) -> Result<Comparison, AttemptError> {
        let (started, mut reruns) = (Instant::now(), 0);
        let (mut current, mut knows_end) = (ReadSet::default(), false);
        while !found.conflicts.is_empty() && reruns < MAX_RERUNS && started.elapsed() < MAX_LOCKED {
            reruns += 1;
            current.extend(self.cache.learn(mem::take(&mut self.commit.reads), found.conflicts));
            knows_end |= !found.ledger_end.is_empty();
            self.apply_end(found.ledger_end);
            *self.commit = run.run(self.cache);
            self.commit.number_pages(self.cache)?;
            let reads = self.commit.reads.clone().without(&current);
            let end = if knows_end { ReadSet::default() } else { self.commit.ledger_end.clone() };
            let query = ComparisonQuery::new(self.server, &reads, &end);
            let mut steps = Vec::new();
            query.add_steps(&mut steps)?;
            found = if steps.is_empty() {
                Comparison::default()
            } else {
                self.compare(&query, self.connection.run(&steps).await?.into_iter()).await?
            };
        }
        tracing::trace!(reruns, conflicts = found.conflicts.len(), "compared under the lock");
        Ok(found)
    }

    /// What has changed. The ranges that have are fetched by a round trip of their own.
    async fn compare(
        &self,
        query: &ComparisonQuery<'_>,
        mut results: impl Iterator<Item = Vec<SqlRow>>,
    ) -> Result<Comparison, AttemptError> {
        let mut conflicts = query.reads.read_rows(&mut results)?;
        let changed = query.reads.changed_ranges(&mut results)?;
        let end = query.ledger_end.read_ranges(&mut results, Fetch::Rows)?.into_iter();
        let ledger_end = end.map(|(range, rows)| range.conflict(rows)).collect();
        if !changed.is_empty() {
            conflicts.extend(self.fetch_ranges(changed).await?);
        }
        Ok(Comparison { conflicts, ledger_end })
    }

    async fn fetch_ranges(
        &self,
        changed: Vec<RangeCheck<'_>>,
    ) -> Result<Vec<Conflict>, AttemptError> {
        let query = ReadSetQuery::of_ranges(changed);
        let mut steps = Vec::new();
        query.add_steps(&mut steps, Fetch::Rows)?;
        let mut results = self.connection.run(&steps).await?.into_iter();
        let ranges = query.read_ranges(&mut results, Fetch::Rows)?;
        Ok(ranges.into_iter().map(|(range, rows)| range.conflict(rows)).collect())
    }

    /// Numbers the pages again if the ledger does not end where they were numbered after. Nobody else can append before this
    /// transaction ends.
    fn number_pages_after(&mut self, end: Vec<Conflict>) -> Result<(), StoreError> {
        if end.iter().any(|end| self.commit.has_other_end(end)) {
            self.apply_end(end);
            self.commit.number_pages(self.cache)?;
        }
        Ok(())
    }

    fn apply_end(&mut self, end: Vec<Conflict>) {
        for conflict in end {
            self.cache.apply_conflict(conflict);
        }
    }

    /// The last round trip: the writes by table, the commit counter and the sequence number.
    fn write_steps(&self) -> Result<Vec<SqlStep>, StoreError> {
        let (server, commit) = (self.server, &*self.commit);
        let mut steps = Vec::new();
        let writes: Vec<_> = commit.writes.iter().collect();
        for writes in writes.chunk_by(|a, b| a.0[0] == b.0[0]) {
            let table = server.table(writes[0].0[0]);
            let (puts, deletes) = partition(writes);
            if !puts.is_empty() {
                steps.push(SqlStep::Query(table.put(&puts, (server.codec, commit.version))?));
            }
            if !deletes.is_empty() {
                steps.push(SqlStep::Query(table.delete(&deletes)?));
            }
        }
        let schema = server.schema();
        let count = format!(
            "WITH counted AS (UPDATE \"{schema}\".head SET commits = commits + 1) \
             INSERT INTO \"{schema}\".turns (writer, turn, at) VALUES ($1, $2, now()) \
             ON CONFLICT (writer) DO UPDATE SET turn = excluded.turn, at = excluded.at"
        );
        steps.push(SqlStep::Query(Statement::new(count).number(server.writer).number(self.turn())));
        steps.push(COMMIT);
        Ok(steps)
    }

    /// The sequence number as the column of its table has it.
    fn turn(&self) -> i64 {
        self.seq.number.cast_signed()
    }
}

// === impl ComparisonQuery ===

impl<'a> ComparisonQuery<'a> {
    fn new(server: &'a PostgresServer, reads: &'a ReadSet, ledger_end: &'a ReadSet) -> Self {
        let ledger_end = ReadSetQuery::new(server, ledger_end).ranges_only();
        Self { reads: ReadSetQuery::new(server, reads), ledger_end }
    }

    fn add_steps(&self, steps: &mut Vec<SqlStep>) -> Result<(), StoreError> {
        self.reads.add_steps(steps, Fetch::Keys)?;
        self.ledger_end.add_steps(steps, Fetch::Rows)
    }
}
