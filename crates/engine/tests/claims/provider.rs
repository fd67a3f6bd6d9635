//! A provider whose replies the test lists. Without a listed reply it accepts every submission and solves every task at
//! its first poll.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{BatchRefused, Clock, Fault, Feedback, Poll, Polled, Provider, Submission, Threads},
    retry::Code,
    secret::Secret,
    time::Timestamp,
    token::Answer,
};
use tokio::sync::{Semaphore, watch};

#[derive(Debug)]
pub(crate) struct ScriptedProvider {
    clock: Arc<dyn Clock>,
    submissions: Mutex<VecDeque<Reply>>,
    polls: Mutex<VecDeque<Poll>>,
    /// Whether several tasks may be polled in one call.
    pub(crate) batches: bool,
    calls: watch::Sender<Vec<(Timestamp, Call)>>,
    released: Semaphore,
}

/// How a submission is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Accept,
    Reject(&'static str),
    NotSent,
    Lost,
    /// Accepts once the test calls [`ScriptedProvider::release`].
    AcceptWhenReleased,
    Panic,
}

/// A call that reached the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Submit(AttemptName),
    Poll(TaskId),
    PollMany(usize),
    Report(TaskId, Feedback),
}

impl ScriptedProvider {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            submissions: Mutex::default(),
            polls: Mutex::default(),
            batches: false,
            calls: watch::Sender::new(Vec::new()),
            released: Semaphore::new(0),
        }
    }

    /// Answers the next submissions like this.
    pub(crate) fn on_submit(&self, replies: impl IntoIterator<Item = Reply>) {
        self.submissions.lock().unwrap().extend(replies);
    }

    /// Answers the next polls like this.
    pub(crate) fn on_poll(&self, replies: impl IntoIterator<Item = Poll>) {
        self.polls.lock().unwrap().extend(replies);
    }

    /// Lets a submission that waits for it be accepted.
    pub(crate) fn release(&self) {
        self.released.add_permits(1);
    }

    pub(crate) fn calls(&self) -> Vec<(Timestamp, Call)> {
        self.calls.borrow().clone()
    }

    pub(crate) fn submissions(&self) -> Vec<(Timestamp, AttemptName)> {
        let submission = |(at, call)| match call {
            Call::Submit(name) => Some((at, name)),
            Call::Poll(_) | Call::PollMany(_) | Call::Report(..) => None,
        };
        self.calls().into_iter().filter_map(submission).collect()
    }

    pub(crate) fn polls(&self) -> Vec<(Timestamp, TaskId)> {
        let poll = |(at, call)| match call {
            Call::Poll(task) => Some((at, task)),
            Call::Submit(_) | Call::PollMany(_) | Call::Report(..) => None,
        };
        self.calls().into_iter().filter_map(poll).collect()
    }

    /// Waits until this many submissions have arrived; returns the last.
    pub(crate) async fn submitted(&self, count: usize) -> AttemptName {
        let arrived = |calls: &Vec<(Timestamp, Call)>| {
            calls.iter().filter(|(_, call)| matches!(call, Call::Submit(_))).count() >= count
        };
        self.calls.subscribe().wait_for(arrived).await.unwrap();
        self.submissions()[count - 1].1
    }

    fn record(&self, call: Call) -> usize {
        let now = self.clock.now();
        self.calls.send_modify(|calls| calls.push((now, call)));
        self.submissions().len()
    }

    fn next_poll(&self, task: &TaskId) -> Polled {
        let next = self.polls.lock().unwrap().pop_front();
        Polled { poll: next.unwrap_or_else(|| solved(&format!("token of {task}"))), price: None }
    }
}

pub(crate) fn solved(text: &str) -> Poll {
    Poll::Solved(Answer { text: Secret::new(text), is_json: false, extras: None })
}

pub(crate) fn code(code: &str) -> Poll {
    Poll::Code(Code::from(code))
}

pub(crate) fn fault() -> Poll {
    Poll::Fault(Fault::seen("502 Bad Gateway"))
}

/// The task that the provider names for its n-th submission, counted from 1.
pub(crate) fn task(n: usize) -> TaskId {
    TaskId::new(format!("task-{n}")).unwrap()
}

#[async_trait]
impl Provider for ScriptedProvider {
    async fn submit(&self, _: &Challenge, attempt: AttemptName) -> Submission {
        let count = self.record(Call::Submit(attempt));
        let reply = self.submissions.lock().unwrap().pop_front().unwrap_or(Reply::Accept);
        match reply {
            Reply::Accept => Submission::Accepted(task(count)),
            Reply::Reject(code) => {
                Submission::Rejected { code: Code::from(code), retry_after: None }
            }
            Reply::NotSent => Submission::NotSent("connection refused".into()),
            Reply::Lost => {
                Submission::Ambiguous { why: "connection reset".into(), retry_after: None }
            }
            Reply::AcceptWhenReleased => {
                self.released.acquire().await.unwrap().forget();
                Submission::Accepted(task(count))
            }
            Reply::Panic => panic!("this panic is part of the test"),
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.record(Call::Poll(task.clone()));
        self.next_poll(task)
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        self.record(Call::PollMany(tasks.len()));
        if !self.batches {
            return Err(BatchRefused::Unsupported);
        }
        Ok(tasks.iter().map(|task| self.next_poll(task)).collect())
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        self.record(Call::Report(task.clone(), feedback));
        Ok(())
    }

    async fn balance(&self) -> Result<Money, Fault> {
        Ok(Money::from_micros(5_000_000))
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        Err(Fault::seen("this provider does not report its threads"))
    }
}
