//! Withdraws a claim. Unsent work ends, paid work goes on, and a token that nobody fetched serves the next claim.

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    claim::{Claim, ClaimState},
    id::ClaimId,
    ports::Withdrawal,
    retry::own,
};

use crate::{Result, schema::tables::Claims, tx::TypedRead};

use super::support::{
    allocate::{return_token, unfetched_token},
    context::DecisionCtx,
    delivery::expire_token,
    effort::Effort,
    fail, indexes,
};

pub(crate) fn withdraw(
    ctx: &mut DecisionCtx<'_>,
    id: ClaimId,
    by: Option<&Actor>,
) -> Result<Option<Withdrawal>> {
    let Some(claim) = ctx.tx.get::<Claims>(&id)? else { return Ok(None) };
    let was_waiting = claim.state == ClaimState::Waiting;
    let before = claim.state;
    let claim = match (claim.state, unfetched_token(&claim, ctx.now)) {
        (ClaimState::Waiting, _) => withdraw_waiting(ctx, &claim)?,
        (ClaimState::Served, Some(token)) => {
            return_token(ctx, &claim, token, ClaimState::Withdrawn, None)?
        }
        (ClaimState::Served, None) => match &claim.token {
            // It may have expired since the last sweep.
            Some(token) if !token.is_usable(ctx.now) => expire_token(ctx, &claim, token)?,
            Some(_) | None => claim,
        },
        (ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed, _) => claim,
    };
    let is_withdrawn = claim.state != before && claim.state == ClaimState::Withdrawn;
    if let Some(by) = by.filter(|_| is_withdrawn) {
        ctx.administered(&claim, by, AdminAction::Withdrawn);
    }
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
