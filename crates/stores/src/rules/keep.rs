//! Records and their indexes: whoever changes a claim or a solve keeps it through here, and the indexes follow.

use std::time::Duration;

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState},
    id::{ClaimId, SolveId},
    ports::StoreError,
    solve::Solve,
    time::Timestamp,
    token::{MIN_LEFT, Token},
};

use crate::{
    keys::Text,
    tables::{
        BySitekey, ByTime, ByWorker, Claims, Free, Garbage, Held, Joinable, Junk, Solves, Spare,
        Waiting, Watched,
    },
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{garbage::CHALLENGE_KEPT, hurry::is_for_nobody, missing, outbox};

// === claims ===

/// Writes a claim that did not exist before.
pub(super) fn new_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    list_claim(tx, claim)?;
    index_claim(tx, claim)?;
    outbox::announce(tx, claim)?;
    tx.put::<Claims>(claim.id, claim.clone())
}

/// Puts a claim into the lists people read.
pub(super) fn list_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let (at, id) = (claim.opened_at, claim.id);
    tx.put::<ByTime>((at, id), ())?;
    tx.put::<ByWorker>((Text::new(claim.worker.as_str()), at, id), ())?;
    match &claim.sitekey {
        Some(sitekey) => tx.put::<BySitekey>((Text::new(sitekey), at, id), ()),
        None => Ok(()),
    }
}

/// Takes it out of them.
pub(super) fn unlist_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let (at, id) = (claim.opened_at, claim.id);
    tx.take::<ByTime>(&(at, id))?;
    tx.take::<ByWorker>(&(Text::new(claim.worker.as_str()), at, id))?;
    if let Some(sitekey) = &claim.sitekey {
        tx.take::<BySitekey>(&(Text::new(sitekey), at, id))?;
    }
    Ok(())
}

/// Writes a claim over its former self.
pub(super) fn claim(tx: &mut dyn WriteTx, before: &Claim, after: &Claim) -> Result<(), StoreError> {
    if is_waited_for(before) {
        tx.take::<Waiting>(&(before.fingerprint, before.opened_at, before.id))?;
    }
    if let Some(at) = watch_at(before) {
        tx.take::<Watched>(&(at, before.id))?;
    }
    index_claim(tx, after)?;
    if before.state != after.state {
        outbox::announce(tx, after)?;
    }
    tx.put::<Claims>(after.id, after.clone())
}

fn index_claim(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    if is_waited_for(claim) {
        tx.put::<Waiting>((claim.fingerprint, claim.opened_at, claim.id), ())?;
    }
    match watch_at(claim) {
        Some(at) => tx.put::<Watched>((at, claim.id), ()),
        None => Ok(()),
    }
}

/// Whether somebody would be glad of a token that another gave back.
fn is_waited_for(claim: &Claim) -> bool {
    claim.state == ClaimState::Waiting && !is_for_nobody(claim)
}

/// When the sweep has to look at the claim: at its deadline, or when a token it alone has and never fetched dies.
pub(super) fn watch_at(claim: &Claim) -> Option<Timestamp> {
    let unfetched = claim.delivered_at.is_none() && claim.kind.sharing() == Sharing::Exclusive;
    match (claim.state, &claim.token) {
        (ClaimState::Waiting, _) => Some(claim.deadline),
        (ClaimState::Served, Some(token)) if unfetched => Some(claim.deadline.min(dies_at(token))),
        (
            ClaimState::Served | ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed,
            _,
        ) => None,
    }
}

/// The first moment a token may not be handed out any more.
pub(super) fn dies_at(token: &Token) -> Timestamp {
    token.usable_until.minus(MIN_LEFT).plus(Duration::from_millis(1))
}

/// A claim that must be there, because another record names it.
pub(super) fn named_claim(tx: &dyn ReadTx, id: ClaimId) -> Result<Claim, StoreError> {
    tx.get::<Claims>(&id)?.ok_or_else(|| missing(tx, "claims", format!("claim {id} is gone")))
}

// === solves ===

/// Writes a solve that did not exist before.
pub(super) fn new_solve(tx: &mut dyn WriteTx, solve: &Solve) -> Result<(), StoreError> {
    index_solve(tx, solve)?;
    tx.put::<Solves>(solve.id, solve.clone())
}

/// Writes a solve over its former self. One that ended leaves the indexes and waits to be dropped.
pub(super) fn solve(tx: &mut dyn WriteTx, before: &Solve, after: &Solve) -> Result<(), StoreError> {
    unindex_solve(tx, before)?;
    index_solve(tx, after)?;
    if after.stage.is_final() && !before.stage.is_final() {
        let ended = after.ended_at.unwrap_or(after.due);
        tx.put::<Garbage>((ended.plus(CHALLENGE_KEPT), Junk::Challenge(after.id)), ())?;
    }
    tx.put::<Solves>(after.id, after.clone())
}

fn index_solve(tx: &mut dyn WriteTx, solve: &Solve) -> Result<(), StoreError> {
    if solve.stage.is_final() {
        return Ok(());
    }
    match solve.holder {
        Some(holder) => tx.put::<Held>((holder, solve.due, solve.id), ())?,
        None => tx.put::<Free>((solve.due, solve.id), ())?,
    }
    match solve.sharing() {
        Sharing::Exclusive if solve.claims.is_empty() => {
            tx.put::<Spare>((solve.fingerprint, solve.id), ())
        }
        Sharing::Exclusive => Ok(()),
        Sharing::Bound | Sharing::Shared => tx.put::<Joinable>((solve.fingerprint, solve.id), ()),
    }
}

fn unindex_solve(tx: &mut dyn WriteTx, solve: &Solve) -> Result<(), StoreError> {
    if solve.stage.is_final() {
        return Ok(());
    }
    match solve.holder {
        Some(holder) => tx.take::<Held>(&(holder, solve.due, solve.id))?,
        None => tx.take::<Free>(&(solve.due, solve.id))?,
    };
    match solve.sharing() {
        Sharing::Exclusive if solve.claims.is_empty() => {
            tx.take::<Spare>(&(solve.fingerprint, solve.id))?;
        }
        Sharing::Exclusive => {}
        Sharing::Bound | Sharing::Shared => {
            tx.take::<Joinable>(&(solve.fingerprint, solve.id))?;
        }
    }
    Ok(())
}

/// A solve that must be there, because another record names it.
pub(super) fn named_solve(tx: &dyn ReadTx, id: SolveId) -> Result<Solve, StoreError> {
    tx.get::<Solves>(&id)?.ok_or_else(|| missing(tx, "solves", format!("solve {id} is gone")))
}
