//! Bringing back what a store has forgotten. A relic is the last that a process knew about a record; it is merged with
//! what is there, so that bringing it back twice, or late, or by several, changes nothing more.

use std::sync::Arc;

use domain::{
    challenge::{Challenge, Sharing},
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, SolveId},
    ledger::{Entry, Total},
    pool::Pool,
    ports::{Spent, StoreError},
    solve::{Fact, Solve, Stage},
    time::{Day, Timestamp},
    token::Token,
};

use crate::{
    keys::{KeyBytes, Text},
    tables::{
        Authorised, Challenges, Claims, DeadLetters, Died, Expiries, Garbage, Holders, Junk, Keyed,
        Keys, Pages, Pools, Solves, Spending, Stock, Tasks, Totals,
    },
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    garbage::CHALLENGE_KEPT,
    keep, place, pools,
    settle::settle,
    step::{Step, write_page},
};

/// The last a process knew about a record.
#[derive(Clone, Debug)]
pub(crate) enum Relic {
    Holder(HolderId, Timestamp),
    Challenge(SolveId, Arc<Challenge>),
    Solve(Box<Solve>),
    Claim(Box<Claim>),
    Letter(Box<DeadLetter>),
    Pool(Box<Pool>),
    Page(u64, Vec<Entry>),
    Total((Day, Text), Box<Total>),
    Spent((Day, Text), Spent),
    Authorised(Day, u32),
}

/// In what order relics are brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Who is alive.
    First,
    /// What says that something is paid for, or over.
    Own,
    /// Claims that wait for a solve which another process may have to bring back first.
    Waiting,
    /// What no decision of the next seconds depends on.
    Last,
}

impl Relic {
    /// Whether it tells of something that is not over.
    pub(crate) fn is_under_way(&self) -> bool {
        match self {
            Self::Solve(solve) => !solve.stage.is_final(),
            Self::Claim(claim) => claim.state == ClaimState::Waiting,
            Self::Holder(..) | Self::Pool(_) | Self::Spent(..) | Self::Authorised(..) => true,
            Self::Challenge(..) | Self::Letter(_) | Self::Page(..) | Self::Total(..) => false,
        }
    }

    /// When its turn is.
    pub(crate) fn place(&self) -> Turn {
        match self {
            Self::Holder(..) => Turn::First,
            Self::Claim(claim) if claim.state == ClaimState::Waiting => Turn::Waiting,
            Self::Challenge(..)
            | Self::Solve(_)
            | Self::Claim(_)
            | Self::Spent(..)
            | Self::Authorised(..) => Turn::Own,
            Self::Letter(_) | Self::Pool(_) | Self::Page(..) | Self::Total(..) => Turn::Last,
        }
    }
}

/// Merges a relic into the store; `true` when the store did not know it.
pub(crate) fn restore(
    tx: &mut dyn WriteTx,
    relic: &Relic,
    now: Timestamp,
) -> Result<bool, StoreError> {
    match relic {
        Relic::Holder(id, until) => holder(tx, *id, *until),
        Relic::Challenge(id, challenge) => put_new_challenge(tx, *id, challenge),
        Relic::Solve(solve) => merge_solve(tx, solve, now),
        Relic::Claim(claim) => merge_claim(tx, claim),
        Relic::Letter(letter) => merge_letter(tx, letter),
        Relic::Pool(pool) => merge_pool(tx, pool),
        Relic::Page(seq, page) => append(tx, *seq, page),
        Relic::Total(key, total) => raise_total(tx, key, total),
        Relic::Spent(key, spent) => raise_spent(tx, key, *spent),
        Relic::Authorised(day, count) => {
            let known = tx.get::<Authorised>(day)?.unwrap_or(0);
            if known < *count {
                tx.put::<Authorised>(*day, *count)?;
            }
            Ok(known < *count)
        }
    }
}

fn holder(tx: &mut dyn WriteTx, id: HolderId, until: Timestamp) -> Result<bool, StoreError> {
    let known = tx.get::<Holders>(&id)?;
    let is_news = known.is_none_or(|known| known < until);
    if is_news {
        tx.put::<Holders>(id, until)?;
    }
    Ok(is_news)
}

fn put_new_challenge(
    tx: &mut dyn WriteTx,
    id: SolveId,
    challenge: &Arc<Challenge>,
) -> Result<bool, StoreError> {
    if tx.has::<Challenges>(&id)? {
        return Ok(false);
    }
    tx.put::<Challenges>(id, challenge.clone())?;
    Ok(true)
}

