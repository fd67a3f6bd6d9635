//! Revives and purges dead letters. A revived claim is admitted like any other, as the next generation of the old one, with
//! the same key: ten equal dead letters cause one attempt. A solve that is still being harvested is joined, not paid again.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    challenge::Challenge,
    claim::{Admission, Allowance, Claim, ClaimState, KeyRule, NewClaim},
    dead_letter::{Closing, DeadLetter},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId},
    ledger::Event,
    money::Money,
    ports::{Revival, ReviveRequest},
    retry::{Code, own},
    solve::Solve,
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::{Challenges, Claims, DeadLetters, Keys, Solves},
    tx::{ReadTx, TypedRead, TypedWrite},
};

use super::{
    admit::admit_new,
    support::{context::DecisionCtx, dead_letters, indexes, new_claim, pools, secrets},
};

/// A dead letter with the records that its revival needs.
struct DeadSolve {
    letter: DeadLetter,
    solve: Solve,
    challenge: Arc<Challenge>,
}

pub(crate) fn revive(ctx: &mut DecisionCtx<'_>, request: &ReviveRequest) -> Result<Revival> {
    let Some(letter) = ctx.tx.get::<DeadLetters>(&request.letter)? else {
        return Ok(Revival::Unknown);
    };
    // First, because a closed letter may have lost its challenge.
    if let Some(closed) = letter.closed {
        return Ok(Revival::Closed(closed));
    }
    let Some(dead) = find_dead_solve(ctx.tx, letter)? else { return Ok(Revival::Unknown) };
    if is_id_taken(ctx.tx, request)? {
        return Ok(Revival::Back(Admission::NameTaken));
    }
    let Some(first) = revive_claims(ctx, request, &dead)? else {
        return Ok(Revival::Disowned);
    };
    if let Some(claim) = revived_claim(&first) {
        ctx.record(&dead.letter, Event::Revived { by: request.by.name.clone(), claim });
        ctx.administered(&dead.letter, &request.by, AdminAction::Revived { claim });
        dead_letters::put_closed(ctx, dead.letter, (Closing::Revived, Some(claim)))?;
    }
    Ok(Revival::Back(first))
}

pub(crate) fn purge(ctx: &mut DecisionCtx<'_>, id: SolveId, by: &Actor) -> Result<bool> {
    let Some(letter) = dead_letters::delete(ctx.tx, id)? else { return Ok(false) };
    ctx.record(&letter, Event::Purged { by: by.name.clone() });
    ctx.administered(&letter, by, AdminAction::Purged);
    secrets::drop_useless_of(ctx, &letter)?;
    if ctx.tx.get::<Solves>(&id)?.is_none_or(|solve| solve.stage.is_final()) {
        ctx.tx.take::<Challenges>(&id)?;
    }
    Ok(true)
}

fn find_dead_solve(tx: &dyn ReadTx, letter: DeadLetter) -> Result<Option<DeadSolve>> {
    let solve = tx.get::<Solves>(&letter.id)?;
    let challenge = tx.get::<Challenges>(&letter.id)?;
    Ok(solve.zip(challenge).map(|(solve, challenge)| DeadSolve { letter, solve, challenge }))
}

fn is_id_taken(tx: &dyn ReadTx, request: &ReviveRequest) -> Result<bool> {
    let mut taken = tx.has::<Solves>(&request.solve)?;
    for id in &request.claims {
        taken = taken || tx.has::<Claims>(id)?;
    }
    Ok(taken)
}

/// Revives the claims whose workers are configured. Returns the admission of the first claim that was revived, else the
/// first refusal.
fn revive_claims(
    ctx: &mut DecisionCtx<'_>,
    request: &ReviveRequest,
    dead: &DeadSolve,
) -> Result<Option<Admission>> {
    let (mut revived, mut refused) = (None, None);
    let mut left: Vec<_> = dead.letter.claims.iter().zip(&request.claims).collect();
    // Two rounds: a claim whose worker has no budget left can join the solve that another claim opened.
    for _ in 0..2 {
        for (old, fresh) in std::mem::take(&mut left) {
            let Some(claim) = ctx.tx.get::<Claims>(old)? else { continue };
            let Some(allowance) = request.allowances.get(&claim.worker) else { continue };
            let new = next_generation(ctx, (request, *allowance), dead, (&claim, *fresh))?;
            let admission = revive_claim(ctx, dead, &new)?;
            if revived_claim(&admission).is_some() {
                revived.get_or_insert(admission);
            } else {
                refused.get_or_insert(admission);
                left.push((old, fresh));
            }
        }
    }
    Ok(revived.or(refused))
}

