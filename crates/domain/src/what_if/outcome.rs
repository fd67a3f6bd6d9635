//! The sums of a replay.

use std::collections::BTreeMap;

use crate::{challenge::Kind, money::Money};

/// What happened, and what would have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// What happened.
    pub actual: Outcome,
    /// What would have happened.
    pub estimate: Outcome,
    /// Solves that were added.
    pub added: u64,
    /// Solves that were saved.
    pub saved: u64,
    /// Solves that were added of kinds that no solve was seen of. Their cost is unknown.
    pub unfounded: u64,
}

/// Sums over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Claims, without repeated ones.
    pub claims: u64,
    /// Claims that were repeated under a key, as often as they were.
    pub repeats: u64,
    /// Solves that claims opened or pools ordered.
    pub solves: u64,
    /// Attempts the provider accepted.
    pub attempts: u64,
    /// The sum of all known costs.
    pub cost: Money,
    /// Attempts of unknown cost.
    pub cost_unknown: u64,
    /// Milliseconds from acceptance to answer: the time tasks occupied slots.
    pub slot_ms: u64,
    /// Polls, where the replay counts them.
    pub polls: u64,
    /// Claims that got a token.
    pub served: u64,
    /// How long they waited for it, together.
    pub wait_ms: u64,
    /// Tokens that expired unused.
    pub wasted: u64,
}

/// What one kind adds to the result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindSums {
    pub(super) actual: Outcome,
    /// The part of it that the settings save.
    pub(super) saved: Outcome,
    /// Solves that the settings add.
    pub(super) added: u64,
    /// Those whose claim waited for nothing, and would wait.
    pub(super) added_waits: u64,
    /// How much later tokens would come, and slots be free, with the settings' polling.
    pub(super) later_ms: u64,
    pub(super) later_slot_ms: u64,
    pub(super) polls: u64,
    /// Finished solves with at least one attempt: what an added one is like.
    pub(super) sample: Outcome,
}

// === impl Outcome ===

impl Outcome {
    /// The mean time to a token; `None` when no claim got one.
    pub fn mean_wait_ms(&self) -> Option<u64> {
        self.wait_ms.checked_div(self.served)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
        self.cost = self.cost + other.cost;
    }

    fn subtract(&mut self, other: &Self) {
        self.combine(other, u64::saturating_sub);
        self.cost = self.cost - other.cost;
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        for (sum, more) in [
            (&mut self.claims, other.claims),
            (&mut self.repeats, other.repeats),
            (&mut self.solves, other.solves),
            (&mut self.attempts, other.attempts),
            (&mut self.cost_unknown, other.cost_unknown),
            (&mut self.slot_ms, other.slot_ms),
            (&mut self.polls, other.polls),
            (&mut self.served, other.served),
            (&mut self.wait_ms, other.wait_ms),
            (&mut self.wasted, other.wasted),
        ] {
            *sum = with(*sum, more);
        }
    }
}

// === impl WhatIf ===

impl WhatIf {
    pub(super) fn of(kinds: &BTreeMap<Kind, KindSums>) -> Self {
        let mut all = Self {
            actual: Outcome::default(),
            estimate: Outcome::default(),
            added: 0,
            saved: 0,
            unfounded: 0,
        };
        for sums in kinds.values() {
            all.actual.add(&sums.actual);
            all.estimate.add(&sums.estimate());
            all.added += sums.added;
            all.saved += sums.saved.solves;
            if sums.sample.solves == 0 {
                all.unfounded += sums.added;
            }
        }
        all
    }
}

// === impl KindSums ===

impl KindSums {
    fn estimate(&self) -> Outcome {
        let mut estimate = self.actual;
        estimate.subtract(&self.saved);
        estimate.wait_ms = estimate.wait_ms.saturating_add(self.later_ms);
        estimate.slot_ms = estimate.slot_ms.saturating_add(self.later_slot_ms);
        estimate.polls = self.polls;
        estimate.add(&self.added());
        estimate
    }

    /// The added solves: the mean of those that happened.
    fn added(&self) -> Outcome {
        let sample = &self.sample;
        let times = |sum: u64, per: u64| {
            let product = u128::from(sum) * u128::from(self.added);
            u64::try_from((product + u128::from(per) / 2) / u128::from(per.max(1)))
                .unwrap_or(u64::MAX)
        };
        if sample.solves == 0 {
            let (solves, unknown) = (self.added, self.added);
            return Outcome {
                solves,
                attempts: unknown,
                cost_unknown: unknown,
                ..Outcome::default()
            };
        }
        let per = sample.solves;
        let cost = u64::try_from(sample.cost.micros()).unwrap_or(0);
        let mean_wait = sample.wait_ms.checked_div(sample.served).unwrap_or(0);
        Outcome {
            solves: self.added,
            attempts: times(sample.attempts, per),
            cost: Money::from_micros(i64::try_from(times(cost, per)).unwrap_or(i64::MAX)),
            cost_unknown: times(sample.cost_unknown, per),
            slot_ms: times(sample.slot_ms, per),
            polls: times(sample.polls, per),
            wait_ms: mean_wait.saturating_mul(self.added_waits),
            ..Outcome::default()
        }
    }
}
