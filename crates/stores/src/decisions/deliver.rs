//! Delivers the token of a served claim, if it is still usable.

use domain::{
    claim::{ClaimState, Delivery},
    id::ClaimId,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::Claims,
    tx::{TypedRead, WriteTx},
};

use super::support::{context::DecisionCtx, delivery};

pub(crate) fn deliver(
    tx: &mut dyn WriteTx,
    id: ClaimId,
    now: Timestamp,
) -> Result<Option<Delivery>> {
    let Some(claim) = tx.get::<Claims>(&id)? else { return Ok(None) };
    let mut ctx = DecisionCtx::new(tx, now);
    let delivery = match (claim.state, claim.token.clone()) {
        (ClaimState::Served, Some(token)) if token.is_usable(now) => {
            Delivery::Token(delivery::deliver_token(&mut ctx, claim, &token)?)
        }
        (ClaimState::Served, Some(token)) => {
            delivery::expire_unfetched(&mut ctx, &claim, &token)?;
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
    ctx.finish()?;
    Ok(Some(delivery))
}
