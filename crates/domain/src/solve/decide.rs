//! Decisions: fenced moves. They spend, give up money, or let go of what cannot be spent in time.

use crate::{
    id::Nonce,
    lease::Fence,
    ledger::Event,
    money::Money,
    retry::{Code, own},
    time::Timestamp,
};

use super::{Solve, Stage};

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
    /// `Queued → Failed`: no answer can come in time any more, so nothing is paid for one.
    Lapse {
        /// No answer can come before then.
        soonest: Timestamp,
        /// The account's trouble, when that is what let the time pass.
        trouble: Option<Code>,
    },
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
    /// Somebody waits for it longer than the decider knew.
    #[error("an older claim is waiting for this solve")]
    Wanted,
    /// The day's ambiguity budget is used up.
    #[error("the day's ambiguity budget is used up")]
    Budget,
}

impl Solve {
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
            // A claim may have joined since the decider looked.
            (Decision::Lapse { soonest, .. }, Stage::Queued) if self.wanted_until >= *soonest => {
                Err(Refused::Wanted)
            }
            (Decision::Lapse { trouble, .. }, Stage::Queued) => {
                let code = trouble.clone().unwrap_or_else(|| own::DEADLINE.into());
                Ok(self.fail(code, Some(Money::ZERO), now))
            }
            (
                Decision::Intend { .. }
                | Decision::Authorise { .. }
                | Decision::WriteOff
                | Decision::Lapse { .. },
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
}
