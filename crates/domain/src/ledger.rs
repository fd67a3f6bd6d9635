//! The account of everything: one entry per decision and fact, written in the same atomic step as the state it
//! explains. History, statistics and `explain` are readings of it.

use serde::{Deserialize, Serialize};

use crate::{
    challenge::Kind,
    claim::{ClaimState, Source},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::Fence,
    money::Money,
    retry::Code,
    time::{Day, Timestamp},
};

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place; rises without end, unique within a store.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// The claim it is about.
    pub claim: Option<ClaimId>,
    /// The solve it is about.
    pub solve: Option<SolveId>,
    /// Whose.
    pub worker: WorkerName,
    /// Charged to.
    pub project: Project,
    /// Of which kind; `None` for entries about no challenge.
    pub kind: Option<Kind>,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A claim came in and a solve was opened for it.
    Opened {
        /// Why it is allowed.
        basis: String,
    },
    /// A claim came again under its key: nothing was opened.
    Replayed,
    /// A claim waits for a solve that another opened.
    Joined,
    /// A claim was refused before anything was opened.
    Refused {
        /// The code the worker saw.
        code: Code,
        /// The page it asked for.
        pageurl: Option<String>,
    },
    /// Decision: an attempt is about to be submitted.
    Intent {
        /// Which attempt.
        attempt: u32,
        /// Its name.
        nonce: Nonce,
        /// The decider's fence.
        fence: Fence,
    },
    /// Fact: the provider did not take the attempt.
    NotAccepted {
        /// Which attempt.
        attempt: u32,
        /// Why.
        code: Code,
    },
    /// Fact: the provider took the attempt.
    Accepted {
        /// Which attempt.
        attempt: u32,
        /// The provider's name for it.
        task: TaskId,
    },
    /// Fact: the attempt's reply was lost.
    Ambiguous {
        /// Which attempt.
        attempt: u32,
        /// What was seen.
        why: Code,
    },
    /// Decision: one more attempt, though the last may have been paid.
    Authorised {
        /// The ambiguous attempt.
        attempt: u32,
        /// The decider's fence.
        fence: Fence,
    },
    /// Decision: the ambiguous attempt is given up; its money may be gone.
    WrittenOff {
        /// The ambiguous attempt.
        attempt: u32,
    },
    /// Fact: a task of an attempt that had been replaced; it is harvested by a solve of its own.
    Orphaned {
        /// Which attempt.
        attempt: u32,
        /// The provider's name for it.
        task: TaskId,
        /// The solve that harvests it.
        by: SolveId,
    },
    /// Fact: the task ended without an answer.
    TaskOver {
        /// Which attempt.
        attempt: u32,
        /// The provider's code.
        code: Code,
        /// What it cost.
        cost: Option<Money>,
    },
    /// Fact: the answer came.
    Ready {
        /// Which attempt.
        attempt: u32,
        /// The task it was paid by.
        task: TaskId,
        /// What it cost.
        cost: Option<Money>,
    },
    /// Nobody waits any more; the paid task is harvested.
    Overdue {
        /// Which attempt.
        attempt: u32,
    },
    /// The solve was given up or is not needed.
    Failed {
        /// Why.
        code: Code,
    },
    /// A holder's death was noticed and its solve taken over.
    Recovered {
        /// The dead holder.
        from: HolderId,
        /// The new one.
        by: HolderId,
        /// The new fence.
        fence: Fence,
    },
    /// Decision: the token belongs to this claim.
    Allotted {
        /// The solve that paid for it.
        paid_by: SolveId,
        /// The task it was paid by.
        task: TaskId,
        /// How it came to the claim.
        source: Source,
        /// It is not handed out after this.
        usable_until: Timestamp,
    },
    /// The token belongs to nobody yet and is kept.
    Banked {
        /// The task it was paid by.
        task: TaskId,
        /// It is not handed out after this.
        usable_until: Timestamp,
    },
    /// The token was handed to the worker.
    Delivered {
        /// The task it was paid by.
        task: TaskId,
        /// It is not handed out after this.
        usable_until: Timestamp,
    },
    /// The token died unused.
    Wasted {
        /// The task it was paid by.
        task: TaskId,
    },
    /// The claim reached its end without a token.
    Ended {
        /// How.
        state: ClaimState,
        /// Why.
        code: Option<Code>,
    },
    /// The solve was kept as a dead letter.
    DeadLettered {
        /// Why.
        code: Code,
    },
    /// The dead letter was closed.
    DeadLetterClosed,
    /// The worker told how the token fared.
    Reported {
        /// Whether the site took it.
        good: bool,
    },
    /// The dead letter was brought back to work.
    Revived {
        /// By whom.
        by: WorkerName,
        /// As which claim.
        claim: ClaimId,
    },
    /// The dead letter was thrown away.
    Purged {
        /// By whom.
        by: WorkerName,
    },
    /// The receiver of the claim's callback took it.
    CalledBack {
        /// How often it was tried.
        tries: u32,
    },
    /// The receiver of the claim's callback was away for too long.
    CallbackDropped {
        /// How often it was tried.
        tries: u32,
    },
    /// A pool ordered a token nobody has asked for yet.
    Ordered {
        /// Why solving for the page is allowed.
        basis: String,
        /// What the pool aims at.
        target: u32,
    },
    /// The dead letter was closed as revived, in vain: it is open again.
    DeadLetterReopened {
        /// Why.
        code: Code,
    },
}

