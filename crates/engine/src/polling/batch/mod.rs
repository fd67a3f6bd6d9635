//! One poll call for many tasks; where that brings nothing, each task by itself. `queue` holds the tasks that wait for a
//! call, `rule` decides when one is worth it.
//!
//! Whether the provider answers for several tasks in one call is found out once and remembered in the store. Kinds whose
//! answers cannot be separated are left out.

pub(crate) mod queue;
pub(super) mod rule;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::TaskId,
    ports::{BatchRefused, Poll, Polled},
    time::Timestamp,
};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::{
    Shared,
    pipeline::poll::{self, PollCall},
    scheduler::active::{ActiveSolve, ActiveSolves, NextStep},
};

/// What is known about the provider's support for batch polls.
#[derive(Debug, Default)]
pub(crate) struct BatchSupport(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The provider refused a batch poll; none is tried before then.
    refused_until: Option<Timestamp>,
    /// Kinds whose answers contain the separator.
    inseparable: BTreeSet<Kind>,
}

/// A provider that refused a batch poll is tried again after this.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
const MAX_INSEPARABLE: usize = 256;
const MEMO: &str = "together/refused_until";
/// Parameters whose answers have more members than the token.
const PARAMS_WITH_EXTRAS: [&str; 6] =
    ["data", "pagedata", "cookies", "enterprise", "userAgent", "useragent"];
/// Separates the answers of a batch poll.
const SEPARATOR: char = '|';

pub(crate) async fn poll_batch(shared: Arc<Shared>, batch: ActiveSolves) -> Vec<NextStep> {
    let now = shared.now();
    let is_enabled = |active: &ActiveSolve| is_enabled(&shared, &active.lease.solve.kind, now);
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
        shared.scheduler.in_flight.record_poll(active, now);
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
            record_refusal(shared).await;
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
    let is_separated = |text: &str| text.contains(SEPARATOR);
    for (active, polled) in batch.iter().zip(&polled) {
        if matches!(&polled.poll, Poll::Solved(answer) if is_separated(answer.text.expose())) {
            let inseparable = &mut shared.poller.batches.0.lock().inseparable;
            if inseparable.len() < MAX_INSEPARABLE {
                inseparable.insert(active.lease.solve.kind.clone());
            }
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

// --- what the provider supports ---

/// Whether tasks of the kind are polled in batches. A provider that calls back is hardly polled at all.
pub(crate) fn is_enabled(shared: &Shared, kind: &Kind, now: Timestamp) -> bool {
    if !shared.config.polling.allows_batches() || !shared.config.batches || shared.config.pingback {
        return false;
    }
    let state = shared.poller.batches.0.lock();
    state.refused_until.is_none_or(|until| now >= until) && !state.inseparable.contains(kind)
}

async fn record_refusal(shared: &Shared) {
    let until = shared.now().plus(REMEMBERED);
    tracing::info!(%until, "provider does not support batch polls");
    shared.poller.batches.0.lock().refused_until = Some(until);
    let memo = until.millis().to_string().into_bytes();
    if let Err(error) = shared.ports.store.set_memo(MEMO, memo).await {
        tracing::warn!(%error, "failed to persist batch-poll support, it will be probed again after a restart");
    }
}

/// Loads what an earlier process found out.
pub(crate) async fn load_support(shared: &Shared) {
    let Ok(memos) = shared.ports.store.memos(MEMO).await else { return };
    let until = memos.first().and_then(|(_, bytes)| str::from_utf8(bytes).ok()?.parse().ok());
    shared.poller.batches.0.lock().refused_until = until.map(Timestamp::from_millis);
}
