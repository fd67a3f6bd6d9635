//! Bells that ring in every gateway. What is rung here rings here at once and is handed to a teller, who tells the server; what
//! the server tells rings here. Only hints: who listens looks again by itself within a second, so one that is late or lost
//! costs no more.

use std::{fmt, sync::Arc};

use domain::{
    id::ClaimId,
    ports::{Doorbell, Ear},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
};

use crate::LocalDoorbell;

/// The bells of all gateways.
pub(crate) struct FarDoorbell {
    local: Arc<LocalDoorbell>,
    rung: UnboundedSender<ClaimId>,
    listener: AbortHandle,
}

impl FarDoorbell {
    /// A bell, and what the teller has to tell. The listener rings `local`, and ends when the bell is dropped; so does the teller,
    /// because nobody can ring any more.
    pub(crate) fn new(
        local: Arc<LocalDoorbell>,
        listener: AbortHandle,
    ) -> (Self, UnboundedReceiver<ClaimId>) {
        let (rung, rings) = unbounded_channel();
        (Self { local, rung, listener }, rings)
    }
}

impl Drop for FarDoorbell {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl fmt::Debug for FarDoorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarDoorbell").finish_non_exhaustive()
    }
}

impl Doorbell for FarDoorbell {
    fn ring(&self, claim: ClaimId) {
        self.local.ring(claim);
        if self.rung.send(claim).is_err() {
            tracing::debug!("notification publisher stopped");
        }
    }

    fn listen(&self, claim: ClaimId) -> Ear {
        self.local.listen(claim)
    }
}
