//! The provider calls back when a task is over. A call is only a hint, because anybody may have sent it: the task is polled
//! at once, and the reply to that poll counts. A call also names the task of a submission whose reply was lost.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    id::{AttemptName, SolveId, TaskId},
    ports::Poll,
    solve::{Fact, Solve},
};
use parking_lot::Mutex;

use crate::{
    Engine, Shared,
    pipeline::{poll, settle},
};

#[derive(Debug, Default)]
pub(crate) struct Pingbacks {
    /// Tasks that were called back about, for the driver.
    pub(crate) hints: Mutex<BTreeSet<SolveId>>,
    /// The last solves for which a call has cost a poll.
    confirmed: Mutex<VecDeque<SolveId>>,
}

/// More hints than this are dropped; the late poll of each task finds the answer.
const MAX_HINTS: usize = 10_000;
/// Repeated calls about one solve cost at most this many polls.
const MAX_REPEATS: usize = 3;
const REMEMBERED: usize = 1000;

impl Engine {
    /// Takes a callback of the provider about an attempt.
    pub async fn pingback(&self, name: AttemptName, task: TaskId) {
        let shared = &*self.0;
        if shared.scheduler.in_flight.driven(name.solve).is_some() {
            let mut hints = shared.poller.pingbacks.hints.lock();
            if hints.len() < MAX_HINTS {
                hints.insert(name.solve);
            }
            shared.scheduler.wake();
            return;
        }
        let Ok(Some(solve)) = shared.ports.store.find_solve(name.solve).await else { return };
        if solve.nonce != Some(name.nonce) || !is_worth_a_poll(shared, &solve, &task) {
            return;
        }
        // The submission's reply was lost. The task is real if the provider knows it.
        let polled = shared.ports.provider.poll(&task).await;
        if matches!(polled.poll, Poll::Code(_) | Poll::Fault(_)) {
            return;
        }
        // When it was sent is not known here. The claim's beginning is the safe side.
        let sent_at = solve.accepted_at.unwrap_or(solve.opened_at);
        settle::record(shared, name.solve, name.attempt, Fact::Accepted { task, sent_at }).await;
        shared.scheduler.wake();
    }
}

/// Whether the call names a task that is not known yet. The holder of a known task polls it in time.
fn is_worth_a_poll(shared: &Shared, solve: &Solve, task: &TaskId) -> bool {
    if solve.stage.is_final() || solve.task.as_ref() == Some(task) {
        return false;
    }
    let mut confirmed = shared.poller.pingbacks.confirmed.lock();
    let repeats = confirmed.iter().filter(|id| **id == solve.id).count();
    if repeats >= MAX_REPEATS || poll::permit(shared, shared.now()).is_err() {
        return false;
    }
    confirmed.push_back(solve.id);
    if confirmed.len() > REMEMBERED {
        confirmed.pop_front();
    }
    true
}
