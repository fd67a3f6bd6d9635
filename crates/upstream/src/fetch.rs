//! res.php: questions that cost nothing and may be asked again. Whatever goes wrong here says nothing about a task.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use domain::{
    id::TaskId,
    money::Money,
    ports::{BatchRefused, Fault, Feedback, Poll, Polled, Threads},
    retry::Code,
};
use tokio::time::timeout;
use wire::{
    Garbled,
    fetch::{Action, Many, Reply, Told},
};

use crate::{
    Upstream,
    line::{Bounds, LONGEST},
};

/// What an answer may add to a list of answers: more than tokens have.
const LONGEST_OF_MANY: usize = 8 * 1024;

impl Upstream {
    /// Asks once for a task's answer.
    pub(crate) async fn fetch_answer(&self, task: &TaskId) -> Polled {
        let id = task.as_str().to_owned();
        let priced = self.config.priced;
        let action = if priced { Action::GetPriced(id) } else { Action::Get(id) };
        let reply = self.ask(&action).await;
        let read = reply.and_then(|body| wire::fetch::read_reply(&body, priced).map_err(garbled));
        match read {
            Ok(reply) => self.polled(reply),
            Err(fault) => Polled { poll: Poll::Fault(fault), price: None },
        }
    }

    /// Asks once for the answers of several tasks. A single one is asked for in the usual way. Whoever has answered
    /// for several before can do it: then what looks otherwise is about these tasks, or a page put in between.
    pub(crate) async fn fetch_answers(
        &self,
        tasks: &[TaskId],
    ) -> Result<Vec<Polled>, BatchRefused> {
        match tasks {
            [] => return Ok(Vec::new()),
            [task] => return Ok(vec![self.fetch_answer(task).await]),
            [..] => {}
        }
        let ids = tasks.iter().map(|task| task.as_str().to_owned()).collect();
        let longest = LONGEST + tasks.len() * LONGEST_OF_MANY;
        let asked = self.ask_for(&Action::GetMany(ids), longest).await;
        let body = asked.map_err(BatchRefused::Fault)?;
        match wire::fetch::read_many(&body, tasks.len()) {
            Ok(Many::Each(replies)) => {
                self.batches.store(true, Ordering::Relaxed);
                Ok(replies.into_iter().map(|reply| self.polled(reply)).collect())
            }
            Ok(Many::Refused(code)) => Err(BatchRefused::Fault(self.refused(&code))),
            Ok(Many::Unsupported) if !self.batches.load(Ordering::Relaxed) => {
                Err(BatchRefused::Unsupported)
            }
            Ok(Many::Unsupported) | Err(Garbled { .. }) => Err(BatchRefused::Garbled),
        }
    }

    fn polled(&self, reply: Reply) -> Polled {
        match reply {
            Reply::NotReady => Polled { poll: Poll::NotReady, price: None },
            Reply::Answer { answer, price } => Polled { poll: Poll::Solved(answer), price },
            Reply::Refused(code) => Polled { poll: Poll::Code(self.redact(&code)), price: None },
        }
    }

    /// Tells once how a token fared.
    pub(crate) async fn send_report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        let good = match feedback {
            Feedback::Good => true,
            Feedback::Bad => false,
        };
        let body = self.ask(&Action::Report { id: task.as_str().to_owned(), good }).await?;
        self.answered(wire::fetch::read_report(&body))
    }

    /// Asks once for the balance; account.rs sees to it that this is rare.
    pub(crate) async fn fetch_balance(&self) -> Result<Money, Fault> {
        let body = self.ask(&Action::Balance).await?;
        self.answered(wire::fetch::read_balance(&body))
    }

    /// Asks once for the threads.
    pub(crate) async fn fetch_threads(&self) -> Result<Threads, Fault> {
        let body = self.ask(&Action::Threads).await?;
        self.answered(wire::fetch::read_threads(&body))
    }

    async fn ask(&self, action: &Action) -> Result<Bytes, Fault> {
        self.ask_for(action, LONGEST).await
    }

    /// Asks once and reads at most `longest` bytes of answer.
    async fn ask_for(&self, action: &Action, longest: usize) -> Result<Bytes, Fault> {
        let request = self.request("res.php", wire::fetch::fields(action));
        let limit = self.config.poll_timeout;
        let bounds = Bounds { first_byte: limit, longest };
        let asked = timeout(limit, self.pool.ask(&self.connector, request, bounds)).await;
        asked.unwrap_or_else(|_| Err(Fault::seen("no whole answer within the timeout")))
    }

    fn answered<T>(&self, read: Result<Told<T>, Garbled>) -> Result<T, Fault> {
        match read.map_err(garbled)? {
            Told::Is(told) => Ok(told),
            Told::Refused(code) => Err(self.refused(&code)),
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
