//! Our effort to get one token, and the legal moves between its stages. A test holds docs/states.md against this file.
//!
//! A decision spends money or gives it up, so it needs the current fence. A fact about an attempt is true no matter which
//! process learned it, so it needs none. A lease that ends never leads to a spend: `Intent` becomes `Ambiguous`.

mod decisions;
mod facts;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    attempt::Failure,
    budget::Reservations,
    challenge::{Kind, Sharing},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    ledger::Event,
    money::Money,
    retry::{Code, own},
    time::Timestamp,
};

pub use decisions::{Decision, Refused};
pub use facts::{Fact, FactEffect, Solved};

/// Where a solve stands. An ended solve is deleted by the sweep at the end of its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Waits for a slot; no byte of the next attempt was sent.
    ///
    /// Entered when a claim or a pool opens the solve, when the retry table allows another attempt, and when a lost reply
    /// is authorised for one. Left for `Intent` by the driver's decision to submit; for `Failed` when the deadline passes
    /// or the last claim leaves; for `Ready` when the previous task answers late.
    Queued,
    /// The intent to submit is durable, and bytes may have been sent.
    ///
    /// Entered by the driver, before the first byte, or with the admission of the claim. Left within one request, by the fact that describes the reply. If
    /// the holder dies here, the next holder finds the intent and moves it to `Ambiguous`.
    Intent,
    /// The provider accepted the attempt and named its task; at least one claim waits.
    ///
    /// Entered by the accepted fact, or from `Overdue` when a claim joins. The driver polls it. Left for `Ready` by the
    /// answer, for `Queued` or `Failed` when the task ends without one, for `Overdue` when the last claim leaves.
    Submitted,
    /// As `Submitted`, but no claim waits. The task is paid, so the driver polls it until the provider forgets it, and
    /// the token goes to stock.
    ///
    /// Entered when the last claim leaves, or when a late acceptance finds none. Left for `Ready` by the answer, for
    /// `Failed` when the task ends without one, for `Submitted` when a claim joins.
    Overdue,
    /// Bytes were sent and the reply was lost, so a task may exist and be paid.
    ///
    /// Entered from `Intent`, by the lost reply or by the death of the holder. After [`AMBIGUOUS_WAIT`], or after
    /// [`TAKEOVER_GRACE`] when it was taken over, the driver authorises one more attempt (`Queued`) or writes the money off
    /// (`Failed`). A late fact about the attempt moves it as it would have moved `Intent`.
    Ambiguous,
    /// The answer came, and its token went to a claim or to stock. Final.
    Ready,
    /// Given up, or no longer needed. Final, except that a late answer still moves it to `Ready`.
    Failed,
}

/// What to do about a submission whose reply was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum AmbiguousPolicy {
    /// Submit once more per solve, within the day's budget. The ledger records it as authorised.
    #[default]
    ResubmitOnce,
    /// Fail the solve and write the money off.
    Never,
}

/// Rules of one solve, fixed when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Policy {
    /// What to do after a lost reply.
    pub ambiguous: AmbiguousPolicy,
    /// How many resubmissions all gateways together may authorise in a day.
    pub ambiguity_budget: u32,
}

/// Why a solve was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Origin {
    /// A claim needs a token.
    Claim(ClaimId),
    /// The provider named a task of another solve after that solve had moved on. The task is paid, so this solve polls it.
    Orphan(SolveId),
    /// A dead letter was revived, and this claim was admitted for it.
    Revived { letter: SolveId, claim: ClaimId },
    /// A pool ordered a token.
    Refill,
}