// === solves ===

fn merge_solve(tx: &mut dyn WriteTx, relic: &Solve, now: Timestamp) -> Result<bool, StoreError> {
    let before = tx.get::<Solves>(&relic.id)?;
    // Nobody can go on with a solve whose challenge is gone.
    if before.is_none() && !relic.stage.is_final() && !tx.has::<Challenges>(&relic.id)? {
        return Ok(false);
    }
    match before {
        None => {
            let solve = match ended_by_restored_claim(tx, relic)? {
                Some(ended) => ended,
                None => with_claims(tx, relic, &[])?,
            };
            remember_task(tx, &solve)?;
            if let Some(ended_at) = solve.ended_at.filter(|_| solve.stage.is_final()) {
                let later = (ended_at.plus(CHALLENGE_KEPT), Junk::Challenge(solve.id));
                tx.put::<Garbage>(later, ())?;
            }
            keep::new_solve(tx, &solve)?;
            Ok(true)
        }
        Some(before) if is_newer(relic, &before) => {
            remember_task(tx, relic)?;
            let solve = with_claims(tx, relic, &before.claims)?;
            keep::solve(tx, &before, &solve)?;
            tell_task(tx, &before, now)?;
            Ok(true)
        }
        Some(_) => tell_task(tx, relic, now),
    }
}

/// The solve's end, when a claim that was restored before it already has its token: another gateway delivered it, and
/// this one never heard that its answer was committed. Polled again, the token would go to a second claim.
fn ended_by_restored_claim(tx: &dyn ReadTx, relic: &Solve) -> Result<Option<Solve>, StoreError> {
    if relic.stage.is_final() || relic.sharing() != Sharing::Exclusive {
        return Ok(None);
    }
    for id in &relic.claims {
        let Some(claim) = tx.get::<Claims>(id)? else { continue };
        if let Some(token) = claim.token.as_ref().filter(|token| token.solve == relic.id) {
            return Ok(Some(ended_by_token(relic, &claim, token)));
        }
    }
    Ok(None)
}

/// Whether a relic goes on from what is there.
fn is_newer(relic: &Solve, known: &Solve) -> bool {
    let progress = |solve: &Solve| {
        let tried = (solve.attempt, rank(solve.stage), solve.authorised, solve.failures.len());
        (solve.fence, tried, solve.polls)
    };
    !known.stage.is_final() && progress(relic) > progress(known)
}

/// How far an attempt has come. Queued is its end: the next attempt begins with its intent.
fn rank(stage: Stage) -> u8 {
    match stage {
        Stage::Intent => 0,
        Stage::Ambiguous => 1,
        Stage::Submitted => 2,
        Stage::Overdue => 3,
        Stage::Queued => 4,
        Stage::Ready | Stage::Failed => 5,
    }
}

/// The store went on without the task: it is told as the fact that it is, and becomes an orphan if need be.
fn tell_task(tx: &mut dyn WriteTx, relic: &Solve, now: Timestamp) -> Result<bool, StoreError> {
    let (Some(task), Some(sent_at)) = (&relic.task, relic.accepted_at) else { return Ok(false) };
    if relic.stage.is_final() {
        return Ok(false);
    }
    let fact = Fact::Accepted { task: task.clone(), sent_at };
    Ok(settle(tx, relic.id, relic.attempt, &fact, now)?.fresh)
}

fn remember_task(tx: &mut dyn WriteTx, solve: &Solve) -> Result<(), StoreError> {
    let Some(task) = &solve.task else { return Ok(()) };
    let key = Text::new(task.as_str());
    if tx.has::<Tasks>(&key)? {
        return Ok(());
    }
    tx.put::<Tasks>(key, (solve.id, solve.attempt))
}

/// The solve with those of its claims that are there; the others join when they are brought back.
fn with_claims(
    tx: &mut dyn WriteTx,
    relic: &Solve,
    known: &[ClaimId],
) -> Result<Solve, StoreError> {
    let mut claims = Vec::with_capacity(relic.claims.len());
    if relic.stage.is_final() {
        return Ok(Solve { claims, ..relic.clone() });
    }
    for id in known.iter().chain(&relic.claims) {
        let claim = tx.get::<Claims>(id)?.filter(|_| !claims.contains(id));
        if claim.is_some_and(|claim| is_waiting_for(&claim, relic.id)) {
            claims.push(*id);
        }
    }
    Ok(Solve { claims, ..relic.clone() })
}

