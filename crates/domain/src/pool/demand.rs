//! How many tokens an `auto` pool should have in stock, computed from the demand it has seen.
//!
//! Demand comes in bursts: runs of arrivals with silence between them; steady demand is one long burst. Within a burst
//! the rate is a gamma posterior whose oldest arrivals fade; past bursts are its prior, so that the first claim after a
//! silence already orders for a burst like the last ones. The level is where one more token would cost more, by expiring
//! unused, than it saves in waiting. `level.rs` computes the level, `burst.rs` keeps the statistics of bursts.

mod burst;
mod level;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::{
    burst::{Past, Run},
    level::{Ahead, best_level},
};
use crate::time::Timestamp;

/// Statistics of the demand for one pool, updated with every claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The current burst, or the last one.
    run: Run,
    /// The bursts before it.
    past: Past,
}

/// How long solves of the pool's kind take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The mean solve time.
    pub mean: Duration,
    /// The 99th percentile of the solve time.
    pub q99: Duration,
}

/// The inputs of a target besides the demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetInputs {
    /// The current time.
    pub now: Timestamp,
    /// How long solves take.
    pub timing: Timing,
    /// How long a token can be handed out.
    pub life: Duration,
    /// The share of tokens that may expire unused.
    pub waste: f64,
    /// The pool's highest level.
    pub most: u32,
}

/// How many tokens should be in stock or on order, beyond those that claims wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The number of tokens.
    pub level: u32,
    /// The reason for this number.
    pub why: Why,
}

/// The reason for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The order has a fixed level.
    Fixed,
    /// Announced demand needs this many.
    Expected,
    /// The page is not declared, or its declaration ended.
    Undeclared,
    /// There is no demand.
    NoDemand,
    /// Nearly every claim finds a token.
    HitTarget,
    /// More would expire unused too often.
    WasteLimit,
    /// The allowed waste covers no more.
    Allowance,
    /// The pool's configured maximum.
    Most,
    /// A burst has begun, and the last bursts needed this many.
    Burst,
    /// Bursts come at regular times and the next is due.
    Due,
    /// The burst is expected to end before more could be used.
    Ending,
}

/// The pool stops ordering when the current silence is less likely than this within a burst, and at least this long
/// (seconds).
const QUIET: f64 = 0.002;
const SHORTEST_QUIET: f64 = 10.0;
/// Until a burst has this many arrivals, the pool goes by the bursts before it.
const YOUNG: u32 = 8;
/// How many arrivals a rate needs: a single claim is no evidence.
const EVIDENCE: f64 = 1.5;
/// The most tokens that are ordered for a regular burst before it begins, in case it does not come.
const MOST_DUE: u32 = 20;

// === impl Demand ===

impl Demand {
    /// Records the arrival of a claim.
    pub fn arrive(&mut self, at: Timestamp) {
        if self.run.is_over(at) {
            self.past.remember(&self.run);
            self.run = Run::begin(at, self.past.prior());
        } else {
            self.run.arrive(at);
        }
    }

    /// Arrivals per second, falling while nothing arrives.
    pub fn rate(&self, now: Timestamp) -> f64 {
        self.run.rate(now)
    }

    /// The target when the allowed waste covers `room` spare tokens.
    pub fn target(&self, inputs: &TargetInputs, room: u32) -> Target {
        let silence = self.run.silence(inputs.now);
        let useless = silence > (inputs.life + inputs.timing.mean).as_secs_f64();
        if useless || silence >= SHORTEST_QUIET && self.run.odds_of(silence) < QUIET {
            return self.due(inputs, room);
        }
        if self.run.weight < EVIDENCE {
            return Target { level: 0, why: Why::NoDemand };
        }
        let ahead = Ahead {
            rate: self.rate(inputs.now),
            weight: self.run.weight,
            size: self.past.usual_size().max(f64::from(self.run.count)),
            left: self.past.left_of(&self.run, inputs.now),
        };
        let target = best_level(&ahead, inputs, room);
        if target.why == Why::HitTarget && self.run.count < YOUNG && self.past.has_bursts() {
            return Target { why: Why::Burst, ..target };
        }
        target
    }

    /// The target in silence: zero, unless the next regular burst is due.
    fn due(&self, inputs: &TargetInputs, room: u32) -> Target {
        let ahead = self.past.next_burst(&self.run).filter(|next| {
            // Order late enough that no token expires, and has to be replaced, while the burst may still come.
            let lead = inputs.timing.q99.min(inputs.timing.mean + inputs.life / 4);
            (next.from.minus(lead)..next.until).contains(&inputs.now)
        });
        let Some(next) = ahead else { return Target { level: 0, why: Why::NoDemand } };
        let level = best_level(&next.ahead, inputs, room).level.min(MOST_DUE);
        Target { level, why: Why::Due }
    }
}

// === impl Why ===

impl Why {
    /// The reason in words.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Fixed => "the level is fixed",
            Self::Expected => "demand was announced",
            Self::Undeclared => "the page is not declared",
            Self::NoDemand => "nothing is asked for",
            Self::HitTarget => "enough that nearly every claim finds a token",
            Self::WasteLimit => "more would expire unused",
            Self::Allowance => "the waste allowed covers no more",
            Self::Most => "the pool's maximum",
            Self::Burst => "a burst has begun",
            Self::Due => "the next burst is due",
            Self::Ending => "the burst is about to end",
        }
    }
}
