//! Promotes revived work. Nobody waits for a revived claim, so it queues behind live claims and has a day. When a live claim
//! wants the same token, the work becomes urgent.

use domain::{
    budget::Reservations,
    claim::{Claim, ClaimState, NewClaim},
    fingerprint::KeyHash,
    id::SolveId,
    lease::Fence,
    retry::own,
    solve::{Origin, Solve, Stage},
    time::Timestamp,
};

use crate::{Result, schema::tables::Challenges, tx::TypedWrite};

use super::{context::DecisionCtx, effort::Effort, fail, indexes, new_claim};

/// Lets a live claim take over the solve of an equal claim that nobody can fetch.
pub(crate) fn take_over(ctx: &mut DecisionCtx<'_>, new: &NewClaim) -> Result<Option<Claim>> {
    let Some((unattended, solve)) = unattended_claim(ctx, new)? else { return Ok(None) };
    if solve.stage == Stage::Queued && new.deadline < new.soonest {
        return Ok(None);
    }
    let before = promote_solve(ctx, &solve, new.solve)?;
    let unattended = indexes::existing_claim(ctx.tx, unattended.id)?;
    fail::end_unattended(ctx, &unattended, &Effort::NONE)?;
    let mut solve = before.clone();
    solve.claims.retain(|id| *id != unattended.id);
    solve.wanted_until = new.deadline;
    if solve.origin.is_for(unattended.id) {
        solve.origin = Origin::Claim(new.id);
    }
    indexes::update_solve(ctx.tx, &before, &solve)?;
    new_claim::join(ctx, new, &solve).map(Some)
}

fn unattended_claim(ctx: &DecisionCtx<'_>, new: &NewClaim) -> Result<Option<(Claim, Solve)>> {
    let key = KeyHash::revived(&new.worker, &new.fingerprint);
    let Some(claim) = new_claim::claim_by_key(ctx.tx, &key)? else { return Ok(None) };
    let is_unattended = claim.state == ClaimState::Waiting && indexes::is_unattended(&claim);
    match claim.solve.filter(|_| is_unattended) {
        Some(solve) => Ok(Some((claim, indexes::existing_solve(ctx.tx, solve)?))),
        None => Ok(None),
    }
}

/// Promotes a revived claim whose worker sent the same key again. It stays the same claim.
pub(crate) fn promote_claim(
    ctx: &mut DecisionCtx<'_>,
    before: Claim,
    new: &NewClaim,
) -> Result<Claim> {
    // A claim that its key opened again is live work already, and its deadline is its own.
    let is_revived = before.revives.is_some() && before.reopened == 0;
    let waits = is_revived && before.state == ClaimState::Waiting;
    let Some(solve) = before.solve.filter(|_| waits) else { return Ok(before) };
    let mut claim = before.clone();
    claim.deadline = claim.deadline.min(new.deadline);
    indexes::update_claim(ctx.tx, &before, &claim)?;
    let solve = indexes::existing_solve(ctx.tx, solve)?;
    promote_solve(ctx, &solve, new.solve)?;
    indexes::existing_claim(ctx.tx, claim.id)
}

/// Makes a revived solve live work. A solve that was never tried continues under the id `fresh`, because its holder has
/// the old id in the queue of revived work. A solve that was tried before is at the head of that queue already.
pub(crate) fn promote_solve(
    ctx: &mut DecisionCtx<'_>,
    before: &Solve,
    fresh: SolveId,
) -> Result<Solve> {
    let Origin::Revived { claim, .. } = before.origin else { return Ok(before.clone()) };
    let mut solve = before.clone();
    solve.origin = Origin::Claim(claim);
    let is_untried = before.stage == Stage::Queued && before.attempt == 0;
    if is_untried {
        (solve.id, solve.opened_at, solve.due) = (fresh, ctx.now, ctx.now);
        (solve.fence, solve.holder) = (Fence::default(), None);
    }
    solve.wanted_until = move_claims(ctx, &solve)?;
    if is_untried {
        replace(ctx, before, &solve)?;
    } else {
        indexes::update_solve(ctx.tx, before, &solve)?;
    }
    Ok(solve)
}

/// Ends a solve that was never tried, and writes `after` in its place.
fn replace(ctx: &mut DecisionCtx<'_>, before: &Solve, after: &Solve) -> Result<()> {
    let mut ended = before.clone();
    ended.claims.clear();
    // The solve that takes its place keeps what was reserved.
    ended.reservations = Reservations::default();
    let events = ended.abandon(own::NOT_NEEDED, ctx.now);
    ctx.record_all(&ended, events);
    indexes::update_solve(ctx.tx, before, &ended)?;
    let challenge = indexes::existing_challenge(ctx.tx, before.id)?;
    ctx.tx.put::<Challenges>(after.id, challenge)?;
    indexes::insert_solve(ctx.tx, after)
}

/// Points the solve's claims at its present id. Returns the latest of their deadlines.
fn move_claims(ctx: &mut DecisionCtx<'_>, solve: &Solve) -> Result<Timestamp> {
    let mut until = Timestamp::default();
    for id in &solve.claims {
        let before = indexes::existing_claim(ctx.tx, *id)?;
        let claim = Claim { solve: Some(solve.id), ..before.clone() };
        indexes::update_claim(ctx.tx, &before, &claim)?;
        until = until.max(claim.deadline);
    }
    Ok(until)
}