fn revived_claim(admission: &Admission) -> Option<ClaimId> {
    match admission {
        Admission::Replayed(claim)
        | Admission::Stocked(claim)
        | Admission::Joined(claim)
        | Admission::Opened(claim)
        | Admission::Started(claim, _) => Some(claim.id),
        Admission::Mismatch(_)
        | Admission::OverBudget(_)
        | Admission::TooLate
        | Admission::NameTaken => None,
    }
}

fn revive_claim(ctx: &mut DecisionCtx<'_>, dead: &DeadSolve, new: &NewClaim) -> Result<Admission> {
    let claim = new_claim::claim_of(new, ctx.now);
    let unattended = indexes::is_unattended(&claim).then_some(claim);
    if let Some(claim) = equivalent_claim(ctx, new, unattended.is_some())? {
        return Ok(Admission::Replayed(claim));
    }
    if !dead.solve.stage.is_final() {
        // It is paid for and may still be answered. An earlier claim of the dead letter may have joined it, so read it again.
        let solve = indexes::existing_solve(ctx.tx, dead.solve.id)?;
        return Ok(Admission::Joined(new_claim::join(ctx, new, &solve)?));
    }
    match unattended {
        Some(claim) if !pools::usable(ctx.tx, new.fingerprint, ctx.now)?.is_empty() => {
            Ok(Admission::Stocked(leave_to_stock(ctx, new, claim)?))
        }
        Some(_) | None => admit_new(ctx, new),
    }
}

/// Ends an unattended claim at once. The stock has a token for the next live claim, and another one would be wasted.
fn leave_to_stock(ctx: &mut DecisionCtx<'_>, new: &NewClaim, mut claim: Claim) -> Result<Claim> {
    (claim.state, claim.ended_at) = (ClaimState::Withdrawn, Some(ctx.now));
    (claim.code, claim.cost) = (Some(Code::from(own::PASSED_ON)), Some(Money::ZERO));
    let ended = Event::Ended { state: claim.state, code: claim.code.clone() };
    ctx.record(&claim, ended);
    new_claim::insert(ctx, new, &claim)?;
    Ok(claim)
}

/// A claim that makes the revival unnecessary: one with the same key, or, for an unattended claim, a live one.
fn equivalent_claim(
    ctx: &DecisionCtx<'_>,
    new: &NewClaim,
    is_unattended: bool,
) -> Result<Option<Claim>> {
    let live = KeyHash::derived(&new.worker, &new.fingerprint);
    let keys = new_claim::key_of(new).into_iter().chain(is_unattended.then_some(live));
    for key in keys {
        let claim = new_claim::claim_by_key(ctx.tx, &key)?;
        if let Some(claim) = claim.filter(|claim| has_or_awaits_token(claim, ctx.now)) {
            return Ok(Some(claim));
        }
    }
    Ok(None)
}

fn has_or_awaits_token(claim: &Claim, now: Timestamp) -> bool {
    match claim.state {
        ClaimState::Waiting => true,
        ClaimState::Served => claim.token.as_ref().is_some_and(|token| token.is_usable(now)),
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => false,
    }
}

/// The next generation of a claim. It takes over the key of the old claim. Without one, it gets a key derived from its
/// challenge, so that equal dead letters are revived as one claim.
fn next_generation(
    ctx: &DecisionCtx<'_>,
    (request, allowance): (&ReviveRequest, Allowance),
    dead: &DeadSolve,
    (old, fresh): (&Claim, ClaimId),
) -> Result<NewClaim> {
    let derived = KeyHash::derived(&old.worker, &old.fingerprint);
    let hash = KeyHash::revived(&old.worker, &old.fingerprint);
    let key = match old.key.filter(|key| ![derived, hash].contains(key)) {
        Some(key) if still_has_key(ctx, &key, old)? => KeyRule::Named(key),
        Some(_) | None => KeyRule::Derived { hash, window: Duration::ZERO },
    };
    Ok(NewClaim {
        id: fresh,
        solve: request.solve,
        worker: old.worker.clone(),
        project: old.project.clone(),
        door: old.door,
        challenge: Arc::clone(&dead.challenge),
        fingerprint: old.fingerprint,
        basis: Arc::clone(&request.basis),
        key,
        deadline: request.deadline,
        price: request.price,
        allowance,
        account: request.account,
        policy: request.policy,
        collect: false,
        callback_url: old.callback_url.clone(),
        soonest: ctx.now,
        revives: Some(dead.letter.id),
        reopens_after: None,
        reopened: 0,
        start: None,
    })
}

/// Whether the key belongs to this claim or to a later generation of it.
fn still_has_key(ctx: &DecisionCtx<'_>, key: &KeyHash, old: &Claim) -> Result<bool> {
    let row = ctx.tx.get::<Keys>(key)?;
    Ok(row.is_none_or(|row| row.claim == old.id || row.fingerprint == old.fingerprint))
}
