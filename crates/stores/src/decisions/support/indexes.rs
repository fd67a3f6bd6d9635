//! Claims and solves together with their secondary indexes. Every change of one of these records goes through this file,
//! so that the indexes always agree with it.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::{Challenge, Sharing},
    claim::{Claim, ClaimState},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId},
    solve::Solve,
    time::Timestamp,
    token::{MIN_LEFT, Token},
};

use crate::{
    Result,
    schema::codec::corrupt,
    schema::keys::Text,
    schema::tables::{
        BySitekey, ByTime, ByWorker, Challenges, Claims, Free, Held, Joinable, Retained,
        RetentionQueue, Solves, Spare, Table, Waiting, Watched,
    },
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::callbacks;

/// How long the challenge of an ended solve is kept, for replies that arrive late. The challenge of a dead letter is kept
/// while the dead letter can be revived.
pub(crate) const CHALLENGE_KEPT: Duration = Duration::from_secs(3600);

/// How many claims may wait for one solve. Every claim that joins rewrites the row of the solve, and every intent reads all
/// claims of it, so the next claim opens a solve of its own, which the queue and the budgets count.
const MOST_JOINED: usize = 1000;

// === claims ===

pub(crate) fn insert_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    list_claim(tx, claim, true)?;
    index_claim(tx, claim, true)?;
    callbacks::enqueue(tx, claim)?;
    tx.put::<Claims>(claim.id, claim.clone())
}

pub(crate) fn update_claim(tx: &mut dyn WriteTx, before: &Claim, after: &Claim) -> Result<()> {
    index_claim(tx, before, false)?;
    index_claim(tx, after, true)?;
    if before.opened_at != after.opened_at {
        relist_claim(tx, before, after)?;
    }
    if (before.state, before.reopened) != (after.state, after.reopened) {
        callbacks::enqueue(tx, after)?;
    }
    tx.put::<Claims>(after.id, after.clone())
}

/// Adds a claim to the indexes of the history, or removes it from them.
pub(crate) fn list_claim(tx: &mut dyn WriteTx, claim: &Claim, is_listed: bool) -> Result<()> {
    let (at, id) = (claim.opened_at, claim.id);
    tx.set::<ByTime>((at, id), is_listed)?;
    tx.set::<ByWorker>((Text::new(claim.worker.as_str()), at, id), is_listed)?;
    match &claim.sitekey {
        Some(sitekey) => tx.set::<BySitekey>((Text::new(sitekey), at, id), is_listed),
        None => Ok(()),
    }
}

/// Moves a claim in the indexes of the history: its next generation was opened later.
pub(crate) fn relist_claim(tx: &mut dyn WriteTx, before: &Claim, after: &Claim) -> Result<()> {
    list_claim(tx, before, false)?;
    list_claim(tx, after, true)
}

fn index_claim(tx: &mut dyn WriteTx, claim: &Claim, is_indexed: bool) -> Result<()> {
    if wants_token(claim) {
        tx.set::<Waiting>((claim.fingerprint, claim.opened_at, claim.id), is_indexed)?;
    }
    match watch_at(claim) {
        Some(at) => tx.set::<Watched>((at, claim.id), is_indexed),
        None => Ok(()),
    }
}

/// Removes a claim that is deleted from the list of the sweep.
pub(crate) fn unwatch(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    match watch_at(claim) {
        Some(at) => tx.set::<Watched>((at, claim.id), false),
        None => Ok(()),
    }
}

/// Whether the claim takes a token that another claim returned.
fn wants_token(claim: &Claim) -> bool {
    claim.state == ClaimState::Waiting && !is_unattended(claim)
}

/// Whether nobody can fetch the claim's token: the claim was revived, and has neither a key of its worker nor a callback.
pub(crate) fn is_unattended(claim: &Claim) -> bool {
    claim.revives.is_some()
        && claim.callback_url.is_none()
        && claim.kind.sharing() == Sharing::Exclusive
        && claim.key == Some(KeyHash::revived(&claim.worker, &claim.fingerprint))
}

/// Whether the claim has an exclusive token that nobody fetched.
pub(crate) fn is_unfetched(claim: &Claim) -> bool {
    claim.delivered_at.is_none() && claim.kind.sharing() == Sharing::Exclusive
}

