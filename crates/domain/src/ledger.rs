//! The ledger: one entry per decision and fact, written in the same transaction as the state it explains. History,
//! statistics and `explain` are computed from it.

use std::{fmt::Write as _, net::IpAddr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    actor::Actor,
    admin_action::AdminAction,
    challenge::{Challenge, Kind},
    claim::{ClaimState, Source},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    money::Money,
    retry::Code,
    site::targets_of,
    time::Timestamp,
};

pub use crate::counts::{Counts, Outcomes, SolveTimes, Total};

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number; rises, and is unique within a store.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The claim it is about.
    pub claim: Option<ClaimId>,
    /// The solve it is about.
    pub solve: Option<SolveId>,
    /// The worker the claim or solve belongs to.
    pub worker: WorkerName,
    /// The project it is charged to.
    pub project: Project,
    /// The kind of challenge; `None` for entries about no challenge.
    pub kind: Option<Kind>,
    /// What happened, and its details.
    pub event: Event,
}

/// What happened. The serialized names are the ledger words of docs/api.
///
/// `attempt` is the number of the attempt, `task` the task that is paid for it, and a `cost` of `None` is unknown. A `basis`
/// is why solving for the page is allowed. A token is not handed out after its `usable_until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "most fields need no words beside those above")]
pub enum Event {
    /// A solve was opened for a claim.
    Opened { basis: String },
    /// A claim was repeated under its key; nothing was opened.
    Replayed,
    /// A claim waits for a solve that another claim opened.
    Joined,
    /// A claim was refused before anything was opened. The worker saw the code.
    Refused { code: Code, pageurl: Option<String> },
    /// Decision: an attempt is about to be submitted.
    Intent { attempt: u32, nonce: Nonce, fence: Fence },
    /// Fact: the provider did not accept the attempt. The code is the provider's, or ours.
    NotAccepted { attempt: u32, code: Code },
    /// Fact: the provider accepted the attempt.
    Accepted { attempt: u32, task: TaskId },
    /// Fact: the attempt's reply was lost; `why` is what was observed instead.
    Ambiguous { attempt: u32, why: Code },
    /// Decision: one more attempt, although the last one, whose number this is, may have been paid.
    Authorised { attempt: u32, fence: Fence },
    /// Decision: the ambiguous attempt is given up; its money may be lost.
    WrittenOff { attempt: u32 },
    /// Fact: the provider named a task of an attempt that had been replaced. Another solve polls it.
    Orphaned { attempt: u32, task: TaskId, by: SolveId },
    /// Fact: the task ended without an answer, with this code of the provider.
    TaskOver { attempt: u32, code: Code, cost: Option<Money> },
    /// Fact: the provider answered.
    Ready { attempt: u32, task: TaskId, cost: Option<Money> },
    /// The last claim left; the paid task is polled on for the stock.
    Overdue { attempt: u32 },
    /// The solve was given up, or is not needed. The code is that of the last failure, or of the reason it is not needed.
    Failed { code: Code },
    /// A process took over the solve of a dead one.
    Recovered { from: HolderId, by: HolderId, fence: Fence },
    /// Decision: the claim gets the token.
    Allotted { paid_by: SolveId, task: TaskId, source: Source, usable_until: Timestamp },
    /// The token went to stock.
    Banked { task: TaskId, usable_until: Timestamp },
    /// The token was handed out to the worker.
    Delivered { task: TaskId, usable_until: Timestamp },
    /// The token expired unused.
    Wasted { task: TaskId },
    /// The claim ended without a token, or gave its token back. A withdrawal has no code.
    Ended { state: ClaimState, code: Option<Code> },
    /// A dead letter was written for the solve, with the code of the failure that ended it.
    DeadLettered { code: Code },
    /// The dead letter was closed.
    DeadLetterClosed,
    /// The worker reported whether the site accepted the token.
    Reported { good: bool },
    /// The dead letter was revived by an admin or worker, as the claim of its next generation.
    Revived { by: WorkerName, claim: ClaimId },
    /// The dead letter was deleted by an admin or worker.
    Purged { by: WorkerName },
    /// The receiver accepted the claim's callback.
    CalledBack { tries: u32 },
    /// The claim's callback was dropped, because its receiver did not accept it for a day.
    CallbackDropped { tries: u32 },
    /// A pool ordered a token that no claim waits for yet, to reach its target level.
    Ordered { basis: String, target: u32 },
    /// The dead letter was revived without success, failed with this code, and is open again.
    DeadLetterReopened { code: Code },
    /// Somebody with a role administered the gateway. If the action is about a claim, solve or worker, the entry has it.
    Administered { by: Actor, action: AdminAction },
    /// Requests were refused: `count` of them for the same reason since a moment, from this address or network. The callers
    /// saw the code.
    Refusals {
        code: Code,
        address: Option<IpAddr>,
        /// The page of the first one.
        pageurl: Option<String>,
        count: u64,
        since: Timestamp,
    },
    /// A gateway found that the server had lost writes it had acknowledged: it has `found` commits where the gateway knew
    /// `known`. What follows are the entries that the gateways still had, under new numbers.
    WritesLost { known: u64, found: u64 },
    /// What an opened or ordered solve sends besides page and site key: the names of its parameters and files, and the hash of
    /// each value that names a URL or host. Values are not kept. Follows `Opened` or `Ordered`.
    Carried { params: Vec<String>, targets: Vec<TargetHash> },
    /// A gateway is about to read the account's balance at the provider.
    BalanceAsked { number: u32 },
    /// Fact: the account's balance at a moment between the `BalanceAsked` with this number and this entry.
    BalanceRead { number: u32, amount: Money },
    /// The worker's key opened a failed or lapsed claim again, as this generation. The entry of its admission follows.
    Reopened { generation: u32 },
}

