//! The paid service, as the engine sees it.

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

/// The paid service.
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
/// # use domain::{challenge::{Draft, Kind}, id::{Nonce, SolveId}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let files = [("body".to_owned(), vec![1, 2, 3])].into();
/// # let challenge = Challenge::new(Kind::Image, Draft { files, ..Draft::default() }).unwrap();
/// # let attempt =
/// #     AttemptName { solve: SolveId::from_number(1), attempt: 1, nonce: Nonce::from_number(7) };
/// let Submission::Accepted(task) = Always42.submit(&challenge, attempt).await else { panic!() };
/// let Poll::Solved(answer) = Always42.poll(&task).await.poll else { panic!() };
/// assert_eq!(answer.text.expose(), "42");
/// # }
/// ```
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Submits once. Never repeats itself: a lost reply is the caller's to decide about. A provider that calls back
    /// does so under the attempt's name.
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission;

    /// Asks once for a task's answer.
    async fn poll(&self, task: &TaskId) -> Polled;

    /// Asks once for the answers of several tasks; they come in the order of the tasks, without prices and extras.
    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused>;

    /// Tells how a token fared.
    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault>;

    /// Asks for the account's balance.
    async fn balance(&self) -> Result<Money, Fault>;

    /// Asks for the account's threads.
    async fn threads(&self) -> Result<Threads, Fault>;
}

/// How a submission ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    /// A task exists.
    Accepted(TaskId),
    /// A definite refusal: no task exists.
    Rejected {
        /// The provider's code.
        code: Code,
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// No byte left: no task exists.
    NotSent(String),
    /// Bytes left and no valid reply came: a task may exist.
    Ambiguous {
        /// What was seen instead.
        why: String,
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
}

/// A poll's answer. `price` as the provider told it, where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// What it said.
    pub poll: Poll,
    /// What it says the task cost.
    pub price: Option<Money>,
}

/// What a poll said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Still at work.
    NotReady,
    /// The answer.
    Solved(Answer),
    /// A code: the table says what it means.
    Code(Code),
    /// Nothing intelligible: ask again.
    Fault(Fault),
}

/// Why a question about several tasks brought nothing. Says nothing about any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchRefused {
    /// The provider does not take such questions: worth remembering.
    Unsupported,
    /// This reply cannot be taken apart, for one because an answer contains `|`: ask for each task by itself.
    Garbled,
    /// As for any other question.
    Fault(Fault),
}

/// The provider could not be reached or understood. Says nothing about any task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    /// A code, where one was given.
    pub code: Option<Code>,
    /// What was seen.
    pub why: String,
    /// Its `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// How a token fared at the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// It was taken.
    Good,
    /// It was refused.
    Bad,
}

/// The account's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// How many the plan has.
    pub total: u32,
    /// How many are at work.
    pub working: u32,
}

impl Fault {
    /// Something was seen that has no code.
    pub fn seen(why: impl Into<String>) -> Self {
        Self { code: None, why: why.into(), retry_after: None }
    }
}
