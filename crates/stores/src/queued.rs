//! A decision on its way to the task or thread that writes.

use domain::ports::StoreError;
use tokio::sync::oneshot;

use crate::{adapter::DecideFn, tx::WriteTx};

/// A decision that waits to be committed. It may run more than once before that.
pub(crate) struct QueuedDecision {
    decide: DecideFn,
    /// Whether the last run came to its end; a panic does not.
    ran: bool,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

// === impl QueuedDecision ===

impl QueuedDecision {
    /// A queued decision, and where its end is reported.
    pub(crate) fn new(decide: DecideFn) -> (Self, oneshot::Receiver<Result<(), StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { decide, ran: false, reply }, answer)
    }

    /// Runs the decision; `false` when it failed and its writes must not be committed.
    pub(crate) fn run(&mut self, tx: &mut dyn WriteTx) -> bool {
        self.ran = false;
        let good = (self.decide)(tx);
        self.ran = true;
        good
    }

    /// Reports the end: what the last run decided stands, or the decision was not committed.
    pub(crate) fn answer(self, verdict: Result<(), StoreError>) {
        // The caller may have gone; the decision stands.
        drop(match verdict {
            Ok(()) if self.ran => self.reply.send(Ok(())),
            // The last run panicked: the caller sees the channel close.
            Ok(()) => Ok(()),
            Err(why) => self.reply.send(Err(why)),
        });
    }
}
