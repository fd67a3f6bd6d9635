//! Entries about refusals and reports. A bad report also spoils a shared answer: it serves nobody else.

use domain::{
    challenge::Sharing,
    claim::Claim,
    ledger::Event,
    ports::{Note, StoreError},
    time::Timestamp,
};

use crate::{
    shelf::ShelfMut,
    tables::{Claims, Expiries, Stock},
};

use super::step::{About, Step};

/// Writes the entry.
pub(crate) fn note<S: ShelfMut>(
    shelf: &mut S,
    note: &Note,
    now: Timestamp,
) -> Result<(), StoreError> {
    let known = match note.claim {
        Some(id) => shelf.get::<Claims>(&id)?,
        None => None,
    };
    if let (Some(claim), Event::Reported { good: false }) = (&known, &note.event) {
        spoil(shelf, claim)?;
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
    step.finish()
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
