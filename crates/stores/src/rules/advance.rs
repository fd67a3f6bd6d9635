//! Fenced decisions: they may spend, so they need a living holder, the current fence, and room in the day's budget.

use domain::{
    id::ClaimId,
    lease::Lease,
    ports::StoreError,
    retry::{Code, own},
    solve::{AmbiguousPolicy, Decision, Origin, Refused, Solve, Stage},
    time::Timestamp,
};

use crate::{
    tables::{Authorised, Solves},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    bury::{self, bury},
    keep,
    lease::is_alive,
    place::Effort,
    step::Step,
};

/// Applies a decision, or says why not.
pub(crate) fn advance(
    tx: &mut dyn WriteTx,
    lease: &Lease,
    decision: &Decision,
    now: Timestamp,
) -> Result<Result<Solve, Refused>, StoreError> {
    let Some(before) = tx.get::<Solves>(&lease.solve.id)? else {
        return Ok(Err(Refused::Moved));
    };
    let decision = in_demand(&before, decision);
    if matches!(decision, Decision::Authorise { .. }) && tx.is_doubtful() {
        let why = "it lost writes a moment ago; no attempt is repeated until everybody has told what they know (20 s)";
        return Err(StoreError::Unavailable { backend: tx.backend(), source: why.into() });
    }
    if let Err(refused) = check(tx, lease, &before, &decision, now)? {
        return Ok(Err(refused));
    }
    let mut solve = before.clone();
    let events = match solve.decide(lease.fence, &decision, now) {
        Ok(events) => events,
        Err(refused) => return Ok(Err(refused)),
    };
    let mut step = Step::new(tx, now);
    step.tell_all(&solve, events);
    if matches!(decision, Decision::Authorise { .. }) {
        let count = authorised_today(step.tx, now)? + 1;
        step.tx.put::<Authorised>(now.day(), count)?;
    }
    let claims = match solve.stage {
        Stage::Failed => std::mem::take(&mut solve.claims),
        Stage::Queued
        | Stage::Intent
        | Stage::Submitted
        | Stage::Overdue
        | Stage::Ambiguous
        | Stage::Ready => Vec::new(),
    };
    keep::solve(step.tx, &before, &solve)?;
    if solve.stage == Stage::Intent {
        step.tx.require_durable();
    }
    if solve.stage == Stage::Failed {
        end(&mut step, &solve, &claims, &decision)?;
    }
    step.finish()?;
    Ok(Ok(solve))
}

/// The decision ended the solve, and its claims with it.
fn end(
    step: &mut Step<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    decision: &Decision,
) -> Result<(), StoreError> {
    match decision {
        // Nothing is wrong with claims that waited for an account in trouble: no letter for them.
        Decision::Lapse { trouble: Some(code), .. } => {
            bury::lapse(step, solve, claims, code)?;
            for id in claims {
                let claim = keep::named_claim(step.tx, *id)?;
                bury::put_back(step, &claim, code)?;
            }
            Ok(())
        }
        Decision::Lapse { trouble: None, .. } => {
            let code = Code::from(own::DEADLINE);
            bury::lapse(step, solve, claims, &code)?;
            match claims.first() {
                Some(first) => bury::write_letter(step, solve, *first, claims, &code),
                None => Ok(()),
            }
        }
        Decision::Intend { .. } | Decision::Authorise { .. } | Decision::WriteOff => {
            bury(step, solve, claims, &Code::from(own::AMBIGUOUS), &Effort::so_far(solve))
        }
    }
}

/// One more attempt that nobody waits for would be paid for nothing: it is written off instead.
fn in_demand(solve: &Solve, decision: &Decision) -> Decision {
    let wanted = !solve.claims.is_empty() || solve.origin == Origin::Refill;
    match decision {
        Decision::Authorise { .. } if !wanted => Decision::WriteOff,
        Decision::Authorise { .. }
        | Decision::Intend { .. }
        | Decision::WriteOff
        | Decision::Lapse { .. } => decision.clone(),
    }
}

fn check(
    tx: &dyn ReadTx,
    lease: &Lease,
    solve: &Solve,
    decision: &Decision,
    now: Timestamp,
) -> Result<Result<(), Refused>, StoreError> {
    if lease.fence == solve.fence && solve.stage.is_final() {
        return Ok(Err(Refused::Moved));
    }
    let held = lease.fence == solve.fence && solve.holder == Some(lease.holder);
    if !held || !is_alive(tx, lease.holder, now)? {
        return Ok(Err(Refused::LeaseLost));
    }
    if !matches!(decision, Decision::Authorise { .. }) {
        return Ok(Ok(()));
    }
    let allowed = solve.policy.ambiguous == AmbiguousPolicy::ResubmitOnce && solve.authorised == 0;
    if !allowed || solve.stage != Stage::Ambiguous {
        return Ok(Err(Refused::Moved));
    }
    if authorised_today(tx, now)? >= solve.policy.ambiguity_budget {
        return Ok(Err(Refused::Budget));
    }
    Ok(Ok(()))
}

fn authorised_today(tx: &dyn ReadTx, now: Timestamp) -> Result<u32, StoreError> {
    Ok(tx.get::<Authorised>(&now.day())?.unwrap_or(0))
}
