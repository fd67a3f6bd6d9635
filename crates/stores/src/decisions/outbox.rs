//! The callback outbox: the ends of claims that are sent to the workers' own addresses. A callback leaves the outbox when
//! its receiver accepted it, or after a day.

use domain::{callback::Callback, id::ClaimId, ledger::Event, time::Timestamp};

use crate::{
    Result,
    schema::keys::up_to,
    schema::tables::{Callbacks, Claims, Outbox},
    tx::{Order, TypedRead, WriteTx},
};

use super::support::{callbacks as rows, context::DecisionCtx};

/// Takes the callbacks that are due. Each counts as tried, and is scheduled for its next try.
pub(crate) fn callbacks(
    tx: &mut dyn WriteTx,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Callback>> {
    let due = tx.scan::<Outbox>(up_to(now), Order::Rising, limit)?;
    let mut ctx = DecisionCtx::new(tx, now);
    let mut taken = Vec::with_capacity(due.len());
    for ((_, id), ()) in due {
        let Some(mut callback) = rows::remove(ctx.tx, id)? else { continue };
        if callback.is_over(now) {
            let tries = callback.tries;
            record(&mut ctx, id, Event::CallbackDropped { tries })?;
            continue;
        }
        callback.try_now(now);
        rows::put(ctx.tx, callback.clone())?;
        taken.push(callback);
    }
    ctx.finish()?;
    Ok(taken)
}

/// Removes a callback that its receiver accepted. A callback for a later end of the same claim stays.
pub(crate) fn called_back(tx: &mut dyn WriteTx, sent: &Callback, now: Timestamp) -> Result<()> {
    match tx.get::<Callbacks>(&sent.claim)? {
        Some(callback) if callback.state == sent.state => {}
        Some(_) | None => return Ok(()),
    }
    rows::remove(tx, sent.claim)?;
    let mut ctx = DecisionCtx::new(tx, now);
    record(&mut ctx, sent.claim, Event::CalledBack { tries: sent.tries })?;
    ctx.finish()
}

fn record(ctx: &mut DecisionCtx<'_>, id: ClaimId, event: Event) -> Result<()> {
    if let Some(claim) = ctx.tx.get::<Claims>(&id)? {
        ctx.record(&claim, event);
    }
    Ok(())
}
