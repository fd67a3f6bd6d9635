//! The server as everybody in this process sees it: comparing, telling what is true, and writing.
//!
//! A decision is one transaction of two round trips. The first locks the one row of `head`, behind which all gateways that
//! write stand in line, and compares; the second writes and commits, or fetches what is true. A look takes one, without any
//! lock, on a snapshot.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use domain::ports::{BoxError, StoreError};
use tokio_postgres::{Row as Answer, types::Type};

use crate::remote::{self, Assumed, Commit, Correction, Ended};

use super::{
    asked::{Asked, Range},
    cells::{Cell, Param},
    link::{Failure, Line, Seat, Step, Trouble},
    sql::{Ask, Of, Place, sorted},
};

/// The ways to the server and what is known of it.
pub(super) struct Server {
    /// Decisions go one after the other.
    pub(super) writing: Line,
    /// Looks go side by side.
    pub(super) reading: Line,
    /// The tables by their tags.
    places: Vec<Option<Place>>,
    /// This process among all that write.
    writer: i64,
    /// Commits of everybody, as last seen.
    seen: AtomicI64,
    /// Transactions that were made again.
    pub(super) retries: AtomicU64,
}

/// Said to every transaction that writes. What is answered is on the server's disk; a gateway that stops between its two round
/// trips holds up the others for so long and no longer; and every statement is for an index, whatever the statistics
/// say at the moment.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true); \
    SET LOCAL lock_timeout = '1500ms'; SET LOCAL statement_timeout = '10s'; \
    SET LOCAL idle_in_transaction_session_timeout = '2s'; \
    SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
const LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = '10s'; \
    SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
const COMMIT: Step = Step::Plain("COMMIT");
const ROLLBACK: Step = Step::Plain("ROLLBACK");

/// So often a transaction is made again before the caller is told.
const TRIES: u32 = 4;

// === impl Server ===

impl Server {
    pub(super) fn new(writing: Line, reading: Line) -> Self {
        let schema = writing.address.schema.clone();
        let place = |tag| (tag > 0).then(|| Place::new(&schema, tag));
        Self {
            places: (0..=crate::tables::LAST_TAG).map(place).collect(),
            writing,
            reading,
            writer: fastrand::i64(1..),
            seen: AtomicI64::new(0),
            retries: AtomicU64::new(0),
        }
    }

    pub(super) fn place(&self, tag: u8) -> &Place {
        self.places[usize::from(tag)].as_ref().unwrap_or_else(|| unreachable!("no table {tag}"))
    }

    pub(super) fn schema(&self) -> &str {
        &self.writing.address.schema
    }

    /// Compares without writing: what is told is of one moment.
    pub(super) async fn look(&self, assumed: &Assumed) -> Result<Ended, StoreError> {
        let (mut steps, asked) = (vec![Step::Plain(LOOK)], Asked::new(self, assumed));
        asked.add_rows(&mut steps)?;
        asked.add_ranges(&mut steps, Of::Rows, |range| range.whole(self));
        steps.push(COMMIT);
        let mut tries = 0;
        let answers = loop {
            tries += 1;
            match self.reading.run(&steps).await {
                Err(failure) if self.may_try_again(&failure, tries, false).await => {}
                answers => break answers.map_err(|failure| self.unavailable(&failure, tries))?,
            }
        };
        let mut answers = answers.into_iter().skip(1);
        let mut corrections = asked.read_rows(&mut answers)?;
        for (range, rows) in asked.read_ranges(&mut answers, Of::Rows)? {
            corrections.extend(range.correction(rows));
        }
        Ok(if corrections.is_empty() { Ended::Done } else { Ended::Stale(corrections) })
    }

