//! Records refusals and reports. A claim's first report counts: it teaches the margin of the site, and a bad report about a
//! shared answer takes the answer out of stock.

use domain::{
    challenge::Sharing,
    claim::Claim,
    ledger::Event,
    ports::{Feedback, Note},
    time::Timestamp,
};

use crate::{
    Result,
    schema::tables::{Claims, Expiries, Stock},
    tx::{TypedRead, TypedWrite, WriteTx},
};

use super::support::{
    context::{Attribution, DecisionCtx},
    indexes, margin,
};

/// Records the note; `false` when it repeats a report.
pub(crate) fn note(tx: &mut dyn WriteTx, note: &Note, now: Timestamp) -> Result<bool> {
    let known = match note.claim {
        Some(id) => tx.get::<Claims>(&id)?,
        None => None,
    };
    if let (Some(claim), Event::Reported { good }) = (&known, &note.event)
        && !report(tx, claim, *good)?
    {
        return Ok(false);
    }
    let about = Attribution {
        claim: note.claim,
        solve: known.and_then(|claim| claim.solve),
        worker: note.worker.clone(),
        project: note.project.clone(),
        kind: note.kind.clone(),
    };
    let mut ctx = DecisionCtx::new(tx, now);
    ctx.record(about, note.event.clone());
    ctx.finish()?;
    Ok(true)
}

/// Takes a claim's first report; `false` for any later one.
fn report(tx: &mut dyn WriteTx, claim: &Claim, good: bool) -> Result<bool> {
    if claim.report.is_some() {
        return Ok(false);
    }
    let feedback = if good { Feedback::Good } else { Feedback::Bad };
    if !good {
        discard_shared_answer(tx, claim)?;
    }
    margin::learn(tx, claim, feedback)?;
    let reported = Claim { report: Some(feedback), ..claim.clone() };
    indexes::update_claim(tx, claim, &reported)?;
    Ok(true)
}

/// Takes a shared answer out of stock. An exclusive one left the stock when it was assigned.
fn discard_shared_answer(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(token) = &claim.token else { return Ok(()) };
    if claim.kind.sharing() == Sharing::Exclusive {
        return Ok(());
    }
    tx.take::<Stock>(&(claim.fingerprint, token.usable_until, token.solve))?;
    tx.take::<Expiries>(&(token.usable_until, claim.fingerprint, token.solve))?;
    Ok(())
}
