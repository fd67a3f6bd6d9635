//! Tokens that workers fetched, and tokens that expired.

use domain::{claim::Claim, ledger::Event, token::Token};

use crate::{Result, schema::tables::Watched, tx::TypedRead};

use super::{
    context::{Attribution, DecisionCtx},
    indexes, secrets,
};

/// Records that the worker got the claim's usable token for the first time. Later times change nothing.
pub(crate) fn deliver_token(
    ctx: &mut DecisionCtx<'_>,
    before: Claim,
    token: &Token,
) -> Result<Claim> {
    if before.delivered_at.is_some() {
        return Ok(before);
    }
    record_delivered(ctx, &before, token);
    let mut claim = before.clone();
    claim.delivered_at = Some(ctx.now);
    indexes::update_claim(ctx.tx, &before, &claim)?;
    Ok(claim)
}

pub(crate) fn record_delivered(ctx: &mut DecisionCtx<'_>, claim: &Claim, token: &Token) {
    let event = Event::Delivered { task: token.task.clone(), usable_until: token.usable_until };
    ctx.record(claim, event);
}

/// Drops the text of a token that expired. Records it as wasted, and returns `true`, if nobody fetched it. The claim's row in
/// `Watched` makes sure that this happens once.
pub(crate) fn expire_token(
    ctx: &mut DecisionCtx<'_>,
    claim: &Claim,
    token: &Token,
) -> Result<bool> {
    let Some(at) = indexes::watch_at(claim) else { return Ok(false) };
    let watched = ctx.tx.has::<Watched>(&(at, claim.id))?;
    let is_wasted = watched && indexes::is_unfetched(claim);
    if is_wasted {
        record_wasted(ctx, claim, token);
    }
    if watched {
        secrets::drop_useless(ctx, claim)?;
    }
    Ok(is_wasted)
}

/// Records that a paid token expired unused.
pub(crate) fn record_wasted(
    ctx: &mut DecisionCtx<'_>,
    about: impl Into<Attribution>,
    token: &Token,
) {
    ctx.record(about, Event::Wasted { task: token.task.clone() });
}
