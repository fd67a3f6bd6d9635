//! The provider calls back when a task is over. That is a hint, whoever sent it: the task is asked for at once, and what
//! counts is the answer to that. It also names the task of a submission whose reply was lost.

use std::collections::BTreeSet;

use domain::{
    id::{AttemptName, SolveId, TaskId},
    ports::Poll,
    solve::Fact,
};

use crate::{Engine, Inner};

/// So many hints wait at most; the net poll finds what is beyond.
const MOST: usize = 10_000;

impl Engine {
    /// Takes a call of the provider about an attempt.
    pub async fn pingback(&self, name: AttemptName, task: TaskId) {
        let inner = &*self.0;
        let held = inner.sent().get(&name.solve).is_some_and(|sent| sent.next.is_some());
        if held {
            inner.nudge(name.solve);
            return;
        }
        // Another process has it, or its reply was lost: the task is real if the provider knows it.
        let polled = inner.ports.provider.poll(&task).await;
        if matches!(polled.poll, Poll::Code(_) | Poll::Fault(_)) {
            return;
        }
        // When it was sent is not known here; the claim's own beginning is the safe side.
        let Ok(Some(solve)) = inner.ports.store.find_solve(name.solve).await else { return };
        if solve.nonce != Some(name.nonce) {
            return;
        }
        let sent_at = solve.accepted_at.unwrap_or(solve.opened_at);
        inner.settle(name.solve, name.attempt, Fact::Accepted { task, sent_at }).await;
        inner.wake.notify_one();
    }
}

impl Inner {
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
