//! Fetches a claim's outcome, waiting for it where the caller asked for that. Used by both doors.

use std::time::Duration;

use domain::{id::ClaimId, ports::Scope};
use engine::{FetchRefusal, Outcome};

use crate::{Doors, peer::Peer};

/// How much of a drain is reserved for writing the last responses.
const RESPONSE_TIME: Duration = Duration::from_secs(3);

impl Doors {
    /// Reads a claim, waiting up to `wait` but not past the end of a drain: then the caller gets the current state.
    pub(crate) async fn fetch(
        &self,
        peer: Option<&Peer>,
        scope: &Scope,
        id: ClaimId,
        wait: Duration,
    ) -> Result<Outcome, FetchRefusal> {
        let engine = self.engine();
        let Some(peer) = peer.filter(|_| !wait.is_zero()) else {
            return engine.fetch(scope, id, wait).await;
        };
        let grace = self.limits().drain.saturating_sub(RESPONSE_TIME);
        tokio::select! {
            biased;
            outcome = engine.fetch(scope, id, wait) => outcome,
            () = peer.drain_deadline(grace) => engine.fetch(scope, id, Duration::ZERO).await,
        }
    }
}
