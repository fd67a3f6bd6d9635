//! Deletes records after their retention period. No decision depends on this: a record past its time is not used, deleted or
//! not. When an archive keeps the history, records are deleted here a day after their end.

use std::time::Duration;

use domain::{
    claim::Claim,
    id::{ClaimId, SolveId},
    ledger::{Entry, Event},
    ports::History,
    time::{Day, Timestamp},
};

use crate::{
    Result,
    schema::keys::{Key, Text, all, starting_with, up_to},
    schema::tables::{
        Authorised, ByTime, Challenges, Claims, DeadLetters, Died, Held, Holders, Keys,
        LedgerIndex, Pages, Retained, RetentionQueue, Solves, Spending, Subject, Tasks, Totals,
    },
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    context::DecisionCtx,
    dead_letters,
    indexes::{self, CHALLENGE_KEPT},
    ledger, repeats, secrets,
};

const DAY: Duration = Duration::from_secs(86_400);

/// How long a worker's own key replays an ended claim.
pub(crate) const KEY_KEPT: Duration = DAY;
/// For claims, solves and ledger entries.
const HISTORY_KEPT: Duration = Duration::from_secs(90 * 86_400);
const DEAD_LETTERS_KEPT: Duration = Duration::from_secs(30 * 86_400);
const TOTALS_KEPT_DAYS: u32 = 400;
/// From the first day of their month, so that an attempt of the last month can still be settled.
const BOOKS_KEPT_DAYS: u32 = 62;

/// With an archive, a claim outlives its key by this much, so that the end of its callback is still archived. Records that
/// were not archived in time are checked again after this much.
const GRACE: Duration = Duration::from_secs(3600);

/// How far an archive holds the history of this store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Archival {
    /// There is no archive: the history is kept here.
    Off,
    /// The archive holds the ledger up to this number.
    UpTo(u64),
    /// The archive does not hold this ledger yet.
    NotStarted,
}

/// Deletes at most `limit` records of each sort, and returns how many.
pub(crate) fn delete_expired(
    ctx: &mut DecisionCtx<'_>,
    archival: Archival,
    limit: usize,
) -> Result<usize> {
    delete_holders(ctx, limit)?;
    Ok(delete_dead_letters(ctx, limit)?
        + delete_queued(ctx, archival, limit)?
        + delete_claims(ctx, archival, limit)?
        + delete_pages(ctx, archival, limit)?
        + delete_totals(ctx, limit)?)
}

// === impl Archival ===

impl Archival {
    /// The archive follows this ledger if the last entry it holds is in it.
    pub(crate) fn of(tx: &dyn ReadTx, history: &History) -> Result<Self> {
        let History::Archived(last) = history else { return Ok(Self::Off) };
        let Some(last) = last else { return Ok(Self::NotStarted) };
        let found = ledger::entries(tx, last.seq, 1)?;
        Ok(if found.first() == Some(&**last) { Self::UpTo(last.seq) } else { Self::NotStarted })
    }

    /// How long this store keeps an ended record.
    fn retention(self) -> Duration {
        match self {
            Self::Off => HISTORY_KEPT,
            Self::UpTo(_) | Self::NotStarted => KEY_KEPT,
        }
    }

    /// Whether the archive, if there is one, holds every entry about the subject.
    fn covers(self, tx: &dyn ReadTx, subject: Subject) -> Result<bool> {
        match self {
            Self::Off => Ok(true),
            Self::UpTo(seq) => Ok(ledger::pages_about(tx, subject, seq + 1, 1)?.is_empty()),
            Self::NotStarted => Ok(false),
        }
    }
}

fn is_past(at: Timestamp, kept: Duration, now: Timestamp) -> bool {
    at.plus(kept) <= now
}

fn delete_dead_letters(ctx: &mut DecisionCtx<'_>, limit: usize) -> Result<usize> {
    let mut deleted = 0;
    for (key, ()) in
        ctx.tx.scan::<Died>(up_to(ctx.now.minus(DEAD_LETTERS_KEPT)), Order::Rising, limit)?
    {
        // A solve that may still be answered keeps its dead letter, which the answer closes.
        let over = ctx.tx.get::<Solves>(&key.1)?.is_none_or(|solve| solve.stage.is_final());
        if over && is_past(key.0, DEAD_LETTERS_KEPT, ctx.now) {
            ctx.tx.take::<Died>(&key)?;
            if let Some(letter) = ctx.tx.take::<DeadLetters>(&key.1)? {
                secrets::drop_useless_of(ctx, &letter)?;
            }
            deleted += 1;
        }
    }
    Ok(deleted)
}

