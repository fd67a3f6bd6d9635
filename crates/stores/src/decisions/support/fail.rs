//! Ends claims without a token: because their solve failed, because their deadline passed, or because another claim is
//! served in their place.

use domain::{
    claim::{Claim, ClaimState},
    dead_letter::DeadLetterClass,
    id::{ClaimId, SolveId},
    ledger::Event,
    retry::{Code, own},
    solve::Solve,
};

use crate::Result;

use super::{books, budgets, context::DecisionCtx, dead_letters, effort::Effort, indexes};

/// Fails the claims that waited for the solve, and writes its dead letter.
pub(crate) fn fail_solve(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
    effort: &Effort,
) -> Result<()> {
    end_claims(ctx, claims, ClaimState::Failed, code, effort)?;
    match claims.first() {
        Some(first) => {
            dead_letters::write(ctx, solve, *first, claims, (DeadLetterClass::Failed, code))
        }
        None => dead_letters::refresh(ctx, solve),
    }
}

pub(crate) fn end_claims(
    ctx: &mut DecisionCtx<'_>,
    claims: &[ClaimId],
    state: ClaimState,
    code: &Code,
    effort: &Effort,
) -> Result<()> {
    for id in claims {
        let before = indexes::existing_claim(ctx.tx, *id)?;
        end_claim(ctx, &before, state, Some(code.clone()), effort)?;
    }
    Ok(())
}

/// Ends a waiting claim that nobody can fetch, and leaves its token to another claim.
pub(crate) fn end_unattended(
    ctx: &mut DecisionCtx<'_>,
    claim: &Claim,
    effort: &Effort,
) -> Result<()> {
    let code = Some(Code::from(own::PASSED_ON));
    end_claim(ctx, claim, ClaimState::Withdrawn, code, effort)?;
    Ok(())
}

/// Ends a waiting claim without a token.
pub(crate) fn end_claim(
    ctx: &mut DecisionCtx<'_>,
    before: &Claim,
    state: ClaimState,
    code: Option<Code>,
    effort: &Effort,
) -> Result<Claim> {
    let mut claim = before.clone();
    claim.state = state;
    claim.code.clone_from(&code);
    claim.ended_at = Some(ctx.now);
    claim.attempts = effort.attempts;
    claim.polls = effort.polls;
    claim.cost = effort.cost_of(claim.id);
    claim.may_have_paid = effort.may_have_paid;
    ctx.record(&claim, Event::Ended { state, code });
    books::count_move(ctx, before, &claim);
    ctx.ended.push(claim.id);
    indexes::update_claim(ctx.tx, before, &claim)?;
    Ok(claim)
}

/// Takes a claim off its solve. Without claims, an unsent solve ends and a paid one goes on. Returns the solve when this
/// was its last claim.
pub(crate) fn leave_solve(
    ctx: &mut DecisionCtx<'_>,
    claim: ClaimId,
    solve: SolveId,
    code: &str,
) -> Result<Option<Solve>> {
    let before = indexes::existing_solve(ctx.tx, solve)?;
    let mut after = before.clone();
    after.claims.retain(|id| *id != claim);
    let last = after.claims.is_empty();
    if last {
        let events = after.abandon(code, ctx.now);
        budgets::follow(ctx, &mut after, &events)?;
        ctx.record_all(&after, events);
    }
    indexes::update_solve(ctx.tx, &before, &after)?;
    Ok(last.then_some(after))
}
