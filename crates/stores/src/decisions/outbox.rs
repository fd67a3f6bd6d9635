//! The callback outbox: the ends of claims that are sent to the workers' own addresses. A callback leaves the outbox when
//! its receiver accepted it, or after a day.

use domain::{callback::Callback, id::ClaimId, ledger::Event};

use crate::{
    Result,
    schema::keys::up_to,
    schema::tables::{Callbacks, Claims, Outbox},
    tx::{Order, TypedRead},
};

use super::support::{callbacks as rows, context::DecisionCtx, secrets};

/// Takes the callbacks that are due. Each counts as tried, and is scheduled for its next try.
pub(crate) fn callbacks(ctx: &mut DecisionCtx<'_>, limit: usize) -> Result<Vec<Callback>> {
    let due = ctx.tx.scan::<Outbox>(up_to(ctx.now), Order::Rising, limit)?;
    let mut taken = Vec::with_capacity(due.len());
    for ((_, id), ()) in due {
        let Some(mut callback) = rows::remove(ctx.tx, id)? else { continue };
        if callback.is_over(ctx.now) {
            let tries = callback.tries;
            rows::finish(ctx.tx, callback, ctx.now)?;
            record(ctx, id, Event::CallbackDropped { tries })?;
            continue;
        }
        callback.try_now(ctx.now);
        rows::put(ctx.tx, callback.clone())?;
        taken.push(callback);
    }
    Ok(taken)
}

/// Removes a callback that its receiver accepted. A callback for a later end of the same claim stays.
pub(crate) fn called_back(ctx: &mut DecisionCtx<'_>, sent: &Callback) -> Result<()> {
    match ctx.tx.get::<Callbacks>(&sent.claim)? {
        Some(callback) if callback.is_about_end_of(sent) => {
            rows::finish(ctx.tx, callback, ctx.now)?;
        }
        Some(_) | None => return Ok(()),
    }
    record(ctx, sent.claim, Event::CalledBack { tries: sent.tries })
}

fn record(ctx: &mut DecisionCtx<'_>, id: ClaimId, event: Event) -> Result<()> {
    let Some(claim) = ctx.tx.get::<Claims>(&id)? else { return Ok(()) };
    ctx.record(&claim, event);
    secrets::drop_useless(ctx, &claim)
}
