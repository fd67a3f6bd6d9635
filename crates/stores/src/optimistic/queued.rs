//! A decision that waits for the task or thread that commits it.

use tokio::sync::oneshot;

use crate::{Result, adapter::DecideFn, tx::WriteTx};

/// A decision with the channel for its answer. It may run more than once before it is committed.
pub(crate) struct QueuedDecision {
    decide: DecideFn,
    /// Whether the last run finished without a panic.
    ran: bool,
    reply: oneshot::Sender<Result<()>>,
}

// === impl QueuedDecision ===

impl QueuedDecision {
    pub(crate) fn new(decide: DecideFn) -> (Self, oneshot::Receiver<Result<()>>) {
        let (reply, answer) = oneshot::channel();
        (Self { decide, ran: false, reply }, answer)
    }

    /// Runs the decision. Returns `false` if it failed and its writes must not be committed.
    pub(crate) fn run(&mut self, tx: &mut dyn WriteTx) -> bool {
        self.ran = false;
        let good = (self.decide)(tx);
        self.ran = true;
        good
    }

    /// Answers the caller: the last run is committed, or the decision has failed.
    pub(crate) fn answer(self, verdict: Result<()>) {
        // If the caller is gone, the decision is still committed.
        drop(match verdict {
            Ok(()) if self.ran => self.reply.send(Ok(())),
            // The last run panicked. The caller sees the channel close.
            Ok(()) => Ok(()),
            Err(why) => self.reply.send(Err(why)),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::QueuedDecision;
    use crate::{
        optimistic::{BackendKind, OptimisticTx, RowCache},
        schema::codec::Codec,
    };

    #[test]
    fn a_decision_that_panics_in_a_retry_is_not_answered_with_its_first_result() {
        let mut runs = 0;
        let (mut queued, mut answer) = QueuedDecision::new(Box::new(move |_| {
            runs += 1;
            assert!(runs == 1, "the second run panics, for a test");
            true
        }));
        let kind = BackendKind { codec: Codec::plain("test"), max_bytes: 0, refuses: |_| None };
        let cache = RowCache::default();
        let mut tx = OptimisticTx::new(kind, &cache, false);
        assert!(queued.run(&mut tx));
        assert!(catch_unwind(AssertUnwindSafe(|| queued.run(&mut tx))).is_err());
        queued.answer(Ok(()));
        assert!(answer.try_recv().is_err());
    }
}
