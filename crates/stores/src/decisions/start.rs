//! Starts a new solve in the decision that admits its claim: leases it to the gateway and writes its first intent. Called by
//! `admit.rs`. What keeps a solve from being submitted keeps it from being started, too, and then it waits in the queue.

use domain::{
    claim::{Claim, NewClaim, Start},
    id::{ClaimId, Nonce, SolveId},
    lease::Lease,
    solve::{Decision, Fact, Solve, Stage},
};

use crate::{
    Result,
    schema::tables::{Claims, Solves},
    tx::TypedRead,
};

use super::{
    pause::pauses,
    settle::settle,
    support::{context::DecisionCtx, indexes},
};

/// Starts a solve that is not stored yet, if the gateway asks for it and nothing forbids it. The caller has reserved the first
/// attempt and stores the solve.
pub(crate) fn start(
    ctx: &mut DecisionCtx<'_>,
    new: &NewClaim,
    solve: &mut Solve,
) -> Result<Option<Lease>> {
    let Some(Start { holder, nonce, guard }) = &new.start else { return Ok(None) };
    let is_allowed = ctx.is_alive(*holder)?
        && guard.allows(&new.challenge, &new.worker, ctx.now)
        && pauses(ctx.tx)?.stopping(&new.challenge, [&new.worker]).is_none();
    if !is_allowed {
        return Ok(None);
    }
    let mut events = solve.take(*holder, ctx.now, ctx.now);
    let decision = Decision::Intend { nonce: *nonce, guard: guard.clone() };
    let intent = solve.decide(solve.fence, &decision, ctx.now);
    events.extend(intent.expect("a new solve is queued, and the fence is its own"));
    ctx.record_all(solve, events);
    ctx.tx.require_durable();
    Ok(Some(Lease::new(*holder, solve.clone(), new.challenge.clone())))
}

/// Takes back a start whose answer was lost. Returns the claim, if it was admitted.
pub(crate) fn withhold_start(
    ctx: &mut DecisionCtx<'_>,
    claim: ClaimId,
    solve: SolveId,
    nonce: Nonce,
) -> Result<Option<Claim>> {
    if let Some(started) = ctx.tx.get::<Solves>(&solve)? {
        let settled = settle(ctx, solve, started.attempt, &Fact::Withheld { nonce })?;
        // The gateway has no lease of it to go on with: the answer that was lost had it. Another gateway that has taken it over
        // since goes on by itself.
        if started.stage == Stage::Intent && settled.solve.stage == Stage::Queued {
            let free = Solve { holder: None, ..settled.solve.clone() };
            indexes::update_solve(ctx.tx, &settled.solve, &free)?;
        }
    }
    ctx.tx.get::<Claims>(&claim)
}
