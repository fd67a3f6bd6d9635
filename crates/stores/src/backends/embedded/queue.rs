//! The decisions that wait for the writer thread. Leases and facts go before everything else.

use std::{collections::VecDeque, fmt};

use parking_lot::{Condvar, Mutex};

use crate::{adapter::Lane, optimistic::queued::QueuedDecision};

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    is_changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    urgent: VecDeque<QueuedDecision>,
    normal: VecDeque<QueuedDecision>,
    is_closed: bool,
}

// === impl Queue ===

impl Queue {
    /// Returns `false` if the queue is closed.
    pub(super) fn push(&self, queued: QueuedDecision, lane: Lane) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return false;
        }
        match lane {
            Lane::Urgent => waiting.urgent.push_back(queued),
            Lane::Normal => waiting.normal.push_back(queued),
        }
        self.is_changed.notify_one();
        true
    }

    /// Takes the decisions of the next transaction, urgent ones first. Waits until there is one; empty once the queue is closed
    /// and everything is taken.
    pub(super) fn take(&self, most: usize) -> Vec<QueuedDecision> {
        let mut waiting = self.waiting.lock();
        while waiting.is_empty() && !waiting.is_closed {
            self.is_changed.wait(&mut waiting);
        }
        let urgent = waiting.urgent.len().min(most);
        let mut batch: Vec<_> = waiting.urgent.drain(..urgent).collect();
        let normal = waiting.normal.len().min(most - urgent);
        batch.extend(waiting.normal.drain(..normal));
        batch
    }

    /// Takes no more decisions. Those that wait are still written.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.is_changed.notify_one();
    }

    /// Takes no more decisions, and drops those that wait, because nobody is left to write them.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        *waiting = Waiting { is_closed: true, ..Waiting::default() };
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.lock();
        let (urgent, normal) = (waiting.urgent.len(), waiting.normal.len());
        f.debug_struct("Queue")
            .field("urgent", &urgent)
            .field("normal", &normal)
            .finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl Waiting {
    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.normal.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued() -> (QueuedDecision, tokio::sync::oneshot::Receiver<crate::Result<()>>) {
        QueuedDecision::new(Box::new(|_| true))
    }

    /// Answers the decisions of the next transaction with an error, and says which callers got it.
    fn answered(
        queue: &Queue,
        most: usize,
        answers: &mut [tokio::sync::oneshot::Receiver<crate::Result<()>>],
    ) -> Vec<usize> {
        for one in queue.take(most) {
            one.answer(Err(domain::ports::StoreError::unavailable("test", "taken")));
        }
        let places = answers.iter_mut().enumerate();
        places.filter_map(|(place, answer)| answer.try_recv().ok().map(|_| place)).collect()
    }

    #[test]
    fn leases_and_facts_go_before_any_number_of_others() {
        let queue = Queue::default();
        let mut answers = Vec::new();
        for lane in [[Lane::Normal; 20].as_slice(), &[Lane::Urgent; 2]].concat() {
            let (one, answer) = queued();
            assert!(queue.push(one, lane));
            answers.push(answer);
        }
        assert_eq!(answered(&queue, 5, &mut answers), [0, 1, 2, 20, 21]);
        queue.close();
        assert!(!queue.push(queued().0, Lane::Urgent));
        assert_eq!(answered(&queue, 512, &mut answers), (3..20).collect::<Vec<_>>());
        assert!(queue.take(512).is_empty());
    }

    #[test]
    fn when_the_writer_is_gone_nobody_waits_for_it() {
        let queue = Queue::default();
        let (one, mut answer) = queued();
        assert!(queue.push(one, Lane::Normal));
        queue.abandon();
        assert_eq!(
            answer.try_recv().unwrap_err(),
            tokio::sync::oneshot::error::TryRecvError::Closed
        );
        assert!(!queue.push(queued().0, Lane::Normal));
    }
}
