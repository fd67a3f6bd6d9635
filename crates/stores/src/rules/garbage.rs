//! Dropping what has been kept long enough. No decision depends on it: what is past its time is not used, dropped or
//! not.

use std::time::Duration;

use domain::{
    claim::Claim,
    id::{ClaimId, HolderId, SolveId},
    ledger::Event,
    ports::StoreError,
    time::{Day, Timestamp},
};

use crate::{
    shelf::{KeyBytes, Order, ShelfMut, Text},
    tables::{
        Authorised, BySitekey, ByTime, ByWorker, Challenges, Claims, DeadLetters, Died, Garbage,
        Held, Holders, Junk, Keys, Pages, Solves, Spending, Tasks, Told, Totals,
    },
};

use super::step::subject;

const DAY: Duration = Duration::from_secs(86_400);

/// A worker's own key stands for its claim so long after the claim's end.
pub(super) const KEY_KEPT: Duration = DAY;
/// The challenge of an ended solve, for facts that come late. A dead letter keeps its challenge as long as itself.
pub(super) const CHALLENGE_KEPT: Duration = Duration::from_secs(3600);
/// Claims, solves and ledger entries.
const HISTORY_KEPT: Duration = Duration::from_secs(90 * 86_400);
const LETTERS_KEPT: Duration = Duration::from_secs(30 * 86_400);
const TOTALS_KEPT_DAYS: u32 = 400;

/// Drops at most `limit` records of each sort; the result is how many.
pub(super) fn drop_old<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    drop_holders(shelf, limit, now)?;
    Ok(drop_letters(shelf, limit, now)?
        + drop_junk(shelf, limit, now)?
        + drop_claims(shelf, limit, now)?
        + drop_pages(shelf, limit, now)?
        + drop_totals(shelf, limit, now)?)
}

fn is_past(at: Timestamp, kept: Duration, now: Timestamp) -> bool {
    at.plus(kept) <= now
}