fn is_waiting_for(claim: &Claim, solve: SolveId) -> bool {
    claim.state == ClaimState::Waiting && claim.solve == Some(solve)
}

// === claims ===

fn merge_claim(tx: &mut dyn WriteTx, relic: &Claim) -> Result<bool, StoreError> {
    let before = tx.get::<Claims>(&relic.id)?;
    if let Some(before) = &before
        && progress(before) >= progress(relic)
        && !is_stranded(tx, before)?
    {
        return Ok(false);
    }
    if relic.state == ClaimState::Waiting && !rejoin(tx, relic)? {
        return Ok(false);
    }
    remember_key(tx, relic)?;
    end_solve_of_token(tx, relic)?;
    match before {
        None => keep::new_claim(tx, relic)?,
        Some(before) => {
            keep::claim(tx, &before, relic)?;
            if before.solve != relic.solve || relic.state.is_final() {
                leave(tx, &before)?;
            }
        }
    }
    Ok(true)
}

/// How far a claim has come. One that gave its token back is past one that has it: nobody gets that token twice.
pub(super) fn progress(claim: &Claim) -> (u8, bool) {
    let rank = match claim.state {
        ClaimState::Waiting => 0,
        ClaimState::Served => 1,
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => 2,
    };
    (rank, claim.delivered_at.is_some())
}

/// Whether a claim waits for a solve that will not come: it had moved on to another.
fn is_stranded(tx: &dyn ReadTx, claim: &Claim) -> Result<bool, StoreError> {
    let (ClaimState::Waiting, Some(solve)) = (claim.state, claim.solve) else { return Ok(false) };
    Ok(tx.get::<Solves>(&solve)?.is_none_or(|solve| solve.stage.is_final()))
}

/// A token that is somebody's alone must not come a second time from the solve that brought it.
fn end_solve_of_token(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let Some(token) = &claim.token else { return Ok(()) };
    let Some(before) = tx.get::<Solves>(&token.solve)? else { return Ok(()) };
    if before.stage.is_final() || before.sharing() != Sharing::Exclusive {
        return Ok(());
    }
    if before.claims.iter().any(|id| *id != claim.id) {
        // Others wait for it: they go on waiting for what its next attempt brings.
        return Ok(());
    }
    let after = ended_by_token(&before, claim, token);
    remember_task(tx, &after)?;
    keep::solve(tx, &before, &after)
}

/// The solve as its answer left it. It keeps the name of its task, so that a late fact about the task is recognised.
fn ended_by_token(solve: &Solve, claim: &Claim, token: &Token) -> Solve {
    Solve {
        stage: Stage::Ready,
        claims: Vec::new(),
        task: Some(token.task.clone()),
        ended_at: Some(claim.ended_at.unwrap_or(token.ready_lower)),
        holder: None,
        ..solve.clone()
    }
}

/// Puts a waiting claim back to its solve; `false` when there is none that goes on.
fn rejoin(tx: &mut dyn WriteTx, claim: &Claim) -> Result<bool, StoreError> {
    let Some(id) = claim.solve else { return Ok(false) };
    let Some(before) = tx.get::<Solves>(&id)?.filter(|solve| !solve.stage.is_final()) else {
        return Ok(false);
    };
    if !before.claims.contains(&claim.id) {
        let mut solve = before.clone();
        solve.join(claim.id, claim.deadline);
        keep::solve(tx, &before, &solve)?;
    }
    Ok(true)
}

/// A claim that is over waits for nothing any more.
fn leave(tx: &mut dyn WriteTx, before: &Claim) -> Result<(), StoreError> {
    let Some(id) = before.solve else { return Ok(()) };
    let Some(solve) = tx.get::<Solves>(&id)?.filter(|solve| !solve.stage.is_final()) else {
        return Ok(());
    };
    let mut after = solve.clone();
    after.claims.retain(|claim| *claim != before.id);
    keep::solve(tx, &solve, &after)
}

fn remember_key(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let Some(hash) = &claim.key else { return Ok(()) };
    let key = KeyBytes::from(hash);
    if let Some(row) = tx.get::<Keys>(&key)?
        && let Some(named) = tx.get::<Claims>(&row.claim)?
        && named.opened_at >= claim.opened_at
    {
        return Ok(());
    }
    tx.put::<Keys>(key, Keyed { claim: claim.id, fingerprint: claim.fingerprint })
}

