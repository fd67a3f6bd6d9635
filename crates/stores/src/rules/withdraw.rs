//! Taking a claim back: unsent work ends, paid work goes on, and a token nobody fetched serves the next claim.

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState},
    id::ClaimId,
    ledger::Event,
    ports::{StoreError, Withdrawal},
    retry::{Code, own},
    time::Timestamp,
    token::Token,
};

use crate::{
    tables::Claims,
    tx::{TypedRead, WriteTx},
};

use super::{
    bury, keep,
    place::{self, Effort},
    step::Step,
};

/// Decides a withdrawal.
pub(crate) fn withdraw(
    tx: &mut dyn WriteTx,
    id: ClaimId,
    now: Timestamp,
) -> Result<Option<Withdrawal>, StoreError> {
    let Some(claim) = tx.get::<Claims>(&id)? else { return Ok(None) };
    let mut step = Step::new(tx, now);
    let was_waiting = claim.state == ClaimState::Waiting;
    let claim = match (claim.state, unfetched(&claim, now)) {
        (ClaimState::Waiting, _) => withdraw_waiting(&mut step, &claim)?,
        (ClaimState::Served, Some(token)) => {
            give_back(&mut step, &claim, token, ClaimState::Withdrawn, None)?
        }
        (
            ClaimState::Served | ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed,
            _,
        ) => claim,
    };
    step.finish()?;
    Ok(Some(Withdrawal { claim, was_waiting }))
}

fn withdraw_waiting(step: &mut Step<'_>, before: &Claim) -> Result<Claim, StoreError> {
    let effort = match before.solve {
        Some(solve) => Effort::so_far(&keep::named_solve(step.tx, solve)?),
        None => Effort::NONE,
    };
    let claim = bury::end(step, before, ClaimState::Withdrawn, None, &effort)?;
    if let Some(solve) = claim.solve {
        place::leave(step, claim.id, solve, own::WITHDRAWN)?;
    }
    Ok(claim)
}

/// The token the claim alone has, which is alive and was never fetched: it may serve another.
pub(super) fn unfetched(claim: &Claim, now: Timestamp) -> Option<Token> {
    let own = claim.kind.sharing() == Sharing::Exclusive && claim.delivered_at.is_none();
    claim.token.clone().filter(|token| own && token.is_usable(now))
}

/// Ends a served claim whose token was never fetched; the token goes on.
pub(super) fn give_back(
    step: &mut Step<'_>,
    before: &Claim,
    token: Token,
    state: ClaimState,
    code: Option<Code>,
) -> Result<Claim, StoreError> {
    let mut claim = before.clone();
    claim.state = state;
    claim.token = None;
    claim.ended_at = Some(step.now);
    claim.code.clone_from(&code);
    step.tell(&claim, Event::Ended { state, code });
    keep::claim(step.tx, before, &claim)?;
    place::pass_on(step, &claim, token)?;
    Ok(claim)
}
