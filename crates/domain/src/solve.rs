//! Our effort to get one token, and the legal moves between its stages (docs/states.md is tested against this file).
//!
//! Decisions are fenced, facts are not. A decision spends or gives away and needs the current fence; a fact about
//! attempt n is taken from whoever holds it. A lease that ends never leads to a spend: `Intent` goes to `Ambiguous`.

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
    retry::{Code, Verdict, own},
    time::Timestamp,
    token::{Answer, ShelfLife},
};

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

/// A fenced move: it may spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `Queued → Intent`: durable before the first byte leaves.
    Intend {
        /// Names the attempt.
        nonce: Nonce,
    },
    /// `Ambiguous → Queued`: one more attempt, knowing it may be the second payment.
    Authorise {
        /// Not before then.
        due: Timestamp,
    },
    /// `Ambiguous → Failed`: the money may be gone.
    WriteOff,
    /// `Queued → Failed`: no answer can come before the deadline any more, so nothing is paid for one.
    Lapse,
}

/// Evidence about attempt n, from whoever holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The provider did not take it: no byte left, or a definite refusal.
    NotAccepted {
        /// Why.
        code: Code,
        /// What follows.
        verdict: Verdict,
    },
    /// Nothing left under this nonce, and nothing will: its intent's own reply was lost. Bound to the nonce, because
    /// another intent may bear the number meanwhile.
    Withheld {
        /// The attempt's name.
        nonce: Nonce,
    },
    /// The provider took it and named it.
    Accepted {
        /// The provider's name.
        task: TaskId,
        /// When the submission left: the earliest moment its answer can be made.
        sent_at: Timestamp,
    },
    /// Bytes left and no valid reply came.
    ReplyLost {
        /// What was seen.
        why: Code,
        /// When to decide about it.
        due: Timestamp,
    },
    /// The task ended without an answer.
    TaskOver {
        /// The provider's code.
        code: Code,
        /// What follows.
        verdict: Verdict,
        /// What it cost; `None` when nobody knows.
        cost: Option<Money>,
        /// Polls so far.
        polls: u32,
    },
    /// The answer.
    Solved(Solved),
}

/// An answer and what is known about its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solved {
    /// The provider's name for the task it belongs to.
    pub task: TaskId,
    /// The answer.
    pub answer: Answer,
    /// The last "not ready", or the acceptance.
    pub ready_lower: Timestamp,
    /// How long tokens of the kind live.
    pub life: ShelfLife,
    /// What it cost; `None` when nobody knows.
    pub cost: Option<Money>,
    /// Polls so far.
    pub polls: u32,
}

/// Why a decision was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another holder has it, or the holder's own lease ended.
    #[error("the lease was lost")]
    LeaseLost,
    /// The solve has moved on.
    #[error("the solve has moved on")]
    Moved,
    /// The day's ambiguity budget is used up.
    #[error("the day's ambiguity budget is used up")]
    Budget,
}

