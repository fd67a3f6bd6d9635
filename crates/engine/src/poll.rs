//! Step 4 of a claim: ask for the answer, and what the reply means. A poll fault never leads to a submission.
//! Before: submit.rs. After: settle.rs.

use std::{sync::Arc, time::Duration};

use domain::{
    id::TaskId,
    lease::Lease,
    money::Money,
    ports::{Poll, Polled},
    retry::{Class, Code, Effect, Verdict, own},
    solve::{Fact, Solved},
    time::Timestamp,
};

use crate::{
    Inner,
    held::{Held, ONE_CALL, Then},
    polling::{Family, PollAsk, Seen},
};

/// Asks once.
pub(crate) async fn poll(inner: Arc<Inner>, held: Box<Held>) -> Then {
    let Some(task) = held.lease.solve.task.clone() else {
        tracing::error!(solve = %held.lease.solve.id, "submitted solve has no task id");
        return Then::Gone;
    };
    let asked = inner.now();
    if let Err(until) = inner.may_poll(asked) {
        return Then::at(until.min(held.last_chance(&inner).max(asked.plus(LEAST_WAIT))), held);
    }
    held.note_asked(&inner, asked);
    let polled = inner.ports.provider.poll(&task).await;
    conclude(&inner, held, (task, polled), Question { asked, tasks: 1 }).await
}

/// When a question left, and how many tasks it was about.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) asked: Timestamp,
    pub(crate) tasks: usize,
}

/// What an answer means. A "not ready" was true some time after the question left: from then on the token can have
/// been made.
pub(crate) async fn conclude(
    inner: &Inner,
    mut held: Box<Held>,
    (task, polled): (TaskId, Polled),
    question: Question,
) -> Then {
    let before = (held.polls, held.calls);
    held.polls += 1;
    held.calls += question.share();
    match read(inner, &held, task, polled) {
        Reading::Fact(fact) => held.settle(inner, fact).await,
        Reading::NotReady => {
            held.not_ready = Some(question.asked);
            held.faults = 0;
            held.poll_again(inner, question.asked, Duration::ZERO).await
        }
        Reading::NothingLearned { wait } => {
            // A question nobody understood was none: a paid task is not given up for an outage.
            (held.polls, held.calls) = before;
            held.faults = held.faults.saturating_add(1);
            let away = inner.breakers.provider.is_open() || held.faults > PATIENCE;
            let doublings = if away { 5 } else { held.faults.min(3) };
            let wait = wait.max(LEAST_WAIT.saturating_mul(1 << doublings));
            held.poll_again(inner, question.asked, wait).await
        }
    }
}

/// A `Retry-After` or a ban puts a poll off by no more.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// After a fault the wait doubles from here to eight seconds; while the provider is away, or after many faults in a row, it
/// is half a minute: what a provider counts includes the questions it answers with a fault.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const PATIENCE: u32 = 8;
const MOST_SHARE: u32 = 20;

enum Reading {
    Fact(Fact),
    NotReady,
    NothingLearned { wait: Duration },
}

fn read(inner: &Inner, held: &Held, task: TaskId, polled: Polled) -> Reading {
    let solve = &held.lease.solve;
    match polled.poll {
        Poll::NotReady => Reading::NotReady,
        Poll::Fault(fault) => {
            tracing::warn!(solve = %solve.id, %fault, "poll failed, retrying");
            Reading::NothingLearned { wait: fault.retry_after.unwrap_or_default() }
        }
        Poll::Solved(answer) => {
            let ready_lower = held.not_ready.or(solve.accepted_at).unwrap_or(solve.opened_at);
            let accepted = solve.accepted_at.unwrap_or(solve.opened_at);
            let age = inner.now().since(accepted);
            inner.health.solved_in(&solve.kind, age);
            let after = held.not_ready.map_or(Duration::ZERO, |at| at.since(accepted));
            inner.config.polling.learn(&held.family, Seen::Ready { after, by: age });
            let life = inner.config.shelf_life(&solve.kind);
            let cost = polled.price.or(solve.price);
            Reading::Fact(Fact::Solved(Solved {
                task,
                answer,
                ready_lower,
                life,
                cost,
                polls: held.polls,
            }))
        }
        Poll::Code(code) => read_code(inner, held, &code),
    }
}

fn read_code(inner: &Inner, held: &Held, code: &Code) -> Reading {
    let rule = inner.config.retry.rule(code);
    match rule.class {
        Class::Wait => Reading::NotReady,
        Class::Transient => Reading::NothingLearned { wait: rule.floor },
        Class::Account => {
            // The task still exists: keep its name and ask later.
            inner.breakers.account.open(code.clone(), rule.floor, inner.now(), inner.now());
            Reading::NothingLearned { wait: rule.floor.max(inner.config.probe_every) }
        }
        Class::Permanent | Class::TaskOver => Reading::Fact(over(inner, held, code.clone())),
    }
}

