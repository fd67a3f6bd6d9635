//! The rows of the callback outbox. A claim's row is written in the decision that ends the claim. When a claim is opened again
//! before its receiver accepted the callback, the next generation's end waits behind it in the same row.

use domain::{callback::Callback, claim::Claim, id::ClaimId, time::Timestamp};

use crate::{
    Result,
    schema::tables::{Callbacks, Outbox},
    tx::{TypedRead, TypedWrite, WriteTx},
};

/// How many ends of later generations wait behind the first one. Beyond that, the last one is replaced.
const MOST_LATER: usize = 16;

/// Queues the callback of an ended claim. It replaces the callback of an earlier end of the same generation that was not sent
/// yet.
pub(crate) fn enqueue(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(()) };
    let Some(callback) = Callback::for_claim(claim, ended_at) else { return Ok(()) };
    match tx.get::<Callbacks>(&claim.id)? {
        Some(mut first) if first.reopened < callback.reopened => {
            first.later.retain(|later| later.reopened < callback.reopened);
            first.later.truncate(MOST_LATER - 1);
            first.later.push(callback);
            tx.put::<Callbacks>(claim.id, first)
        }
        Some(_) | None => {
            remove(tx, claim.id)?;
            put(tx, callback)
        }
    }
}

/// Keeps the end of a claim that is opened again, because its receiver has not accepted the callback yet.
pub(crate) fn keep_end(tx: &mut dyn WriteTx, ended: &Claim) -> Result<()> {
    let Some(mut first) = tx.get::<Callbacks>(&ended.id)? else { return Ok(()) };
    let (front, later) = (&mut first.ended, &mut first.later);
    let kept = match later.last_mut() {
        Some(last) => &mut last.ended,
        None => front,
    };
    *kept = Some(Box::new(ended.clone()));
    tx.put::<Callbacks>(ended.id, first)
}

pub(crate) fn put(tx: &mut dyn WriteTx, callback: Callback) -> Result<()> {
    tx.put::<Outbox>((callback.due, callback.claim), ())?;
    tx.put::<Callbacks>(callback.claim, callback)
}

/// Takes a callback out of the outbox for good. The next one of its claim is due then.
pub(crate) fn finish(tx: &mut dyn WriteTx, mut callback: Callback, now: Timestamp) -> Result<()> {
    remove(tx, callback.claim)?;
    if callback.later.is_empty() {
        return Ok(());
    }
    let next = callback.later.remove(0);
    put(tx, Callback { due: now, later: callback.later, ..next })
}

pub(crate) fn remove(tx: &mut dyn WriteTx, id: ClaimId) -> Result<Option<Callback>> {
    let found = tx.take::<Callbacks>(&id)?;
    if let Some(callback) = &found {
        tx.take::<Outbox>(&(callback.due, id))?;
    }
    Ok(found)
}
