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
    tables::{Claims, Expiries, Stock},
    tx::{TypedRead, TypedWrite, WriteTx},
};

use super::{
    keep, margin,
    step::{About, Step},
};

/// Writes the entry.
pub(crate) fn note(tx: &mut dyn WriteTx, note: &Note, now: Timestamp) -> Result<bool, StoreError> {
    let known = match note.claim {
        Some(id) => tx.get::<Claims>(&id)?,
        None => None,
    };
    if let (Some(claim), Event::Reported { good }) = (&known, &note.event)
        && !report(tx, claim, *good)?
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
    let mut step = Step::new(tx, now);
    step.tell(about, note.event.clone());
    step.finish()?;
    Ok(true)
}

/// Takes a claim's first report; `false` for any later one.
fn report(tx: &mut dyn WriteTx, claim: &Claim, good: bool) -> Result<bool, StoreError> {
    if claim.report.is_some() {
        return Ok(false);
    }
    let feedback = if good { Feedback::Good } else { Feedback::Bad };
    if !good {
        spoil(tx, claim)?;
    }
    margin::learn(tx, claim, feedback)?;
    let told = Claim { report: Some(feedback), ..claim.clone() };
    keep::claim(tx, claim, &told)?;
    Ok(true)
}

/// Takes a shared answer out of stock. An exclusive one is not there any more.
fn spoil(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let Some(token) = &claim.token else { return Ok(()) };
    if claim.kind.sharing() == Sharing::Exclusive {
        return Ok(());
    }
    tx.take::<Stock>(&(claim.fingerprint, token.usable_until, token.solve))?;
    tx.take::<Expiries>(&(token.usable_until, claim.fingerprint, token.solve))?;
    Ok(())
}
