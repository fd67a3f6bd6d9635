//! Polls a batch of tasks in one call; where that brings nothing, each task by itself.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::TaskId,
    ports::{BatchRefused, Poll, Polled},
    time::Timestamp,
};
use futures_util::future::join_all;

use crate::{
    Shared,
    pipeline::poll::{self, PollCall},
    scheduler::active::{ActiveSolve, ActiveSolves, NextStep},
};

use super::support;

/// Parameters whose answers have more members than the token.
const PARAMS_WITH_EXTRAS: [&str; 6] =
    ["data", "pagedata", "cookies", "enterprise", "userAgent", "useragent"];
/// Separates the answers of a batch poll.
const SEPARATOR: char = '|';

pub(crate) async fn poll_batch(shared: Arc<Shared>, batch: ActiveSolves) -> Vec<NextStep> {
    let now = shared.now();
    let is_enabled =
        |active: &ActiveSolve| support::is_enabled(&shared, &active.lease.solve.kind, now);
    if !batch.iter().all(|active| is_enabled(active)) {
        // Another batch has shown that some of these kinds cannot be polled together.
        let reschedule = |active: Box<ActiveSolve>| {
            let enabled = is_enabled(&active);
            let wait = if enabled { Duration::ZERO } else { poll::next_poll(&shared, &active) };
            NextStep::At(now.plus(wait), active)
        };
        return batch.into_iter().map(reschedule).collect();
    }
    let tasks: Vec<TaskId> =
        batch.iter().filter_map(|active| active.lease.solve.task.clone()).collect();
    if batch.len() == 1 || tasks.len() != batch.len() {
        let each = batch.into_iter().map(|active| poll::poll(Arc::clone(&shared), active));
        return join_all(each).await;
    }
    if let Err(until) = poll::permit(&shared, now) {
        return batch.into_iter().map(|active| NextStep::At(until, active)).collect();
    }
    for active in &batch {
        poll::record_poll(&shared, active, now);
    }
    call(&shared, batch, tasks, now).await
}

async fn call(
    shared: &Shared,
    batch: ActiveSolves,
    tasks: Vec<TaskId>,
    sent_at: Timestamp,
) -> Vec<NextStep> {
    let polled = match shared.ports.provider.poll_many(&tasks).await {
        Ok(polled) if polled.len() == batch.len() => polled,
        Ok(_) | Err(BatchRefused::Garbled) => {
            return poll_each(shared, batch, tasks, sent_at).await;
        }
        Err(BatchRefused::Unsupported) => {
            support::record_refusal(shared).await;
            return poll_each(shared, batch, tasks, sent_at).await;
        }
        Err(BatchRefused::Fault(fault)) => {
            let nothing = Polled { poll: Poll::Fault(fault), price: None };
            vec![nothing; batch.len()]
        }
    };
    let polled = complete_answers(shared, &batch, &tasks, polled).await;
    let call = PollCall { sent_at, tasks: tasks.len() };
    conclude(shared, batch, (tasks, polled), call).await
}

/// Answers of a batch poll lack the price and extras such as a user agent or cookies. Where one of them matters, the task
/// is polled once more by itself.
async fn complete_answers(
    shared: &Shared,
    batch: &[Box<ActiveSolve>],
    tasks: &[TaskId],
    polled: Vec<Polled>,
) -> Vec<Polled> {
    let each = batch.iter().zip(tasks).zip(polled).map(async |((active, task), polled)| {
        let solved = matches!(polled.poll, Poll::Solved(_));
        if !solved || is_complete(active) {
            return polled;
        }
        shared.poller.quota.spend(1);
        shared.ports.provider.poll(task).await
    });
    join_all(each).await
}

/// Whether the task's answer is one text of a known price.
fn is_complete(active: &ActiveSolve) -> bool {
    let solve = &active.lease.solve;
    let is_text =
        matches!(solve.kind, Kind::RecaptchaV2 | Kind::RecaptchaV3 | Kind::Turnstile | Kind::Image);
    let params = active.lease.challenge.params();
    let has_extras = PARAMS_WITH_EXTRAS.iter().any(|name| params.contains_key(*name));
    is_text && !has_extras && solve.price.is_some()
}

async fn poll_each(
    shared: &Shared,
    batch: ActiveSolves,
    tasks: Vec<TaskId>,
    sent_at: Timestamp,
) -> Vec<NextStep> {
    shared.poller.quota.spend(tasks.len());
    let polled = join_all(tasks.iter().map(|task| shared.ports.provider.poll(task))).await;
    for (active, polled) in batch.iter().zip(&polled) {
        let is_separated = |text: &str| text.contains(SEPARATOR);
        if matches!(&polled.poll, Poll::Solved(answer) if is_separated(answer.text.expose())) {
            shared.poller.batches.exclude(active.lease.solve.kind.clone());
        }
    }
    conclude(shared, batch, (tasks, polled), PollCall { sent_at, tasks: 1 }).await
}

async fn conclude(
    shared: &Shared,
    batch: ActiveSolves,
    (tasks, polled): (Vec<TaskId>, Vec<Polled>),
    call: PollCall,
) -> Vec<NextStep> {
    let each = batch.into_iter().zip(tasks.into_iter().zip(polled));
    join_all(each.map(|(active, answered)| poll::conclude(shared, active, answered, call))).await
}
