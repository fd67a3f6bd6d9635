//! Advances a solve by a fenced decision. Such a decision may spend money, so it needs a holder whose lease is valid, the
//! current fence, and budget left for the day.

use std::collections::BTreeSet;

use domain::{
    claim::ClaimState,
    declarations::Guard,
    id::{ClaimId, WorkerName},
    lease::Lease,
    money::Money,
    ports::{Advanced, StoreError},
    retry::{Code, own},
    solve::{AmbiguousPolicy, Decision, Refused, Solve, Stage},
};

use crate::{
    Result,
    schema::tables::{Authorised, Solves},
    tx::{TypedRead, TypedWrite},
};

use super::{
    pause::pauses,
    support::{
        budgets::{self, Buyer},
        context::DecisionCtx,
        dead_letters,
        effort::Effort,
        fail::{end_claims, fail_solve},
        indexes,
    },
};

/// Applies the decision, or returns why it is refused.
pub(crate) fn advance(
    ctx: &mut DecisionCtx<'_>,
    lease: &Lease,
    decision: &Decision,
) -> Result<Advanced> {
    let Some(before) = ctx.tx.get::<Solves>(&lease.solve.id)? else {
        return Ok(Advanced::Refused(Refused::Moved));
    };
    let decision = naming_pause(ctx, &before, without_waste(&before, decision))?;
    if is_authorise(&decision) && ctx.tx.is_doubtful() {
        let why = "it lost writes a moment ago; no attempt is repeated until every gateway has restored its records (20 s)";
        return Err(StoreError::unavailable(ctx.tx.backend(), why));
    }
    if let Some(refused) = refusal(ctx, lease, &before, &decision)? {
        return Ok(Advanced::Refused(refused));
    }
    if let Decision::Forbid { guard } = &decision {
        let lost = forbidden_claims(ctx, lease, &before, guard)?;
        if lost.len() < before.claims.len()
            || (lost.is_empty() && allows_itself(ctx, lease, &before, guard))
        {
            return drop_claims(ctx, &before, &lost).map(Advanced::Done);
        }
    }
    let buyer = buyer_of_another(&before, &decision);
    if let Some(buyer) = &buyer
        && budgets::exceeded(ctx, buyer, before.price)?.is_some()
    {
        if before.stage == Stage::Queued {
            return end_over_budget(ctx, &before).map(Advanced::Done);
        }
        return Ok(Advanced::Refused(Refused::Budget));
    }
    let mut solve = before.clone();
    let events = match solve.decide(lease.fence, &decision, ctx.now) {
        Ok(events) => events,
        Err(refused) => return Ok(Advanced::Refused(refused)),
    };
    budgets::follow(ctx, &mut solve, &events)?;
    if let Some(buyer) = &buyer {
        budgets::reserve(ctx, buyer, &mut solve)?;
    }
    ctx.record_all(&solve, events);
    apply(ctx, &before, &mut solve, &decision)?;
    Ok(Advanced::Done(solve))
}

/// The waiting claims that the guard does not allow.
fn forbidden_claims(
    ctx: &DecisionCtx<'_>,
    lease: &Lease,
    solve: &Solve,
    guard: &Guard,
) -> Result<Vec<ClaimId>> {
    let mut forbidden = Vec::new();
    for id in &solve.claims {
        if !guard.allows(&lease.challenge, &worker_of(ctx, solve, *id)?, ctx.now) {
            forbidden.push(*id);
        }
    }
    Ok(forbidden)
}

/// The workers that wait for the solve; for a refill the one that it is bought for.
fn waiting_workers(ctx: &DecisionCtx<'_>, solve: &Solve) -> Result<BTreeSet<WorkerName>> {
    if solve.claims.is_empty() {
        return Ok([solve.worker.clone()].into());
    }
    solve.claims.iter().map(|id| worker_of(ctx, solve, *id)).collect()
}

/// The worker of a waiting claim. The solve has that of the claim it was opened for, which is nearly always the only one, so
/// that an intent reads no claim for it.
fn worker_of(ctx: &DecisionCtx<'_>, solve: &Solve, claim: ClaimId) -> Result<WorkerName> {
    if solve.origin.is_for(claim) {
        return Ok(solve.worker.clone());
    }
    Ok(indexes::existing_claim(ctx.tx, claim)?.worker)
}

