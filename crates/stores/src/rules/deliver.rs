//! Handing out a served claim's token, if it is alive.

use domain::{
    claim::{Claim, ClaimState, Delivery},
    id::ClaimId,
    ledger::Event,
    ports::StoreError,
    time::Timestamp,
    token::Token,
};

use crate::{
    tables::{Claims, Watched},
    tx::{TypedRead, TypedWrite, WriteTx},
};

use super::{keep, place, step::Step};

/// Decides a fetch.
pub(crate) fn deliver(
    tx: &mut dyn WriteTx,
    id: ClaimId,
    now: Timestamp,
) -> Result<Option<Delivery>, StoreError> {
    let Some(claim) = tx.get::<Claims>(&id)? else { return Ok(None) };
    let mut step = Step::new(tx, now);
    let delivery = match (claim.state, claim.token.clone()) {
        (ClaimState::Served, Some(token)) if token.is_usable(now) => {
            Delivery::Token(hand_out(&mut step, claim, &token)?)
        }
        (ClaimState::Served, Some(token)) => {
            expire(&mut step, &claim, &token)?;
            Delivery::Expired(claim)
        }
        (
            ClaimState::Waiting
            | ClaimState::Served
            | ClaimState::Failed
            | ClaimState::Withdrawn
            | ClaimState::Lapsed,
            _,
        ) => Delivery::Nothing(claim),
    };
    step.finish()?;
    Ok(Some(delivery))
}

/// Remembers that the claim's usable token was handed out.
pub(super) fn hand_out(
    step: &mut Step<'_>,
    before: Claim,
    token: &Token,
) -> Result<Claim, StoreError> {
    tell_delivered(step, &before, token);
    if before.delivered_at.is_some() {
        return Ok(before);
    }
    let mut claim = before.clone();
    claim.delivered_at = Some(step.now);
    keep::claim(step.tx, &before, &claim)?;
    Ok(claim)
}

/// Says that the token went to the worker.
pub(super) fn tell_delivered(step: &mut Step<'_>, claim: &Claim, token: &Token) {
    let event = Event::Delivered { task: token.task.clone(), usable_until: token.usable_until };
    step.tell(claim, event);
}

/// A token that died before anybody fetched it is wasted, which is told once: while the claim is watched.
pub(super) fn expire(
    step: &mut Step<'_>,
    claim: &Claim,
    token: &Token,
) -> Result<bool, StoreError> {
    let Some(at) = keep::watch_at(claim) else { return Ok(false) };
    let key = (at, claim.id);
    let watched = step.tx.has::<Watched>(&key)?;
    if watched {
        step.tx.take::<Watched>(&key)?;
        place::waste(step, claim, token);
    }
    Ok(watched)
}
