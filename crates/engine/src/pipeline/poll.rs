//! Polling: asks for the answer and says what the reply means. A failed poll never leads to a submission.
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
    Shared,
    polling::{Family, Observation, PollQuery, batch},
    scheduler::active::{ActiveSolve, NextStep, ONE_CALL},
};

use super::{settle::settle, submit::verdict};

/// A poll call: when it left, and how many tasks it was about.
#[derive(Clone, Copy)]
pub(crate) struct PollCall {
    pub(crate) sent_at: Timestamp,
    pub(crate) tasks: usize,
}

enum PollReading {
    Fact(Fact),
    NotReady,
    NothingLearned {
        wait: Duration,
    },
    /// The account must not poll.
    Refused {
        code: Code,
        wait: Duration,
    },
}

/// A `Retry-After` or a ban puts a poll off by no more than this.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// After a fault the wait doubles from here to eight seconds. While the provider is down, or after many faults in a row,
/// it is half a minute, because providers also count the polls they answer with an error.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MANY_FAULTS: u32 = 8;
/// Tasks of a larger batch are charged as if it had this many, so that no task is polled for ever.
const MAX_SHARERS: u32 = 20;
/// Polls that were put off come back spread over this time.
const SPREAD_MILLIS: u64 = 5_000;

/// A task was accepted: schedules its first poll.
pub(super) fn start(shared: &Shared, mut active: Box<ActiveSolve>) -> NextStep {
    active.reset_polls();
    let polling = &shared.config.polling;
    shared.poller.quota.earn(polling.most);
    let in_batches = batch::is_enabled(shared, &active.lease.solve.kind, shared.now());
    let first = if in_batches { polling.min_gap } else { next_poll(shared, &active) };
    NextStep::At(shared.now().plus(first), active)
}

pub(crate) async fn poll(shared: Arc<Shared>, active: Box<ActiveSolve>) -> NextStep {
    let Some(task) = active.lease.solve.task.clone() else {
        tracing::error!(solve = %active.lease.solve.id, "submitted solve has no task id");
        return NextStep::Released;
    };
    let sent_at = shared.now();
    if let Err(until) = permit(&shared, sent_at) {
        let latest = forgotten_at(&shared, &active).max(sent_at.plus(MIN_WAIT));
        return NextStep::At(until.min(latest), active);
    }
    shared.scheduler.in_flight.record_poll(&active, sent_at);
    let polled = shared.ports.provider.poll(&task).await;
    conclude(&shared, active, (task, polled), PollCall { sent_at, tasks: 1 }).await
}

/// Permits one poll call, or says when to try again: the provider has refused a poll, or the account has polled as often as
/// its submissions allow. The refusal of a submission is no reason: paid tasks are polled on. The times are spread a little,
/// so that tasks do not all come back at once. The caller must send the call, because it may be the probe.
pub(crate) fn permit(shared: &Shared, now: Timestamp) -> Result<(), Timestamp> {
    let breaker = &shared.scheduler.breakers.polling;
    let permit = breaker
        .pass(now)
        .and_then(|()| shared.poller.quota.take(now).inspect_err(|_| breaker.reopen(now)));
    let spread = || Duration::from_millis(shared.ports.chance.draw() % SPREAD_MILLIS);
    permit.map_err(|until| until.plus(spread()))
}

