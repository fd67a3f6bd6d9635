//! The simulated provider in process: the same account as behind `server`, reached through the
//! [`Provider`] port in the time of a [`Clock`]. Deterministic: equal seeds and equal calls, equal history.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    challenge::Challenge,
    id::{AttemptName, TaskId},
    money::Money,
    ports::{
        BatchRefused, Clock, Fault as Seen, Feedback, Poll, Polled, Provider, Submission, Threads,
    },
    retry::{Code, own},
    time::Timestamp,
};
use tokio::task::JoinSet;
use wire::fetch;

use crate::{
    account::Account,
    behaviour::{PollEffect, SubmitEffect},
    exchange,
    faults::{Call, Fault, Planned},
};

/// The provider, as a gateway in the same process reaches it.
#[derive(Debug)]
pub struct SimProvider {
    account: Account,
    clock: Arc<dyn Clock>,
    latency: Latency,
    rng: Mutex<fastrand::Rng>,
    calls: Option<Calls>,
}

/// Who is told that an attempt's task is over.
pub type PingbackHook = Arc<dyn Fn(AttemptName, TaskId) + Send + Sync>;

/// The calls back that are to be made; they end with the provider.
struct Calls {
    hook: PingbackHook,
    waiting: Mutex<JoinSet<()>>,
}

/// How long the way to the provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The shortest way there, or back.
    pub least: Duration,
    /// The longest way there, or back.
    pub most: Duration,
    /// When the gateway gives a call up.
    pub deadline: Duration,
}

