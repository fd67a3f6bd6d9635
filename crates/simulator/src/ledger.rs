//! The simulated provider's record of what it received, accepted, charged and answered. Tests use it to check what was paid;
//! the gateway never writes here.

use std::collections::BTreeMap;

use domain::{
    challenge::{Challenge, Kind},
    fingerprint::{Fingerprint, Identity},
    id::{Nonce, TaskId},
    money::Money,
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
    pub accepted: Vec<Accepted>,
    /// How often each code refused a submission.
    pub refused: BTreeMap<Code, u64>,
    /// How often each task's answer was returned.
    pub answered: BTreeMap<TaskId, u64>,
    /// How often a pingback for each task was delivered.
    pub pingbacks: BTreeMap<TaskId, u64>,
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
}

/// The fingerprint of everything that was sent, the proxy included.
pub(crate) fn hex(challenge: &Challenge) -> String {
    Fingerprint::of(challenge, Identity::default()).to_string()
}
