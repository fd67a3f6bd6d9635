//! Dead letters: a failed solve has one, which keeps the causes of the failure, and so has one whose claims lapsed before
//! anything was paid for it. A solve that no claim waited for has none.

use domain::{
    challenge::Sharing,
    claim::Claim,
    dead_letter::{Closed, Closing, DeadLetter, DeadLetterClass},
    id::{ClaimId, SolveId},
    ledger::Event,
    money::Money,
    retry::Code,
    solve::Solve,
};

use crate::{
    Result,
    schema::tables::{Challenges, Claims, DeadLetters, Died},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::{
    context::{Attribution, DecisionCtx},
    effort::Effort,
    indexes,
};

/// Writes the dead letter of a solve for `claims`, or adds them to the one it has. `witness` is the claim whose page the
/// dead letter shows.
pub(crate) fn write(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    witness: ClaimId,
    claims: &[ClaimId],
    (class, code): (DeadLetterClass, &Code),
) -> Result<()> {
    if let Some(letter) = ctx.tx.get::<DeadLetters>(&solve.id)? {
        return add_claims(ctx, DeadLetter { class, ..letter }, solve, claims, code);
    }
    let witness = indexes::existing_claim(ctx.tx, witness)?;
    let before = witness.revives.map(|earlier| ctx.tx.get::<DeadLetters>(&earlier));
    let before = before.transpose()?.flatten();
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
        cost: Effort::without_answer(solve).cost,
        died_at: ctx.now,
        closed: None,
        class,
    };
    ctx.record(solve, Event::DeadLettered { code: code.clone() });
    put(ctx.tx, letter)
}

/// Writes the dead letter of claims that lapsed, because of `code`. If nothing was paid for them, a claim that revives a dead
/// letter opens that one again, and the others can be revived under a letter of their own.
pub(crate) fn write_lapsed(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
) -> Result<()> {
    if !solve.is_unpaid() {
        let class = DeadLetterClass::Failed;
        return match claims.first() {
            Some(first) => write(ctx, solve, *first, claims, (class, code)),
            None => Ok(()),
        };
    }
    let mut own = Vec::new();
    for id in claims {
        let claim = indexes::existing_claim(ctx.tx, *id)?;
        if !reopen(ctx, &claim, code)? {
            own.push(*id);
        }
    }
    match own.first() {
        Some(first) => write(ctx, solve, *first, &own, (DeadLetterClass::Lapsed, code)),
        None => Ok(()),
    }
}

/// More claims joined the solve after it had its dead letter, and failed, too.
fn add_claims(
    ctx: &mut DecisionCtx<'_>,
    mut letter: DeadLetter,
    solve: &Solve,
    claims: &[ClaimId],
    code: &Code,
) -> Result<()> {
    ctx.tx.take::<Died>(&(letter.died_at, letter.id))?;
    letter.died_at = ctx.now;
    letter.code = code.clone();
    match solve.sharing() {
        // An exclusive solve has one claim at a time, and the last one stands for those before it.
        Sharing::Exclusive => letter.claims = claims.to_vec(),
        Sharing::Bound | Sharing::Shared => letter.claims.extend_from_slice(claims),
    }
    update_causes(&mut letter, solve);
    if letter.closed.take().is_some() {
        letter.generation += 1;
        ctx.record(&letter, Event::DeadLetterReopened { code: code.clone() });
    }
    put(ctx.tx, letter)
}

/// Adds the latest failures to the open dead letter of a solve whose claims lapsed earlier.
pub(crate) fn refresh(ctx: &mut DecisionCtx<'_>, solve: &Solve) -> Result<()> {
    match ctx.tx.get::<DeadLetters>(&solve.id)? {
        Some(mut letter) if letter.closed.is_none() => {
            update_causes(&mut letter, solve);
            ctx.tx.put::<DeadLetters>(solve.id, letter)
        }
        Some(_) | None => Ok(()),
    }
}

/// Closes the dead letter `id`, because `solve` got its answer after all.
pub(crate) fn close(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    id: SolveId,
    price: Option<Money>,
) -> Result<()> {
    let Some(mut letter) = ctx.tx.get::<DeadLetters>(&id)? else { return Ok(()) };
    if letter.closed.is_some() {
        return Ok(());
    }
    if id == solve.id {
        letter.cost = Effort::with_answer(solve, price).cost;
    }
    let about = Attribution { solve: Some(id), ..Attribution::from(solve) };
    ctx.record(about, Event::DeadLetterClosed);
    put_closed(ctx, letter, (Closing::LateAnswer, None))
}

