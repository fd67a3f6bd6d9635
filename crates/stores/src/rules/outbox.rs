//! The outbox: ends of claims that are to be told to their workers' own addresses. A row is written in the step that
//! ends the claim and leaves when its receiver took it, or after a day.

use domain::{
    callback::Callback, claim::Claim, id::ClaimId, ledger::Event, ports::StoreError,
    time::Timestamp,
};

use crate::{
    tables::{Callbacks, Claims, Outbox},
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::step::{About, Step};

/// Puts the end of a claim that wants to be told into the outbox, in the place of an earlier end that was not told.
pub(super) fn announce(tx: &mut dyn WriteTx, claim: &Claim) -> Result<(), StoreError> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(()) };
    let Some(callback) = Callback::of(claim, ended_at) else { return Ok(()) };
    remove(tx, claim.id)?;
    put(tx, callback)
}

/// Callbacks that are due, each counted as tried and put off to its next try.
pub(crate) fn callbacks(
    tx: &mut dyn WriteTx,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Callback>, StoreError> {
    let edge = |at, n| (at, ClaimId::from_number(n));
    let due = edge(Timestamp::default(), 0)..=edge(now, u64::MAX);
    let rows = tx.scan::<Outbox>(due, Order::Rising, limit)?;
    let mut step = Step::new(tx, now);
    let mut taken = Vec::with_capacity(rows.len());
    for ((_, id), ()) in rows {
        let Some(mut callback) = remove(step.tx, id)? else { continue };
        if callback.is_over(now) {
            let tries = callback.tries;
            tell(&mut step, id, Event::CallbackDropped { tries })?;
            continue;
        }
        callback.try_now(now);
        put(step.tx, callback.clone())?;
        taken.push(callback);
    }
    step.finish()?;
    Ok(taken)
}

/// The receiver took it. Another end may have taken its place meanwhile, which is still to be told.
pub(crate) fn called_back(
    tx: &mut dyn WriteTx,
    told: &Callback,
    now: Timestamp,
) -> Result<(), StoreError> {
    match tx.get::<Callbacks>(&told.claim)? {
        Some(callback) if callback.state == told.state => {}
        Some(_) | None => return Ok(()),
    }
    remove(tx, told.claim)?;
    let mut step = Step::new(tx, now);
    tell(&mut step, told.claim, Event::CalledBack { tries: told.tries })?;
    step.finish()
}

fn put(tx: &mut dyn WriteTx, callback: Callback) -> Result<(), StoreError> {
    tx.put::<Outbox>((callback.due, callback.claim), ())?;
    tx.put::<Callbacks>(callback.claim, callback)
}

fn remove(tx: &mut dyn WriteTx, id: ClaimId) -> Result<Option<Callback>, StoreError> {
    let found = tx.take::<Callbacks>(&id)?;
    if let Some(callback) = &found {
        tx.take::<Outbox>(&(callback.due, id))?;
    }
    Ok(found)
}

fn tell(step: &mut Step<'_>, id: ClaimId, event: Event) -> Result<(), StoreError> {
    if let Some(claim) = step.tx.get::<Claims>(&id)? {
        step.tell(About::from(&claim), event);
    }
    Ok(())
}