/// Whether the guard allows a solve that no claim waits for: a refill.
fn allows_itself(ctx: &DecisionCtx<'_>, lease: &Lease, solve: &Solve, guard: &Guard) -> bool {
    solve.claims.is_empty() && guard.allows(&lease.challenge, &solve.worker, ctx.now)
}

/// Fails some of the claims for good, without a dead letter. The solve goes on for the others.
fn drop_claims(ctx: &mut DecisionCtx<'_>, before: &Solve, lost: &[ClaimId]) -> Result<Solve> {
    let mut solve = before.clone();
    solve.claims.retain(|id| !lost.contains(id));
    let code = Code::from(own::SITE_NOT_DECLARED);
    end_claims(ctx, lost, ClaimState::Failed, &code, &Effort::without_answer(before))?;
    indexes::update_solve(ctx.tx, before, &solve)?;
    Ok(solve)
}

/// Who pays for the attempt that the decision leads to, unless it is reserved already. The first attempt was reserved with the
/// solve.
fn buyer_of_another(solve: &Solve, decision: &Decision) -> Option<Buyer> {
    match (decision, solve.stage) {
        (Decision::Intend { guard, .. }, Stage::Queued) if solve.reservations.open.is_none() => {
            Some(Buyer::of(solve, guard))
        }
        (Decision::Authorise { guard, .. }, Stage::Ambiguous) => Some(Buyer::of(solve, guard)),
        (
            Decision::Intend { .. }
            | Decision::Authorise { .. }
            | Decision::WriteOff
            | Decision::Lapse { .. }
            | Decision::Forbid { .. },
            _,
        ) => None,
    }
}

/// Fails a queued solve that the budget has no other attempt for. Its dead letter can be revived when there is room again.
fn end_over_budget(ctx: &mut DecisionCtx<'_>, before: &Solve) -> Result<Solve> {
    let (mut solve, code) = (before.clone(), Code::from(own::BUDGET_EXCEEDED));
    let claims = std::mem::take(&mut solve.claims);
    let events = solve.fail(code.clone(), Some(Money::ZERO), ctx.now);
    ctx.record_all(&solve, events);
    indexes::update_solve(ctx.tx, before, &solve)?;
    fail_solve(ctx, &solve, &claims, &code, &Effort::without_answer(&solve))?;
    Ok(solve)
}

/// Writes the solve as the decision left it, and ends its claims if it failed.
fn apply(
    ctx: &mut DecisionCtx<'_>,
    before: &Solve,
    solve: &mut Solve,
    decision: &Decision,
) -> Result<()> {
    if is_authorise(decision) {
        let count = authorised_today(ctx)? + 1;
        ctx.tx.put::<Authorised>(ctx.now.day(), count)?;
    }
    let has_failed = solve.stage == Stage::Failed;
    let claims = if has_failed { std::mem::take(&mut solve.claims) } else { Vec::new() };
    indexes::update_solve(ctx.tx, before, solve)?;
    if solve.stage == Stage::Intent {
        ctx.tx.require_durable();
    }
    if has_failed {
        end_claims_of(ctx, solve, &claims, decision)?;
    }
    Ok(())
}

fn is_authorise(decision: &Decision) -> bool {
    matches!(decision, Decision::Authorise { .. })
}

/// Ends the claims of a solve that the decision ended.
fn end_claims_of(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    decision: &Decision,
) -> Result<()> {
    let effort = Effort::without_answer(solve);
    match decision {
        Decision::Lapse { trouble, .. } => {
            let code = trouble.clone().unwrap_or_else(|| own::DEADLINE.into());
            end_claims(ctx, claims, ClaimState::Lapsed, &code, &effort)?;
            dead_letters::write_lapsed(ctx, solve, claims, &code)
        }
        // Nobody may revive it, so there is no dead letter.
        Decision::Forbid { .. } => {
            let code = Code::from(own::SITE_NOT_DECLARED);
            end_claims(ctx, claims, ClaimState::Failed, &code, &effort)
        }
        Decision::Intend { .. } | Decision::Authorise { .. } | Decision::WriteOff => {
            fail_solve(ctx, solve, claims, &Code::from(own::AMBIGUOUS), &effort)
        }
    }
}

