//! What people do with dead letters. One that is brought back comes in like any claim, as the next generation of its own:
//! the same key, the same rules of uniqueness, so ten equal letters make one attempt. What is still being harvested is
//! waited for rather than paid again.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Challenge,
    claim::{Admission, Allowance, Claim, ClaimState, KeyRule, NewClaim},
    dead_letter::{Closed, Closing, DeadLetter},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId, WorkerName},
    ledger::Event,
    money::Money,
    ports::{Revival, Revive, StoreError},
    retry::{Code, own},
    solve::Solve,
    time::Timestamp,
};

use crate::{
    keys::KeyBytes,
    tables::{Challenges, Claims, DeadLetters, Died, Keys, Solves},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    admit::{claim_of, decide_new, join, key_of, remember},
    hurry::is_for_nobody,
    pools,
    step::Step,
};

/// What a letter is brought back from.
struct Grave {
    letter: DeadLetter,
    solve: Solve,
    challenge: Arc<Challenge>,
}

/// Brings a dead letter back.
pub(crate) fn revive(
    tx: &mut dyn WriteTx,
    ask: &Revive,
    now: Timestamp,
) -> Result<Revival, StoreError> {
    let Some(mut grave) = open_grave(tx, ask.letter)? else { return Ok(Revival::Unknown) };
    if let Some(closed) = grave.letter.closed {
        return Ok(Revival::Closed(closed));
    }
    if is_name_taken(tx, ask)? {
        return Ok(Revival::Back(Admission::NameTaken));
    }
    let mut step = Step::new(tx, now);
    let Some(first) = all_come_back(&mut step, ask, &grave)? else { return Ok(Revival::Disowned) };
    if let Some(claim) = came_back_as(&first) {
        grave.letter.closed = Some(Closed { at: now, how: Closing::Revived, claim: Some(claim) });
        step.tell(&grave.letter, Event::Revived { by: ask.by.clone(), claim });
        step.tx.put::<DeadLetters>(ask.letter, grave.letter)?;
    }
    step.finish()?;
    Ok(Revival::Back(first))
}

/// Throws a dead letter away.
pub(crate) fn purge(
    tx: &mut dyn WriteTx,
    id: SolveId,
    by: WorkerName,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(letter) = tx.take::<DeadLetters>(&id)? else { return Ok(false) };
    tx.take::<Died>(&(letter.died_at, id))?;
    let mut step = Step::new(tx, now);
    step.tell(&letter, Event::Purged { by });
    step.finish()?;
    Ok(true)
}

fn open_grave(tx: &dyn ReadTx, id: SolveId) -> Result<Option<Grave>, StoreError> {
    let (letter, solve) = (tx.get::<DeadLetters>(&id)?, tx.get::<Solves>(&id)?);
    let challenge = tx.get::<Challenges>(&id)?;
    let (Some(letter), Some(solve), Some(challenge)) = (letter, solve, challenge) else {
        return Ok(None);
    };
    Ok(Some(Grave { letter, solve, challenge }))
}

fn is_name_taken(tx: &dyn ReadTx, ask: &Revive) -> Result<bool, StoreError> {
    let mut taken = tx.has::<Solves>(&ask.solve)?;
    for id in &ask.claims {
        taken = taken || tx.has::<Claims>(id)?;
    }
    Ok(taken)
}

/// Brings back the claims whose workers are there. The result is what became of the first that came back, else of the
/// first at all.
fn all_come_back(
    step: &mut Step<'_>,
    ask: &Revive,
    grave: &Grave,
) -> Result<Option<Admission>, StoreError> {
    let (mut back, mut refused) = (None, None);
    let mut left: Vec<_> = grave.letter.claims.iter().zip(&ask.claims).collect();
    // Twice: a claim whose worker may open nothing today can wait for what another's has opened.
    for _ in 0..2 {
        for (old, fresh) in std::mem::take(&mut left) {
            let Some(claim) = step.tx.get::<Claims>(old)? else { continue };
            let Some(allowance) = ask.allowances.get(&claim.worker) else { continue };
            let new = next_generation(step, (ask, *allowance), grave, (&claim, *fresh))?;
            let admission = come_back(step, grave, &new)?;
            if came_back_as(&admission).is_some() {
                back.get_or_insert(admission);
            } else {
                refused.get_or_insert(admission);
                left.push((old, fresh));
            }
        }
    }
    Ok(back.or(refused))
}

fn came_back_as(admission: &Admission) -> Option<ClaimId> {
    match admission {
        Admission::Replayed(claim)
        | Admission::Stocked(claim)
        | Admission::Joined(claim)
        | Admission::Opened(claim) => Some(claim.id),
        Admission::Mismatch(_)
        | Admission::OverBudget { .. }
        | Admission::TooLate
        | Admission::NameTaken => None,
    }
}