/// Acts on a reply. "Not ready" was true some time after the call left, so the token cannot be older than that.
pub(crate) async fn conclude(
    shared: &Shared,
    mut active: Box<ActiveSolve>,
    (task, polled): (TaskId, Polled),
    call: PollCall,
) -> NextStep {
    let before = (active.polls, active.calls);
    active.polls += 1;
    // The tasks of a call share its cost.
    let sharers = u32::try_from(call.tasks).unwrap_or(MAX_SHARERS).clamp(1, MAX_SHARERS);
    active.calls += ONE_CALL.div_ceil(sharers);
    let reading = read(shared, &active, task, polled);
    let breaker = &shared.scheduler.breakers.polling;
    match &reading {
        PollReading::Fact(_) | PollReading::NotReady => breaker.close(call.sent_at, shared.now()),
        PollReading::NothingLearned { .. } => breaker.learned_nothing(shared.now()),
        PollReading::Refused { code, wait } => {
            breaker.open(code.clone(), *wait, call.sent_at, shared.now());
        }
    }
    match reading {
        PollReading::Fact(fact) => settle(shared, active, fact).await,
        PollReading::NotReady => {
            active.not_ready = Some(call.sent_at);
            active.faults = 0;
            poll_again(shared, active, call.sent_at, Duration::ZERO).await
        }
        PollReading::NothingLearned { wait } | PollReading::Refused { wait, .. } => {
            // An unintelligible reply does not count as a poll, so an outage cannot use up a paid task's polls.
            (active.polls, active.calls) = before;
            active.faults = active.faults.saturating_add(1);
            let is_down =
                shared.scheduler.breakers.provider.is_open() || active.faults > MANY_FAULTS;
            let doublings = if is_down { 5 } else { active.faults.min(3) };
            let wait = wait.max(MIN_WAIT.saturating_mul(1 << doublings));
            poll_again(shared, active, call.sent_at, wait).await
        }
    }
}

fn read(shared: &Shared, active: &ActiveSolve, task: TaskId, polled: Polled) -> PollReading {
    let solve = &active.lease.solve;
    match polled.poll {
        Poll::NotReady => PollReading::NotReady,
        Poll::Fault(fault) => {
            tracing::warn!(solve = %solve.id, %fault, "poll failed, retrying");
            PollReading::NothingLearned { wait: fault.retry_after.unwrap_or_default() }
        }
        Poll::Solved(answer) => {
            learn(shared, active);
            PollReading::Fact(Fact::Solved(Solved {
                task,
                answer,
                ready_lower: active.not_ready.unwrap_or(active.sent_at()),
                life: shared.config.token_lifetime(&solve.kind),
                cost: polled.price.or_else(|| charge(shared, active, solve.price)),
                polls: active.polls,
            }))
        }
        Poll::Code(code) => read_code(shared, active, &code),
    }
}

fn learn(shared: &Shared, active: &ActiveSolve) {
    let age = shared.now().since(active.sent_at());
    // A task that was taken over may have been ready long before this process asked. If such ages counted, queued solves
    // would be given up after an outage, because nothing seems to be answered quickly.
    if active.not_ready.is_some() || active.polls <= 1 {
        shared.scheduler.solve_times.record(&active.lease.solve.kind, age);
    }
    let after = active.not_ready.map_or(Duration::ZERO, |at| at.since(active.sent_at()));
    shared.config.polling.memory.learn(&active.family, Observation::Ready { after, by: age });
}

fn read_code(shared: &Shared, active: &ActiveSolve, code: &Code) -> PollReading {
    let rule = shared.config.retry.rule(code);
    match rule.class {
        Class::Wait => PollReading::NotReady,
        Class::Transient => PollReading::NothingLearned { wait: rule.floor },
        Class::Account => {
            // The task still exists, so polling goes on later.
            let account = &shared.scheduler.breakers.account;
            account.open(code.clone(), rule.floor, shared.now(), shared.now());
            let wait = rule.floor.max(shared.config.probe_every);
            match rule.effect {
                Effect::StopPolling => PollReading::Refused { code: code.clone(), wait },
                Effect::None
                | Effect::NoSlot
                | Effect::MaybeNoSlot
                | Effect::SlowDown
                | Effect::ProviderDown => PollReading::NothingLearned { wait },
            }
        }
        Class::Permanent | Class::TaskOver => {
            PollReading::Fact(task_over(shared, active, code.clone()))
        }
    }
}

fn task_over(shared: &Shared, active: &ActiveSolve, code: Code) -> Fact {
    let solve = &active.lease.solve;
    let listed = match shared.config.retry.rule(&code).charged {
        Some(false) => Some(Money::ZERO),
        Some(true) => solve.price,
        None => None,
    };
    let cost = charge(shared, active, listed);
    let verdict = verdict(shared, solve, &code, (shared.now(), None));
    Fact::TaskOver { verdict, code, cost, polls: active.polls }
}