/// How a call ended for the caller, before it knows what the provider said.
enum Reply<T> {
    /// The provider's own words.
    Said(T),
    /// HTTP 429.
    TooMany(Option<Duration>),
    /// A refusal.
    Code(Code),
    /// Nothing intelligible.
    Lost(&'static str),
    /// No byte left.
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
    /// Reaches this account in this time.
    pub fn new(account: Account, clock: Arc<dyn Clock>, latency: Latency) -> Self {
        let seed = account.with(|behaviour| behaviour.config().seed);
        let rng = Mutex::new(fastrand::Rng::with_seed(seed ^ 0x1A7E_4C1E));
        Self { account, clock, latency, rng, calls: None }
    }

    /// Tells `hook` about every task that is over, when it is, after the usual way. Whether the submission's reply
    /// arrived does not matter. Needs tokio's runtime.
    #[must_use]
    pub fn with_pingback(mut self, hook: PingbackHook) -> Self {
        self.calls = Some(Calls { hook, waiting: Mutex::default() });
        self
    }

    fn call_back(&self, attempt: AttemptName, task: TaskId) {
        let Some(Calls { hook, waiting }) = &self.calls else { return };
        let over_at = self.account.with(|behaviour| behaviour.over_at(task.as_str()));
        let Some(at) = over_at.map(|over_at| over_at.plus(self.way())) else { return };
        let (account, clock, hook) = (self.account.clone(), self.clock.clone(), hook.clone());
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.try_join_next().is_some() {}
        waiting.spawn(async move {
            clock.sleep_until(at).await;
            account.with(|behaviour| behaviour.called_back(&task));
            hook(attempt, task);
        });
    }

    /// The account behind it.
    pub fn account(&self) -> &Account {
        &self.account
    }

    fn way(&self) -> Duration {
        let (least, most) = (millis(self.latency.least), millis(self.latency.most));
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_millis(rng.u64(least..=most.max(least)))
    }

    async fn pass(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    /// One call: the way there, what is done there, the way back. Whoever drops it on the way there has sent
    /// nothing that arrived; whoever drops it on the way back has.
    async fn call<T>(
        &self,
        call: Call,
        act: impl FnOnce(Option<&Planned>, Timestamp) -> Option<T> + Send,
    ) -> Reply<T>
    where
        T: Send,
    {
        let given_up = self.clock.now().plus(self.latency.deadline);
        let struck = self.account.draw(call);
        let (there, back) = (self.way(), self.way());
        self.pass(there).await;
        let fault = struck.as_ref().map(|struck| &struck.fault);
        if fault == Some(&Fault::Unreachable) {
            return Reply::NotSent;
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
            return Reply::Lost("no reply before the deadline");
        }
        reply(fault, said)
    }

    /// A call whose only other outcome is a fault.
    async fn ask<T: Send>(
        &self,
        act: impl FnOnce(Timestamp) -> Result<T, Code> + Send,
    ) -> Result<T, Seen> {
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| match account.banned(now) {
            Some(code) => Some(Err(code)),
            None => struck.is_none_or(Planned::is_carried_out).then(|| act(now)),
        };
        let reply = self.call(Call::Account, act).await;
        match reply {
            Reply::Said(Ok(said)) => Ok(said),
            Reply::Said(Err(code)) | Reply::Code(code) => Err(refusal(code, None)),
            Reply::TooMany(wait) => Err(refusal(own::HTTP_429.into(), wait)),
            Reply::Lost(why) => Err(Seen::seen(why)),
            Reply::NotSent => Err(Seen::seen(UNREACHABLE)),
        }
    }
}

#[async_trait]
impl Provider for SimProvider {
    async fn submit(&self, challenge: &Challenge, attempt: AttemptName) -> Submission {
        let account = &self.account;
        let nonce = Some(attempt.nonce);
        let act = |struck: Option<&Planned>, now| {
            let effect = account.submit(challenge, nonce, struck, now);
            if let Some(SubmitEffect::Accepted(accepted)) = &effect
                && accepted.nonce == nonce
            {
                self.call_back(attempt, accepted.task.clone());
            }
            effect
        };
        match self.call(Call::Submit, act).await {
            Reply::Said(SubmitEffect::Accepted(accepted)) => Submission::Accepted(accepted.task),
            Reply::Said(SubmitEffect::Refused(code)) | Reply::Code(code) => {
                Submission::Rejected { code, retry_after: None }
            }
            Reply::TooMany(retry_after) => {
                Submission::Rejected { code: own::HTTP_429.into(), retry_after }
            }
            Reply::Lost(why) => Submission::Ambiguous { why: why.to_owned(), retry_after: None },
            Reply::NotSent => Submission::NotSent(UNREACHABLE.to_owned()),
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        let account = &self.account;
        let act = |struck: Option<&Planned>, now| match account.banned(now) {
            Some(code) => Some(PollEffect::Refused(code)),
            None => account.poll(task.as_str(), struck, now),
        };
        let reply = self.call(Call::Poll, act).await;
        let captchaai = account.with(|behaviour| behaviour.config().captchaai);
        let mut price = None;
        let poll = match reply {
            Reply::Said(PollEffect::NotReady) => Poll::NotReady,
            Reply::Said(PollEffect::Solved(told, cost)) => {
                price = (!captchaai).then_some(cost);
                Poll::Solved(told.answer)
            }
            Reply::Said(PollEffect::Refused(code)) | Reply::Code(code) => Poll::Code(code),
            Reply::TooMany(wait) => Poll::Fault(refusal(own::HTTP_429.into(), wait)),
            Reply::Lost(why) => Poll::Fault(Seen::seen(why)),
            Reply::NotSent => Poll::Fault(Seen::seen(UNREACHABLE)),
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
            Reply::Said(Ok(effects)) => {
                let replies: Vec<_> = effects.into_iter().map(exchange::poll_reply).collect();
                fetch::write_many(&replies, true)
            }
            Reply::Said(Err(code)) | Reply::Code(code) => fetch::write_refusal(&code, true),
            Reply::TooMany(wait) => {
                return Err(BatchRefused::Fault(refusal(own::HTTP_429.into(), wait)));
            }
            Reply::Lost(why) => return Err(BatchRefused::Fault(Seen::seen(why))),
            Reply::NotSent => return Err(BatchRefused::Fault(Seen::seen(UNREACHABLE))),
        };
        batch(&text, tasks.len())
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Seen> {
        let account = &self.account;
        self.ask(|now| account.with(|behaviour| behaviour.report(task.as_str(), feedback, now)))
            .await
    }

    async fn balance(&self) -> Result<Money, Seen> {
        let account = &self.account;
        self.ask(|_| Ok(account.with(|behaviour| behaviour.balance()))).await
    }

    async fn threads(&self) -> Result<Threads, Seen> {
        let account = &self.account;
        self.ask(|now| account.with(|behaviour| behaviour.threads_info(now))).await
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

/// What the upstream makes of this reply: what has no place in it is lost here too.
fn batch(text: &str, n: usize) -> Result<Vec<Polled>, BatchRefused> {
    let polled = |reply| match reply {
        fetch::Reply::NotReady => Polled { poll: Poll::NotReady, price: None },
        fetch::Reply::Answer { answer, price } => Polled { poll: Poll::Solved(answer), price },
        fetch::Reply::Refused(code) => Polled { poll: Poll::Code(code), price: None },
    };
    match fetch::read_many(text.as_bytes(), n) {
        Ok(fetch::Many::Each(replies)) => Ok(replies.into_iter().map(polled).collect()),
        Ok(fetch::Many::Refused(code)) => Err(BatchRefused::Fault(refusal(code, None))),
        Ok(fetch::Many::Unsupported) => Err(BatchRefused::Unsupported),
        Err(_) => Err(BatchRefused::Garbled),
    }
}

/// What the caller sees of what was said.
fn reply<T>(fault: Option<&Fault>, said: Option<T>) -> Reply<T> {
    match fault {
        Some(Fault::Code(code)) => Reply::Code(code.clone()),
        Some(Fault::TooManyRequests { retry_after }) => {
            Reply::TooMany(retry_after.map(Duration::from_secs))
        }
        Some(Fault::Unreachable) => Reply::NotSent,
        Some(Fault::Hang) => Reply::Lost("no reply before the deadline"),
        Some(Fault::Drop) => Reply::Lost("the connection was closed before a reply"),
        Some(Fault::Status(_)) => Reply::Lost("the reply has an HTTP status that says nothing"),
        Some(Fault::Truncated) => Reply::Lost("the reply was cut off"),
        Some(Fault::Garbage | Fault::Html | Fault::Empty | Fault::NoId | Fault::Huge) => {
            Reply::Lost("the reply cannot be understood")
        }
        Some(Fault::Trickle(_) | Fault::Unsolvable | Fault::NeverReady | Fault::SameTask)
        | None => said.map_or(Reply::Lost("no reply"), Reply::Said),
    }
}

fn refusal(code: Code, retry_after: Option<Duration>) -> Seen {
    Seen { why: format!("the simulated provider answers {code}"), code: Some(code), retry_after }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