/// What a fact did to a solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It moved the solve, as the events tell.
    Moved(Vec<Event>),
    /// It was known already, or is about an attempt that is settled.
    Known,
    /// An accepted task of an attempt that was already replaced: paid, to be harvested apart.
    Orphaned {
        /// The provider's name for it.
        task: TaskId,
        /// When its submission left.
        sent_at: Timestamp,
    },
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

    /// Applies a decision of the lease with `fence`. The caller checks that the holder is alive.
    pub fn decide(
        &mut self,
        fence: Fence,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Vec<Event>, Refused> {
        if fence != self.fence {
            return Err(Refused::LeaseLost);
        }
        match (decision, self.stage) {
            (Decision::Intend { nonce }, Stage::Queued) => Ok(vec![self.intend(*nonce)]),
            (Decision::Authorise { due }, Stage::Ambiguous)
                if !self.claims.is_empty() && self.authorised == 0 =>
            {
                Ok(vec![self.authorise(*due, now)])
            }
            (Decision::WriteOff, Stage::Ambiguous) => {
                let mut events = vec![Event::WrittenOff { attempt: self.attempt }];
                events.extend(self.fail(own::AMBIGUOUS.into(), None, now));
                Ok(events)
            }
            (Decision::Lapse, Stage::Queued) => {
                Ok(self.fail(own::DEADLINE.into(), Some(Money::ZERO), now))
            }
            (
                Decision::Intend { .. }
                | Decision::Authorise { .. }
                | Decision::WriteOff
                | Decision::Lapse,
                _,
            ) => Err(Refused::Moved),
        }
    }

    fn intend(&mut self, nonce: Nonce) -> Event {
        self.stage = Stage::Intent;
        self.attempt += 1;
        self.nonce = Some(nonce);
        self.task = None;
        self.accepted_at = None;
        Event::Intent { attempt: self.attempt, nonce, fence: self.fence }
    }

    fn authorise(&mut self, due: Timestamp, now: Timestamp) -> Event {
        // The lost attempt may have been charged: from here on nobody knows what the solve costs.
        self.note_failure(own::AMBIGUOUS.into(), None, now);
        self.stage = Stage::Queued;
        self.authorised += 1;
        self.due = due;
        Event::Authorised { attempt: self.attempt, fence: self.fence }
    }

    /// Takes a fact about `attempt`. Facts commute and may be told twice.
    pub fn learn(&mut self, attempt: u32, fact: &Fact, now: Timestamp) -> Learned {
        let current = attempt == self.attempt;
        match (fact, self.stage) {
            (Fact::Accepted { task, sent_at }, Stage::Intent | Stage::Ambiguous) if current => {
                Learned::Moved(vec![self.accept(task.clone(), *sent_at, now)])
            }
            (Fact::Accepted { task, sent_at }, _) if self.task.as_ref() != Some(task) => {
                Learned::Orphaned { task: task.clone(), sent_at: *sent_at }
            }
            (Fact::NotAccepted { code, verdict }, Stage::Intent | Stage::Ambiguous) if current => {
                let mut events = vec![Event::NotAccepted { attempt, code: code.clone() }];
                events.extend(self.follow(code, verdict, Some(Money::ZERO), now));
                Learned::Moved(events)
            }
            (Fact::Withheld { nonce }, Stage::Intent | Stage::Ambiguous)
                if self.nonce == Some(*nonce) =>
            {
                let code = Code::from(own::NOT_SENT);
                self.stage = Stage::Queued;
                self.due = now;
                Learned::Moved(vec![Event::NotAccepted { attempt: self.attempt, code }])
            }
            (Fact::ReplyLost { why, due }, Stage::Intent) if current => {
                let events = self.lose_reply(why.clone(), *due);
                Learned::Moved(events)
            }
            (Fact::TaskOver { code, verdict, cost, polls }, Stage::Submitted | Stage::Overdue)
                if current =>
            {
                self.polls = *polls;
                let mut events = vec![Event::TaskOver { attempt, code: code.clone(), cost: *cost }];
                // Nobody waits for an overdue task: a new attempt would be paid for no one.
                let wanted = self.stage == Stage::Submitted && !self.claims.is_empty();
                let verdict = if wanted { verdict } else { &Verdict::GiveUp };
                events.extend(self.follow(code, verdict, *cost, now));
                Learned::Moved(events)
            }
            (Fact::Solved(solved), stage)
                if stage != Stage::Ready && self.task.as_ref() == Some(&solved.task) =>
            {
                Learned::Moved(vec![self.ready(attempt, solved, now)])
            }
            (
                Fact::Accepted { .. }
                | Fact::NotAccepted { .. }
                | Fact::Withheld { .. }
                | Fact::ReplyLost { .. }
                | Fact::TaskOver { .. }
                | Fact::Solved(_),
                _,
            ) => Learned::Known,
        }
    }

    fn accept(&mut self, task: TaskId, sent_at: Timestamp, now: Timestamp) -> Event {
        self.stage = if self.claims.is_empty() { Stage::Overdue } else { Stage::Submitted };
        self.task = Some(task.clone());
        self.accepted_at = Some(sent_at);
        self.due = now;
        Event::Accepted { attempt: self.attempt, task }
    }

    fn lose_reply(&mut self, why: Code, due: Timestamp) -> Vec<Event> {
        self.stage = Stage::Ambiguous;
        self.due = due;
        vec![Event::Ambiguous { attempt: self.attempt, why }]
    }

    /// Back to the queue or to the end, as the verdict says.
    fn follow(
        &mut self,
        code: &Code,
        verdict: &Verdict,
        cost: Option<Money>,
        now: Timestamp,
    ) -> Vec<Event> {
        match verdict {
            Verdict::Again { due, counted } => {
                if *counted {
                    self.note_failure(code.clone(), cost, now);
                }
                self.stage = Stage::Queued;
                self.due = *due;
                Vec::new()
            }
            Verdict::GiveUp => self.fail(code.clone(), cost, now),
        }
    }

    fn ready(&mut self, attempt: u32, solved: &Solved, now: Timestamp) -> Event {
        self.stage = Stage::Ready;
        self.polls = solved.polls;
        self.ended_at = Some(now);
        self.holder = None;
        Event::Ready { attempt, task: solved.task.clone(), cost: solved.cost }
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