/// Writes a letter as closed, and schedules the deletion of its challenge, whose proxy and cookies nobody needs then.
pub(crate) fn put_closed(
    ctx: &mut DecisionCtx<'_>,
    mut letter: DeadLetter,
    (how, claim): (Closing, Option<ClaimId>),
) -> Result<()> {
    letter.closed = Some(Closed { at: ctx.now, how, claim });
    indexes::schedule_challenge_deletion(ctx.tx, letter.id, ctx.now)?;
    ctx.tx.put::<DeadLetters>(letter.id, letter)
}

/// Whether the letter is open, or may be opened again: by the end of the claim that revived it.
pub(crate) fn can_be_revived(tx: &dyn ReadTx, letter: &DeadLetter) -> Result<bool> {
    match letter.closed {
        None => Ok(true),
        Some(Closed { how: Closing::LateAnswer, .. }) => Ok(false),
        Some(Closed { how: Closing::Revived, claim, .. }) => {
            let successor = claim.map(|id| tx.get::<Claims>(&id)).transpose()?.flatten();
            Ok(successor.is_some_and(|claim| !claim.state.is_final()))
        }
    }
}

/// Takes a claim that its worker's key opens again off its dead letter, so that reviving the letter does not pay for it a
/// second time. A letter without another claim is closed as revived.
pub(crate) fn take_over(ctx: &mut DecisionCtx<'_>, claim: &Claim) -> Result<()> {
    for id in ids_for(claim) {
        let Some(mut letter) = ctx.tx.get::<DeadLetters>(&id)? else { continue };
        if letter.closed.is_some() || !letter.claims.contains(&claim.id) {
            continue;
        }
        if letter.claims.len() > 1 {
            letter.claims.retain(|other| *other != claim.id);
            ctx.tx.put::<DeadLetters>(id, letter)?;
        } else {
            let by = claim.worker.clone();
            ctx.record(&letter, Event::Revived { by, claim: claim.id });
            put_closed(ctx, letter, (Closing::Revived, Some(claim.id)))?;
        }
    }
    Ok(())
}

/// The dead letter that the next generation of a claim continues.
pub(crate) fn latest(tx: &dyn ReadTx, claim: &Claim) -> Result<Option<SolveId>> {
    for id in ids_for(claim) {
        if tx.has::<DeadLetters>(&id)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Its own dead letter, and the one that it revived.
fn ids_for(claim: &Claim) -> impl Iterator<Item = SolveId> + use<> {
    claim.solve.into_iter().chain(claim.revives)
}

/// Reopens the dead letter that a claim revived, as it was: nothing was tried since. `false` when there is none to reopen,
/// because it was purged, or answered late, or stayed open for other claims, or has lost its challenge.
fn reopen(ctx: &mut DecisionCtx<'_>, claim: &Claim, code: &Code) -> Result<bool> {
    let Some(id) = claim.revives else { return Ok(false) };
    let Some(mut letter) = ctx.tx.get::<DeadLetters>(&id)? else { return Ok(false) };
    // Its challenge waits for the end of one of the claims that revived it only. The others get a letter of their own.
    if letter.closed.is_some() && !ctx.tx.has::<Challenges>(&id)? {
        return Ok(false);
    }
    match letter.closed.take() {
        Some(Closed { how: Closing::Revived, .. }) => {
            ctx.record(&letter, Event::DeadLetterReopened { code: code.clone() });
            ctx.tx.put::<DeadLetters>(id, letter)?;
            Ok(true)
        }
        Some(Closed { how: Closing::LateAnswer, .. }) => Ok(false),
        // Another claim of it lapsed just before, unless this one was taken off it.
        None => Ok(claim.reopened == 0 || letter.claims.contains(&claim.id)),
    }
}

/// Writes a dead letter and its index.
pub(crate) fn put(tx: &mut dyn WriteTx, letter: DeadLetter) -> Result<()> {
    tx.put::<Died>((letter.died_at, letter.id), ())?;
    tx.put::<DeadLetters>(letter.id, letter)
}

/// Deletes a dead letter and its index.
pub(crate) fn delete(tx: &mut dyn WriteTx, id: SolveId) -> Result<Option<DeadLetter>> {
    let deleted = tx.take::<DeadLetters>(&id)?;
    if let Some(letter) = &deleted {
        tx.take::<Died>(&(letter.died_at, id))?;
    }
    Ok(deleted)
}

fn update_causes(letter: &mut DeadLetter, solve: &Solve) {
    letter.attempts = solve.attempt;
    letter.causes.clone_from(&solve.failures);
    letter.cost = Effort::without_answer(solve).cost;
}
