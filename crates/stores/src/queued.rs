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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::QueuedDecision;
    use crate::tx::{KeyRange, ReadRow, ReadTx, RowKey, RowValue, WriteTx};
    use domain::ports::StoreError;

    /// A transaction without rows.
    struct NoRows;

    impl ReadTx for NoRows {
        fn backend(&self) -> &'static str {
            "test"
        }

        fn find(&self, _: &[u8], _: ReadRow<'_>) -> Result<(), StoreError> {
            Ok(())
        }

        fn last_key(&self, _: u8) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(None)
        }

        fn find_range(&self, _: &KeyRange, _: ReadRow<'_>) -> Result<(), StoreError> {
            Ok(())
        }
    }

    impl WriteTx for NoRows {
        fn write(&mut self, _: RowKey<'_>, _: Box<dyn RowValue>) -> Result<(), StoreError> {
            Ok(())
        }

        fn remove(&mut self, _: RowKey<'_>, _: ReadRow<'_>) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn a_decision_that_panics_when_it_is_run_again_is_not_answered_with_its_first_result() {
        let mut runs = 0;
        let (mut queued, mut answer) = QueuedDecision::new(Box::new(move |_| {
            runs += 1;
            assert!(runs == 1, "the second run panics, for a test");
            true
        }));
        assert!(queued.run(&mut NoRows));
        assert!(catch_unwind(AssertUnwindSafe(|| queued.run(&mut NoRows))).is_err());
        queued.answer(Ok(()));
        assert!(answer.try_recv().is_err());
    }
}
