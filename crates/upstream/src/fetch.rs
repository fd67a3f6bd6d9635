//! The port `Provider`, and res.php: calls that cost nothing and may be repeated. A failure here says nothing about the task.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{BatchRefused, Fault, Feedback, Poll, Polled, Provider, Submission, Threads},
    retry::Code,
};
use tokio::time::timeout;
use wire::{
    Garbled,
    fetch::{AccountReply, Action, FetchReply, Many},
};

use crate::{
    Upstream,
    connection::{Bounds, MAX_REPLY},
};

/// How much longer each task may make the reply to a batch poll; tokens are shorter.
const MAX_REPLY_PER_TASK: usize = 8 * 1024;

#[async_trait]
impl Provider for Upstream {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        self.send(challenge, attempt).await
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        let id = task.as_str().to_owned();
        let priced = self.config.priced;
        let action = if priced { Action::GetPriced(id) } else { Action::Get(id) };
        let reply = self.call(&action).await;
        let read = reply.and_then(|body| wire::fetch::read_reply(&body, priced).map_err(garbled));
        match read {
            Ok(reply) => self.polled(reply),
            Err(fault) => Polled { poll: Poll::Fault(fault), price: None },
        }
    }

    /// A single task is polled in the usual way. Once the provider has answered a batch, a reply that looks like "not
    /// supported" is about these tasks, or a page inserted by a machine in between.
    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        match tasks {
            [] => return Ok(Vec::new()),
            [task] => return Ok(vec![self.poll(task).await]),
            [..] => {}
        }
        let ids = tasks.iter().map(|task| task.as_str().to_owned()).collect();
        let max_bytes = MAX_REPLY + tasks.len() * MAX_REPLY_PER_TASK;
        let reply = self.call_limited(&Action::GetMany(ids), max_bytes).await;
        let body = reply.map_err(BatchRefused::Fault)?;
        match wire::fetch::read_many(&body, tasks.len()) {
            Ok(Many::Each(replies)) => {
                self.supports_batches.store(true, Ordering::Relaxed);
                Ok(replies.into_iter().map(|reply| self.polled(reply)).collect())
            }
            Ok(Many::Refused(code)) => Err(BatchRefused::Fault(self.refused(&code))),
            Ok(Many::Unsupported) if !self.supports_batches.load(Ordering::Relaxed) => {
                Err(BatchRefused::Unsupported)
            }
            Ok(Many::Unsupported) | Err(Garbled { .. }) => Err(BatchRefused::Garbled),
        }
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        let good = match feedback {
            Feedback::Good => true,
            Feedback::Bad => false,
        };
        let body = self.call(&Action::Report { id: task.as_str().to_owned(), good }).await?;
        self.account_value(wire::fetch::read_report(&body))
    }

    async fn balance(&self) -> Result<Money, Fault> {
        self.balance.get(self.key.current(), self.fetch_balance()).await
    }

    async fn fresh_balance(&self) -> Result<Money, Fault> {
        self.balance.get_fresh(self.key.current(), self.fetch_balance()).await
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        let body = self.call(&Action::Threads).await?;
        self.account_value(wire::fetch::read_threads(&body))
    }
}

impl Upstream {
    async fn fetch_balance(&self) -> Result<Money, Fault> {
        let body = self.call(&Action::Balance).await?;
        self.account_value(wire::fetch::read_balance(&body))
    }

    fn polled(&self, reply: FetchReply) -> Polled {
        match reply {
            FetchReply::NotReady => Polled { poll: Poll::NotReady, price: None },
            FetchReply::Answer { answer, price } => Polled { poll: Poll::Solved(answer), price },
            FetchReply::Refused(code) => {
                Polled { poll: Poll::Code(self.redact(&code)), price: None }
            }
        }
    }

    async fn call(&self, action: &Action) -> Result<Bytes, Fault> {
        self.call_limited(action, MAX_REPLY).await
    }

    /// Makes one call and reads a reply of at most `max_bytes`.
    async fn call_limited(&self, action: &Action, max_bytes: usize) -> Result<Bytes, Fault> {
        let request = self.request("res.php", wire::fetch::fields(action));
        let limit = self.config.poll_timeout;
        let bounds = Bounds { first_byte: limit, max_bytes };
        let reply = timeout(limit, self.idle.send(&self.connector, request, bounds)).await;
        reply.unwrap_or_else(|_| Err(Fault::seen("no whole answer within the timeout")))
    }

    fn account_value<T>(&self, read: Result<AccountReply<T>, Garbled>) -> Result<T, Fault> {
        match read.map_err(garbled)? {
            AccountReply::Value(value) => Ok(value),
            AccountReply::Refused(code) => Err(self.refused(&code)),
        }
    }

    fn refused(&self, code: &Code) -> Fault {
        let code = self.redact(code);
        let why = format!("the provider refused: {code}");
        Fault { code: Some(code), why, retry_after: None }
    }
}

fn garbled(error: Garbled) -> Fault {
    Fault::seen(error.to_string())
}
