//! A provider that accepts every task and never solves one: solves pile up in flight, and only they take memory.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{BatchRefused, Fault, Feedback, Poll, Polled, Provider, Submission, Threads},
};

/// Accepts every task and never solves one.
#[derive(Debug, Default)]
pub(super) struct NeverReadyProvider(AtomicU64);

#[async_trait]
impl Provider for NeverReadyProvider {
    async fn submit(&self, _challenge: &Challenge, _attempt: AttemptName) -> Submission {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let task = TaskId::new(format!("{number:012}")).expect("digits make a task id");
        Submission::Accepted(task)
    }

    async fn poll(&self, _task: &TaskId) -> Polled {
        Polled { poll: Poll::NotReady, price: None }
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        Ok(vec![Polled { poll: Poll::NotReady, price: None }; tasks.len()])
    }

    async fn report(&self, _task: &TaskId, _feedback: Feedback) -> Result<(), Fault> {
        Ok(())
    }

    async fn balance(&self) -> Result<Money, Fault> {
        Ok(Money::from_micros(1_000_000))
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        Err(Fault::seen("this provider reports no threads"))
    }
}
