//! The outbox: ends of claims that are to be told to their workers' own addresses. A row is written in the step that
//! ends the claim and leaves when its receiver took it, or after a day.

use domain::{
    callback::Callback, claim::Claim, id::ClaimId, ledger::Event, ports::StoreError,
    time::Timestamp,
};

use crate::{
    shelf::{Order, ShelfMut},
    tables::{Callbacks, Claims, Outbox},
};

use super::step::{About, Step};

/// Puts the end of a claim that wants to be told into the outbox, in the place of an earlier end that was not told.
pub(super) fn announce<S: ShelfMut>(shelf: &mut S, claim: &Claim) -> Result<(), StoreError> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(()) };
    let Some(callback) = Callback::of(claim, ended_at) else { return Ok(()) };
    remove(shelf, claim.id)?;
    put(shelf, callback)
}

/// Callbacks that are due, each counted as tried and put off to its next try.
pub(crate) fn callbacks<S: ShelfMut>(
    shelf: &mut S,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Callback>, StoreError> {
    let edge = |at, n| (at, ClaimId::from_number(n));
    let due = edge(Timestamp::default(), 0)..=edge(now, u64::MAX);
    let rows = shelf.scan::<Outbox>(due, Order::Rising, limit)?;
    let mut step = Step::new(shelf, now);
    let mut taken = Vec::with_capacity(rows.len());
    for ((_, id), ()) in rows {
        let Some(mut callback) = remove(step.shelf, id)? else { continue };
        if callback.is_over(now) {
            let tries = callback.tries;
            tell(&mut step, id, Event::CallbackDropped { tries })?;
            continue;
        }
        callback.try_now(now);
        put(step.shelf, callback.clone())?;
        taken.push(callback);
    }
    step.finish()?;
    Ok(taken)
}

/// The receiver took it. Another end may have taken its place meanwhile, which is still to be told.
pub(crate) fn called_back<S: ShelfMut>(
    shelf: &mut S,
    told: &Callback,
    now: Timestamp,
) -> Result<(), StoreError> {
    match shelf.get::<Callbacks>(&told.claim)? {
        Some(callback) if callback.state == told.state => {}
        Some(_) | None => return Ok(()),
    }
    remove(shelf, told.claim)?;
    let mut step = Step::new(shelf, now);
    tell(&mut step, told.claim, Event::CalledBack { tries: told.tries })?;
    step.finish()
}

fn put<S: ShelfMut>(shelf: &mut S, callback: Callback) -> Result<(), StoreError> {
    shelf.put::<Outbox>((callback.due, callback.claim), ())?;
    shelf.put::<Callbacks>(callback.claim, callback)
}

fn remove<S: ShelfMut>(shelf: &mut S, id: ClaimId) -> Result<Option<Callback>, StoreError> {
    let found = shelf.take::<Callbacks>(&id)?;
    if let Some(callback) = &found {
        shelf.take::<Outbox>(&(callback.due, id))?;
    }
    Ok(found)
}

fn tell<S: ShelfMut>(step: &mut Step<'_, S>, id: ClaimId, event: Event) -> Result<(), StoreError> {
    if let Some(claim) = step.shelf.get::<Claims>(&id)? {
        step.tell(About::from(&claim), event);
    }
    Ok(())
}
