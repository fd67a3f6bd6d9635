//! How many tokens an `auto` pool should have ready: what was asked for lately, and what that calls for.
//!
//! Demand comes in bursts: runs of arrivals with silence between them; steady demand is one long burst. Within a burst
//! the rate is a gamma posterior whose oldest arrivals fade; past bursts are its prior, so that the first claim after a
//! silence already orders for a burst like the last ones. The level is where one more token would cost more, by dying
//! unused, than it saves in waiting. See `level.rs` for the sums and `burst.rs` for what is remembered of bursts.

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

/// What is known about the demand for one pool; small, updated at every arrival.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The burst that is on, or the last one.
    run: Run,
    /// The bursts before it.
    past: Past,
}

/// How long solves of the pool's kind take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The mean.
    pub mean: Duration,
    /// What 99 of 100 solves stay below.
    pub q99: Duration,
}

/// What the target depends on besides the demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemandAsk {
    /// The moment it is asked for.
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

/// How many tokens should be in stock or under way, beyond those waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The number of tokens.
    pub level: u32,
    /// What decided it.
    pub why: Why,
}

/// What decided a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The level is fixed.
    Fixed,
    /// Demand was announced.
    Expected,
    /// The page is not declared, or not any more.
    Undeclared,
    /// Nothing is asked for.
    NoDemand,
    /// Enough that nearly every claim finds a token.
    HitTarget,
    /// More would expire unused too often.
    WasteLimit,
    /// The waste allowed covers no more.
    Allowance,
    /// The pool's own maximum.
    Most,
    /// A burst has begun; as many as the last bursts needed.
    Burst,
    /// Bursts come at regular times and the next is due.
    Due,
    /// The burst is expected to end before more could be used.
    Ending,
}

/// Silence this unlikely stops ordering; less than this is no silence.
const QUIET: f64 = 0.002;
const SHORTEST_QUIET: f64 = 10.0;
/// A burst this young is judged by those before it.
const YOUNG: u32 = 8;
/// A rate needs this much evidence: a single claim says nothing.
const EVIDENCE: f64 = 1.5;
/// A burst that was due and does not come costs no more than this.
const MOST_DUE: u32 = 20;

// === impl Demand ===

impl Demand {
    /// Notes that a claim asked for a token.
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

    /// How many tokens to have ready, and why, when the waste allowed covers `room` spare ones.
    pub fn target(&self, ask: &DemandAsk, room: u32) -> Target {
        let silence = self.run.silence(ask.now);
        let useless = silence > (ask.life + ask.timing.mean).as_secs_f64();
        if useless || silence >= SHORTEST_QUIET && self.run.odds_of(silence) < QUIET {
            return self.due(ask, room);
        }
        if self.run.weight() < EVIDENCE {
            return Target { level: 0, why: Why::NoDemand };
        }
        let ahead = Ahead {
            rate: self.rate(ask.now),
            weight: self.run.weight(),
            size: self.past.usual_size().max(f64::from(self.run.count())),
            left: self.past.left_of(&self.run, ask.now),
        };
        let target = best_level(&ahead, ask, room);
        if target.why == Why::HitTarget && self.run.count() < YOUNG && self.past.has_bursts() {
            return Target { why: Why::Burst, ..target };
        }
        target
    }

    /// What to hold in silence: nothing, unless the next burst is due.
    fn due(&self, ask: &DemandAsk, room: u32) -> Target {
        let ahead = self.past.next_burst(&self.run).filter(|next| {
            // Late enough that no token dies, and is ordered again, before the burst has had its time to come.
            let lead = ask.timing.q99.min(ask.timing.mean + ask.life / 4);
            (next.from.minus(lead)..next.until).contains(&ask.now)
        });
        let Some(next) = ahead else { return Target { level: 0, why: Why::NoDemand } };
        let level = best_level(&next.ahead, ask, room).level.min(MOST_DUE);
        Target { level, why: Why::Due }
    }
}

// === impl Why ===

impl Why {
    /// The reason, for people.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Fixed => "the level is fixed",
            Self::Expected => "demand was announced",
            Self::Undeclared => "the page is not declared",
            Self::NoDemand => "nothing is asked for",
            Self::HitTarget => "nearly every claim finds a token",
            Self::WasteLimit => "more would expire unused",
            Self::Allowance => "the waste allowed covers no more",
            Self::Most => "the pool's maximum",
            Self::Burst => "a burst has begun",
            Self::Due => "the next burst is due",
            Self::Ending => "the burst is about to end",
        }
    }
}
