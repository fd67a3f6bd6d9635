//! Opens a failed or lapsed claim again under its worker's key: the same claim, as its next generation. Called by `admit.rs`
//! once the failure window is over. Budgets, stock and the queue count it like any new claim.

use domain::{
    challenge::Sharing,
    claim::{Admission, Claim, KeyRule, NewClaim},
    solve::{Solve, Stage},
};

use crate::{Result, schema::tables::Solves, tx::TypedRead};

use super::{
    admit::{admit_from_stock, admit_new},
    support::{context::DecisionCtx, dead_letters, effort, indexes, new_claim},
};

/// What a repeated key does with its claim.
pub(crate) enum Reopening {
    /// It opens the claim again, with this request.
    Now(Box<NewClaim>),
    /// It replays the claim: it has not failed, or its failure window is not over.
    NotYet,
    /// It replays the failure, because money may have been lost.
    Never(Box<Claim>),
}

/// Decides whether the key opens the claim again.
pub(crate) fn prepare(
    ctx: &mut DecisionCtx<'_>,
    new: &NewClaim,
    before: &Claim,
) -> Result<Reopening> {
    let is_due = before.reopens_at(new.reopens_after).is_some_and(|at| at <= ctx.now);
    if !is_due || !matches!(new.key, KeyRule::Named(_)) {
        return Ok(Reopening::NotYet);
    }
    let is_alone = before.kind.sharing() == Sharing::Exclusive;
    if is_alone && effort::may_have_paid_for(ctx.tx, before)? {
        // A release before 0.2.0 ended the claim. Later replays see it from the claim itself.
        let claim = Claim { may_have_paid: true, ..before.clone() };
        indexes::update_claim(ctx.tx, before, &claim)?;
        return Ok(Reopening::Never(Box::new(claim)));
    }
    Ok(Reopening::Now(Box::new(NewClaim {
        id: before.id,
        reopened: before.generation(),
        revives: dead_letters::latest(ctx.tx, before)?,
        start: None,
        ..new.clone()
    })))
}

/// Admits the next generation. Where its last task is still polled, it joins that: the task is paid.
pub(crate) fn reopen(
    ctx: &mut DecisionCtx<'_>,
    new: &NewClaim,
    before: &Claim,
) -> Result<Admission> {
    if let Some(stocked) = admit_from_stock(ctx, new)? {
        return Ok(stocked);
    }
    match harvested_solve(ctx, before)? {
        Some(solve) => Ok(Admission::Joined(new_claim::join(ctx, new, &solve)?)),
        None => admit_new(ctx, new),
    }
}

/// The solve that the claim left behind, while its paid task is polled for nobody.
fn harvested_solve(ctx: &DecisionCtx<'_>, before: &Claim) -> Result<Option<Solve>> {
    let Some(id) = before.solve else { return Ok(None) };
    let solve = ctx.tx.get::<Solves>(&id)?;
    Ok(solve.filter(|solve| solve.stage == Stage::Overdue && solve.claims.is_empty()))
}