/// The cost of an attempt that ends now and whose cost the provider does not say. Under a plan it is the time for which the
/// task occupied a thread, with or without an answer.
fn charge(shared: &Shared, active: &ActiveSolve, listed: Option<Money>) -> Option<Money> {
    let took = shared.now().since(active.sent_at());
    shared.config.prices.charge(listed, took)
}

/// Schedules the next poll; or gives the task up, when the provider has forgotten it or it was polled often enough.
async fn poll_again(
    shared: &Shared,
    active: Box<ActiveSolve>,
    polled_at: Timestamp,
    at_least: Duration,
) -> NextStep {
    let polling = &shared.config.polling;
    let now = shared.now();
    let age = now.since(active.sent_at());
    let max_calls = polling.most.saturating_mul(ONE_CALL);
    if active.calls >= max_calls || age >= shared.config.harvest {
        let code = Code::from(own::NEVER_READY);
        polling.memory.learn(&active.family, Observation::NotWithin(age));
        let cost = charge(shared, &active, None);
        let fact = Fact::TaskOver { code, verdict: Verdict::GiveUp, cost, polls: active.polls };
        return settle(shared, active, fact).await;
    }
    let min_gap = polling.min_gap;
    // In a batch it is polled as often as the others, as long as that is cheap and its answer likely.
    let is_likely = || age < 2 * polling.memory.timing(&active.family).q99;
    let in_batch = batch::is_enabled(shared, &active.lease.solve.kind, now)
        && active.calls < max_calls / 2
        && is_likely();
    // The last poll was at the provider about halfway between leaving and being answered.
    let since = (now.since(polled_at) / 2).min(min_gap / 10);
    let gap = if in_batch { min_gap.saturating_sub(since) } else { next_poll(shared, &active) };
    // No reply can put a paid task off until the provider has forgotten it.
    let gap = gap.max(at_least.min(MAX_WAIT));
    let latest = forgotten_at(shared, &active).max(now.plus(min_gap));
    NextStep::At(now.plus(gap).min(latest), active)
}

/// When the provider drops the task's result.
fn forgotten_at(shared: &Shared, active: &ActiveSolve) -> Timestamp {
    active.sent_at().plus(shared.config.harvest)
}

/// How long from now until the task is polled by itself. Where the provider calls back, one late poll is the safety net.
pub(crate) fn next_poll(shared: &Shared, active: &ActiveSolve) -> Duration {
    let polling = &shared.config.polling;
    let age = shared.now().since(active.sent_at());
    if shared.config.pingback && active.polls == 0 {
        let late = polling.memory.timing(&active.family).q99;
        return late.saturating_sub(age).max(polling.min_gap);
    }
    polling.next(&PollQuery {
        family: &active.family,
        polls: active.calls.div_ceil(ONE_CALL),
        age,
        waiting: active.lease.solve.claims.len(),
        jitter: shared.ports.chance.draw(),
    })
}

/// Estimates how often another process has polled a task that is taken over, from the task's age.
pub(crate) fn polls_so_far(shared: &Shared, lease: &Lease) -> u32 {
    let solve = &lease.solve;
    let out = shared.now().since(solve.accepted_at.unwrap_or(solve.opened_at));
    let polling = &shared.config.polling;
    let family = Family::of(&solve.kind, &lease.challenge);
    let (mut age, mut polls) = (Duration::ZERO, 0);
    while polls < polling.most {
        let query = PollQuery { family: &family, polls, age, waiting: 1, jitter: u64::MAX / 2 };
        age += polling.next(&query).max(polling.min_gap);
        if age > out {
            break;
        }
        polls += 1;
    }
    // Leave at least two: a first "not ready" may be needed to know the answer's age.
    polls.min(polling.most.saturating_sub(2))
}