// === the rest ===

fn merge_letter(tx: &mut dyn WriteTx, relic: &DeadLetter) -> Result<bool, StoreError> {
    let known = tx.get::<DeadLetters>(&relic.id)?;
    let is_news = known.is_none_or(|known| known.closed.is_none() && relic.closed.is_some());
    if is_news {
        tx.put::<Died>((relic.died_at, relic.id), ())?;
        tx.put::<DeadLetters>(relic.id, relic.clone())?;
    }
    Ok(is_news)
}

fn merge_pool(tx: &mut dyn WriteTx, relic: &Pool) -> Result<bool, StoreError> {
    let known = tx.get::<Pools>(&relic.fingerprint)?;
    let seen = |pool: &Pool| (pool.arrived, pool.ordered, pool.served, pool.wasted);
    let is_news = known.is_none_or(|known| seen(&known) < seen(relic));
    if is_news {
        tx.put::<Pools>(relic.fingerprint, relic.clone())?;
    }
    Ok(is_news)
}

/// Writes a page that is not there again, at the end: numbers have no gap.
fn append(tx: &mut dyn WriteTx, seq: u64, page: &[Entry]) -> Result<bool, StoreError> {
    if tx.get::<Pages>(&seq)?.is_some_and(|known| known == page) {
        return Ok(false);
    }
    let mut page = page.to_vec();
    let mut last = tx.last::<Pages>()?.unwrap_or(0);
    for entry in &mut page {
        last += 1;
        entry.seq = last;
    }
    write_page(tx, last, page)?;
    Ok(true)
}

pub(super) fn raise_total(
    tx: &mut dyn WriteTx,
    key: &(Day, Text),
    relic: &Total,
) -> Result<bool, StoreError> {
    let known = tx.get::<Totals>(key)?;
    let mut total = known.clone().unwrap_or_else(|| relic.clone());
    total.counts.raise(&relic.counts);
    let is_news = known.as_ref() != Some(&total);
    if is_news {
        tx.put::<Totals>(key.clone(), total)?;
    }
    Ok(is_news)
}

fn raise_spent(tx: &mut dyn WriteTx, key: &(Day, Text), relic: Spent) -> Result<bool, StoreError> {
    let known = tx.get::<Spending>(key)?.unwrap_or_default();
    let raised =
        Spent { opened: known.opened.max(relic.opened), listed: known.listed.max(relic.listed) };
    if raised != known {
        tx.put::<Spending>(key.clone(), raised)?;
    }
    Ok(raised != known)
}

// === stock ===

/// Where the search for tokens goes on.
pub(crate) type StockPlace = (Timestamp, Fingerprint, SolveId);

/// Throws away tokens that belong to nobody among the next few in stock: a store that lost writes may have handed them out
/// already. Answers that several may have stay. The result is how many, and where to go on.
pub(crate) fn void_stock(
    tx: &mut dyn WriteTx,
    from: Option<StockPlace>,
    limit: usize,
    now: Timestamp,
) -> Result<(usize, Option<StockPlace>), StoreError> {
    let edge = |byte, n| {
        let at = Timestamp::from_millis(n);
        (at, Fingerprint::from_bytes([byte; 32]), SolveId::from_number(n))
    };
    let range = from.unwrap_or(edge(0, 0))..=edge(u8::MAX, u64::MAX);
    let mut step = Step::new(tx, now);
    let mut voided = 0;
    let rows = step.tx.scan::<Expiries>(range, Order::Rising, limit + 1)?;
    let next = rows.get(limit).map(|(key, ())| *key);
    for (key, ()) in rows.into_iter().take(limit) {
        let (usable_until, fingerprint, solve) = key;
        let at = (fingerprint, usable_until, solve);
        let Some(stocked) = step.tx.get::<Stock>(&at)? else { continue };
        if stocked.kind.sharing() == Sharing::Exclusive {
            step.tx.take::<Stock>(&at)?;
            step.tx.take::<Expiries>(&key)?;
            place::waste(&mut step, &stocked, &stocked.token);
            pools::wasted(&mut step, fingerprint)?;
            voided += 1;
        }
    }
    step.finish()?;
    Ok((voided, next))
}

#[cfg(test)]
mod tests;