fn over(inner: &Inner, held: &Held, code: Code) -> Fact {
    let solve = &held.lease.solve;
    let cost = match inner.config.retry.rule(&code).charged {
        Some(false) => Some(Money::ZERO),
        Some(true) => solve.price,
        None => None,
    };
    let verdict = inner.verdict(solve, &code, (inner.now(), None));
    Fact::TaskOver { verdict, code, cost, polls: held.polls }
}

impl Question {
    /// What it costs each of its tasks, in hundredths of a call. Not less than a twentieth: no task is named for ever.
    fn share(self) -> u32 {
        let tasks = u32::try_from(self.tasks).unwrap_or(MOST_SHARE).clamp(1, MOST_SHARE);
        ONE_CALL.div_ceil(tasks)
    }
}

impl Inner {
    /// Leave to ask once, or when to try again: the account is banned from asking, or has asked as often as what it
    /// submitted allows. Spread a little, so that all tasks do not come back at once.
    pub(crate) fn may_poll(&self, now: Timestamp) -> Result<(), Timestamp> {
        let banned = self.breakers.account.open_until(now);
        let banned =
            banned.filter(|(code, _)| self.config.retry.effect(code) == Effect::StopPolling);
        let wait = match banned {
            Some((_, until)) => Err(until),
            None => self.quota.ask(now),
        };
        let spread = || Duration::from_millis(self.ports.chance.draw() % 5_000);
        wait.map_err(|until| until.plus(spread()))
    }
}

impl Held {
    /// The last moment the provider still has its result.
    fn last_chance(&self, inner: &Inner) -> Timestamp {
        self.sent_at().plus(inner.config.harvest)
    }

    /// When to ask again; or the end, when the provider has forgotten the task or was asked often enough.
    async fn poll_again(
        self: Box<Self>,
        inner: &Inner,
        asked: Timestamp,
        at_least: Duration,
    ) -> Then {
        let now = inner.now();
        let sent = self.sent_at();
        let together = inner.asks_together(&self.lease.solve.kind, now);
        let most = inner.config.polling.most().saturating_mul(ONE_CALL);
        let often = self.calls >= most;
        if often || now.since(sent) >= inner.config.harvest {
            let code = Code::from(own::NEVER_READY);
            inner.config.polling.learn(&self.family, Seen::NotWithin(now.since(sent)));
            let fact =
                Fact::TaskOver { code, verdict: Verdict::GiveUp, cost: None, polls: self.polls };
            return self.settle(inner, fact).await;
        }
        let min_gap = inner.config.polling.min_gap();
        // With others it is asked for as often as they are, as long as that is cheap and its answer likely.
        let likely = || now.since(sent) < 2 * inner.config.polling.timing(&self.family).q99;
        let with_others = together && self.calls < most / 2 && likely();
        // The last question was at the provider about halfway between leaving and being answered.
        let since = (now.since(asked) / 2).min(min_gap / 10);
        let gap = if with_others { min_gap.saturating_sub(since) } else { self.next_poll(inner) };
        // No answer of the provider can park a paid task until it is forgotten.
        let gap = gap.max(at_least.min(LONGEST_WAIT));
        let last = self.last_chance(inner);
        Then::at(now.plus(gap).min(last.max(now.plus(min_gap))), self)
    }

    /// How long from now until the task is asked for by itself. Where the provider calls back, one question late is
    /// the net below.
    pub(crate) fn next_poll(&self, inner: &Inner) -> Duration {
        let age = inner.now().since(self.sent_at());
        if inner.config.pingback && self.polls == 0 {
            let net = inner.config.polling.timing(&self.family).q99;
            return net.saturating_sub(age).max(inner.config.polling.min_gap());
        }
        let ask = PollAsk {
            family: &self.family,
            polls: self.calls.div_ceil(ONE_CALL),
            age,
            waiting: self.lease.solve.claims.len(),
            jitter: inner.ports.chance.draw(),
        };
        inner.config.polling.next(&ask)
    }

    /// Remembers that the task is being asked for, whatever becomes of the question.
    pub(crate) fn note_asked(&self, inner: &Inner, asked: Timestamp) {
        if let Some(sent) = inner.sent().get_mut(&self.lease.solve.id) {
            sent.polled = Some((asked, self.polls + 1));
        }
    }

    fn sent_at(&self) -> Timestamp {
        self.lease.solve.accepted_at.unwrap_or(self.lease.solve.opened_at)
    }

    /// How often a task that has been out for a while must have been asked for already, by whoever had it.
    pub(crate) fn polls_until_now(inner: &Inner, lease: &Lease) -> u32 {
        let solve = &lease.solve;
        let out = inner.now().since(solve.accepted_at.unwrap_or(solve.opened_at));
        let polling = &inner.config.polling;
        let family = Family::of(lease);
        let (mut age, mut polls) = (Duration::ZERO, 0);
        while polls < polling.most() {
            let ask = PollAsk { family: &family, polls, age, waiting: 1, jitter: u64::MAX / 2 };
            age += polling.next(&ask).max(polling.min_gap());
            if age > out {
                break;
            }
            polls += 1;
        }
        // At least two are left: the answer may be there, and a first "not ready" may be needed to know its age.
        polls.min(polling.most().saturating_sub(2))
    }
}
