//! Withdraws a claim. Unsent work ends, paid work goes on, and a token that nobody fetched serves the next claim.

use domain::{
    claim::{Claim, ClaimState},
    id::ClaimId,
    ports::Withdrawal,
    retry::own,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::Claims,
    tx::{TypedRead, WriteTx},
};

use super::support::{
    allocate::{return_token, unfetched_token},
    context::DecisionCtx,
    effort::Effort,
    fail, indexes,
};

pub(crate) fn withdraw(
    tx: &mut dyn WriteTx,
    id: ClaimId,
    now: Timestamp,
) -> Result<Option<Withdrawal>> {
    let Some(claim) = tx.get::<Claims>(&id)? else { return Ok(None) };
    let mut ctx = DecisionCtx::new(tx, now);
    let was_waiting = claim.state == ClaimState::Waiting;
    let claim = match (claim.state, unfetched_token(&claim, now)) {
        (ClaimState::Waiting, _) => withdraw_waiting(&mut ctx, &claim)?,
        (ClaimState::Served, Some(token)) => {
            return_token(&mut ctx, &claim, token, ClaimState::Withdrawn, None)?
        }
        (
            ClaimState::Served | ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed,
            _,
        ) => claim,
    };
    ctx.finish()?;
    Ok(Some(Withdrawal { claim, was_waiting }))
}

fn withdraw_waiting(ctx: &mut DecisionCtx<'_>, before: &Claim) -> Result<Claim> {
    let effort = match before.solve {
        Some(solve) => Effort::without_answer(&indexes::existing_solve(ctx.tx, solve)?),
        None => Effort::NONE,
    };
    let claim = fail::end_claim(ctx, before, ClaimState::Withdrawn, None, &effort)?;
    if let Some(solve) = claim.solve {
        fail::leave_solve(ctx, claim.id, solve, own::WITHDRAWN)?;
    }
    Ok(claim)
}
