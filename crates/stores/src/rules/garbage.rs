//! Dropping what has been kept long enough. No decision depends on it: what is past its time is not used, dropped or
//! not. Where an archive keeps the history, it is dropped here as soon as no decision can want it: a day after its end.

use std::time::Duration;

use domain::{
    claim::Claim,
    id::{ClaimId, HolderId, SolveId},
    ledger::{Entry, Event},
    ports::{History, StoreError},
    time::{Day, Timestamp},
};

use crate::{
    keys::{KeyBytes, Text},
    readings,
    tables::{
        Authorised, ByTime, Challenges, Claims, DeadLetters, Died, Garbage, Held, Holders, Junk,
        Keys, Pages, Solves, Spending, Subject, Tasks, Told, Totals,
    },
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{keep, step::subject};

const DAY: Duration = Duration::from_secs(86_400);

/// A worker's own key stands for its claim so long after the claim's end.
pub(super) const KEY_KEPT: Duration = DAY;
/// The challenge of an ended solve, for facts that come late. A dead letter keeps its challenge as long as itself.
pub(super) const CHALLENGE_KEPT: Duration = Duration::from_secs(3600);
/// Claims, solves and ledger entries.
const HISTORY_KEPT: Duration = Duration::from_secs(90 * 86_400);
const LETTERS_KEPT: Duration = Duration::from_secs(30 * 86_400);
const TOTALS_KEPT_DAYS: u32 = 400;

/// With an archive: a claim outlives its key by so much, that the end of its callback is still told; most are over within
/// as much; and what was not archived in time is looked at again so much later.
const LATE: Duration = Duration::from_secs(3600);

/// Where history is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    /// Here.
    Here,
    /// In an archive, up to this place of the ledger.
    There(u64),
    /// In an archive that was not told of this ledger yet.
    Nowhere,
}

/// Drops at most `limit` records of each sort; the result is how many.
pub(super) fn drop_old(
    tx: &mut dyn WriteTx,
    kept: Kept,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    drop_holders(tx, limit, now)?;
    Ok(drop_letters(tx, limit, now)?
        + drop_junk(tx, kept, limit, now)?
        + drop_claims(tx, kept, limit, now)?
        + drop_pages(tx, kept, limit, now)?
        + drop_totals(tx, limit, now)?)
}

// === impl Kept ===

impl Kept {
    /// An archive was told of this ledger when its last entry is here.
    pub(super) fn of(tx: &dyn ReadTx, history: &History) -> Result<Self, StoreError> {
        let History::Archived(last) = history else { return Ok(Self::Here) };
        let Some(last) = last else { return Ok(Self::Nowhere) };
        let found = readings::entries(tx, last.seq, 1)?;
        Ok(if found.first() == Some(&**last) { Self::There(last.seq) } else { Self::Nowhere })
    }

    /// How long what ended is kept here.
    fn time(self) -> Duration {
        match self {
            Self::Here => HISTORY_KEPT,
            Self::There(_) | Self::Nowhere => KEY_KEPT,
        }
    }

    /// Whether everything that was ever said about it is kept.
    fn has(self, rows: &dyn ReadTx, subject: Subject) -> Result<bool, StoreError> {
        let after = match self {
            Self::Here => return Ok(true),
            Self::There(seq) => seq + 1,
            Self::Nowhere => return Ok(false),
        };
        let range = (subject, after)..=(subject, u64::MAX);
        Ok(rows.scan::<Told>(range, Order::Rising, 1)?.is_empty())
    }
}

fn is_past(at: Timestamp, kept: Duration, now: Timestamp) -> bool {
    at.plus(kept) <= now
}

