//! The provider as one gateway reaches it.

use std::sync::Arc;

use async_trait::async_trait;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{BatchRefused, Clock, Fault, Feedback, Poll, Polled, Provider, Submission, Threads},
};

use super::{Gate, Life};
use crate::{bug::Bug, monitor::Monitor};

/// The provider. It records every task id that reaches the gateway.
#[derive(Debug)]
pub struct RemoteProvider {
    pub monitor: Arc<Monitor>,
    pub life: Arc<Life>,
    pub provider: Arc<dyn Provider>,
    pub clock: Arc<dyn Clock>,
    pub gate: Arc<Gate>,
    pub bug: Option<Bug>,
}

#[async_trait]
impl Provider for RemoteProvider {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        self.gate.pass(&*self.clock).await;
        self.monitor.check_submission(attempt);
        let submission = self.provider.submit(challenge, attempt).await;
        self.gate.pass(&*self.clock).await;
        let (gateway, number) = (self.life.gateway, attempt.attempt);
        let what = format!("gateway {gateway} submitted {} attempt {number}", attempt.solve);
        self.monitor.record(format!("{what}: {submission:?}"));
        match &submission {
            Submission::Accepted(task) => self.life.heard.lock().unwrap().push(task.clone()),
            Submission::Rejected { retry_after: Some(wait), .. } => {
                let name = (attempt.solve, attempt.attempt);
                self.life.asked.lock().unwrap().insert(name, *wait);
            }
            _ => {}
        }
        match submission {
            Submission::Ambiguous { why, .. } if self.bug == Some(Bug::LostMeansNotSent) => {
                Submission::NotSent(why)
            }
            other => other,
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.life.polls.lock().unwrap().push((task.clone(), self.clock.now()));
        self.gate.pass(&*self.clock).await;
        let polled = self.provider.poll(task).await;
        self.gate.pass(&*self.clock).await;
        if self.bug == Some(Bug::PollFaultEndsTask) && matches!(polled.poll, Poll::Fault(_)) {
            return Polled { poll: Poll::Code("ERROR_CAPTCHA_UNSOLVABLE".into()), price: None };
        }
        polled
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        let now = self.clock.now();
        self.life.polls.lock().unwrap().extend(tasks.iter().map(|task| (task.clone(), now)));
        self.gate.pass(&*self.clock).await;
        let polled = self.provider.poll_many(tasks).await;
        self.gate.pass(&*self.clock).await;
        polled
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        self.provider.report(task, feedback).await
    }

    async fn balance(&self) -> Result<Money, Fault> {
        self.provider.balance().await
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        self.provider.threads().await
    }
}
