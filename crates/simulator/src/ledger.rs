//! The simulated provider's own account of what it received, accepted, charged, answered and was told.
//! In tests it is the judge of what was paid; nothing of the gateway writes here.

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

/// The whole account. As JSON at `GET /ledger`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Every submission that arrived, accepted or not.
    pub received_submits: u64,
    /// Every task that was asked about, known or not.
    pub polls: u64,
    /// Every question for answers that was carried out, however many tasks it named.
    pub poll_calls: u64,
    /// The tasks, in the order they were accepted.
    pub accepted: Vec<Accepted>,
    /// How often each code was given to a submission.
    pub refused: BTreeMap<Code, u64>,
    /// How often each task's answer was given out.
    pub answered: BTreeMap<TaskId, u64>,
    /// How often each task's end was told by a pingback that was taken.
    pub pingbacks: BTreeMap<TaskId, u64>,
    /// What was told about tokens.
    pub reports: Vec<Report>,
    /// The cost of all accepted tasks, less what was given back.
    pub charged: Money,
    /// Given back for tasks that could not be solved.
    pub refunded: Money,
}

/// One accepted task. As a JSON line in the ledger file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its name.
    pub task: TaskId,
    /// The gateway's name for the attempt; known in process only, the protocol has no field for it.
    pub nonce: Option<Nonce>,
    /// What family the challenge is of.
    pub kind: Kind,
    /// The site's public key.
    pub sitekey: Option<String>,
    /// The challenge's fingerprint as hexadecimal digits: equal for equal fields.
    pub fingerprint: String,
    /// When it was accepted.
    pub at: Timestamp,
    /// When it is solved; never for a task that cannot be.
    pub ready_at: Option<Timestamp>,
    /// What it costs.
    pub cost: Money,
}

/// One report about a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The task that brought it.
    pub task: TaskId,
    /// Whether the site took it.
    pub good: bool,
    /// When it was told.
    pub at: Timestamp,
}

// === impl Ledger ===

impl Ledger {
    /// The accepted task of this name.
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

    /// A task will not be solved after all.
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
