//! Delivers the token of a served claim, if it is still usable.

use domain::{
    claim::{ClaimState, Delivery},
    id::ClaimId,
};

use crate::{Result, schema::tables::Claims, tx::TypedRead};

use super::support::{context::DecisionCtx, delivery};

pub(crate) fn deliver(ctx: &mut DecisionCtx<'_>, id: ClaimId) -> Result<Option<Delivery>> {
    let Some(claim) = ctx.tx.get::<Claims>(&id)? else { return Ok(None) };
    Ok(Some(match (claim.state, claim.token.clone()) {
        (ClaimState::Served, Some(token)) if token.is_usable(ctx.now) => {
            Delivery::Token(delivery::deliver_token(ctx, claim, &token)?)
        }
        (ClaimState::Served, Some(token)) => {
            Delivery::Expired(delivery::expire_token(ctx, &claim, &token)?)
        }
        (
            ClaimState::Waiting
            | ClaimState::Served
            | ClaimState::Failed
            | ClaimState::Withdrawn
            | ClaimState::Lapsed,
            _,
        ) => Delivery::Nothing(claim),
    }))
}
