//! Advances a solve by a fenced decision. Such a decision may spend money, so it needs a holder whose lease is valid, the
//! current fence, and budget left for the day.

use domain::{
    claim::ClaimState,
    declarations::Guard,
    id::ClaimId,
    lease::Lease,
    ports::{Advanced, StoreError},
    retry::{Code, own},
    solve::{AmbiguousPolicy, Decision, Refused, Solve, Stage},
};

use crate::{
    Result,
    schema::tables::{Authorised, Solves},
    tx::{TypedRead, TypedWrite},
};

use super::support::{
    context::DecisionCtx,
    dead_letters,
    effort::Effort,
    fail::{end_claims, fail_solve},
    indexes,
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
    let decision = without_waste(&before, decision);
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
    let mut solve = before.clone();
    let events = match solve.decide(lease.fence, &decision, ctx.now) {
        Ok(events) => events,
        Err(refused) => return Ok(Advanced::Refused(refused)),
    };
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
        let claim = indexes::existing_claim(ctx.tx, *id)?;
        if !guard.allows(&lease.challenge, &claim.worker, ctx.now) {
            forbidden.push(*id);
        }
    }
    Ok(forbidden)
}

/// Whether the guard allows a solve that no claim waits for: a refill.
fn allows_itself(ctx: &DecisionCtx<'_>, lease: &Lease, solve: &Solve, guard: &Guard) -> bool {
    solve.claims.is_empty() && guard.allows(&lease.challenge, &solve.worker, ctx.now)
}

/// Whether the guard allows all that the solve would be paid for.
fn is_allowed(ctx: &DecisionCtx<'_>, lease: &Lease, solve: &Solve, guard: &Guard) -> Result<bool> {
    if solve.claims.is_empty() {
        return Ok(allows_itself(ctx, lease, solve, guard));
    }
    Ok(forbidden_claims(ctx, lease, solve, guard)?.is_empty())
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
        // The account was at fault, not the claims: they get no dead letter.
        Decision::Lapse { trouble: Some(code), .. } => {
            end_claims(ctx, claims, ClaimState::Lapsed, code, &effort)?;
            for id in claims {
                let claim = indexes::existing_claim(ctx.tx, *id)?;
                dead_letters::reopen(ctx, &claim, code)?;
            }
            Ok(())
        }
        Decision::Lapse { trouble: None, .. } => {
            let code = Code::from(own::DEADLINE);
            end_claims(ctx, claims, ClaimState::Lapsed, &code, &effort)?;
            match claims.first() {
                Some(first) => dead_letters::write(ctx, solve, *first, claims, &code),
                None => Ok(()),
            }
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
    if must_be == Some(solve.stage)
        && let Some(guard) = guard
        && !is_allowed(ctx, lease, solve, guard)?
    {
        return Ok(Some(Refused::Undeclared));
    }
    if !is_authorise(decision) {
        return Ok(None);
    }
    let allowed = solve.policy.ambiguous == AmbiguousPolicy::ResubmitOnce && solve.authorised == 0;
    if !allowed || solve.stage != Stage::Ambiguous {
        return Ok(Some(Refused::Moved));
    }
    if authorised_today(ctx)? >= solve.policy.ambiguity_budget {
        return Ok(Some(Refused::Budget));
    }
    Ok(None)
}

fn authorised_today(ctx: &DecisionCtx<'_>) -> Result<u32> {
    Ok(ctx.tx.get::<Authorised>(&ctx.now.day())?.unwrap_or(0))
}