    /// Compares and writes, as this gateway's turn of that number: all of it once, or nothing. `in_doubt`: which of the two
    /// is not known.
    pub(super) async fn commit(
        &self,
        commit: &Commit,
        turn: i64,
        in_doubt: &mut bool,
    ) -> Result<Ended, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_commit(commit, turn, in_doubt).await {
                Ok(ended) => return Ok(ended),
                Err(Fault::Store(error)) => return Err(error),
                Err(Fault::Failure(failure)) => {
                    if !self.may_try_again(&failure, tries, *in_doubt).await {
                        return Err(self.unavailable(&failure, tries));
                    }
                }
            }
        }
    }

    /// Whether the same is worth another try, after a pause.
    async fn may_try_again(&self, failure: &Failure, tries: u32, in_doubt: bool) -> bool {
        let again = tries < TRIES
            && match failure.sort {
                // Somebody ended the connection, or all of them: the next one may be good.
                Trouble::Broken | Trouble::Crowded => true,
                // Whether it was written can only be seen there.
                Trouble::Away | Trouble::Starting => in_doubt,
                Trouble::Refused => false,
            };
        if again {
            let total = self.retries.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(why = %failure, tries, total, "retrying transaction");
            if tries > 1 {
                tokio::time::sleep(remote::pause(tries - 2)).await;
            }
        }
        again
    }

    fn unavailable(&self, failure: &Failure, tries: u32) -> StoreError {
        if tries <= 1 {
            return unavailable(failure.why.clone());
        }
        let total = self.retries.load(Ordering::Relaxed);
        unavailable(format!(
            "{failure} (after {tries} tries; {total} transactions made again so far)"
        ))
    }

    /// One try. `in_doubt`: the writes were sent, and only the turn says whether they were carried out.
    async fn try_commit(
        &self,
        commit: &Commit,
        turn: i64,
        in_doubt: &mut bool,
    ) -> Result<Ended, Fault> {
        let seat = self.writing.seat().await?;
        let asked = Asked::new(self, &commit.assumed);
        let mut answers = seat.run(&self.compare_steps(&asked)?).await?.into_iter().skip(1);
        if *in_doubt && self.has_turn(&seat, turn).await? {
            seat.run(&[ROLLBACK]).await?;
            seat.give_back();
            return Ok(Ended::Done);
        }
        *in_doubt = false;
        self.saw(answers.next());
        let rows = asked.read_rows(&mut answers)?;
        let wrong = asked.wrong_ranges(&mut answers)?;
        let ended = if rows.is_empty() && wrong.is_empty() {
            let written = seat.run(&self.write_steps(commit, turn)?).await;
            // What the server refused it did not carry out.
            *in_doubt = written.as_ref().is_err_and(|failure| failure.sort == Trouble::Broken);
            written?;
            Ended::Done
        } else {
            let ranges = self.tell(&seat, wrong).await?;
            Ended::Stale(rows.into_iter().chain(ranges).collect())
        };
        seat.give_back();
        Ok(ended)
    }

    /// The first round trip: everybody who writes stands in line at the head, and what is seen from then on stays so.
    fn compare_steps(&self, asked: &Asked<'_>) -> Result<Vec<Step>, StoreError> {
        let head = format!("SELECT commits FROM \"{}\".head FOR UPDATE", self.schema());
        let mut steps = vec![Step::Plain(BEGIN), Step::Ask(Ask { text: head, params: Vec::new() })];
        asked.add_rows(&mut steps)?;
        asked.add_ranges(&mut steps, Of::Keys, |range| range.assumed(self));
        Ok(steps)
    }

    /// The second: the writes, table by table, with the count and the turn.
    fn write_steps(&self, commit: &Commit, turn: i64) -> Result<Vec<Step>, StoreError> {
        let mut steps = Vec::new();
        let writes: Vec<_> = commit.writes.iter().collect();
        for writes in writes.chunk_by(|a, b| a.0[0] == b.0[0]) {
            let place = self.place(writes[0].0[0]);
            let (puts, takes) = sorted(writes);
            if !puts.is_empty() {
                steps.push(Step::Ask(place.put(&puts, commit.stamp)?));
            }
            if !takes.is_empty() {
                steps.push(Step::Ask(place.take(&takes)?));
            }
        }
        let schema = self.schema();
        steps.push(Step::Ask(Ask {
            text: format!(
                "WITH counted AS (UPDATE \"{schema}\".head SET commits = commits + 1) \
                 INSERT INTO \"{schema}\".turns (writer, turn, at) VALUES ($1, $2, now()) \
                 ON CONFLICT (writer) DO UPDATE SET turn = excluded.turn, at = excluded.at"
            ),
            params: vec![
                (Param::One(Cell::Number(self.writer)), Type::INT8),
                (Param::One(Cell::Number(turn)), Type::INT8),
            ],
        }));
        steps.push(COMMIT);
        Ok(steps)
    }

    /// Whether a turn of this gateway was carried out. Asked behind the head's lock: an earlier copy of it that is still on
    /// its way would hold the lock.
    async fn has_turn(&self, seat: &Seat<'_>, turn: i64) -> Result<bool, Failure> {
        let ask = Ask {
            text: format!("SELECT turn FROM \"{}\".turns WHERE writer = $1", self.schema()),
            params: vec![(Param::One(Cell::Number(self.writer)), Type::INT8)],
        };
        let answers = seat.run(&[Step::Ask(ask)]).await?;
        let last: Option<i64> = answers.iter().flatten().next().and_then(|row| row.try_get(0).ok());
        Ok(last == Some(turn))
    }

    /// What is true of the ranges that were wrong, at the same moment; then the head is let go.
    async fn tell(&self, seat: &Seat<'_>, wrong: Vec<Range<'_>>) -> Result<Vec<Correction>, Fault> {
        let asked = Asked::of_ranges(self, wrong);
        let mut steps = Vec::new();
        asked.add_ranges(&mut steps, Of::Rows, |range| range.whole(self));
        steps.push(ROLLBACK);
        let mut answers = seat.run(&steps).await?.into_iter();
        let told = asked.read_ranges(&mut answers, Of::Rows)?;
        Ok(told.into_iter().map(|(range, rows)| range.told(rows)).collect())
    }

    /// A server that has seen fewer commits than it had is another one: a replica that took over too early, or a backup.
    fn saw(&self, answer: Option<Vec<Answer>>) {
        let commits = answer.and_then(|rows| rows.first()?.try_get::<_, i64>(0).ok()).unwrap_or(0);
        let before = self.seen.swap(commits, Ordering::Relaxed);
        if commits < before {
            tracing::error!(
                before,
                now = commits,
                "PostgreSQL has forgotten commits it had confirmed: a replica without them has taken over, or a \
                 backup was restored; solves of that time may be paid again"
            );
        }
    }
}

// === failing ===

/// What can go wrong on the way: with the server, or with what is stored.
enum Fault {
    Failure(Failure),
    Store(StoreError),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn unavailable(why: impl Into<BoxError>) -> StoreError {
    remote::unavailable(super::NAME, why)
}
