//! Facts: evidence about an attempt, taken from whoever holds it, as often as it is told.

use crate::{
    id::{Nonce, TaskId},
    ledger::Event,
    money::Money,
    retry::{Code, Verdict, own},
    time::Timestamp,
    token::{Answer, ShelfLife},
};

use super::{Solve, Stage};

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

impl Solve {
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
}