/// Writes an ambiguous attempt off when no claim waits for its solve: another attempt would be paid for nothing.
fn without_waste(solve: &Solve, decision: &Decision) -> Decision {
    match decision {
        Decision::Authorise { .. } if solve.claims.is_empty() => Decision::WriteOff,
        Decision::Authorise { .. }
        | Decision::Intend { .. }
        | Decision::WriteOff
        | Decision::Lapse { .. }
        | Decision::Forbid { .. } => decision.clone(),
    }
}

/// Names the pause, if that is why a solve was not submitted in time. The gateway may not have heard of it.
fn naming_pause(ctx: &DecisionCtx<'_>, solve: &Solve, decision: Decision) -> Result<Decision> {
    let Decision::Lapse { soonest, trouble } = decision else { return Ok(decision) };
    let trouble = if is_paused(ctx, solve)? { Some(own::PAUSED.into()) } else { trouble };
    Ok(Decision::Lapse { soonest, trouble })
}

/// Whether a pause stops the solve.
pub(super) fn is_paused(ctx: &DecisionCtx<'_>, solve: &Solve) -> Result<bool> {
    let pauses = pauses(ctx.tx)?;
    if pauses.is_empty() || solve.stage != Stage::Queued {
        return Ok(false);
    }
    let challenge = indexes::existing_challenge(ctx.tx, solve.id)?;
    Ok(pauses.stopping(&challenge, &waiting_workers(ctx, solve)?).is_some())
}

/// Why the decision is not allowed, if it is not.
fn refusal(
    ctx: &DecisionCtx<'_>,
    lease: &Lease,
    solve: &Solve,
    decision: &Decision,
) -> Result<Option<Refused>> {
    if lease.fence == solve.fence && solve.stage.is_final() {
        return Ok(Some(Refused::Moved));
    }
    let held = lease.fence == solve.fence && solve.holder == Some(lease.holder);
    if !held || !ctx.is_alive(lease.holder)? {
        return Ok(Some(Refused::LeaseLost));
    }
    let (must_be, guard) = match decision {
        Decision::Intend { guard, .. } => (Some(Stage::Queued), Some(guard)),
        Decision::Authorise { guard, .. } => (Some(Stage::Ambiguous), Some(guard)),
        Decision::WriteOff | Decision::Lapse { .. } => (None, None),
        Decision::Forbid { .. } => {
            let has_open_end = matches!(solve.stage, Stage::Queued | Stage::Ambiguous);
            return Ok((!has_open_end).then_some(Refused::Moved));
        }
    };
    let Some(guard) = guard.filter(|_| must_be == Some(solve.stage)) else {
        return Ok(is_authorise(decision).then_some(Refused::Moved));
    };
    let workers = waiting_workers(ctx, solve)?;
    if !workers.iter().all(|worker| guard.allows(&lease.challenge, worker, ctx.now)) {
        return Ok(Some(Refused::Undeclared));
    }
    if is_authorise(decision)
        && let Some(refused) = over_ambiguity_policy(ctx, solve)?
    {
        return Ok(Some(refused));
    }
    // Last, so that only what would be paid for waits for the end of a pause.
    let is_paused = pauses(ctx.tx)?.stopping(&lease.challenge, &workers).is_some();
    Ok(is_paused.then_some(Refused::Paused))
}

/// Why an ambiguous attempt may not be followed by another one.
fn over_ambiguity_policy(ctx: &DecisionCtx<'_>, solve: &Solve) -> Result<Option<Refused>> {
    if solve.policy.ambiguous != AmbiguousPolicy::ResubmitOnce || solve.authorised > 0 {
        return Ok(Some(Refused::Moved));
    }
    let is_used_up = authorised_today(ctx)? >= solve.policy.ambiguity_budget;
    Ok(is_used_up.then_some(Refused::Budget))
}

fn authorised_today(ctx: &DecisionCtx<'_>) -> Result<u32> {
    Ok(ctx.tx.get::<Authorised>(&ctx.now.day())?.unwrap_or(0))
}

#[cfg(test)]
mod tests;
