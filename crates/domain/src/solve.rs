//! Our effort to get one token, and the legal moves between its stages (docs/states.md is tested against this file).
//!
//! Decisions are fenced, facts are not. A decision spends or gives away and needs the current fence; a fact about
//! attempt n is taken from whoever holds it. A lease that ends never leads to a spend: `Intent` goes to `Ambiguous`.
//! `decide`: the decisions; `learn`: the facts.

mod decide;
mod learn;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    attempt::Failure,
    challenge::{Kind, Sharing},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    ledger::Event,
    money::Money,
    retry::{Code, own},
    time::Timestamp,
};

pub use decide::{Decision, Refused};
pub use learn::{Fact, Learned, Solved};

/// Where a solve stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Waits for its turn; nothing of the coming attempt has left.
    Queued,
    /// The intent to submit is durable; bytes may have left.
    Intent,
    /// The provider has named the task.
    Submitted,
    /// Nobody waits any more, the task is paid: harvested until the provider forgets it.
    Overdue,
    /// Bytes left and the reply was lost: a task may exist and be paid.
    Ambiguous,
    /// A token came.
    Ready,
    /// Given up, or no longer needed.
    Failed,
}

/// What to do about an ambiguous submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum AmbiguousPolicy {
    /// One more attempt per solve, written down as AUTHORISE, inside the day's budget.
    #[default]
    ResubmitOnce,
    /// Fail and write it off.
    Never,
}

/// How a solve is to be treated; fixed when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Policy {
    /// After a lost reply.
    pub ambiguous: AmbiguousPolicy,
    /// AUTHORISE events a day, of the whole gateway.
    pub ambiguity_budget: u32,
}

/// Why a solve was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub enum Origin {
    /// For a claim.
    Claim(ClaimId),
    /// To harvest a task of another solve whose id came too late.
    Orphan(SolveId),
    /// For a claim that brings a dead letter back.
    Revived {
        /// The letter.
        letter: SolveId,
        /// The claim.
        claim: ClaimId,
    },
    /// By a pool.
    Refill,
}

/// Our effort to get one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Solve {
    /// Its name.
    pub id: SolveId,
    /// Why it was opened.
    pub origin: Origin,
    /// The challenge's identity.
    pub fingerprint: Fingerprint,
    /// The challenge's kind.
    pub kind: Kind,
    /// Who opened it.
    pub worker: WorkerName,
    /// What its cost is charged to.
    pub project: Project,
    /// Claims that wait for it: one for exclusive kinds, any number for shared ones.
    pub claims: Vec<ClaimId>,
    /// Where it stands.
    pub stage: Stage,
    /// Rises with every change of holder.
    pub fence: Fence,
    /// Who moves it.
    pub holder: Option<HolderId>,
    /// The current attempt; 0 before the first.
    pub attempt: u32,
    /// Names the current attempt.
    pub nonce: Option<Nonce>,
    /// The provider's name for the current attempt.
    pub task: Option<TaskId>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The latest deadline of its claims: afterwards nobody wants it.
    pub wanted_until: Timestamp,
    /// When the current attempt, since accepted, was sent: its answer cannot be older.
    pub accepted_at: Option<Timestamp>,
    /// When it is to be looked at next.
    pub due: Timestamp,
    /// AUTHORISE events so far.
    pub authorised: u32,
    /// How often a dead holder's intent was found.
    pub recoveries: u32,
    /// Everything that went wrong and was counted.
    pub failures: Vec<Failure>,
    /// Polls reported with the last fact.
    pub polls: u32,
    /// The listed price of one attempt.
    pub price: Option<Money>,
    /// How it is to be treated.
    pub policy: Policy,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A solve found in `Intent` after more crashes than this is given up.
pub const MOST_RECOVERIES: u32 = 3;

/// How long a lost reply may still come in from another channel before it is decided on.
pub const AMBIGUOUS_WAIT: Duration = Duration::from_secs(2);

