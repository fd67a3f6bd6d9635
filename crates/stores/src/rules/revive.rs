//! What people do with dead letters. One that is brought back comes in like any claim, as the next generation of its own:
//! the same key, the same rules of uniqueness, so ten equal letters make one attempt. What is still being harvested is
//! waited for rather than paid again.

use std::sync::Arc;

use domain::{
    challenge::Challenge,
    claim::{Admission, Claim, ClaimState, KeyRule, NewClaim},
    dead_letter::{Closed, Closing, DeadLetter},
    fingerprint::KeyHash,
    id::{ClaimId, SolveId, WorkerName},
    ledger::Event,
    ports::{Revival, Revive, StoreError},
    solve::Solve,
    time::Timestamp,
};

use crate::{
    shelf::{KeyBytes, ShelfMut},
    tables::{Challenges, Claims, DeadLetters, Died, Keys, Solves},
};

use super::{
    admit::{decide_new, join},
    step::Step,
};

/// What a letter is brought back from.
struct Grave {
    letter: DeadLetter,
    solve: Solve,
    challenge: Arc<Challenge>,
}

/// Brings a dead letter back.
pub(crate) fn revive<S: ShelfMut>(
    shelf: &mut S,
    ask: &Revive,
    now: Timestamp,
) -> Result<Revival, StoreError> {
    let Some(mut grave) = open_grave(shelf, ask.letter)? else { return Ok(Revival::Unknown) };
    if let Some(closed) = grave.letter.closed {
        return Ok(Revival::Closed(closed));
    }
    if is_name_taken(shelf, ask)? {
        return Ok(Revival::Back(Admission::NameTaken));
    }
    let mut step = Step::new(shelf, now);
    let mut first = None;
    for (old, fresh) in grave.letter.claims.iter().zip(&ask.claims) {
        let Some(old) = step.shelf.get::<Claims>(old)? else { continue };
        let new = next_generation(&step, ask, &grave, (&old, *fresh))?;
        let admission = come_back(&mut step, &grave, &new)?;
        first = first.or(Some(admission));
    }
    let Some(first) = first else { return Ok(Revival::Unknown) };
    if let Some(claim) = came_back_as(&first) {
        grave.letter.closed = Some(Closed { at: now, how: Closing::Revived, claim: Some(claim) });
        step.tell(&grave.letter, Event::Revived { by: ask.by.clone(), claim });
        step.shelf.put::<DeadLetters>(ask.letter, grave.letter)?;
    }
    step.finish()?;
    Ok(Revival::Back(first))
}

/// Throws a dead letter away.
pub(crate) fn purge<S: ShelfMut>(
    shelf: &mut S,
    id: SolveId,
    by: WorkerName,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(letter) = shelf.take::<DeadLetters>(&id)? else { return Ok(false) };
    shelf.take::<Died>(&(letter.died_at, id))?;
    let mut step = Step::new(shelf, now);
    step.tell(&letter, Event::Purged { by });
    step.finish()?;
    Ok(true)
}

fn open_grave<S: ShelfMut>(shelf: &S, id: SolveId) -> Result<Option<Grave>, StoreError> {
    let (letter, solve) = (shelf.get::<DeadLetters>(&id)?, shelf.get::<Solves>(&id)?);
    let challenge = shelf.get::<Challenges>(&id)?;
    let (Some(letter), Some(solve), Some(challenge)) = (letter, solve, challenge) else {
        return Ok(None);
    };
    Ok(Some(Grave { letter, solve, challenge }))
}

fn is_name_taken<S: ShelfMut>(shelf: &S, ask: &Revive) -> Result<bool, StoreError> {
    let mut taken = shelf.has::<Solves>(&ask.solve)?;
    for id in &ask.claims {
        taken = taken || shelf.has::<Claims>(id)?;
    }
    Ok(taken)
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

fn come_back<S: ShelfMut>(
    step: &mut Step<'_, S>,
    grave: &Grave,
    new: &NewClaim,
) -> Result<Admission, StoreError> {
    if let Some(claim) = holder_of_key(step, &new.key)?.filter(|claim| is_good(claim, step.now)) {
        return Ok(Admission::Replayed(claim));
    }
    if !grave.solve.stage.is_final() {
        // It is paid for and may still bring its answer. Read again: an earlier claim of the letter may have joined it.
        let solve = super::keep::named_solve(step.shelf, grave.solve.id)?;
        return Ok(Admission::Joined(join(step, new, &solve)?));
    }
    decide_new(step, new)
}

/// Whether a claim under the same key makes bringing another one back needless.
fn is_good(claim: &Claim, now: Timestamp) -> bool {
    match claim.state {
        ClaimState::Waiting => true,
        ClaimState::Served => claim.token.as_ref().is_some_and(|token| token.is_usable(now)),
        ClaimState::Failed | ClaimState::Withdrawn | ClaimState::Lapsed => false,
    }
}

fn holder_of_key<S: ShelfMut>(
    step: &Step<'_, S>,
    key: &KeyRule,
) -> Result<Option<Claim>, StoreError> {
    let (KeyRule::Named(hash) | KeyRule::Derived { hash, .. }) = key else { return Ok(None) };
    match step.shelf.get::<Keys>(&KeyBytes::from(hash))? {
        Some(row) => step.shelf.get::<Claims>(&row.claim),
        None => Ok(None),
    }
}

/// The claim once more. It takes over its own key; one that had none, or lost it, is known by its challenge, so that
/// equal letters come back as one.
fn next_generation<S: ShelfMut>(
    step: &Step<'_, S>,
    ask: &Revive,
    grave: &Grave,
    (old, fresh): (&Claim, ClaimId),
) -> Result<NewClaim, StoreError> {
    let derived = KeyHash::derived(&old.worker, &old.fingerprint);
    let key = match old.key.filter(|key| *key != derived) {
        Some(key) if is_still_its_own(step, &key, old)? => KeyRule::Named(key),
        Some(_) | None => KeyRule::Derived { hash: derived, window: ask.window },
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
        allowance: ask.allowance,
        policy: ask.policy,
        collect: false,
        callback_url: old.callback_url.clone(),
        soonest: step.now,
        revives: Some(grave.letter.id),
    })
}

/// Whether the key stands for this claim, or for a later generation of it.
fn is_still_its_own<S: ShelfMut>(
    step: &Step<'_, S>,
    key: &KeyHash,
    old: &Claim,
) -> Result<bool, StoreError> {
    let row = step.shelf.get::<Keys>(&KeyBytes::from(key))?;
    Ok(row.is_none_or(|row| row.claim == old.id || row.fingerprint == old.fingerprint))
}
