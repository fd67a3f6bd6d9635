//! Restores records after a server lost writes. Each gateway restores the last versions it wrote. A version is merged with
//! what the store has, so restoring it late, repeatedly or from several gateways changes nothing more.

mod record;

#[cfg(test)]
mod tests;

pub(crate) use record::{RecoveryRecord, RestoreOrder};

use domain::{
    budget::BudgetBook,
    challenge::Sharing,
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    id::{ClaimId, SolveId},
    ledger::{Entry, Event},
    pool::Pool,
    solve::{Fact, Solve, Stage},
    time::{Day, Timestamp},
    token::Token,
};

use crate::{
    Result,
    schema::keys::Text,
    schema::tables::{
        Authorised, Challenges, Claims, DeadLetters, Holders, Keyed, Keys, Pages, Pools, Solves,
        Spending, Table, Tasks,
    },
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    pause::restore_pauses,
    settle::settle,
    support::{
        context::{Attribution, DecisionCtx},
        dead_letters, indexes,
        ledger::raise_total,
        merge::{claim_progress, is_newer_solve},
        new_claim,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restored {
    /// The store did not have this version.
    New,
    /// The store had this version or a newer one.
    Known,
    /// A solve cannot continue without its challenge, and the store does not have the challenge yet. Another gateway may
    /// still restore it.
    ChallengeMissing,
}

/// Merges a record into the store.
pub(crate) fn restore(
    tx: &mut dyn WriteTx,
    record: &RecoveryRecord,
    now: Timestamp,
) -> Result<Restored> {
    if let RecoveryRecord::Solve(solve) = record
        && lacks_challenge(tx, solve)?
    {
        return Ok(Restored::ChallengeMissing);
    }
    Ok(if merge(tx, record, now)? { Restored::New } else { Restored::Known })
}

/// Merges a record; `true` when the store changed.
fn merge(tx: &mut dyn WriteTx, record: &RecoveryRecord, now: Timestamp) -> Result<bool> {
    match record {
        RecoveryRecord::Holder(id, row) => {
            put_newer::<Holders>(tx, *id, row, |known| known.until < row.until)
        }
        RecoveryRecord::Challenge(id, challenge) => {
            put_newer::<Challenges>(tx, *id, challenge, |_| false)
        }
        RecoveryRecord::Solve(solve) => merge_solve(tx, solve, now),
        RecoveryRecord::Claim(claim) => merge_claim(tx, claim),
        RecoveryRecord::DeadLetter(letter) => merge_dead_letter(tx, letter),
        RecoveryRecord::Pool(pool) => {
            let counters = |pool: &Pool| (pool.arrived, pool.ordered, pool.served, pool.wasted);
            let is_older = |known: &Pool| counters(known) < counters(pool);
            put_newer::<Pools>(tx, pool.fingerprint, pool, is_older)
        }
        RecoveryRecord::Loss { known, found } => note_loss(tx, *known, *found, now),
        RecoveryRecord::Page(seq, page) => merge_page(tx, *seq, &page.entries),
        RecoveryRecord::Total(key, total) => raise_total(tx, key.clone(), total),
        RecoveryRecord::Spent(key, spent) => raise_spent(tx, key, spent),
        RecoveryRecord::Authorised(day, count) => {
            put_newer::<Authorised>(tx, *day, count, |known| known < count)
        }
        RecoveryRecord::Pauses(row) => restore_pauses(tx, row),
    }
}

// === solves ===

/// Whether a solve is in progress and the store has neither it nor its challenge.
fn lacks_challenge(tx: &dyn ReadTx, solve: &Solve) -> Result<bool> {
    Ok(!solve.stage.is_final()
        && tx.get::<Solves>(&solve.id)?.is_none()
        && !tx.has::<Challenges>(&solve.id)?)
}

fn merge_solve(tx: &mut dyn WriteTx, record: &Solve, now: Timestamp) -> Result<bool> {
    match tx.get::<Solves>(&record.id)? {
        None => {
            let solve = with_claims(tx, record, &record.claims)?;
            register_task(tx, &solve)?;
            indexes::insert_solve(tx, &solve)?;
            Ok(true)
        }
        Some(before) if is_newer_solve(record, &before) => {
            let claims = [before.claims.as_slice(), &record.claims].concat();
            let solve = with_claims(tx, record, &claims)?;
            register_task(tx, &solve)?;
            indexes::update_solve(tx, &before, &solve)?;
            settle_task(tx, &before, now)?;
            Ok(true)
        }
        Some(_) => settle_task(tx, record, now),
    }
}

/// Reports the task of a solve that the store continued without it. If another attempt has replaced it, the task becomes an
/// orphan.
fn settle_task(tx: &mut dyn WriteTx, solve: &Solve, now: Timestamp) -> Result<bool> {
    let (Some(task), Some(sent_at)) = (&solve.task, solve.accepted_at) else { return Ok(false) };
    if solve.stage.is_final() {
        return Ok(false);
    }
    let fact = Fact::Accepted { task: task.clone(), sent_at };
    DecisionCtx::run(tx, now, |ctx| Ok(settle(ctx, solve.id, solve.attempt, &fact)?.fresh))
}

fn register_task(tx: &mut dyn WriteTx, solve: &Solve) -> Result<()> {
    let Some(task) = &solve.task else { return Ok(()) };
    let key = Text::new(task.as_str());
    if tx.has::<Tasks>(&key)? {
        return Ok(());
    }
    tx.put::<Tasks>(key, (solve.id, solve.attempt))
}

/// The solve with those of the claims that wait for it in the store. The others join when they are restored.
///
/// A claim that was restored earlier may hold the solve's token already: another gateway delivered it, and this one never
/// learned that the answer was committed. If no other claim waits, the solve has ended. Polled again, it would bring the
/// token of one claim to a second.
fn with_claims(tx: &dyn ReadTx, solve: &Solve, candidates: &[ClaimId]) -> Result<Solve> {
    let mut claims = Vec::with_capacity(candidates.len());
    if solve.stage.is_final() {
        return Ok(Solve { claims, ..solve.clone() });
    }
    let mut ended = None;
    for id in candidates {
        let Some(claim) = tx.get::<Claims>(id)? else { continue };
        if claim.state == ClaimState::Waiting && claim.solve == Some(solve.id) {
            if !claims.contains(id) {
                claims.push(*id);
            }
        } else if let Some(token) = claim.token.as_ref().filter(|token| token.solve == solve.id) {
            ended = Some(ended_by_token(solve, &claim, token));
        }
    }
    let is_exclusive = solve.sharing() == Sharing::Exclusive;
    Ok(match ended.filter(|_| is_exclusive && claims.is_empty()) {
        Some(ended) => ended,
        None => Solve { claims, ..solve.clone() },
    })
}

/// The solve after its answer. It keeps the id of its task, so that a late fact about the task is recognised.
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

// === claims ===

fn merge_claim(tx: &mut dyn WriteTx, record: &Claim) -> Result<bool> {
    let before = tx.get::<Claims>(&record.id)?;
    if let Some(before) = &before
        && claim_progress(before) >= claim_progress(record)
        && !is_stranded(tx, before)?
    {
        return Ok(false);
    }
    if record.state == ClaimState::Waiting && !rejoin(tx, record)? {
        return Ok(false);
    }
    restore_key(tx, record)?;
    match &before {
        None => indexes::insert_claim(tx, record)?,
        Some(before) => indexes::update_claim(tx, before, record)?,
    }
    end_solve_of_token(tx, record)?;
    if let Some(before) = before
        && (before.solve != record.solve || record.state.is_final())
    {
        leave_solve(tx, &before)?;
    }
    Ok(true)
}

/// Whether a claim waits for a solve that ended or is missing, because the claim had moved on to another one.
fn is_stranded(tx: &dyn ReadTx, claim: &Claim) -> Result<bool> {
    let (ClaimState::Waiting, Some(solve)) = (claim.state, claim.solve) else { return Ok(false) };
    Ok(tx.get::<Solves>(&solve)?.is_none_or(|solve| solve.stage.is_final()))
}

/// Ends the solve that the claim's token came from, unless other claims wait for its next attempt.
fn end_solve_of_token(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(token) = &claim.token else { return Ok(()) };
    let Some(before) = unfinished_solve(tx, token.solve)? else { return Ok(()) };
    let after = with_claims(tx, &before, &[before.claims.as_slice(), &[claim.id]].concat())?;
    if !after.stage.is_final() {
        return Ok(());
    }
    register_task(tx, &after)?;
    indexes::update_solve(tx, &before, &after)
}

/// Lets a waiting claim join its solve again; `false` when the solve is missing or has ended.
fn rejoin(tx: &mut dyn WriteTx, claim: &Claim) -> Result<bool> {
    let Some(id) = claim.solve else { return Ok(false) };
    let Some(before) = unfinished_solve(tx, id)? else { return Ok(false) };
    if !before.claims.contains(&claim.id) {
        let mut solve = before.clone();
        solve.join(claim.id, claim.deadline);
        indexes::update_solve(tx, &before, &solve)?;
    }
    Ok(true)
}

fn leave_solve(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(id) = claim.solve else { return Ok(()) };
    let Some(before) = unfinished_solve(tx, id)? else { return Ok(()) };
    let mut after = before.clone();
    after.claims.retain(|id| *id != claim.id);
    indexes::update_solve(tx, &before, &after)
}

fn unfinished_solve(tx: &dyn ReadTx, id: SolveId) -> Result<Option<Solve>> {
    Ok(tx.get::<Solves>(&id)?.filter(|solve| !solve.stage.is_final()))
}

fn restore_key(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(hash) = &claim.key else { return Ok(()) };
    if let Some(named) = new_claim::claim_by_key(tx, hash)?
        && named.opened_at >= claim.opened_at
    {
        return Ok(());
    }
    tx.put::<Keys>(*hash, Keyed { claim: claim.id, fingerprint: claim.fingerprint })
}

// === other records ===

/// Writes a record unless the store has one that is as new; `true` when it was written.
fn put_newer<T: Table>(
    tx: &mut dyn WriteTx,
    key: T::Key,
    record: &T::Value,
    is_older: impl FnOnce(&T::Value) -> bool,
) -> Result<bool> {
    let is_new = tx.get::<T>(&key)?.is_none_or(|known| is_older(&known));
    if is_new {
        tx.put::<T>(key, record.clone())?;
    }
    Ok(is_new)
}

fn merge_dead_letter(tx: &mut dyn WriteTx, record: &DeadLetter) -> Result<bool> {
    let known = tx.get::<DeadLetters>(&record.id)?;
    let is_new = known.is_none_or(|known| known.closed.is_none() && record.closed.is_some());
    if is_new {
        dead_letters::put(tx, record.clone())?;
        if let Some(closed) = &record.closed {
            indexes::schedule_challenge_deletion(tx, record.id, closed.at)?;
        }
    }
    Ok(is_new)
}

/// Appends a missing page at the end of the ledger, because its numbers may be in use. Its entries get new hashes there.
fn merge_page(tx: &mut dyn WriteTx, seq: u64, entries: &[Entry]) -> Result<bool> {
    if tx.get::<Pages>(&seq)?.is_some_and(|known| known.entries == entries) {
        return Ok(false);
    }
    tx.append(entries.to_vec())?;
    Ok(true)
}

/// Writes down that the ledger has lost entries, so that an auditor sees why hashes of before are gone.
fn note_loss(tx: &mut dyn WriteTx, known: u64, found: u64, now: Timestamp) -> Result<bool> {
    DecisionCtx::run(tx, now, |ctx| {
        ctx.record(Attribution::gateway(), Event::WritesLost { known, found });
        Ok(true)
    })
}

/// Raises every sum to at least the record's, so that nothing that was spent is forgotten.
fn raise_spent(tx: &mut dyn WriteTx, key: &(Day, Text), record: &BudgetBook) -> Result<bool> {
    let known = tx.get::<Spending>(key)?.unwrap_or_default();
    let mut raised = known.clone();
    raised.raise(record);
    let changed = raised != known;
    if changed {
        tx.put::<Spending>(key.clone(), raised)?;
    }
    Ok(changed)
}
