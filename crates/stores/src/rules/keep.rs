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
    shelf::{ShelfMut, Text},
    tables::{
        BySitekey, ByTime, ByWorker, Claims, Free, Garbage, Held, Joinable, Junk, Solves, Spare,
        Waiting, Watched,
    },
};

use super::{garbage::CHALLENGE_KEPT, hurry::is_for_nobody, missing, outbox};

// === claims ===

/// Writes a claim that did not exist before.
pub(super) fn new_claim<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    list_claim(shelf, claim)?;
    index_claim(shelf, claim)?;
    outbox::announce(shelf, claim)?;
    shelf.put::<Claims>(claim.id, claim.clone())
}

/// Puts a claim into the lists people read.
pub(super) fn list_claim<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    let (at, id) = (claim.opened_at, claim.id);
    shelf.put::<ByTime>((at, id), ())?;
    shelf.put::<ByWorker>((Text::new(claim.worker.as_str()), at, id), ())?;
    match &claim.sitekey {
        Some(sitekey) => shelf.put::<BySitekey>((Text::new(sitekey), at, id), ()),
        None => Ok(()),
    }
}

/// Takes it out of them.
pub(super) fn unlist_claim<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    let (at, id) = (claim.opened_at, claim.id);
    shelf.take::<ByTime>(&(at, id))?;
    shelf.take::<ByWorker>(&(Text::new(claim.worker.as_str()), at, id))?;
    if let Some(sitekey) = &claim.sitekey {
        shelf.take::<BySitekey>(&(Text::new(sitekey), at, id))?;
    }
    Ok(())
}

/// Writes a claim over its former self.
pub(super) fn claim<S: ShelfMut>(
    shelf: &mut S,
    before: &Claim,
    after: &Claim,
) -> Result<(), StoreError> {
    if is_waited_for(before) {
        shelf.take::<Waiting>(&(before.fingerprint, before.opened_at, before.id))?;
    }
    if let Some(at) = watch_at(before) {
        shelf.take::<Watched>(&(at, before.id))?;
    }
    index_claim(shelf, after)?;
    if before.state != after.state {
        outbox::announce(shelf, after)?;
    }
    shelf.put::<Claims>(after.id, after.clone())
}

fn index_claim<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    if is_waited_for(claim) {
        shelf.put::<Waiting>((claim.fingerprint, claim.opened_at, claim.id), ())?;
    }
    match watch_at(claim) {
        Some(at) => shelf.put::<Watched>((at, claim.id), ()),
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
pub(super) fn named_claim<S: ShelfMut>(shelf: &S, id: ClaimId) -> Result<Claim, StoreError> {
    shelf.get::<Claims>(&id)?.ok_or_else(|| missing(shelf, "claims", format!("claim {id} is gone")))
}

// === solves ===

/// Writes a solve that did not exist before.
pub(super) fn new_solve<S: ShelfMut>(shelf: &mut S, solve: &Solve) -> Result<(), StoreError> {
    index_solve(shelf, solve)?;
    shelf.put::<Solves>(solve.id, solve.clone())
}

/// Writes a solve over its former self. One that ended leaves the indexes and waits to be dropped.
pub(super) fn solve<S: ShelfMut>(
    shelf: &mut S,
    before: &Solve,
    after: &Solve,
) -> Result<(), StoreError> {
    unindex_solve(shelf, before)?;
    index_solve(shelf, after)?;
    if after.stage.is_final() && !before.stage.is_final() {
        let ended = after.ended_at.unwrap_or(after.due);
        shelf.put::<Garbage>((ended.plus(CHALLENGE_KEPT), Junk::Challenge(after.id)), ())?;
    }
    shelf.put::<Solves>(after.id, after.clone())
}

fn index_solve<S: ShelfMut>(shelf: &mut S, solve: &Solve) -> Result<(), StoreError> {
    if solve.stage.is_final() {
        return Ok(());
    }
    match solve.holder {
        Some(holder) => shelf.put::<Held>((holder, solve.due, solve.id), ())?,
        None => shelf.put::<Free>((solve.due, solve.id), ())?,
    }
    match solve.sharing() {
        Sharing::Exclusive if solve.claims.is_empty() => {
            shelf.put::<Spare>((solve.fingerprint, solve.id), ())
        }
        Sharing::Exclusive => Ok(()),
        Sharing::Bound | Sharing::Shared => {
            shelf.put::<Joinable>((solve.fingerprint, solve.id), ())
        }
    }
}

fn unindex_solve<S: ShelfMut>(shelf: &mut S, solve: &Solve) -> Result<(), StoreError> {
    if solve.stage.is_final() {
        return Ok(());
    }
    match solve.holder {
        Some(holder) => shelf.take::<Held>(&(holder, solve.due, solve.id))?,
        None => shelf.take::<Free>(&(solve.due, solve.id))?,
    };
    match solve.sharing() {
        Sharing::Exclusive if solve.claims.is_empty() => {
            shelf.take::<Spare>(&(solve.fingerprint, solve.id))?;
        }
        Sharing::Exclusive => {}
        Sharing::Bound | Sharing::Shared => {
            shelf.take::<Joinable>(&(solve.fingerprint, solve.id))?;
        }
    }
    Ok(())
}

/// A solve that must be there, because another record names it.
pub(super) fn named_solve<S: ShelfMut>(shelf: &S, id: SolveId) -> Result<Solve, StoreError> {
    shelf.get::<Solves>(&id)?.ok_or_else(|| missing(shelf, "solves", format!("solve {id} is gone")))
}
