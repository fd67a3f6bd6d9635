//! Whose turn it is: what waits for a slot, when it is submitted, and when it is let go.

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    solve::{Origin, Solve},
    time::Timestamp,
};

use crate::{
    fair::{LaneName, Sort, Waiting},
    held::{Held, Turn},
    submit,
};

use super::{Driver, MOST_STEPS};

impl Driver {
    /// What waits for a slot and cannot be answered in time any more is told so now, and nothing is paid for it.
    pub(super) fn let_go_of_hopeless(&mut self, now: Timestamp) {
        let inner = Arc::clone(&self.inner);
        let mut soonest = BTreeMap::new();
        let mut is_hopeless = |held: &Held| {
            let solve = &held.lease.solve;
            let kind = solve.kind.clone();
            let soonest = soonest.entry(kind).or_insert_with_key(|kind| inner.soonest(kind, now));
            solve.wanted_until < *soonest
        };
        let hopeless = self.inner.queue().remove_where(|held| is_hopeless(held));
        for held in hopeless {
            self.step(held, false, submit::lapse);
        }
    }

    pub(super) fn enqueue(&mut self, held: Box<Held>) {
        let solve = &held.lease.solve;
        let usual = self.inner.health.usual_solve(&solve.kind);
        let waiting = Waiting {
            lane: LaneName::of(solve),
            opened_at: solve.opened_at,
            solve: solve.id,
            sort: sort_of(solve),
            charge: u64::try_from(usual.as_millis()).unwrap_or(u64::MAX),
            item: held,
        };
        let priority = match &waiting.lane {
            LaneName::Worker(worker) => self.inner.priority(worker),
            LaneName::Revived => 1,
        };
        self.inner.queue().push(waiting, priority);
    }

    /// Submits, worker after worker, while there are slots, nothing is in trouble and the pace allows it. The result is
    /// when time alone will help what is left.
    pub(super) fn start_submits(&mut self, now: Timestamp) -> Option<Timestamp> {
        loop {
            if self.inner.queue().len() == 0 || self.inner.is_draining() || !self.knows_all {
                return None;
            }
            if self.steps.len() >= MOST_STEPS {
                return None;
            }
            if let Err(again) = self.inner.places.is_free(now) {
                return again;
            }
            let retry_at = self.retries.allows(now).err();
            if let Some(at) = retry_at
                && self.inner.queue().has_only_retries()
            {
                return Some(at);
            }
            if let Err(at) = self.inner.breakers.pass(now) {
                return Some(at);
            }
            if let Err(at) = self.pace.pass(now, self.inner.breakers.closed_at()) {
                self.inner.breakers.hand_back(now);
                return Some(at);
            }
            let next = self.inner.queue().pop(retry_at.is_none());
            match next {
                Some(next) => self.start_submit(next, now),
                None => self.inner.breakers.hand_back(now),
            }
        }
    }

    pub(super) fn start_submit(&mut self, next: Waiting<Box<Held>>, now: Timestamp) {
        match next.sort {
            Sort::Retry => self.retries.retried(),
            Sort::Fresh | Sort::Refill => self.retries.fresh(),
        }
        let mut held = next.item;
        held.slot = true;
        held.turn = Some(Turn { lane: next.lane, charge: next.charge, since: now });
        self.inner.places.take(now);
        self.step(held, true, submit::submit);
    }

    /// The slot is free again: the worker's turn took as long as it took.
    pub(super) fn end_turn(&self, turn: Option<Turn>) {
        let Some(turn) = turn else { return };
        let took = self.inner.now().since(turn.since).as_millis();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        self.inner.queue().settle(&turn.lane, turn.charge, took);
    }
}

impl LaneName {
    fn of(solve: &Solve) -> Self {
        match solve.origin {
            Origin::Revived { .. } => Self::Revived,
            Origin::Claim(_) | Origin::Orphan(_) | Origin::Refill => {
                Self::Worker(solve.worker.clone())
            }
        }
    }
}

/// What sort of work a queued solve is.
fn sort_of(solve: &Solve) -> Sort {
    if solve.origin == Origin::Refill && solve.claims.is_empty() {
        Sort::Refill
    } else if solve.failures.is_empty() && solve.authorised == 0 {
        // An attempt that was never sent, because its intent was not safe, is no retry.
        Sort::Fresh
    } else {
        Sort::Retry
    }
}