fn come_back(step: &mut Step<'_>, grave: &Grave, new: &NewClaim) -> Result<Admission, StoreError> {
    let idle = claim_of(new, step.now);
    let idle = is_for_nobody(&idle).then_some(idle);
    if let Some(claim) = one_like_it(step, new, idle.is_some())? {
        return Ok(Admission::Replayed(claim));
    }
    if !grave.solve.stage.is_final() {
        // It is paid for and may still bring its answer. Read again: an earlier claim of the letter may have joined it.
        let solve = super::keep::named_solve(step.tx, grave.solve.id)?;
        return Ok(Admission::Joined(join(step, new, &solve)?));
    }
    match idle {
        Some(idle) if !pools::usable(step.tx, new.fingerprint, step.now)?.is_empty() => {
            Ok(Admission::Stocked(leave_in_stock(step, new, idle)?))
        }
        Some(_) | None => decide_new(step, new),
    }
}

/// There is a token for whoever comes: one more would be for nobody.
fn leave_in_stock(
    step: &mut Step<'_>,
    new: &NewClaim,
    mut claim: Claim,
) -> Result<Claim, StoreError> {
    (claim.state, claim.ended_at) = (ClaimState::Withdrawn, Some(step.now));
    (claim.code, claim.cost) = (Some(Code::from(own::PASSED_ON)), Some(Money::ZERO));
    let ended = Event::Ended { state: claim.state, code: claim.code.clone() };
    step.tell(&claim, ended);
    remember(step, new, &claim)?;
    Ok(claim)
}

/// The claim that makes bringing this one back needless: under its key, or, when nobody waits for it, a live one.
fn one_like_it(
    step: &Step<'_>,
    new: &NewClaim,
    is_idle: bool,
) -> Result<Option<Claim>, StoreError> {
    let live = KeyHash::derived(&new.worker, &new.fingerprint);
    let keys = key_of(new).into_iter().chain(is_idle.then_some(live));
    for key in keys {
        let holder = holder_of_key(step, &key)?;
        if let Some(claim) = holder.filter(|claim| is_good(claim, step.now)) {
            return Ok(Some(claim));
        }
    }
    Ok(None)
}

/// Whether a claim under the same key makes bringing another one back needless.
fn is_good(claim: &Claim, now: Timestamp) -> bool {
    match claim.state {
        ClaimState::Waiting => true,
        ClaimState::Served => claim.token.as_ref().is_some_and(|token| token.is_usable(now)),
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => false,
    }
}

fn holder_of_key(step: &Step<'_>, key: &KeyHash) -> Result<Option<Claim>, StoreError> {
    match step.tx.get::<Keys>(&KeyBytes::from(key))? {
        Some(row) => step.tx.get::<Claims>(&row.claim),
        None => Ok(None),
    }
}

/// The claim once more. It takes over its own key; one that had none, or lost it, is known to other letters by its
/// challenge, so that equal ones come back as one.
fn next_generation(
    step: &Step<'_>,
    (ask, allowance): (&Revive, Allowance),
    grave: &Grave,
    (old, fresh): (&Claim, ClaimId),
) -> Result<NewClaim, StoreError> {
    let derived = KeyHash::derived(&old.worker, &old.fingerprint);
    let hash = KeyHash::revived(&old.worker, &old.fingerprint);
    let key = match old.key.filter(|key| ![derived, hash].contains(key)) {
        Some(key) if is_still_its_own(step, &key, old)? => KeyRule::Named(key),
        Some(_) | None => KeyRule::Derived { hash, window: Duration::ZERO },
    };
    Ok(NewClaim {
        id: fresh,
        solve: ask.solve,
        worker: old.worker.clone(),
        project: old.project.clone(),
        door: old.door,
        challenge: Arc::clone(&grave.challenge),
        fingerprint: old.fingerprint,
        basis: Arc::clone(&ask.basis),
        key,
        deadline: ask.deadline,
        price: ask.price,
        allowance,
        policy: ask.policy,
        collect: false,
        callback_url: old.callback_url.clone(),
        soonest: step.now,
        revives: Some(grave.letter.id),
    })
}

/// Whether the key stands for this claim, or for a later generation of it.
fn is_still_its_own(step: &Step<'_>, key: &KeyHash, old: &Claim) -> Result<bool, StoreError> {
    let row = step.tx.get::<Keys>(&KeyBytes::from(key))?;
    Ok(row.is_none_or(|row| row.claim == old.id || row.fingerprint == old.fingerprint))
}
