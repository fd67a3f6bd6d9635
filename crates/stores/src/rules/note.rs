//! Entries about refusals and reports. A report counts once, teaches the site's margin, and a bad one spoils a shared
//! answer: it serves nobody else.

use domain::{
    challenge::Sharing,
    claim::Claim,
    ledger::Event,
    ports::{Feedback, Note, StoreError},
    time::Timestamp,
};

use crate::{
    shelf::ShelfMut,
    tables::{Claims, Expiries, Stock},
};

use super::{
    keep, margin,
    step::{About, Step},
};

/// Writes the entry.
pub(crate) fn note<S: ShelfMut>(
    shelf: &mut S,
    note: &Note,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let known = match note.claim {
        Some(id) => shelf.get::<Claims>(&id)?,
        None => None,
    };
    if let (Some(claim), Event::Reported { good }) = (&known, &note.event)
        && !report(shelf, claim, *good)?
    {
        return Ok(false);
    }
    let about = About {
        claim: note.claim,
        solve: known.and_then(|claim| claim.solve),
        worker: note.worker.clone(),
        project: note.project.clone(),
        kind: note.kind.clone(),
    };
    let mut step = Step::new(shelf, now);
    step.tell(about, note.event.clone());
    step.finish()?;
    Ok(true)
}

/// Takes a claim's first report; `false` for any later one.
fn report<S: ShelfMut>(shelf: &mut S, claim: &Claim, good: bool) -> Result<bool, StoreError> {
    if claim.report.is_some() {
        return Ok(false);
    }
    let feedback = if good { Feedback::Good } else { Feedback::Bad };
    if !good {
        spoil(shelf, claim)?;
    }
    margin::learn(shelf, claim, feedback)?;
    let told = Claim { report: Some(feedback), ..claim.clone() };
    keep::claim(shelf, claim, &told)?;
    Ok(true)
}

/// Takes a shared answer out of stock. An exclusive one is not there any more.
fn spoil<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    let Some(token) = &claim.token else { return Ok(()) };
    if claim.kind.sharing() == Sharing::Exclusive {
        return Ok(());
    }
    shelf.take::<Stock>(&(claim.fingerprint, token.usable_until, token.solve))?;
    shelf.take::<Expiries>(&(token.usable_until, claim.fingerprint, token.solve))?;
    Ok(())
}