fn delete_queued(ctx: &mut DecisionCtx<'_>, archival: Archival, limit: usize) -> Result<usize> {
    let mut deleted = 0;
    for (key, ()) in ctx.tx.scan::<RetentionQueue>(up_to(ctx.now), Order::Rising, limit)? {
        ctx.tx.take::<RetentionQueue>(&key)?;
        deleted += match key.1 {
            Retained::Challenge(id) => delete_challenge(ctx, archival, id)?,
            Retained::Solve(id) => delete_solve(ctx, archival, id)?,
            Retained::Claim(id) => delete_unlisted_claim(ctx, id)?,
        };
    }
    Ok(deleted)
}

/// Deletes the challenge of an ended solve, and with it the callback addresses that only a revival would have needed.
fn delete_challenge(ctx: &mut DecisionCtx<'_>, archival: Archival, id: SolveId) -> Result<usize> {
    let solve = ctx.tx.get::<Solves>(&id)?;
    if solve.as_ref().is_some_and(|solve| !solve.stage.is_final()) {
        // Its end schedules this again.
        return Ok(0);
    }
    let letter = ctx.tx.get::<DeadLetters>(&id)?;
    if let Some(letter) = &letter
        && dead_letters::can_be_revived(ctx.tx, letter)?
    {
        let later = match letter.closed {
            None => letter.died_at.plus(DEAD_LETTERS_KEPT),
            Some(_) => ctx.now.plus(CHALLENGE_KEPT),
        };
        ctx.tx.put::<RetentionQueue>((later, Retained::Challenge(id)), ())?;
        return Ok(0);
    }
    if let Some(ended_at) = solve.and_then(|solve| solve.ended_at) {
        let row = (ended_at.plus(archival.retention()), Retained::Solve(id));
        ctx.tx.put::<RetentionQueue>(row, ())?;
    }
    let deleted = usize::from(ctx.tx.take::<Challenges>(&id)?.is_some());
    if let Some(letter) = letter {
        secrets::drop_useless_of(ctx, &letter)?;
    }
    Ok(deleted)
}

fn delete_solve(ctx: &mut DecisionCtx<'_>, archival: Archival, id: SolveId) -> Result<usize> {
    let Some(solve) = ctx.tx.get::<Solves>(&id)? else { return Ok(0) };
    // The archive may have been turned on or off since this deletion was scheduled.
    let until = solve.ended_at.unwrap_or(solve.due).plus(archival.retention());
    if ctx.now < until || !archival.covers(ctx.tx, Subject::Solve(id))? {
        let row = (until.max(ctx.now.plus(GRACE)), Retained::Solve(id));
        ctx.tx.put::<RetentionQueue>(row, ())?;
        return Ok(0);
    }
    ctx.tx.take::<Solves>(&id)?;
    Ok(1)
}

/// Deletes an archived claim that is in no index of the history, unless its dead letter still needs it.
fn delete_unlisted_claim(ctx: &mut DecisionCtx<'_>, id: ClaimId) -> Result<usize> {
    let Some(claim) = ctx.tx.get::<Claims>(&id)? else { return Ok(0) };
    if ctx.tx.has::<ByTime>(&(claim.opened_at, id))? {
        // Its key opened it again, so it is in the history once more.
        return Ok(0);
    }
    match needed_until(ctx.tx, &claim)?.filter(|until| ctx.now < *until) {
        Some(until) => ctx.tx.put::<RetentionQueue>((until, Retained::Claim(id)), ()).map(|()| 0),
        None => delete_claim(ctx.tx, &claim).map(|()| 1),
    }
}

/// Until when an ended claim can be replayed by its key or revived. `None`: the claim has not ended.
fn needed_until(tx: &dyn ReadTx, claim: &Claim) -> Result<Option<Timestamp>> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(None) };
    let letter = claim.solve.map(|solve| tx.get::<DeadLetters>(&solve)).transpose()?.flatten();
    let letter_until = letter.map(|letter| letter.died_at.plus(DEAD_LETTERS_KEPT).plus(GRACE));
    Ok(letter_until.max(Some(ended_at.plus(KEY_KEPT).plus(GRACE))))
}