fn drop_letters<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let edge = |at, n| (at, SolveId::from_number(n));
    let range = edge(Timestamp::default(), 0)..=edge(now.minus(LETTERS_KEPT), u64::MAX);
    let mut dropped = 0;
    for (key, ()) in shelf.scan::<Died>(range, Order::Rising, limit)? {
        // One that may still be answered keeps its letter, which the answer closes.
        let over = shelf.get::<Solves>(&key.1)?.is_none_or(|solve| solve.stage.is_final());
        if over && is_past(key.0, LETTERS_KEPT, now) {
            shelf.take::<Died>(&key)?;
            shelf.take::<DeadLetters>(&key.1)?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

fn drop_junk<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let least = (Timestamp::default(), Junk::Challenge(SolveId::from_number(0)));
    let most = (now, Junk::Solve(SolveId::from_number(u64::MAX)));
    let mut dropped = 0;
    for (key, ()) in shelf.scan::<Garbage>(least..=most, Order::Rising, limit)? {
        shelf.take::<Garbage>(&key)?;
        match key.1 {
            Junk::Challenge(id) => dropped += drop_challenge(shelf, id)?,
            Junk::Solve(id) => dropped += usize::from(shelf.take::<Solves>(&id)?.is_some()),
        }
    }
    Ok(dropped)
}

fn drop_challenge<S: ShelfMut>(shelf: &mut S, id: SolveId) -> Result<usize, StoreError> {
    if let Some(letter) = shelf.get::<DeadLetters>(&id)? {
        let later = letter.died_at.plus(LETTERS_KEPT);
        shelf.put::<Garbage>((later, Junk::Challenge(id)), ())?;
        return Ok(0);
    }
    if let Some(ended_at) = shelf.get::<Solves>(&id)?.and_then(|solve| solve.ended_at) {
        shelf.put::<Garbage>((ended_at.plus(HISTORY_KEPT), Junk::Solve(id)), ())?;
    }
    Ok(usize::from(shelf.take::<Challenges>(&id)?.is_some()))
}

fn drop_claims<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let edge = |at, n| (at, ClaimId::from_number(n));
    let range = edge(Timestamp::default(), 0)..=edge(now.minus(HISTORY_KEPT), u64::MAX);
    let mut dropped = 0;
    for ((at, id), ()) in shelf.scan::<ByTime>(range, Order::Rising, limit)? {
        let claim = shelf.get::<Claims>(&id)?;
        if let Some(claim) = claim
            && claim.state.is_final()
            && is_past(at, HISTORY_KEPT, now)
        {
            drop_claim(shelf, &claim)?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

fn drop_claim<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    let (at, id) = (claim.opened_at, claim.id);
    shelf.take::<ByTime>(&(at, id))?;
    shelf.take::<ByWorker>(&(Text::new(claim.worker.as_str()), at, id))?;
    if let Some(sitekey) = &claim.sitekey {
        shelf.take::<BySitekey>(&(Text::new(sitekey), at, id))?;
    }
    if let Some(hash) = &claim.key {
        let key = KeyBytes::from(hash);
        if shelf.get::<Keys>(&key)?.is_some_and(|row| row.claim == id) {
            shelf.take::<Keys>(&key)?;
        }
    }
    shelf.take::<Claims>(&id)?;
    Ok(())
}

/// The newest page stays: the next one is numbered after it.
fn drop_pages<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let newest = shelf.last::<Pages>()?;
    let mut dropped = 0;
    // Most sweeps find nothing: one page is looked at before a whole lot is read.
    let first = shelf.scan::<Pages>(0..=u64::MAX, Order::Rising, 1)?;
    let old = |page: &[domain::ledger::Entry]| {
        page.first().is_none_or(|entry| is_past(entry.at, HISTORY_KEPT, now))
    };
    if !first.iter().any(|(_, page)| old(page)) {
        return Ok(0);
    }
    for (seq, page) in shelf.scan::<Pages>(0..=u64::MAX, Order::Rising, limit)? {
        if Some(seq) == newest || !old(&page) {
            break;
        }
        for entry in &page {
            if let Some(subject) = subject(entry) {
                shelf.take::<Told>(&(subject, seq))?;
            }
            if let Event::Accepted { task, .. } | Event::Orphaned { task, .. } = &entry.event {
                shelf.take::<Tasks>(&Text::new(task.as_str()))?;
            }
        }
        shelf.take::<Pages>(&seq)?;
        dropped += page.len();
    }
    Ok(dropped)
}

fn drop_totals<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let today = now.day().number();
    let until = |kept: u32| Day::from_number(today.saturating_sub(kept));
    let range = |kept| (Day::from_number(0), Text::least())..=(until(kept), Text::least());
    let mut dropped = 0;
    for (key, _) in shelf.scan::<Totals>(range(TOTALS_KEPT_DAYS), Order::Rising, limit)? {
        shelf.take::<Totals>(&key)?;
        dropped += 1;
    }
    for (key, _) in shelf.scan::<Spending>(range(1), Order::Rising, limit)? {
        shelf.take::<Spending>(&key)?;
    }
    let before_yesterday = until(2);
    for (day, _) in
        shelf.scan::<Authorised>(Day::from_number(0)..=before_yesterday, Order::Rising, limit)?
    {
        if day.number() + 2 <= today {
            shelf.take::<Authorised>(&day)?;
        }
    }
    Ok(dropped)
}

/// Dead holders are forgotten once nothing of theirs is left to take over. They are no records of anything.
fn drop_holders<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<(), StoreError> {
    let all = HolderId::from_number(0)..=HolderId::from_number(u64::MAX);
    for (holder, until) in shelf.scan::<Holders>(all, Order::Rising, limit)? {
        let edge = |n| (holder, Timestamp::from_millis(n), SolveId::from_number(n));
        if until <= now
            && shelf.scan::<Held>(edge(0)..=edge(u64::MAX), Order::Rising, 1)?.is_empty()
        {
            shelf.take::<Holders>(&holder)?;
        }
    }
    Ok(())
}
