//! The rows of the callback outbox. A claim's row is written in the decision that ends the claim.

use domain::{callback::Callback, claim::Claim, id::ClaimId};

use crate::{
    Result,
    schema::tables::{Callbacks, Outbox},
    tx::{TypedWrite, WriteTx},
};

/// Queues the callback of an ended claim. It replaces the callback of an earlier end that was not sent yet.
pub(crate) fn enqueue(tx: &mut dyn WriteTx, claim: &Claim) -> Result<()> {
    let Some(ended_at) = claim.ended_at.filter(|_| claim.state.is_final()) else { return Ok(()) };
    let Some(callback) = Callback::for_claim(claim, ended_at) else { return Ok(()) };
    remove(tx, claim.id)?;
    put(tx, callback)
}

pub(crate) fn put(tx: &mut dyn WriteTx, callback: Callback) -> Result<()> {
    tx.put::<Outbox>((callback.due, callback.claim), ())?;
    tx.put::<Callbacks>(callback.claim, callback)
}

pub(crate) fn remove(tx: &mut dyn WriteTx, id: ClaimId) -> Result<Option<Callback>> {
    let found = tx.take::<Callbacks>(&id)?;
    if let Some(callback) = &found {
        tx.take::<Outbox>(&(callback.due, id))?;
    }
    Ok(found)
}