fn delete_claims(ctx: &mut DecisionCtx<'_>, archival: Archival, limit: usize) -> Result<usize> {
    let age = match archival {
        Archival::Off => HISTORY_KEPT,
        Archival::UpTo(_) => KEY_KEPT + 2 * GRACE,
        Archival::NotStarted => return Ok(0),
    };
    let mut deleted = 0;
    for ((at, id), ()) in ctx.tx.scan::<ByTime>(up_to(ctx.now.minus(age)), Order::Rising, limit)? {
        let Some(claim) = ctx.tx.get::<Claims>(&id)? else {
            // The row of the claim has expired. Its index row would take a place in every later scan.
            ctx.tx.take::<ByTime>(&(at, id))?;
            repeats::forget(ctx.tx, id)?;
            continue;
        };
        let is_due = claim.state.is_final() && is_past(at, age, ctx.now);
        if !is_due || !archival.covers(ctx.tx, Subject::Claim(id))? {
            continue;
        }
        let needed = match archival {
            Archival::Off => None,
            Archival::UpTo(_) | Archival::NotStarted => needed_until(ctx.tx, &claim)?,
        };
        if let Some(until) = needed.filter(|until| ctx.now < *until) {
            // The history finds it in the archive. Its index rows would take places in every later scan.
            indexes::list_claim(ctx.tx, &claim, false)?;
            ctx.tx.put::<RetentionQueue>((until, Retained::Claim(id)), ())?;
        } else {
            delete_claim(ctx.tx, &claim)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

fn delete_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    indexes::list_claim(tx, claim, false)?;
    indexes::unwatch(tx, claim)?;
    if let Some(hash) = &claim.key
        && tx.get::<Keys>(hash)?.is_some_and(|row| row.claim == claim.id)
    {
        tx.take::<Keys>(hash)?;
    }
    tx.take::<Claims>(&claim.id)?;
    repeats::forget(tx, claim.id)
}

/// Deletes old pages of the ledger. The newest page stays, because the next one is numbered after it; so does the last
/// archived page, because it proves that the archive follows this ledger.
fn delete_pages(ctx: &mut DecisionCtx<'_>, archival: Archival, limit: usize) -> Result<usize> {
    if matches!(archival, Archival::NotStarted) {
        return Ok(0);
    }
    let kept = archival.retention();
    let is_old = |page: &[Entry]| page.first().is_none_or(|entry| is_past(entry.at, kept, ctx.now));
    // Most sweeps find nothing, so one page is read before a whole batch is, and before the newest page, which other
    // gateways replace all the time.
    let first = ctx.tx.scan::<Pages>(0..=ledger::LAST_NUMBER, Order::Rising, 1)?;
    if !first.iter().any(|(_, page)| is_old(&page.entries)) {
        return Ok(0);
    }
    let Some((newest, _)) = ledger::last_page(ctx.tx)? else { return Ok(0) };
    let stays = match archival {
        Archival::Off | Archival::NotStarted => newest,
        Archival::UpTo(archived) => newest.min(archived),
    };
    let mut deleted = 0;
    for (seq, page) in ctx.tx.scan::<Pages>(0..=newest, Order::Rising, limit)? {
        if seq >= stays || !is_old(&page.entries) {
            break;
        }
        delete_page(ctx.tx, seq, &page.entries)?;
        deleted += page.entries.len();
    }
    Ok(deleted)
}

fn delete_page(tx: &mut dyn WriteTx, seq: u64, page: &[Entry]) -> Result<()> {
    for entry in page {
        tx.take::<LedgerIndex>(&(ledger::archive_subject(entry), seq))?;
        if let Some(subject) = ledger::audit_subject(entry) {
            tx.take::<LedgerIndex>(&(subject, seq))?;
        }
        if let Event::Accepted { task, .. } | Event::Orphaned { task, .. } = &entry.event {
            tx.take::<Tasks>(&Text::new(task.as_str()))?;
            repeats::forget_report(tx, task)?;
        }
    }
    tx.take::<Pages>(&seq)?;
    Ok(())
}

fn delete_totals(ctx: &mut DecisionCtx<'_>, limit: usize) -> Result<usize> {
    let today = ctx.now.day().number();
    let until = |kept: u32| Day::from_number(today.saturating_sub(kept));
    let range = |kept| (Day::from_number(0), Text::least())..=(until(kept), Text::least());
    let mut deleted = 0;
    for (key, _) in ctx.tx.scan::<Totals>(range(TOTALS_KEPT_DAYS), Order::Rising, limit)? {
        ctx.tx.take::<Totals>(&key)?;
        deleted += 1;
    }
    for (key, _) in ctx.tx.scan::<Spending>(range(BOOKS_KEPT_DAYS), Order::Rising, limit)? {
        ctx.tx.take::<Spending>(&key)?;
    }
    let before_yesterday = until(2);
    for (day, _) in
        ctx.tx.scan::<Authorised>(Day::from_number(0)..=before_yesterday, Order::Rising, limit)?
    {
        if day.number() + 2 <= today {
            ctx.tx.take::<Authorised>(&day)?;
        }
    }
    Ok(deleted)
}

/// Deletes expired holders once no solve is left to take over from them.
fn delete_holders(ctx: &mut DecisionCtx<'_>, limit: usize) -> Result<()> {
    for (holder, row) in ctx.tx.scan::<Holders>(all(), Order::Rising, limit)? {
        if row.until.max(row.left_until) <= ctx.now
            && ctx.tx.scan::<Held>(starting_with(holder), Order::Rising, 1)?.is_empty()
        {
            ctx.tx.take::<Holders>(&holder)?;
        }
    }
    Ok(())
}
