//! Decisions: moves that spend money or give it up. They need the fence of a living holder's lease.

use crate::{
    declarations::Guard,
    id::Nonce,
    lease::Fence,
    ledger::Event,
    money::Money,
    retry::{Code, own},
    time::Timestamp,
};

use super::{Solve, Stage};

/// A move that needs the current fence, because it may spend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are explained with their decisions")]
pub enum Decision {
    /// `Queued → Intent`. Durable before the first byte is sent. The `guard` must allow every claim that waits.
    Intend { nonce: Nonce, guard: Guard },
    /// `Ambiguous → Queued`. One more attempt at `due` or later, although the last one may have been paid. The
    /// `guard` must allow every claim that waits.
    Authorise { due: Timestamp, guard: Guard },
    /// `Ambiguous → Failed`. The money may be lost.
    WriteOff,
    /// `Queued → Failed`. The `soonest` answer would come too late, so we do not pay for one. `trouble` is what the account or
    /// the provider has, if that is why the solve was not submitted in time.
    Lapse { soonest: Timestamp, trouble: Option<Code> },
    /// `Queued → Failed`, `Ambiguous → Failed`. The `guard` allows no claim that waits, so nothing more is paid. The store
    /// ends single claims that it does not allow, and the solve goes on for the others.
    Forbid { guard: Guard },
}

/// Why a decision was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another process leases the solve, or the holder's own lease ended.
    #[error("the lease was lost")]
    LeaseLost,
    /// The solve is in another stage by now.
    #[error("the solve has moved on")]
    Moved,
    /// A claim with a later deadline joined.
    #[error("a claim with a later deadline is waiting for this solve")]
    Wanted,
    /// All resubmissions of the day are used, or the budget of the worker, the pool or the account has no room.
    #[error("the day's ambiguity budget, or the budget that would pay, is used up")]
    Budget,
    /// A declaration that the work needs was withdrawn or has ended.
    #[error("it is not declared")]
    Undeclared,
    /// An operator paused submissions. The solve stays as it is until they are resumed.
    #[error("submissions are paused")]
    Paused,
}

impl Solve {
    /// Applies a decision made under `fence`. The caller checks that the holder is alive.
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
            (Decision::Intend { nonce, .. }, Stage::Queued) => Ok(vec![self.intend(*nonce)]),
            (Decision::Authorise { due, .. }, Stage::Ambiguous)
                if !self.claims.is_empty() && self.authorised == 0 =>
            {
                Ok(vec![self.authorise(*due, now)])
            }
            (Decision::WriteOff, Stage::Ambiguous) => {
                let mut events = vec![Event::WrittenOff { attempt: self.attempt }];
                events.extend(self.fail(own::AMBIGUOUS.into(), None, now));
                Ok(events)
            }
            // A claim may have joined since the driver read the solve.
            (Decision::Lapse { soonest, .. }, Stage::Queued) if self.wanted_until >= *soonest => {
                Err(Refused::Wanted)
            }
            (Decision::Lapse { trouble, .. }, Stage::Queued) => {
                let code = trouble.clone().unwrap_or_else(|| own::DEADLINE.into());
                Ok(self.fail(code, Some(Money::ZERO), now))
            }
            (Decision::Forbid { .. }, Stage::Queued) => {
                Ok(self.fail(own::SITE_NOT_DECLARED.into(), Some(Money::ZERO), now))
            }
            (Decision::Forbid { .. }, Stage::Ambiguous) => {
                let mut events = vec![Event::WrittenOff { attempt: self.attempt }];
                events.extend(self.fail(own::SITE_NOT_DECLARED.into(), None, now));
                Ok(events)
            }
            (
                Decision::Intend { .. }
                | Decision::Authorise { .. }
                | Decision::WriteOff
                | Decision::Lapse { .. }
                | Decision::Forbid { .. },
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
        // The lost attempt may have been charged, so the cost of the solve is unknown from here on.
        self.note_failure(own::AMBIGUOUS.into(), None, now);
        self.stage = Stage::Queued;
        self.authorised += 1;
        self.due = due;
        Event::Authorised { attempt: self.attempt, fence: self.fence }
    }
}
