//! Tokens that workers fetched, and tokens that expired.

use domain::{
    claim::{Claim, ClaimState},
    ledger::Event,
    retry::{Code, own},
    token::Token,
};

use crate::{Result, schema::tables::Watched, tx::TypedRead};

use super::{
    books,
    context::{Attribution, DecisionCtx},
    effort, indexes, secrets,
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

/// Drops the text of a token that expired. A claim that nobody fetched lapses: it paid for a token and got none. The claim's
/// row in `Watched` makes sure that this happens once. Returns the claim as it is now.
pub(crate) fn expire_token(
    ctx: &mut DecisionCtx<'_>,
    before: &Claim,
    token: &Token,
) -> Result<Claim> {
    let is_watched = match indexes::watch_at(before) {
        Some(at) => ctx.tx.has::<Watched>(&(at, before.id))?,
        None => false,
    };
    if is_watched && before.delivered_at.is_none() {
        lapse_expired(ctx, before, token)?;
    } else if is_watched {
        secrets::drop_useless(ctx, before)?;
    }
    indexes::existing_claim(ctx.tx, before.id)
}

fn lapse_expired(ctx: &mut DecisionCtx<'_>, before: &Claim, token: &Token) -> Result<()> {
    if indexes::is_unfetched(before) {
        record_wasted(ctx, before, token);
    }
    let mut claim = before.clone();
    claim.state = ClaimState::Lapsed;
    claim.code = Some(Code::from(own::TOKEN_EXPIRED));
    claim.may_have_paid = effort::may_have_paid_for(ctx.tx, before)?;
    // The same moment whoever notices, so that its key is not kept for longer by a late fetch.
    claim.ended_at = Some(indexes::unusable_from(token).min(ctx.now));
    ctx.record(&claim, Event::Ended { state: claim.state, code: claim.code.clone() });
    books::count_move(ctx, before, &claim);
    indexes::update_claim(ctx.tx, before, &claim)?;
    secrets::drop_useless(ctx, &claim)
}

/// Records that a paid token expired unused.
pub(crate) fn record_wasted(
    ctx: &mut DecisionCtx<'_>,
    about: impl Into<Attribution>,
    token: &Token,
) {
    ctx.record(about, Event::Wasted { task: token.task.clone() });
}
