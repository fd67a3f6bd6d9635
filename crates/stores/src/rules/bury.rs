//! What becomes of a solve that brings nothing: its claims fail, and a dead letter keeps the cause chain. There is
//! one letter per solve, and none when nobody waited.

use domain::{
    challenge::Sharing,
    claim::{Claim, ClaimState},
    dead_letter::{Closed, Closing, DeadLetter},
    id::{ClaimId, SolveId},
    ledger::Event,
    money::Money,
    ports::StoreError,
    retry::Code,
    solve::Solve,
};

use crate::{
    tables::{DeadLetters, Died},
    tx::{TypedRead, TypedWrite},
};

use super::{
    keep,
    place::Effort,
    step::{About, Step},
};

/// Fails the claims that waited for the solve and keeps a dead letter for them.
pub(super) fn bury(
    step: &mut Step<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
    effort: &Effort,
) -> Result<(), StoreError> {
    for id in claims {
        let before = keep::named_claim(step.tx, *id)?;
        end(step, &before, ClaimState::Failed, Some(code.clone()), effort)?;
    }
    match claims.first() {
        Some(first) => write_letter(step, solve, *first, claims, code),
        None => refresh_letter(step, solve),
    }
}

/// Ends the claims of a solve that could not answer them in time.
pub(super) fn lapse(
    step: &mut Step<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
) -> Result<(), StoreError> {
    for id in claims {
        let before = keep::named_claim(step.tx, *id)?;
        let code = Some(code.clone());
        end(step, &before, ClaimState::Lapsed, code, &Effort::so_far(solve))?;
    }
    Ok(())
}

/// Opens the letter again that the claim was to bring back: it lapsed through no fault of its own, and has none itself.
pub(super) fn put_back(
    step: &mut Step<'_>,
    claim: &Claim,
    trouble: &Code,
) -> Result<(), StoreError> {
    let Some(id) = claim.revives else { return Ok(()) };
    let Some(mut letter) = step.tx.get::<DeadLetters>(&id)? else { return Ok(()) };
    match letter.closed.take() {
        Some(Closed { how: Closing::Revived, .. }) => {
            step.tell(&letter, Event::DeadLetterReopened { code: trouble.clone() });
            step.tx.put::<DeadLetters>(id, letter)
        }
        Some(Closed { how: Closing::LateAnswer, .. }) | None => Ok(()),
    }
}

/// Ends a waiting claim without a token.
pub(super) fn end(
    step: &mut Step<'_>,
    before: &Claim,
    state: ClaimState,
    code: Option<Code>,
    effort: &Effort,
) -> Result<Claim, StoreError> {
    let own = effort.is_for(before.id);
    let mut claim = before.clone();
    claim.state = state;
    claim.code.clone_from(&code);
    claim.ended_at = Some(step.now);
    claim.attempts = effort.attempts;
    claim.polls = effort.polls;
    claim.cost = if own { effort.cost } else { Some(Money::ZERO) };
    step.tell(&claim, Event::Ended { state, code });
    step.ended.push(claim.id);
    keep::claim(step.tx, before, &claim)?;
    Ok(claim)
}

/// Keeps a dead letter for `claims`, or adds to the one that is there.
pub(super) fn write_letter(
    step: &mut Step<'_>,
    solve: &Solve,
    witness: ClaimId,
    claims: &[ClaimId],
    code: &Code,
) -> Result<(), StoreError> {
    if let Some(letter) = step.tx.get::<DeadLetters>(&solve.id)? {
        return die_again(step, letter, solve, claims, code);
    }
    let witness = keep::named_claim(step.tx, witness)?;
    let before = match &witness.revives {
        Some(earlier) => step.tx.get::<DeadLetters>(earlier)?,
        None => None,
    };
    let letter = DeadLetter {
        generation: before.as_ref().map_or(1, |before| before.generation + 1),
        revives: before.as_ref().map(|before| before.id),
        earlier: before.map_or_else(Vec::new, DeadLetter::history),
        id: solve.id,
        claims: claims.to_vec(),
        worker: solve.worker.clone(),
        project: solve.project.clone(),
        kind: solve.kind.clone(),
        sitekey: witness.sitekey,
        pageurl: witness.pageurl,
        code: code.clone(),
        attempts: solve.attempt,
        causes: solve.failures.clone(),
        cost: Effort::so_far(solve).cost,
        died_at: step.now,
        closed: None,
    };
    step.tell(solve, Event::DeadLettered { code: code.clone() });
    step.tx.put::<Died>((step.now, solve.id), ())?;
    step.tx.put::<DeadLetters>(solve.id, letter)
}

/// More claims wanted the solve after it had its letter, in vain.
fn die_again(
    step: &mut Step<'_>,
    mut letter: DeadLetter,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
) -> Result<(), StoreError> {
    step.tx.take::<Died>(&(letter.died_at, letter.id))?;
    step.tx.put::<Died>((step.now, letter.id), ())?;
    letter.died_at = step.now;
    letter.code = code.clone();
    match solve.sharing() {
        // It has one claim at a time, which stands for those before it.
        Sharing::Exclusive => letter.claims = claims.to_vec(),
        Sharing::Bound | Sharing::Shared => letter.claims.extend_from_slice(claims),
    }
    learn(&mut letter, solve);
    if letter.closed.take().is_some() {
        letter.generation += 1;
        step.tell(&letter, Event::DeadLetterReopened { code: code.clone() });
    }
    step.tx.put::<DeadLetters>(letter.id, letter)
}

/// A solve whose claims lapsed earlier has its letter already; what happened since belongs into it.
fn refresh_letter(step: &mut Step<'_>, solve: &Solve) -> Result<(), StoreError> {
    match step.tx.get::<DeadLetters>(&solve.id)? {
        Some(mut letter) if letter.closed.is_none() => {
            learn(&mut letter, solve);
            step.tx.put::<DeadLetters>(solve.id, letter)
        }
        Some(_) | None => Ok(()),
    }
}

/// The answer came after all.
pub(super) fn close_letter(
    step: &mut Step<'_>,
    solve: &Solve,
    id: SolveId,
    price: Option<Money>,
) -> Result<(), StoreError> {
    let Some(mut letter) = step.tx.get::<DeadLetters>(&id)? else { return Ok(()) };
    if letter.closed.is_some() {
        return Ok(());
    }
    if id == solve.id {
        letter.cost = Effort::of(solve, price).cost;
    }
    letter.closed = Some(Closed { at: step.now, how: Closing::LateAnswer, claim: None });
    let mut about = About::from(solve);
    about.solve = Some(id);
    step.tell(about, Event::DeadLetterClosed);
    step.tx.put::<DeadLetters>(id, letter)
}

fn learn(letter: &mut DeadLetter, solve: &Solve) {
    letter.attempts = solve.attempt;
    letter.causes.clone_from(&solve.failures);
    letter.cost = Effort::so_far(solve).cost;
}