/// A parameter whose value names a URL or host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetHash {
    /// The parameter.
    pub name: String,
    /// The first 16 bytes of the SHA-256 of the value as it was sent, in hexadecimal digits.
    pub sha256: String,
}

impl Event {
    /// What the challenge carries; `None` if that is nothing but page and site key.
    pub fn carried(challenge: &Challenge) -> Option<Self> {
        let params = challenge.params().keys().chain(challenge.files().keys());
        let params: Vec<String> = params.cloned().collect();
        if params.is_empty() {
            return None;
        }
        let targets =
            targets_of(challenge).map(|(name, value)| TargetHash::of(name, value)).collect();
        Some(Self::Carried { params, targets })
    }
}

impl TargetHash {
    fn of(name: &str, value: &str) -> Self {
        let mut sha256 = String::new();
        for byte in &Sha256::digest(value)[..16] {
            write!(sha256, "{byte:02x}").expect("a string takes any text");
        }
        Self { name: name.to_owned(), sha256 }
    }
}

impl Entry {
    /// Who did it: the admin, else the worker it is about.
    pub fn actor(&self) -> &WorkerName {
        if let Event::Administered { by, .. } = &self.event { &by.name } else { &self.worker }
    }

    /// Whether two entries are equal except for their numbers: a store and its archive number them differently.
    pub fn has_same_content(&self, other: &Self) -> bool {
        *self == Self { seq: self.seq, ..other.clone() }
    }
}

impl Event {
    /// The name under which the audit trail lists an event; `None` for the steps of a claim's life, which it does not list.
    pub const fn audited_as(&self) -> Option<&'static str> {
        match self {
            Self::Administered { action, .. } => Some(action.name()),
            Self::Refused { .. } | Self::Refusals { .. } => Some("refused"),
            Self::WritesLost { .. } => Some("writes_lost"),
            Self::Opened { .. }
            | Self::Replayed
            | Self::Joined
            | Self::Intent { .. }
            | Self::NotAccepted { .. }
            | Self::Accepted { .. }
            | Self::Ambiguous { .. }
            | Self::Authorised { .. }
            | Self::WrittenOff { .. }
            | Self::Orphaned { .. }
            | Self::TaskOver { .. }
            | Self::Ready { .. }
            | Self::Overdue { .. }
            | Self::Failed { .. }
            | Self::Recovered { .. }
            | Self::Allotted { .. }
            | Self::Banked { .. }
            | Self::Delivered { .. }
            | Self::Wasted { .. }
            | Self::Ended { .. }
            | Self::DeadLettered { .. }
            | Self::DeadLetterClosed
            | Self::Reported { .. }
            | Self::Revived { .. }
            | Self::Purged { .. }
            | Self::CalledBack { .. }
            | Self::CallbackDropped { .. }
            | Self::Ordered { .. }
            | Self::DeadLetterReopened { .. }
            | Self::Carried { .. }
            | Self::BalanceAsked { .. }
            | Self::BalanceRead { .. }
            | Self::Reopened { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{challenge::ChallengeParts, site::PageUrl};

    #[test]
    fn a_challenge_leaves_the_names_of_its_parameters_and_the_hashes_of_its_targets() {
        let params = [
            ("cookies", "sid=secret"),
            ("domain", "www.recaptcha.net"),
            ("proxy", "user:secret@proxy.example.net:1"),
            ("userAgent", "see https://shop.example.com/bot"),
        ];
        let parts = ChallengeParts {
            sitekey: Some("k".into()),
            pageurl: Some(PageUrl::parse("https://shop.example.com/").unwrap()),
            params: params.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            files: [("body".to_owned(), vec![1])].into(),
        };
        let event = Event::carried(&Challenge::new(Kind::RecaptchaV2, parts.clone()).unwrap());
        let Some(Event::Carried { params, targets }) = event else { panic!("{event:?}") };
        assert_eq!(params, ["cookies", "domain", "proxy", "userAgent", "body"]);
        // printf www.recaptcha.net | sha256sum | cut -c-32
        let hash =
            |name: &str, sha256: &str| TargetHash { name: name.into(), sha256: sha256.into() };
        let expected = [
            hash("domain", "efe6692a9768f4f90c6a75c9447d6ad2"),
            hash("userAgent", "c338464e5137a0bff22fbae478be9df9"),
        ];
        assert_eq!(targets, expected);
        let nothing = ChallengeParts { params: [].into(), files: [].into(), ..parts };
        let challenge = Challenge::new(Kind::RecaptchaV2, nothing).unwrap();
        assert_eq!(Event::carried(&challenge), None);
    }
}