/// Sums over one day, one worker, one project and one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The day.
    pub day: Day,
    /// Whose.
    pub worker: WorkerName,
    /// Charged to.
    pub project: Project,
    /// Of which kind.
    pub kind: Kind,
    /// The sums.
    pub counts: Counts,
}

/// What is counted. Every field is a sum of ledger entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Claims that came in, replays included.
    pub claims: u64,
    /// Solves opened.
    pub opened: u64,
    /// Refills ordered by pools.
    pub ordered: u64,
    /// Attempts the provider accepted.
    pub attempts: u64,
    /// Answers that came.
    pub solved: u64,
    /// Claims that failed or lapsed.
    pub failed: u64,
    /// Claims withdrawn.
    pub withdrawn: u64,
    /// Claims answered by their own first answer.
    pub replayed: u64,
    /// Claims that joined another's solve.
    pub joined: u64,
    /// Claims served from stock.
    pub stocked: u64,
    /// Attempts whose reply was lost.
    pub ambiguous: u64,
    /// Ambiguous attempts that were submitted once more.
    pub authorised: u64,
    /// Tokens that died unused.
    pub wasted: u64,
    /// Claims refused before anything was opened.
    pub refused: u64,
    /// Polls of ended tasks.
    pub polls: u64,
    /// Milliseconds from acceptance to answer: slot time.
    pub solve_ms: u64,
    /// Known cost.
    pub cost: Money,
    /// Attempts whose cost nobody knows; never counted as zero.
    pub cost_unknown: u64,
    /// What the savings would have cost at list price.
    pub saved: Money,
}

impl Entry {
    /// Whether another tells of the same, wherever it is.
    pub fn says_the_same(&self, other: &Self) -> bool {
        *self == Self { seq: self.seq, ..other.clone() }
    }
}

impl Counts {
    /// Adds another sum.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.beside(other) {
            *sum = sum.saturating_add(more);
        }
        self.cost = self.cost + other.cost;
        self.saved = self.saved + other.saved;
    }

    /// Takes the larger of each: of two copies of one sum, nothing that either has counted is lost.
    pub fn raise(&mut self, other: &Self) {
        for (sum, theirs) in self.beside(other) {
            *sum = theirs.max(*sum);
        }
        self.cost = self.cost.max(other.cost);
        self.saved = self.saved.max(other.saved);
    }

    /// Every count beside another's.
    fn beside(&mut self, other: &Self) -> [(&mut u64, u64); 17] {
        [
            (&mut self.claims, other.claims),
            (&mut self.ordered, other.ordered),
            (&mut self.opened, other.opened),
            (&mut self.attempts, other.attempts),
            (&mut self.solved, other.solved),
            (&mut self.failed, other.failed),
            (&mut self.withdrawn, other.withdrawn),
            (&mut self.replayed, other.replayed),
            (&mut self.joined, other.joined),
            (&mut self.stocked, other.stocked),
            (&mut self.ambiguous, other.ambiguous),
            (&mut self.authorised, other.authorised),
            (&mut self.wasted, other.wasted),
            (&mut self.refused, other.refused),
            (&mut self.polls, other.polls),
            (&mut self.solve_ms, other.solve_ms),
            (&mut self.cost_unknown, other.cost_unknown),
        ]
    }

    /// Claims served without a new attempt.
    pub fn savings(&self) -> u64 {
        self.replayed + self.joined + self.stocked
    }
}