/// Our effort to get one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Solve {
    /// The id; also that of the dead letter it may become.
    pub id: SolveId,
    /// Why it was opened.
    pub origin: Origin,
    /// The fingerprint of its challenge.
    pub fingerprint: Fingerprint,
    /// The kind of its challenge.
    pub kind: Kind,
    /// The worker whose claim or pool opened it.
    pub worker: WorkerName,
    /// The project its cost is charged to.
    pub project: Project,
    /// Claims that wait for it: one for exclusive kinds, any number for shared ones.
    pub claims: Vec<ClaimId>,
    /// The stage it is in.
    pub stage: Stage,
    /// Rises with every change of holder.
    pub fence: Fence,
    /// The process that leases it; `None` while it is free.
    pub holder: Option<HolderId>,
    /// The current attempt; 0 before the first.
    pub attempt: u32,
    /// Our name for the current attempt.
    pub nonce: Option<Nonce>,
    /// The provider's name for the current attempt.
    pub task: Option<TaskId>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The latest deadline of its claims. A token that comes later goes to stock.
    pub wanted_until: Timestamp,
    /// When the current attempt was sent, once it is accepted. Its answer cannot be older.
    pub accepted_at: Option<Timestamp>,
    /// When the driver is to take its next step.
    pub due: Timestamp,
    /// Resubmissions authorised after lost replies.
    pub authorised: u32,
    /// How often a new holder found the intent of a dead one.
    pub recoveries: u32,
    /// The failures that counted against the retry limits, in order.
    pub failures: Vec<Failure>,
    /// Polls of the last task.
    pub polls: u32,
    /// The list price of one attempt.
    pub price: Option<Money>,
    /// Its rules for lost replies.
    pub policy: Policy,
    /// When it became `Ready` or `Failed`.
    pub ended_at: Option<Timestamp>,
    /// What it holds of the budgets. Rows of releases before 0.2.0 end before this field.
    pub reservations: Reservations,
}

/// A solve whose holder died in `Intent` more often than this is failed: submitting it may be the cause of the crashes.
pub const MOST_RECOVERIES: u32 = 3;

/// How long the driver waits before it decides about a lost reply: the provider's pingback may still bring the task.
pub const AMBIGUOUS_WAIT: Duration = Duration::from_secs(2);

/// How long after the end of its holder's lease an open intent waits before anything is decided about it. A holder that only
/// seemed dead, because it was stopped or cut off, may still bring the reply, and then nothing is paid again.
pub const TAKEOVER_GRACE: Duration = Duration::from_secs(15);

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

    /// Whether it ended; only a late answer can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed)
    }

    /// The name in API, docs and dashboard.
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
    /// Whether it was opened for this claim, which then carries its cost.
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

    /// The cost of its failed attempts; `None` as soon as one of them is unknown.
    pub fn spent(&self) -> Option<Money> {
        self.failures.iter().map(|failure| failure.cost).sum()
    }

    /// Whether it costs nothing, whatever comes: no attempt was accepted or may have been, except those the provider said it
    /// does not charge for.
    pub fn is_unpaid(&self) -> bool {
        !self.is_paying() && self.task.is_none() && self.spent() == Some(Money::ZERO)
    }

    /// Adds a waiting claim. An overdue solve goes back to `Submitted`, because a claim waits again; nothing is sent.
    pub fn join(&mut self, claim: ClaimId, deadline: Timestamp) {
        self.claims.push(claim);
        self.wanted_until = self.wanted_until.max(deadline);
        if self.stage == Stage::Overdue {
            self.stage = Stage::Submitted;
        }
    }

    /// Whether an attempt is open whose cost is not known yet.
    pub fn is_paying(&self) -> bool {
        matches!(self.stage, Stage::Intent | Stage::Submitted | Stage::Overdue | Stage::Ambiguous)
    }

    /// Whether the reply to an attempt is missing, or the solve was given up like that: the provider may have charged for a
    /// task that nobody polls. A worker's key does not pay for such work again.
    pub fn may_have_lost_money(&self) -> bool {
        let own = [own::AMBIGUOUS, own::POISON, own::DUPLICATE_TASK, own::SITE_NOT_DECLARED];
        let is_lost =
            |failure: &Failure| failure.cost.is_none() && own.contains(&failure.code.as_str());
        match self.stage {
            Stage::Intent | Stage::Ambiguous => true,
            Stage::Ready => false,
            Stage::Queued | Stage::Submitted | Stage::Overdue | Stage::Failed => {
                self.failures.iter().any(is_lost)
            }
        }
    }

    /// Leases it to `holder`. The intent of a dead holder becomes ambiguous, because its bytes may have been sent; a decision
    /// about it is due at `decide_at`.
    pub fn take(&mut self, holder: HolderId, decide_at: Timestamp, now: Timestamp) -> Vec<Event> {
        let taken_from = self.holder.replace(holder);
        self.fence = self.fence.next();
        let Some(from) = taken_from else { return Vec::new() };
        let mut events = vec![Event::Recovered { from, by: holder, fence: self.fence }];
        if self.stage == Stage::Intent {
            self.recoveries += 1;
            events
                .extend(self.lose_reply("holder died between intent and reply".into(), decide_at));
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

    /// Ends it as failed. Whether a dead letter follows depends on the claims that still wait.
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

    /// Called when the last claim left. Unsent work ends here at no cost; paid work becomes overdue.
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
