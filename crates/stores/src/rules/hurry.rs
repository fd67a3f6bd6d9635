//! Work that was brought back waits behind everybody, for a day, because nobody stands and waits for it. When a live
//! claim wants the same, it is wanted now.

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState, NewClaim},
    fingerprint::KeyHash,
    id::SolveId,
    lease::Fence,
    ports::StoreError,
    retry::{Code, own},
    solve::{Origin, Solve, Stage},
    time::Timestamp,
};

use crate::{
    keys::KeyBytes,
    tables::{Challenges, Claims, Keys},
    tx::{TypedRead, TypedWrite},
};

use super::{admit::join, bury, keep, missing, place::Effort, step::Step};

/// Whether nobody can come for the claim's token: it was brought back, without a key of its worker's own or a callback.
pub(super) fn is_for_nobody(claim: &Claim) -> bool {
    claim.revives.is_some()
        && claim.callback_url.is_none()
        && claim.kind.sharing() == Sharing::Exclusive
        && claim.key == Some(KeyHash::revived(&claim.worker, &claim.fingerprint))
}

/// Ends a claim that is for nobody; what it would have got is for whoever wants one like it.
pub(super) fn pass_on(
    step: &mut Step<'_>,
    claim: &Claim,
    effort: &Effort,
) -> Result<(), StoreError> {
    let code = Some(Code::from(own::PASSED_ON));
    bury::end(step, claim, ClaimState::Withdrawn, code, effort)?;
    Ok(())
}

/// Lets a live claim take the place of an equal one that waits for nobody.
pub(super) fn take_over(step: &mut Step<'_>, new: &NewClaim) -> Result<Option<Claim>, StoreError> {
    let Some((idle, solve)) = idle_claim(step, new)? else { return Ok(None) };
    if solve.stage == Stage::Queued && new.deadline < new.soonest {
        return Ok(None);
    }
    let before = wanted_now(step, &solve, new.solve)?;
    let idle = keep::named_claim(step.tx, idle.id)?;
    pass_on(step, &idle, &Effort::NONE)?;
    let mut solve = before.clone();
    solve.claims.retain(|id| *id != idle.id);
    solve.wanted_until = new.deadline;
    if solve.origin.is_for(idle.id) {
        solve.origin = Origin::Claim(new.id);
    }
    keep::solve(step.tx, &before, &solve)?;
    join(step, new, &solve).map(Some)
}

fn idle_claim(step: &Step<'_>, new: &NewClaim) -> Result<Option<(Claim, Solve)>, StoreError> {
    let key = KeyHash::revived(&new.worker, &new.fingerprint);
    let Some(row) = step.tx.get::<Keys>(&KeyBytes::from(&key))? else { return Ok(None) };
    let Some(claim) = step.tx.get::<Claims>(&row.claim)? else { return Ok(None) };
    let is_idle = claim.state == ClaimState::Waiting && is_for_nobody(&claim);
    match claim.solve.filter(|_| is_idle) {
        Some(solve) => Ok(Some((claim, keep::named_solve(step.tx, solve)?))),
        None => Ok(None),
    }
}

/// The worker asks again under the key of a claim that was brought back: it is the same claim, and wanted now.
pub(super) fn hurry(
    step: &mut Step<'_>,
    before: Claim,
    new: &NewClaim,
) -> Result<Claim, StoreError> {
    let waits = before.revives.is_some() && before.state == ClaimState::Waiting;
    let Some(solve) = before.solve.filter(|_| waits) else { return Ok(before) };
    let mut claim = before.clone();
    claim.deadline = claim.deadline.min(new.deadline);
    keep::claim(step.tx, &before, &claim)?;
    let solve = keep::named_solve(step.tx, solve)?;
    wanted_now(step, &solve, new.solve)?;
    keep::named_claim(step.tx, claim.id)
}

/// Somebody waits for what was brought back: it is live work from now on. What was never tried starts afresh under
/// another name, because whoever holds it has it in the queue of those that nobody waits for; what was tried before is at
/// the head of that queue.
pub(super) fn wanted_now(
    step: &mut Step<'_>,
    before: &Solve,
    fresh: SolveId,
) -> Result<Solve, StoreError> {
    let Origin::Revived { claim, .. } = before.origin else { return Ok(before.clone()) };
    let mut solve = before.clone();
    solve.origin = Origin::Claim(claim);
    let is_untried = before.stage == Stage::Queued && before.attempt == 0;
    if is_untried {
        (solve.id, solve.opened_at, solve.due) = (fresh, step.now, step.now);
        (solve.fence, solve.holder) = (Fence::default(), None);
    }
    solve.wanted_until = move_claims(step, &solve)?;
    if is_untried {
        rename(step, before, &solve)?;
    } else {
        keep::solve(step.tx, before, &solve)?;
    }
    Ok(solve)
}

/// Lets `after` take the place of a solve that was never tried.
fn rename(step: &mut Step<'_>, before: &Solve, after: &Solve) -> Result<(), StoreError> {
    let mut gone = before.clone();
    gone.claims.clear();
    let events = gone.abandon(own::NOT_NEEDED, step.now);
    step.tell_all(&gone, events);
    keep::solve(step.tx, before, &gone)?;
    let challenge = step.tx.get::<Challenges>(&before.id)?;
    let challenge = challenge.ok_or_else(|| {
        missing(step.tx, "challenges", format!("the challenge of {} is gone", before.id))
    })?;
    step.tx.put::<Challenges>(after.id, challenge)?;
    keep::new_solve(step.tx, after)
}

/// Its claims wait for it under the name it has now; the result is until when.
fn move_claims(step: &mut Step<'_>, solve: &Solve) -> Result<Timestamp, StoreError> {
    let mut until = Timestamp::default();
    for id in &solve.claims {
        let before = keep::named_claim(step.tx, *id)?;
        let claim = Claim { solve: Some(solve.id), ..before.clone() };
        keep::claim(step.tx, &before, &claim)?;
        until = until.max(claim.deadline);
    }
    Ok(until)
}
