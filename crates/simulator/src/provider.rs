//! The simulated provider in process: the same account as in `server`, behind the [`Provider`] port and on a [`Clock`]. It is
//! deterministic: equal seeds and equal calls give an equal history.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{
        BatchRefused, Clock, Fault as ProviderFault, Feedback, Poll, Polled, Provider, Submission,
        Threads,
    },
    retry::{Code, own},
    time::Timestamp,
};
use parking_lot::Mutex;
use wire::fetch;

use crate::{
    account::Account,
    behaviour::{PollEffect, SubmitEffect},
    exchange,
    faults::{Call, Fault, Planned},
};

/// The provider for a gateway in the same process.
#[derive(Debug)]
pub struct SimProvider {
    account: Account,
    clock: Arc<dyn Clock>,
    latency: Latency,
    rng: Mutex<fastrand::Rng>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// One way, at least.
    pub least: Duration,
    pub most: Duration,
    /// The gateway's timeout.
    pub deadline: Duration,
}

/// How a call ended for the caller.
enum CallResult<T> {
    Reply(T),
    Code(Code),
    TooMany(Option<Duration>),
    /// No readable reply.
    Lost(&'static str),
    /// No byte was sent.
    NotSent,
}

const UNREACHABLE: &str = "the simulated provider cannot be reached";

// === impl Latency ===

impl Default for Latency {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { least: ms(5), most: ms(60), deadline: Duration::from_secs(30) }
    }
}

// === impl SimProvider ===

impl SimProvider {
    pub fn new(account: Account, clock: Arc<dyn Clock>, latency: Latency) -> Self {
        let seed = account.with(|behaviour| behaviour.config.seed);
        let rng = Mutex::new(fastrand::Rng::with_seed(seed ^ 0x1A7E_4C1E));
        Self { account, clock, latency, rng }
    }

    fn way(&self) -> Duration {
        let (least, most) = (millis(self.latency.least), millis(self.latency.most));
        let mut rng = self.rng.lock();
        Duration::from_millis(rng.u64(least..=most.max(least)))
    }

    async fn pass(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    /// One call: latency, processing, latency. A future dropped before the processing has had no effect; one dropped after it has.
    async fn call<T>(
        &self,
        call: Call,
        act: impl FnOnce(Option<&Planned>, Timestamp) -> Option<T> + Send,
    ) -> CallResult<T>
    where
        T: Send,
    {
        let given_up = self.clock.now().plus(self.latency.deadline);
        let struck = self.account.draw(call);
        let (there, back) = (self.way(), self.way());
        self.pass(there).await;
        let fault = struck.as_ref().map(|struck| &struck.fault);
        if fault == Some(&Fault::Unreachable) {
            return CallResult::NotSent;
        }
        let said = act(struck.as_ref(), self.clock.now());
        let slow = match fault {
            Some(Fault::Trickle(ms)) => Duration::from_millis(*ms),
            Some(Fault::Hang) => self.latency.deadline,
            Some(_) | None => Duration::ZERO,
        };
        let arrival = self.clock.now().plus(back + slow);
        self.clock.sleep_until(arrival.min(given_up)).await;
        if arrival > given_up {
            return CallResult::Lost("no reply before the deadline");
        }
        reply(fault, said)
    }

    /// A call about the account, which returns a value or a fault.
    async fn call_account<T: Send>(
        &self,
        act: impl FnOnce(Timestamp) -> Result<T, Code> + Send,
    ) -> Result<T, ProviderFault> {
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| match account.banned(now) {
            Some(code) => Some(Err(code)),
            None => struck.is_none_or(Planned::is_processed).then(|| act(now)),
        };
        match self.call(Call::Account, act).await {
            CallResult::Reply(Ok(said)) => Ok(said),
            CallResult::Reply(Err(code)) | CallResult::Code(code) => Err(refusal(code, None)),
            CallResult::TooMany(wait) => Err(refusal(own::HTTP_429.into(), wait)),
            CallResult::Lost(why) => Err(ProviderFault::seen(why)),
            CallResult::NotSent => Err(ProviderFault::seen(UNREACHABLE)),
        }
    }
}

#[async_trait]
impl Provider for SimProvider {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| {
            account.submit(challenge, Some(attempt.nonce), struck, now)
        };
        match self.call(Call::Submit, act).await {
            CallResult::Reply(SubmitEffect::Accepted(accepted)) => {
                Submission::Accepted(accepted.task)
            }
            CallResult::Reply(SubmitEffect::Refused(code)) | CallResult::Code(code) => {
                Submission::Rejected { code, retry_after: None }
            }
            CallResult::TooMany(retry_after) => {
                Submission::Rejected { code: own::HTTP_429.into(), retry_after }
            }
            CallResult::Lost(why) => {
                Submission::Ambiguous { why: why.to_owned(), retry_after: None }
            }
            CallResult::NotSent => Submission::NotSent(UNREACHABLE.to_owned()),
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| match account.banned(now) {
            Some(code) => Some(PollEffect::Refused(code)),
            None => account.poll(task.as_str(), struck, now),
        };
        let reply = self.call(Call::Poll, act).await;
        let captchaai = account.with(|behaviour| behaviour.config.captchaai);
        let mut price = None;
        let poll = match reply {
            CallResult::Reply(PollEffect::NotReady) => Poll::NotReady,
            CallResult::Reply(PollEffect::Solved(made, cost)) => {
                price = (!captchaai).then_some(cost);
                Poll::Solved(made.answer)
            }
            CallResult::Reply(PollEffect::Refused(code)) | CallResult::Code(code) => {
                Poll::Code(code)
            }
            CallResult::TooMany(wait) => Poll::Fault(refusal(own::HTTP_429.into(), wait)),
            CallResult::Lost(why) => Poll::Fault(ProviderFault::seen(why)),
            CallResult::NotSent => Poll::Fault(ProviderFault::seen(UNREACHABLE)),
        };
        Polled { poll, price }
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        match tasks {
            [] => return Ok(Vec::new()),
            [task] => return Ok(vec![self.poll(task).await]),
            [..] => {}
        }
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| match account.banned(now) {
            Some(code) => Some(Err(code)),
            None => account.poll_many(tasks.iter().map(TaskId::as_str), struck, now),
        };
        let text = match self.call(Call::Poll, act).await {
            CallResult::Reply(Ok(effects)) => {
                let replies: Vec<_> = effects.into_iter().map(exchange::poll_reply).collect();
                fetch::write_many(&replies, true)
            }
            CallResult::Reply(Err(code)) | CallResult::Code(code) => {
                fetch::write_refusal(&code, true)
            }
            CallResult::TooMany(wait) => {
                return Err(BatchRefused::Fault(refusal(own::HTTP_429.into(), wait)));
            }
            CallResult::Lost(why) => return Err(BatchRefused::Fault(ProviderFault::seen(why))),
            CallResult::NotSent => {
                return Err(BatchRefused::Fault(ProviderFault::seen(UNREACHABLE)));
            }
        };
        batch(&text, tasks.len())
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), ProviderFault> {
        let account = &self.account;
        self.call_account(|now| {
            account.with(|behaviour| behaviour.report(task.as_str(), feedback, now))
        })
        .await
    }