fn drop_letters(tx: &mut dyn WriteTx, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
    let edge = |at, n| (at, SolveId::from_number(n));
    let range = edge(Timestamp::default(), 0)..=edge(now.minus(LETTERS_KEPT), u64::MAX);
    let mut dropped = 0;
    for (key, ()) in tx.scan::<Died>(range, Order::Rising, limit)? {
        // One that may still be answered keeps its letter, which the answer closes.
        let over = tx.get::<Solves>(&key.1)?.is_none_or(|solve| solve.stage.is_final());
        if over && is_past(key.0, LETTERS_KEPT, now) {
            tx.take::<Died>(&key)?;
            tx.take::<DeadLetters>(&key.1)?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

fn drop_junk(
    tx: &mut dyn WriteTx,
    kept: Kept,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let least = (Timestamp::default(), Junk::Challenge(SolveId::from_number(0)));
    let most = (now, Junk::Claim(ClaimId::from_number(u64::MAX)));
    let mut dropped = 0;
    for (key, ()) in tx.scan::<Garbage>(least..=most, Order::Rising, limit)? {
        tx.take::<Garbage>(&key)?;
        dropped += match key.1 {
            Junk::Challenge(id) => drop_challenge(tx, kept, id)?,
            Junk::Solve(id) => drop_solve(tx, kept, id, now)?,
            Junk::Claim(id) => drop_unlisted(tx, id, now)?,
        };
    }
    Ok(dropped)
}

fn drop_challenge(tx: &mut dyn WriteTx, kept: Kept, id: SolveId) -> Result<usize, StoreError> {
    if let Some(letter) = tx.get::<DeadLetters>(&id)? {
        let later = letter.died_at.plus(LETTERS_KEPT);
        tx.put::<Garbage>((later, Junk::Challenge(id)), ())?;
        return Ok(0);
    }
    if let Some(ended_at) = tx.get::<Solves>(&id)?.and_then(|solve| solve.ended_at) {
        tx.put::<Garbage>((ended_at.plus(kept.time()), Junk::Solve(id)), ())?;
    }
    Ok(usize::from(tx.take::<Challenges>(&id)?.is_some()))
}

fn drop_solve(
    tx: &mut dyn WriteTx,
    kept: Kept,
    id: SolveId,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let Some(solve) = tx.get::<Solves>(&id)? else { return Ok(0) };
    // It may have been kept somewhere else when this was put down.
    let until = solve.ended_at.unwrap_or(solve.due).plus(kept.time());
    if now < until || !kept.has(tx, Subject::Solve(id))? {
        tx.put::<Garbage>((until.max(now.plus(LATE)), Junk::Solve(id)), ())?;
        return Ok(0);
    }
    tx.take::<Solves>(&id)?;
    Ok(1)
}

/// A claim that was archived and is in no list: only its dead letter may still want it.
fn drop_unlisted(tx: &mut dyn WriteTx, id: ClaimId, now: Timestamp) -> Result<usize, StoreError> {
    let Some(claim) = tx.get::<Claims>(&id)? else { return Ok(0) };
    match wanted_until(tx, &claim)?.filter(|until| now < *until) {
        Some(until) => tx.put::<Garbage>((until, Junk::Claim(id)), ()).map(|()| 0),
        None => drop_claim(tx, &claim).map(|()| 1),
    }
}

/// Until when an ended claim may be asked for by its key, or be brought back. `None`: it has not ended.
fn wanted_until(tx: &dyn ReadTx, claim: &Claim) -> Result<Option<Timestamp>, StoreError> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(None) };
    let letter = match claim.solve {
        Some(solve) => tx.get::<DeadLetters>(&solve)?,
        None => None,
    };
    let letter_until = letter.map(|letter| letter.died_at.plus(LETTERS_KEPT).plus(LATE));
    Ok(letter_until.max(Some(ended_at.plus(KEY_KEPT).plus(LATE))))
}

fn drop_claims(
    tx: &mut dyn WriteTx,
    kept: Kept,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let age = match kept {
        Kept::Here => HISTORY_KEPT,
        Kept::There(_) => KEY_KEPT + 2 * LATE,
        Kept::Nowhere => return Ok(0),
    };
    let edge = |at, n| (at, ClaimId::from_number(n));
    let range = edge(Timestamp::default(), 0)..=edge(now.minus(age), u64::MAX);
    let mut dropped = 0;
    for ((at, id), ()) in tx.scan::<ByTime>(range, Order::Rising, limit)? {
        let Some(claim) = tx.get::<Claims>(&id)? else {
            // Its row has expired; its place must not stand before those that can be dropped.
            tx.take::<ByTime>(&(at, id))?;
            continue;
        };
        if !claim.state.is_final() || !is_past(at, age, now) || !kept.has(tx, Subject::Claim(id))? {
            continue;
        }
        let wanted = match kept {
            Kept::Here => None,
            Kept::There(_) | Kept::Nowhere => wanted_until(tx, &claim)?,
        };
        if let Some(until) = wanted.filter(|until| now < *until) {
            // People find it in the archive; here it must not stand before those that can be dropped.
            keep::unlist_claim(tx, &claim)?;
            tx.put::<Garbage>((until, Junk::Claim(id)), ())?;
        } else {
            drop_claim(tx, &claim)?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

fn drop_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    keep::unlist_claim(tx, claim)?;
    if let Some(hash) = &claim.key {
        let key = KeyBytes::from(hash);
        if tx.get::<Keys>(&key)?.is_some_and(|row| row.claim == claim.id) {
            tx.take::<Keys>(&key)?;
        }
    }
    tx.take::<Claims>(&claim.id)?;
    Ok(())
}

/// The newest page stays: the next one is numbered after it. So does the last that was archived: it proves that it was.
fn drop_pages(
    tx: &mut dyn WriteTx,
    kept: Kept,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let stays = match (kept, tx.last::<Pages>()?) {
        (Kept::Nowhere, _) | (_, None) => return Ok(0),
        (Kept::Here, Some(newest)) => newest,
        (Kept::There(archived), Some(newest)) => newest.min(archived),
    };
    let mut dropped = 0;
    // Most sweeps find nothing: one page is looked at before a whole lot is read.
    let first = tx.scan::<Pages>(0..=u64::MAX, Order::Rising, 1)?;
    let old = |page: &[Entry]| page.first().is_none_or(|entry| is_past(entry.at, kept.time(), now));
    if !first.iter().any(|(_, page)| old(page)) {
        return Ok(0);
    }
    for (seq, page) in tx.scan::<Pages>(0..=u64::MAX, Order::Rising, limit)? {
        if seq >= stays || !old(&page) {
            break;
        }
        for entry in &page {
            let found_by = subject(entry).unwrap_or(Subject::Moment(entry.at));
            tx.take::<Told>(&(found_by, seq))?;
            if let Event::Accepted { task, .. } | Event::Orphaned { task, .. } = &entry.event {
                tx.take::<Tasks>(&Text::new(task.as_str()))?;
            }
        }
        tx.take::<Pages>(&seq)?;
        dropped += page.len();
    }
    Ok(dropped)
}

fn drop_totals(tx: &mut dyn WriteTx, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
    let today = now.day().number();
    let until = |kept: u32| Day::from_number(today.saturating_sub(kept));
    let range = |kept| (Day::from_number(0), Text::least())..=(until(kept), Text::least());
    let mut dropped = 0;
    for (key, _) in tx.scan::<Totals>(range(TOTALS_KEPT_DAYS), Order::Rising, limit)? {
        tx.take::<Totals>(&key)?;
        dropped += 1;
    }
    for (key, _) in tx.scan::<Spending>(range(1), Order::Rising, limit)? {
        tx.take::<Spending>(&key)?;
    }
    let before_yesterday = until(2);
    for (day, _) in
        tx.scan::<Authorised>(Day::from_number(0)..=before_yesterday, Order::Rising, limit)?
    {
        if day.number() + 2 <= today {
            tx.take::<Authorised>(&day)?;
        }
    }
    Ok(dropped)
}

/// Dead holders are forgotten once nothing of theirs is left to take over. They are no records of anything.
fn drop_holders(tx: &mut dyn WriteTx, limit: usize, now: Timestamp) -> Result<(), StoreError> {
    let all = HolderId::from_number(0)..=HolderId::from_number(u64::MAX);
    for (holder, until) in tx.scan::<Holders>(all, Order::Rising, limit)? {
        let edge = |n| (holder, Timestamp::from_millis(n), SolveId::from_number(n));
        if until <= now && tx.scan::<Held>(edge(0)..=edge(u64::MAX), Order::Rising, 1)?.is_empty() {
            tx.take::<Holders>(&holder)?;
        }
    }
    Ok(())
}
