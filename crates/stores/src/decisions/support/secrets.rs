//! Drops secrets as soon as they are useless: the text of a token that can no longer be delivered, and the callback address of
//! a claim that is not announced again.

use domain::{
    claim::{Claim, ClaimState},
    dead_letter::DeadLetter,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::{Callbacks, Claims, DeadLetters},
    tx::{ReadTx, TypedRead},
};

use super::{context::DecisionCtx, dead_letters, indexes};

/// Drops what the claim no longer needs.
pub(crate) fn drop_useless(ctx: &mut DecisionCtx<'_>, before: &Claim) -> Result<()> {
    let mut claim = before.clone();
    if let Some(token) = claim.token.as_mut().filter(|token| !token.is_usable(ctx.now)) {
        token.answer.drop_text();
    }
    if !needs_callback_url(ctx.tx, before, ctx.now)? {
        claim.callback_url = None;
    }
    if claim == *before { Ok(()) } else { indexes::update_claim(ctx.tx, before, &claim) }
}

/// Drops what the claims of a deleted dead letter no longer need.
pub(crate) fn drop_useless_of(ctx: &mut DecisionCtx<'_>, letter: &DeadLetter) -> Result<()> {
    for id in &letter.claims {
        if let Some(claim) = ctx.tx.get::<Claims>(id)? {
            drop_useless(ctx, &claim)?;
        }
    }
    Ok(())
}

/// The claim as an archive keeps it, where nothing is delivered or announced.
pub(crate) fn without_secrets(claim: &Claim) -> Claim {
    let mut claim = Claim { callback_url: None, ..claim.clone() };
    if let Some(token) = &mut claim.token {
        token.answer.drop_text();
    }
    claim
}

/// Whether an end of the claim may still be announced: it has not ended, its callback is in the outbox, its token may go to
/// another claim, or it can be revived.
fn needs_callback_url(tx: &dyn ReadTx, claim: &Claim, now: Timestamp) -> Result<bool> {
    if claim.callback_url.is_none() {
        return Ok(false);
    }
    let may_return_token = indexes::is_unfetched(claim)
        && claim.token.as_ref().is_some_and(|token| token.is_usable(now));
    if claim.state == ClaimState::Waiting || may_return_token || tx.has::<Callbacks>(&claim.id)? {
        return Ok(true);
    }
    let letter = claim.solve.map(|solve| tx.get::<DeadLetters>(&solve)).transpose()?.flatten();
    letter.map_or(Ok(false), |letter| dead_letters::can_be_revived(tx, &letter))
}
