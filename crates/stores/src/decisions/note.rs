//! Records refusals and reports. A claim's first report counts: it teaches the margin of the site, and a bad report about a
//! shared answer takes the answer out of stock.

use domain::{
    admin_action::AdminAction,
    challenge::Sharing,
    claim::Claim,
    ledger::Event,
    ports::{Feedback, Note},
};

use crate::{
    Result,
    schema::tables::Claims,
    tx::{TypedRead, WriteTx},
};

use super::support::{
    context::{Attribution, DecisionCtx},
    indexes, margin, pools, repeats,
};

/// Records the note, unless it repeats a report; `false` when the provider has a report about the task.
pub(crate) fn note(ctx: &mut DecisionCtx<'_>, note: &Note) -> Result<bool> {
    let known = note.claim.map(|id| ctx.tx.get::<Claims>(&id)).transpose()?.flatten();
    let mut is_news = true;
    if let (Some(claim), Event::Reported { good }) = (&known, &note.event) {
        if !report(ctx.tx, claim, *good)? {
            return Ok(false);
        }
        // Several claims may share one task. The provider counts reports per task, and bans accounts that send too many.
        if let Some(token) = &claim.token {
            is_news = repeats::mark_reported(ctx.tx, &token.task)?;
        }
    }
    let about = Attribution {
        claim: note.claim,
        solve: known.and_then(|claim| claim.solve),
        worker: note.worker.clone(),
        project: note.project.clone(),
        kind: note.kind.clone(),
    };
    ctx.record(about.clone(), note.event.clone());
    if let (Some(by), Event::Reported { good }) = (&note.by, &note.event) {
        ctx.administered(about, by, AdminAction::Reported { good: *good });
    }
    Ok(is_news)
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
    match &claim.token {
        Some(token) if claim.kind.sharing() != Sharing::Exclusive => {
            pools::take_stock(tx, (token.usable_until, claim.fingerprint, token.solve)).map(drop)
        }
        Some(_) | None => Ok(()),
    }
}
