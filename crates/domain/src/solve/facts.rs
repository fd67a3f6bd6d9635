//! Facts: evidence about an attempt. Any process may report one, in any order and more than once.

use crate::{
    id::{Nonce, TaskId},
    ledger::Event,
    money::Money,
    retry::{Code, Verdict, own},
    time::Timestamp,
    token::{Answer, TokenLifetime},
};

use super::{Solve, Stage};

/// Evidence about one attempt. A `verdict` is what the retry table makes of the code, `polls` is how often the task was
/// polled, and a `cost` of `None` is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are explained with their facts")]
pub enum Fact {
    /// No task exists: no byte was sent, or the provider refused. The code is the provider's, or ours.
    NotAccepted { code: Code, verdict: Verdict },
    /// The driver did not learn whether its intent was written, so it sent nothing under this nonce and never will. The
    /// nonce identifies the attempt, because another intent may have taken its number by now.
    Withheld { nonce: Nonce },
    /// The provider accepted the attempt and named its task. Its answer cannot be older than `sent_at`.
    Accepted { task: TaskId, sent_at: Timestamp },
    /// Bytes were sent and no valid reply came; `why` is what was observed instead. The driver decides about it at `due`.
    ReplyLost { why: Code, due: Timestamp },
    /// The task ended without an answer, with this code of the provider.
    TaskOver { code: Code, verdict: Verdict, cost: Option<Money>, polls: u32 },
    /// The provider answered; the token goes to a claim or to stock.
    Solved(Solved),
}

/// An answer, and the bounds of its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solved {
    /// The task it belongs to.
    pub task: TaskId,
    /// The answer as it came.
    pub answer: Answer,
    /// The time of the last "not ready" or, without one, of the acceptance: the answer cannot be older.
    pub ready_lower: Timestamp,
    /// The lifetime of tokens of its kind.
    pub life: TokenLifetime,
    /// The cost; `None` when it is unknown.
    pub cost: Option<Money>,
    /// How often the task was polled.
    pub polls: u32,
}

/// The effect of a fact on a solve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the fact")]
pub enum FactEffect {
    /// It moved the solve; these are the events for the ledger.
    Moved(Vec<Event>),
    /// It was recorded before, or is about an attempt that is settled. Nothing changed.
    Known,
    /// A task of an attempt that was already replaced. It is paid, so the store opens another solve to poll it.
    Orphaned { task: TaskId, sent_at: Timestamp },
}

impl Solve {
    /// Applies a fact about `attempt`. Facts commute, and applying one twice changes nothing.
    pub fn apply_fact(&mut self, attempt: u32, fact: &Fact, now: Timestamp) -> FactEffect {
        let is_current = attempt == self.attempt;
        let is_open = matches!(self.stage, Stage::Intent | Stage::Ambiguous);
        let events = match fact {
            Fact::Accepted { task, sent_at } => {
                return self.accepted(task, *sent_at, is_current && is_open, now);
            }
            Fact::NotAccepted { code, verdict } if is_current && is_open => {
                let mut events = vec![Event::NotAccepted { attempt, code: code.clone() }];
                events.extend(self.follow(code, verdict, Some(Money::ZERO), now));
                events
            }
            Fact::Withheld { nonce } if is_open && self.nonce == Some(*nonce) => {
                self.requeue(now);
                let code = Code::from(own::NOT_SENT);
                vec![Event::NotAccepted { attempt: self.attempt, code }]
            }
            Fact::ReplyLost { why, due } if is_current && self.stage == Stage::Intent => {
                self.lose_reply(why.clone(), *due)
            }
            Fact::TaskOver { code, verdict, cost, polls } if is_current && self.has_task() => {
                self.polls = *polls;
                let mut events = vec![Event::TaskOver { attempt, code: code.clone(), cost: *cost }];
                // No claim waits for an overdue task, so a new attempt would be paid for no one.
                let is_wanted = self.stage == Stage::Submitted && !self.claims.is_empty();
                let verdict = if is_wanted { verdict } else { &Verdict::GiveUp };
                events.extend(self.follow(code, verdict, *cost, now));
                events
            }
            Fact::Solved(solved) if self.is_answered_by(solved) => {
                vec![self.ready(attempt, solved, now)]
            }
            Fact::NotAccepted { .. }
            | Fact::Withheld { .. }
            | Fact::ReplyLost { .. }
            | Fact::TaskOver { .. }
            | Fact::Solved(_) => return FactEffect::Known,
        };
        FactEffect::Moved(events)
    }

    fn has_task(&self) -> bool {
        matches!(self.stage, Stage::Submitted | Stage::Overdue)
    }

    /// A late answer of the last task counts in every stage but `Ready`.
    fn is_answered_by(&self, solved: &Solved) -> bool {
        self.stage != Stage::Ready && self.task.as_ref() == Some(&solved.task)
    }

    fn accepted(
        &mut self,
        task: &TaskId,
        sent_at: Timestamp,
        is_expected: bool,
        now: Timestamp,
    ) -> FactEffect {
        if is_expected {
            return FactEffect::Moved(vec![self.accept(task.clone(), sent_at, now)]);
        }
        if self.task.as_ref() == Some(task) {
            return FactEffect::Known;
        }
        FactEffect::Orphaned { task: task.clone(), sent_at }
    }

    fn accept(&mut self, task: TaskId, sent_at: Timestamp, now: Timestamp) -> Event {
        self.stage = if self.claims.is_empty() { Stage::Overdue } else { Stage::Submitted };
        self.task = Some(task.clone());
        self.accepted_at = Some(sent_at);
        self.due = now;
        Event::Accepted { attempt: self.attempt, task }
    }

    fn requeue(&mut self, due: Timestamp) {
        self.stage = Stage::Queued;
        self.due = due;
    }

    /// Queues the solve again or fails it, as the verdict says.
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
                self.requeue(*due);
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