// === impl Stage ===

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Intent,
        Self::Submitted,
        Self::Overdue,
        Self::Ambiguous,
        Self::Ready,
        Self::Failed,
    ];

    /// Whether nothing but a late answer can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed)
    }

    /// Its name in API, docs and dashboard.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Intent => "intent",
            Self::Submitted => "submitted",
            Self::Overdue => "overdue",
            Self::Ambiguous => "ambiguous",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

// === impl Origin ===

impl Origin {
    /// Whether it was opened for this claim, which then bears its cost.
    pub fn is_for(&self, id: ClaimId) -> bool {
        match self {
            Self::Claim(claim) | Self::Revived { claim, .. } => *claim == id,
            Self::Orphan(_) | Self::Refill => false,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { ambiguous: AmbiguousPolicy::default(), ambiguity_budget: 50 }
    }
}

// === impl Solve ===

impl Solve {
    /// Whether its token may serve several claims.
    pub fn sharing(&self) -> Sharing {
        self.kind.sharing()
    }

    /// What it has cost so far: the sum of its failures; `None` as soon as one is unknown.
    pub fn spent(&self) -> Option<Money> {
        self.failures.iter().map(|failure| failure.cost).sum()
    }

    /// One more claim waits for it; a harvest becomes wanted work again.
    pub fn join(&mut self, claim: ClaimId, deadline: Timestamp) {
        self.claims.push(claim);
        self.wanted_until = self.wanted_until.max(deadline);
        if self.stage == Stage::Overdue {
            self.stage = Stage::Submitted;
        }
    }

    /// Whether an attempt is out whose cost is not settled yet.
    pub fn is_paying(&self) -> bool {
        matches!(self.stage, Stage::Intent | Stage::Submitted | Stage::Overdue | Stage::Ambiguous)
    }

    /// Takes it for `holder`. A dead holder's intent becomes ambiguous: its bytes may have left.
    pub fn take(&mut self, holder: HolderId, now: Timestamp) -> Vec<Event> {
        let taken_from = self.holder.replace(holder);
        self.fence = self.fence.next();
        let Some(from) = taken_from else { return Vec::new() };
        let mut events = vec![Event::Recovered { from, by: holder, fence: self.fence }];
        if self.stage == Stage::Intent {
            self.recoveries += 1;
            events.extend(self.lose_reply("holder died between intent and reply".into(), now));
        }
        if self.recoveries > MOST_RECOVERIES && !self.stage.is_final() {
            events.extend(self.fail(own::POISON.into(), None, now));
        }
        events
    }

    fn lose_reply(&mut self, why: Code, due: Timestamp) -> Vec<Event> {
        self.stage = Stage::Ambiguous;
        self.due = due;
        vec![Event::Ambiguous { attempt: self.attempt, why }]
    }

    /// Ends it as failed. The events name the code; whether a dead letter follows depends on who still waited.
    pub fn fail(&mut self, code: Code, cost: Option<Money>, now: Timestamp) -> Vec<Event> {
        self.note_failure(code.clone(), cost, now);
        self.stage = Stage::Failed;
        self.ended_at = Some(now);
        self.holder = None;
        vec![Event::Failed { code }]
    }

    fn note_failure(&mut self, code: Code, cost: Option<Money>, now: Timestamp) {
        self.failures.push(Failure { attempt: self.attempt, at: now, code, cost });
    }

    /// The last claim is gone. Unsent work ends here at no cost; paid work is harvested.
    pub fn abandon(&mut self, code: &str, now: Timestamp) -> Vec<Event> {
        match self.stage {
            Stage::Queued => self.fail(code.into(), Some(Money::ZERO), now),
            Stage::Submitted => {
                self.stage = Stage::Overdue;
                vec![Event::Overdue { attempt: self.attempt }]
            }
            Stage::Intent | Stage::Ambiguous | Stage::Overdue | Stage::Ready | Stage::Failed => {
                Vec::new()
            }
        }
    }
}
