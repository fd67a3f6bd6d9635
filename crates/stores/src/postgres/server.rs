//! The server as everybody in this process sees it: comparing, telling what is true, and writing.
//!
//! A decision is one transaction of two round trips. The first locks the one row of `head`, behind which all gateways that
//! write stand in line, and compares; the second writes and commits, or fetches what is true. A look takes one, without any
//! lock, on a snapshot.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use domain::ports::{BoxError, StoreError};
use tokio_postgres::{Row as Answer, types::Type};

use crate::remote::{
    self, Assumed, Commit, Correction, Ended, Key, Row, Span, Stamp, draft::Found, plain,
};

use super::{
    Postgres,
    cells::{Cell, Param},
    link::{Failure, Line, Seat, Step, Trouble},
    sql::{Ask, Of, Place, Reach, sorted},
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

/// A range that was assumed.
struct Range<'a> {
    span: &'a Span,
    found: &'a Found,
}

/// Rows or ranges of one table.
type PerTable<T> = BTreeMap<u8, Vec<T>>;

/// Said to every transaction that writes. What is answered is on the server's disk; a gateway that stops between its two round
/// trips holds up the others for so long and no longer; and every statement is for an index, whatever the statistics
/// say at the moment.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true); \
    SET LOCAL lock_timeout = '1500ms'; \
    SET LOCAL idle_in_transaction_session_timeout = '2s'; \
    SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
const LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
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

    fn place(&self, tag: u8) -> &Place {
        self.places[usize::from(tag)].as_ref().unwrap_or_else(|| unreachable!("no table {tag}"))
    }

    fn schema(&self) -> &str {
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

    /// Compares and writes, as this gateway's turn of that number: all of it once, or nothing.
    pub(super) async fn commit(&self, commit: &Commit, turn: i64) -> Result<Ended, StoreError> {
        let mut may_be_there = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let (mut is_sent, mut ended) = (false, None);
            let made = self.try_commit(commit, turn, may_be_there, &mut is_sent, &mut ended).await;
            match made {
                Ok(()) => {
                    return ended
                        .ok_or_else(|| self.unavailable(&Failure::away("it did nothing"), tries));
                }
                Err(Fault::Store(error)) => return Err(error),
                Err(Fault::Failure(failure)) => {
                    // Once the writes were sent, only the turn says whether they were carried out.
                    may_be_there |= is_sent && failure.sort == Trouble::Broken;
                    if !self.may_try_again(&failure, tries, may_be_there).await {
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
            tracing::warn!(why = %failure, tries, total, "a transaction is made again");
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

    async fn try_commit(
        &self,
        commit: &Commit,
        turn: i64,
        may_be_there: bool,
        is_sent: &mut bool,
        ended: &mut Option<Ended>,
    ) -> Result<(), Fault> {
        let seat = self.writing.seat().await?;
        let asked = Asked::new(self, &commit.assumed);
        let answers = seat.run(&self.compare_steps(&asked)?).await?;
        if may_be_there && self.has_turn(&seat, turn).await? {
            seat.run(&[ROLLBACK]).await?;
            *ended = Some(Ended::Done);
            seat.give_back().await;
            return Ok(());
        }
        let mut answers = answers.into_iter().skip(1);
        self.saw(answers.next());
        let rows = asked.read_rows(&mut answers)?;
        let wrong = asked.wrong_ranges(&mut answers)?;
        if rows.is_empty() && wrong.is_empty() {
            let steps = self.write_steps(commit, turn)?;
            *is_sent = true;
            seat.run(&steps).await?;
            *ended = Some(Ended::Done);
        } else {
            let ranges = self.tell(&seat, wrong).await?;
            *ended = Some(Ended::Stale(rows.into_iter().chain(ranges).collect()));
        }
        seat.give_back().await;
        Ok(())
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

// === asking ===

/// Everything that was assumed, by table, in the order it is asked in.
struct Asked<'a> {
    server: &'a Server,
    rows: PerTable<(&'a Key, Option<Stamp>)>,
    /// Each group is asked for with one statement.
    ranges: Vec<Vec<Range<'a>>>,
}

impl<'a> Asked<'a> {
    fn new(server: &'a Server, assumed: &'a Assumed) -> Self {
        let mut rows = PerTable::new();
        for (key, stamp) in &assumed.rows {
            rows.entry(key[0]).or_insert_with(Vec::new).push((key, *stamp));
        }
        let ranges = assumed.spans.iter().map(|(span, found)| Range { span, found }).collect();
        Self { rows, ..Self::of_ranges(server, ranges) }
    }

    fn of_ranges(server: &'a Server, ranges: Vec<Range<'a>>) -> Self {
        let mut groups: BTreeMap<_, Vec<Range<'a>>> = BTreeMap::new();
        let mut alone = Vec::new();
        for range in ranges {
            let tag = range.span.least[0];
            let place = server.place(tag);
            let reach = range.whole(server);
            // One that ends with its table is asked for by itself, and so is one of a table in partitions: only then
            // are those left out that cannot hold any of it.
            if reach.is_closed() && !place.sheet.is_parted() {
                groups.entry((tag, reach.is_falling())).or_default().push(range);
            } else {
                alone.push(vec![range]);
            }
        }
        alone.extend(groups.into_values());
        Self { server, rows: PerTable::new(), ranges: alone }
    }

    fn add_rows(&self, steps: &mut Vec<Step>) -> Result<(), StoreError> {
        for (tag, rows) in &self.rows {
            steps.push(Step::Ask(self.server.place(*tag).compare_rows(rows)?));
        }
        Ok(())
    }

    fn add_ranges(&self, steps: &mut Vec<Step>, of: Of, reach: impl Fn(&Range<'_>) -> Reach) {
        for group in &self.ranges {
            let place = self.server.place(group[0].span.least[0]);
            let reaches: Vec<Reach> = group.iter().map(&reach).collect();
            let reaches: Vec<&Reach> = reaches.iter().collect();
            steps.push(Step::Ask(match reaches.as_slice() {
                [one] => place.range(one, of),
                many => place.ranges(many, of),
            }));
        }
    }

    /// The rows that were not as assumed.
    fn read_rows(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
    ) -> Result<Vec<Correction>, StoreError> {
        let mut corrections = Vec::new();
        for (tag, asked) in &self.rows {
            let place = self.server.place(*tag);
            for wrong in answers.next().unwrap_or_default() {
                let at = place_of(&wrong).and_then(|at| asked.get(at));
                let (key, stamp) = at.ok_or_else(|| place.odd("a row nobody asked for"))?;
                let row = if place.sheet.shown.is_some() {
                    row_of(&wrong, 1)
                } else {
                    stamp.is_none().then(plain)
                };
                corrections.push(Correction::Row((*key).clone(), row));
            }
        }
        Ok(corrections)
    }

    /// Each range with what is in it.
    fn read_ranges(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
        of: Of,
    ) -> Result<Vec<(&Range<'a>, Vec<(Key, Row)>)>, StoreError> {
        let mut all = Vec::new();
        for group in &self.ranges {
            let tag = group[0].span.least[0];
            let place = self.server.place(tag);
            let mut found = vec![Vec::new(); group.len()];
            for answer in answers.next().unwrap_or_default() {
                let of_range = place_of(&answer).and_then(|at| found.get_mut(at));
                let rows = of_range.ok_or_else(|| place.odd("a row nobody asked for"))?;
                rows.push(member(place, tag, &answer, of)?);
            }
            all.extend(group.iter().zip(found));
        }
        Ok(all)
    }

    /// The ranges whose keys are not as assumed.
    fn wrong_ranges(
        &self,
        answers: &mut impl Iterator<Item = Vec<Answer>>,
    ) -> Result<Vec<Range<'a>>, StoreError> {
        let all = self.read_ranges(answers, Of::Keys)?.into_iter();
        let wrong =
            all.filter(|(range, rows)| !rows.iter().map(|(key, _)| key).eq(&range.found.keys));
        Ok(wrong.map(|(range, _)| Range { span: range.span, found: range.found }).collect())
    }
}

/// A row of a range.
fn member(place: &Place, tag: u8, answer: &Answer, of: Of) -> Result<(Key, Row), StoreError> {
    let width = place.sheet.key.len();
    let cells = (1..=width).map(|at| answer.try_get::<_, Cell>(at));
    let cells =
        cells.collect::<Result<Vec<_>, _>>().map_err(|_| place.odd("a key that is none"))?;
    let row = if of == Of::Rows && place.sheet.shown.is_some() {
        row_of(answer, width + 1).ok_or_else(|| place.odd("a row without a body"))?
    } else {
        plain()
    };
    Ok((place.key(tag, &cells)?, row))
}

/// Which of those asked for it is about.
fn place_of(answer: &Answer) -> Option<usize> {
    let place: i64 = answer.try_get(0).ok()?;
    usize::try_from(place).ok()?.checked_sub(1)
}

/// Version and body.
fn row_of(answer: &Answer, at: usize) -> Option<Row> {
    let version: Option<i64> = answer.try_get(at).ok()?;
    let body: Option<&[u8]> = answer.try_get(at + 1).ok()?;
    Some(Row { stamp: version?.to_be_bytes(), bytes: Arc::from(body?) })
}

// === impl Range ===

impl Range<'_> {
    /// The part that was looked at, and one row more than was there.
    fn assumed(&self, server: &Server) -> Reach {
        let place = server.place(self.span.least[0]);
        place.reach(self.span, self.found.until.as_ref(), self.found.keys.len() + 1)
    }

    /// All of it, as far as it is told.
    fn whole(&self, server: &Server) -> Reach {
        server.place(self.span.least[0]).reach(self.span, None, self.found.to_tell())
    }

    fn told(&self, rows: Vec<(Key, Row)>) -> Correction {
        let more = rows.len() == self.found.to_tell();
        Correction::Span { span: self.span.clone(), rows, more }
    }

    /// What is true, unless it was assumed so.
    fn correction(&self, rows: Vec<(Key, Row)>) -> Option<Correction> {
        let part = self.span.told(self.found.until.as_ref());
        let looked_at = rows.iter().map(|(key, _)| key).filter(|key| part.contains(key));
        let is_same = looked_at.eq(&self.found.keys);
        (!is_same).then(|| self.told(rows))
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
    remote::unavailable::<Postgres>(why)
}
