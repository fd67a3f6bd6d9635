//! The paid solving service.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    retry::Code,
    token::Answer,
};

/// A paid solving service.
///
/// A provider reports what happened and decides nothing. This one answers every challenge with the text `42`:
///
/// ```
/// use async_trait::async_trait;
/// use domain::{
///     challenge::Challenge,
///     id::{AttemptName, TaskId},
///     money::Money,
///     ports::{BatchRefused, Fault, Feedback, Poll, Polled, Provider, Submission, Threads},
///     secret::Secret,
///     token::Answer,
/// };
///
/// #[derive(Debug)]
/// struct Always42;
///
/// #[async_trait]
/// impl Provider for Always42 {
///     async fn submit(&self, _: &Challenge, attempt: AttemptName) -> Submission {
///         Submission::Accepted(TaskId::new(format!("task-{}", attempt.nonce.number())).unwrap())
///     }
///
///     async fn poll(&self, _: &TaskId) -> Polled {
///         let answer = Answer { text: Secret::new("42"), is_json: false, extras: None };
///         Polled { poll: Poll::Solved(answer), price: Some(Money::from_micros(1_000)) }
///     }
///
///     // The engine then polls each task by itself.
///     async fn poll_many(&self, _: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
///         Err(BatchRefused::Unsupported)
///     }
///
///     async fn report(&self, _: &TaskId, _: Feedback) -> Result<(), Fault> {
///         Ok(())
///     }
///
///     async fn balance(&self) -> Result<Money, Fault> {
///         Ok(Money::from_micros(5_000_000))
///     }
///
///     async fn threads(&self) -> Result<Threads, Fault> {
///         Err(Fault::seen("this provider does not report its threads"))
///     }
/// }
///
/// # use domain::{challenge::{ChallengeParts, Kind}, id::{Nonce, SolveId}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let files = [("body".to_owned(), vec![1, 2, 3])].into();
/// # let challenge = Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap();
/// # let attempt =
/// #     AttemptName { solve: SolveId::from_number(1), attempt: 1, nonce: Nonce::from_number(7) };
/// let Submission::Accepted(task) = Always42.submit(&challenge, attempt).await else { panic!() };
/// let Poll::Solved(answer) = Always42.poll(&task).await.poll else { panic!() };
/// assert_eq!(answer.text.expose(), "42");
/// # }
/// ```
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Submits once. It never retries by itself, because the caller decides about a lost reply. A provider with pingbacks
    /// sends the attempt's name with them.
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission;

    /// Polls a task once.
    async fn poll(&self, task: &TaskId) -> Polled;

    /// Polls several tasks with one request. The replies are in the order of the tasks, without prices and extras.
    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused>;

    /// Reports whether a token worked.
    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault>;

    /// Reads the account's balance.
    async fn balance(&self) -> Result<Money, Fault>;

    /// Reads the account's balance as it is after this call began. [`Provider::balance`] may be some seconds old.
    async fn fresh_balance(&self) -> Result<Money, Fault> {
        self.balance().await
    }

    /// Reads the account's threads.
    async fn threads(&self) -> Result<Threads, Fault>;
}

/// The result of a submission, with the provider's `Retry-After`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are explained with their results")]
pub enum Submission {
    /// The provider accepted it: a task exists.
    Accepted(TaskId),
    /// The provider refused with this code: no task exists.
    Rejected { code: Code, retry_after: Option<Duration> },
    /// No byte was sent: no task exists.
    NotSent(String),
    /// Bytes were sent and no valid reply came: a task may exist. `why` is what was observed instead.
    Ambiguous { why: String, retry_after: Option<Duration> },
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The state of the task.
    pub poll: Poll,
    /// The price of the task, where the provider returns it.
    pub price: Option<Money>,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// The provider is still working on it.
    NotReady,
    /// The task has an answer.
    Solved(Answer),
    /// The provider returned a code; the retry table says what it means.
    Code(Code),
    /// The reply is unintelligible or missing, so it says nothing about the task; poll again.
    Fault(Fault),
}

/// Why a poll of several tasks brought no result. It says nothing about any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchRefused {
    /// The provider does not support such polls, which is worth remembering.
    Unsupported,
    /// The reply cannot be split, for example because an answer contains `|`. Poll each task by itself.
    Garbled,
    /// The request failed like any other.
    Fault(Fault),
}

/// The provider could not be reached or understood. It says nothing about any task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    /// The provider's code, if it sent one.
    pub code: Option<Code>,
    /// What was observed, for the log.
    pub why: String,
    /// The provider's `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// Whether the site accepted a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// The site accepted it.
    Good,
    /// The site refused it.
    Bad,
}

/// The threads of the account: how many tasks the provider works on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The threads of the plan.
    pub total: u32,
    /// The threads in use.
    pub working: u32,
}

impl Fault {
    /// A fault without a code.
    pub fn seen(why: impl Into<String>) -> Self {
        Self { code: None, why: why.into(), retry_after: None }
    }
}
