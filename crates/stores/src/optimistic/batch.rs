//! The queue of decisions that wait for the writer task. The writer takes all that wait as one batch and commits them together.

use tokio::sync::{
    mpsc::{Receiver, Sender, channel, error::TrySendError},
    oneshot,
};

use crate::{
    Result,
    adapter::{DecideFn, Lane},
};

use super::{BackendKind, queued::QueuedDecision, unavailable};

/// Sends decisions to the writer task. The task ends when this is dropped and every queued decision is answered.
pub(crate) struct WriteQueue {
    backend: &'static str,
    urgent: Sender<QueuedDecision>,
    normal: Sender<QueuedDecision>,
}

/// The other end of the queue, in the writer task.
pub(super) struct WriteQueueReceiver {
    urgent: Receiver<QueuedDecision>,
    normal: Receiver<QueuedDecision>,
}

/// Decisions that are committed together.
pub(crate) type Batch = Vec<QueuedDecision>;

/// Beyond this many waiting decisions the store counts as unavailable, so that callers fail fast.
const MAX_QUEUED: usize = 20_000;

// === impl WriteQueue ===

impl WriteQueue {
    pub(super) fn new(kind: &BackendKind) -> (Self, WriteQueueReceiver) {
        let (urgent, urgent_receiver) = channel(MAX_QUEUED);
        let (normal, normal_receiver) = channel(MAX_QUEUED);
        let receiver = WriteQueueReceiver { urgent: urgent_receiver, normal: normal_receiver };
        (Self { backend: kind.name(), urgent, normal }, receiver)
    }

    /// Queues a decision and waits until it is committed.
    pub(crate) async fn commit(&self, decide: DecideFn, lane: Lane) -> Result<()> {
        let (queued, answer) = QueuedDecision::new(decide);
        let queue = match lane {
            Lane::Urgent => &self.urgent,
            Lane::Normal => &self.normal,
        };
        queue.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => unavailable(self.backend, "the write queue is full"),
            TrySendError::Closed(_) => unavailable(self.backend, "the writer task has stopped"),
        })?;
        answered(self.backend, answer).await
    }
}

// === impl WriteQueueReceiver ===

impl WriteQueueReceiver {
    /// Fills a batch with what waits, urgent decisions first. Waits until there is something; the batch stays empty when the
    /// queue is closed.
    pub(super) async fn fill(&mut self, batch: &mut Batch, most: usize) {
        fill_from(&mut self.urgent, batch, most);
        fill_from(&mut self.normal, batch, most);
        if batch.is_empty() {
            let first = tokio::select! {
                biased;
                first = self.urgent.recv() => first,
                first = self.normal.recv() => first,
            };
            batch.extend(first);
            // Both lanes are closed at once, and one of them may still hold decisions.
            fill_from(&mut self.urgent, batch, most);
            fill_from(&mut self.normal, batch, most);
        }
    }

    /// Adds the urgent decisions that wait to a batch that has others already.
    pub(super) fn add_urgent(&mut self, batch: &mut Batch, most: usize) {
        fill_from(&mut self.urgent, batch, most);
    }
}

fn fill_from(lane: &mut Receiver<QueuedDecision>, batch: &mut Batch, most: usize) {
    while batch.len() < most
        && let Ok(queued) = lane.try_recv()
    {
        batch.push(queued);
    }
}

pub(super) async fn answered(
    backend: &'static str,
    answer: oneshot::Receiver<Result<()>>,
) -> Result<()> {
    let panicked = |_| unavailable(backend, "a decision panicked; the log has the panic message");
    answer.await.map_err(panicked)?
}