/// When the sweep has to check the claim: at its deadline, and when its token expires, whose text is dropped then.
pub(crate) fn watch_at(claim: &Claim) -> Option<Timestamp> {
    match (claim.state, &claim.token) {
        (ClaimState::Waiting, _) => Some(claim.deadline),
        (ClaimState::Served, Some(token)) if token.answer.is_dropped() => None,
        (ClaimState::Served, Some(token)) if is_unfetched(claim) => {
            Some(claim.deadline.min(unusable_from(token)))
        }
        (ClaimState::Served, Some(token)) => Some(unusable_from(token)),
        (
            ClaimState::Served | ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed,
            _,
        ) => None,
    }
}

/// The first moment at which a token may no longer be delivered.
pub(crate) fn unusable_from(token: &Token) -> Timestamp {
    token.usable_until.minus(MIN_LEFT).plus(Duration::from_millis(1))
}

// === solves ===

pub(crate) fn insert_solve(tx: &mut dyn WriteTx, solve: &Solve) -> Result<()> {
    index_solve(tx, solve, true)?;
    if solve.stage.is_final() {
        schedule_deletion(tx, solve)?;
    }
    tx.put::<Solves>(solve.id, solve.clone())
}

pub(crate) fn update_solve(tx: &mut dyn WriteTx, before: &Solve, after: &Solve) -> Result<()> {
    index_solve(tx, before, false)?;
    index_solve(tx, after, true)?;
    if after.stage.is_final() && !before.stage.is_final() {
        schedule_deletion(tx, after)?;
    }
    tx.put::<Solves>(after.id, after.clone())
}

/// Schedules the deletion of the challenge, which schedules that of the solve (`retention`).
fn schedule_deletion(tx: &mut dyn WriteTx, solve: &Solve) -> Result<()> {
    schedule_challenge_deletion(tx, solve.id, solve.ended_at.unwrap_or(solve.due))
}

/// Schedules the deletion of a challenge that is of no use since `since`, except for replies that arrive late.
pub(crate) fn schedule_challenge_deletion(
    tx: &mut dyn WriteTx,
    id: SolveId,
    since: Timestamp,
) -> Result<()> {
    tx.put::<RetentionQueue>((since.plus(CHALLENGE_KEPT), Retained::Challenge(id)), ())
}

fn index_solve(tx: &mut dyn WriteTx, solve: &Solve, is_indexed: bool) -> Result<()> {
    if solve.stage.is_final() {
        return Ok(());
    }
    match solve.holder {
        Some(holder) => tx.set::<Held>((holder, solve.due, solve.id), is_indexed)?,
        None => tx.set::<Free>((solve.due, solve.id), is_indexed)?,
    }
    let key = (solve.fingerprint, solve.id);
    match solve.sharing() {
        Sharing::Exclusive if solve.claims.is_empty() => tx.set::<Spare>(key, is_indexed),
        Sharing::Exclusive => Ok(()),
        // Removed whether or not it was joinable: an earlier release listed solves without this limit.
        Sharing::Bound | Sharing::Shared => {
            tx.set::<Joinable>(key, is_indexed && solve.claims.len() < MOST_JOINED)
        }
    }
}

// === records that must exist ===

/// A claim that another record refers to.
pub(crate) fn existing_claim(tx: &dyn ReadTx, id: ClaimId) -> Result<Claim> {
    existing::<Claims>(tx, &id, || format!("claim {id} is missing"))
}

/// A solve that another record refers to.
pub(crate) fn existing_solve(tx: &dyn ReadTx, id: SolveId) -> Result<Solve> {
    existing::<Solves>(tx, &id, || format!("solve {id} is missing"))
}

/// The challenge of a solve in progress.
pub(crate) fn existing_challenge(tx: &dyn ReadTx, id: SolveId) -> Result<Arc<Challenge>> {
    existing::<Challenges>(tx, &id, || format!("the challenge of solve {id} is missing"))
}

fn existing<T: Table>(
    tx: &dyn ReadTx,
    id: &T::Key,
    why: impl FnOnce() -> String,
) -> Result<T::Value> {
    tx.get::<T>(id)?.ok_or_else(|| corrupt(tx.backend(), T::NAME, why()))
}