    async fn balance(&self) -> Result<Money, ProviderFault> {
        let account = &self.account;
        self.call_account(|_| Ok(account.with(|behaviour| behaviour.balance()))).await
    }

    async fn threads(&self) -> Result<Threads, ProviderFault> {
        let account = &self.account;
        self.call_account(|now| account.with(|behaviour| behaviour.threads_info(now))).await
    }
}

/// Parses the reply as `upstream` does, so that the same information is lost.
fn batch(text: &str, n: usize) -> Result<Vec<Polled>, BatchRefused> {
    let polled = |reply| match reply {
        fetch::FetchReply::NotReady => Polled { poll: Poll::NotReady, price: None },
        fetch::FetchReply::Answer { answer, price } => Polled { poll: Poll::Solved(answer), price },
        fetch::FetchReply::Refused(code) => Polled { poll: Poll::Code(code), price: None },
    };
    match fetch::read_many(text.as_bytes(), n) {
        Ok(fetch::Many::Each(replies)) => Ok(replies.into_iter().map(polled).collect()),
        Ok(fetch::Many::Refused(code)) => Err(BatchRefused::Fault(refusal(code, None))),
        Ok(fetch::Many::Unsupported) => Err(BatchRefused::Unsupported),
        Err(_) => Err(BatchRefused::Garbled),
    }
}

fn reply<T>(fault: Option<&Fault>, said: Option<T>) -> CallResult<T> {
    match fault {
        Some(Fault::Code(code)) => CallResult::Code(code.clone()),
        Some(Fault::TooManyRequests { retry_after }) => {
            CallResult::TooMany(retry_after.map(Duration::from_secs))
        }
        Some(Fault::Unreachable) => CallResult::NotSent,
        Some(Fault::Hang) => CallResult::Lost("no reply before the deadline"),
        Some(Fault::Drop) => CallResult::Lost("the connection was closed before a reply"),
        Some(Fault::Status(_)) => {
            CallResult::Lost("the reply has an HTTP status that says nothing")
        }
        Some(Fault::Truncated) => CallResult::Lost("the reply was cut off"),
        Some(Fault::Garbage | Fault::Html | Fault::Empty | Fault::NoId | Fault::Huge) => {
            CallResult::Lost("the reply cannot be understood")
        }
        Some(Fault::Trickle(_) | Fault::Unsolvable | Fault::NeverReady | Fault::SameTask)
        | None => said.map_or(CallResult::Lost("no reply"), CallResult::Reply),
    }
}

fn refusal(code: Code, retry_after: Option<Duration>) -> ProviderFault {
    ProviderFault {
        why: format!("the simulated provider answers {code}"),
        code: Some(code),
        retry_after,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
