//! The queue of decisions that wait for the writer task. The writer takes all that wait as one batch and commits them together.

use tokio::sync::{
    mpsc::{Receiver, Sender, channel, error::TrySendError},
    oneshot,
};

use crate::{Result, adapter::DecideFn};

use super::{BackendKind, queued::QueuedDecision, unavailable};

/// Sends decisions to the writer task. The task ends when this is dropped and every queued decision is answered.
pub(crate) struct WriteQueue {
    backend: &'static str,
    queue: Sender<QueuedDecision>,
}

/// Decisions that are committed together.
pub(crate) type Batch = Vec<QueuedDecision>;

/// Beyond this many waiting decisions the store counts as unavailable, so that callers fail fast.
const MAX_QUEUED: usize = 20_000;

// === impl WriteQueue ===

impl WriteQueue {
    pub(crate) fn new(kind: &BackendKind) -> (Self, Receiver<QueuedDecision>) {
        let (queue, receiver) = channel(MAX_QUEUED);
        (Self { backend: kind.name(), queue }, receiver)
    }

    /// Queues a decision and waits until it is committed.
    pub(crate) async fn commit(&self, decide: DecideFn) -> Result<()> {
        let (queued, answer) = QueuedDecision::new(decide);
        self.queue.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => unavailable(self.backend, "the write queue is full"),
            TrySendError::Closed(_) => unavailable(self.backend, "the writer task has stopped"),
        })?;
        answered(self.backend, answer).await
    }
}

pub(super) async fn answered(
    backend: &'static str,
    answer: oneshot::Receiver<Result<()>>,
) -> Result<()> {
    let panicked = |_| unavailable(backend, "a decision panicked; the log has the panic message");
    answer.await.map_err(panicked)?
}
