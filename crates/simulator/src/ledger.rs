//! The simulated provider's record of what it received, accepted, charged and answered. Tests use it to check what was paid;
//! the gateway never writes here.

use std::collections::BTreeMap;

use domain::{
    challenge::{Challenge, Kind},
    fingerprint::{Fingerprint, Identity},
    id::{Nonce, TaskId},
    money::Money,
    ports::Feedback,
    retry::Code,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The whole record; `GET /ledger` returns it as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The number of submissions, accepted or not.
    pub received_submits: u64,
    /// The number of polled tasks, known or not.
    pub polls: u64,
    /// The number of poll requests, each for one or more tasks.
    pub poll_calls: u64,
    /// The accepted tasks, in order.
    pub accepted: Vec<Accepted>,
    /// How often each code refused a submission.
    pub refused: BTreeMap<Code, u64>,
    /// How often each task's answer was returned.
    pub answered: BTreeMap<TaskId, u64>,
    /// How often a pingback for each task was delivered.
    pub pingbacks: BTreeMap<TaskId, u64>,
    /// The reports about tokens.
    pub reports: Vec<Report>,
    /// The cost of all accepted tasks, less refunds.
    pub charged: Money,
    /// Refunds for unsolvable tasks.
    pub refunded: Money,
}

/// One accepted task; one JSON line in the ledger file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub task: TaskId,
    /// The gateway's nonce for the attempt; known in process only, because the protocol has no field for it.
    pub nonce: Option<Nonce>,
    pub kind: Kind,
    pub sitekey: Option<String>,
    /// The challenge's fingerprint as hexadecimal digits.
    pub fingerprint: String,
    pub at: Timestamp,
    /// When it is solved; `None` for an unsolvable task.
    pub ready_at: Option<Timestamp>,
    pub cost: Money,
}

/// One report about a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub task: TaskId,
    /// Whether the site accepted the token.
    pub good: bool,
    pub at: Timestamp,
}

// === impl Ledger ===

impl Ledger {
    pub fn task(&self, task: &TaskId) -> Option<&Accepted> {
        self.accepted.iter().find(|accepted| accepted.task == *task)
    }

    /// The tasks accepted for this challenge.
    pub fn tasks_for(&self, challenge: &Challenge) -> Vec<&Accepted> {
        let fingerprint = hex(challenge);
        self.accepted.iter().filter(|accepted| accepted.fingerprint == fingerprint).collect()
    }

    /// The tasks accepted for this attempt: more than one is a double payment.
    pub fn tasks_of(&self, nonce: Nonce) -> Vec<&Accepted> {
        self.accepted.iter().filter(|accepted| accepted.nonce == Some(nonce)).collect()
    }

    pub(crate) fn accept(&mut self, accepted: Accepted) {
        self.charged = self.charged + accepted.cost;
        self.accepted.push(accepted);
    }

    /// Marks a task as unsolvable.
    pub(crate) fn give_up(&mut self, task: &TaskId) {
        if let Some(accepted) = self.accepted.iter_mut().rfind(|a| a.task == *task) {
            accepted.ready_at = None;
        }
    }

    pub(crate) fn refuse(&mut self, code: &Code) {
        *self.refused.entry(code.clone()).or_default() += 1;
    }

    pub(crate) fn refund(&mut self, cost: Money) {
        self.refunded = self.refunded + cost;
        self.charged = self.charged + Money::from_micros(-cost.micros());
    }

    pub(crate) fn answer(&mut self, task: &TaskId) {
        *self.answered.entry(task.clone()).or_default() += 1;
    }

    pub(crate) fn call_back(&mut self, task: &TaskId) {
        *self.pingbacks.entry(task.clone()).or_default() += 1;
    }

    pub(crate) fn report(&mut self, task: TaskId, feedback: Feedback, at: Timestamp) {
        self.reports.push(Report { task, good: feedback == Feedback::Good, at });
    }
}

/// The fingerprint of everything that was sent, the proxy included.
pub(crate) fn hex(challenge: &Challenge) -> String {
    Fingerprint::of(challenge, Identity::default()).to_string()
}
