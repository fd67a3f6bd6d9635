//! The provider calls back when a task is over. That is a hint, whoever sent it: the task is asked for at once, and what
//! counts is the answer to that. It also names the task of a submission whose reply was lost.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    id::{AttemptName, SolveId, TaskId},
    ports::Poll,
    solve::{Fact, Solve},
};

use crate::{Engine, Inner};

/// So many hints wait at most; the net poll finds what is beyond.
const MOST: usize = 10_000;
/// Calls about the same solve that cost a question, and how many of those are remembered.
const MOST_REPEATS: usize = 3;
const REMEMBERED: usize = 1000;

/// The solves that calls of the provider have cost a question for, lately.
pub(crate) type Confirmed = VecDeque<SolveId>;

impl Engine {
    /// Takes a call of the provider about an attempt.
    pub async fn pingback(&self, name: AttemptName, task: TaskId) {
        let inner = &*self.0;
        let held = inner.sent().get(&name.solve).is_some_and(|sent| sent.next.is_some());
        if held {
            inner.nudge(name.solve);
            return;
        }
        let Ok(Some(solve)) = inner.ports.store.find_solve(name.solve).await else { return };
        if solve.nonce != Some(name.nonce) || !inner.is_news(&solve, &task) {
            return;
        }
        // Its reply was lost: the task is real if the provider knows it.
        let polled = inner.ports.provider.poll(&task).await;
        if matches!(polled.poll, Poll::Code(_) | Poll::Fault(_)) {
            return;
        }
        // When it was sent is not known here; the claim's own beginning is the safe side.
        let sent_at = solve.accepted_at.unwrap_or(solve.opened_at);
        inner.settle(name.solve, name.attempt, Fact::Accepted { task, sent_at }).await;
        inner.wake.notify_one();
    }
}

impl Inner {
    /// Whether the call names a task that nobody knows yet, and is worth a question. Whoever has a task that is known
    /// asks for it in time.
    fn is_news(&self, solve: &Solve, task: &TaskId) -> bool {
        if solve.stage.is_final() || solve.task.as_ref() == Some(task) {
            return false;
        }
        let mut confirmed = self.confirmed.lock().expect("no holder of this lock can panic");
        if confirmed.iter().filter(|id| **id == solve.id).count() >= MOST_REPEATS
            || self.may_poll(self.now()).is_err()
        {
            return false;
        }
        confirmed.push_back(solve.id);
        if confirmed.len() > REMEMBERED {
            confirmed.pop_front();
        }
        true
    }

    fn nudge(&self, solve: SolveId) {
        let mut nudges = self.nudges.lock().expect("no holder of this lock can panic");
        if nudges.len() < MOST {
            nudges.insert(solve);
        }
        drop(nudges);
        self.wake.notify_one();
    }

    pub(crate) fn take_nudges(&self) -> BTreeSet<SolveId> {
        std::mem::take(&mut *self.nudges.lock().expect("no holder of this lock can panic"))
    }
}
