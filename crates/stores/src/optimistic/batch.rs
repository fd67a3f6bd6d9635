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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use parking_lot::Mutex;

    use crate::{
        optimistic::{OptimisticTx, RowCache},
        schema::codec::Codec,
    };

    use super::*;

    const KIND: BackendKind =
        BackendKind { codec: Codec::plain("test"), max_bytes: 0, refuses: |_| None };

    /// The numbers of the decisions that were run.
    #[derive(Clone, Default)]
    struct Runs(Arc<Mutex<Vec<u32>>>);

    impl Runs {
        fn queue(&self, queue: &WriteQueue, number: u32, lane: Lane) {
            let runs = self.clone();
            let decide = Box::new(move |_: &mut dyn crate::tx::WriteTx| {
                runs.0.lock().push(number);
                true
            });
            // The caller goes away, and its decision stays in the queue.
            assert!(queue.commit(decide, lane).now_or_never().is_none());
        }

        fn of(&self, batch: &mut Batch) -> Vec<u32> {
            let cache = RowCache::default();
            let mut tx = OptimisticTx::new(KIND, &cache, false);
            assert!(batch.iter_mut().all(|queued| queued.run(&mut tx)));
            std::mem::take(&mut self.0.lock())
        }
    }

    #[tokio::test]
    async fn urgent_decisions_go_before_any_number_of_others() {
        let (queue, mut receiver) = WriteQueue::new(&KIND);
        let runs = Runs::default();
        for number in 0..100 {
            runs.queue(&queue, number, Lane::Normal);
        }
        for number in 100..103 {
            runs.queue(&queue, number, Lane::Urgent);
        }
        let mut batch = Batch::new();
        receiver.fill(&mut batch, 10).await;
        assert_eq!(runs.of(&mut batch), [100, 101, 102, 0, 1, 2, 3, 4, 5, 6]);

        // One that arrives while a batch is tried again joins it.
        runs.queue(&queue, 103, Lane::Urgent);
        batch.truncate(2);
        receiver.add_urgent(&mut batch, 10);
        assert_eq!(runs.of(&mut batch), [100, 101, 103]);
        batch.clear();
        receiver.fill(&mut batch, 3).await;
        assert_eq!(runs.of(&mut batch), [7, 8, 9]);
    }
}
