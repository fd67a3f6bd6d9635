//! How many tokens an `auto` pool should have ready: what was asked for lately, and what that calls for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Arrivals the rate is taken from.
const REMEMBERED: usize = 12;

/// What is known about the demand for one pool; small, updated at every arrival.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The last arrivals, oldest first.
    last: Vec<u64>,
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
    /// Nothing is asked for.
    NoDemand,
    /// Enough that nearly every claim finds a token.
    HitTarget,
    /// More would expire unused too often.
    WasteLimit,
    /// The pool's own maximum.
    Most,
    /// A burst has begun; as many as the last bursts needed.
    Burst,
}

// === impl Demand ===

impl Demand {
    /// Notes that a claim asked for a token.
    pub fn arrive(&mut self, at: Timestamp) {
        if self.last.len() == REMEMBERED {
            self.last.remove(0);
        }
        self.last.push(at.millis());
    }

    /// Arrivals per second, falling while nothing arrives.
    pub fn rate(&self, now: Timestamp) -> f64 {
        let Some(&first) = self.last.first().filter(|_| self.last.len() >= 3) else { return 0.0 };
        let span = now.since(Timestamp::from_millis(first)).as_secs_f64();
        (self.last.len() - 1) as f64 / span.max(0.001)
    }

    /// How many tokens to have ready, and why.
    pub fn target(&self, ask: &DemandAsk) -> Target {
        let mean = self.rate(ask.now) * ask.timing.mean.as_secs_f64();
        let level = ((mean + 2.3 * mean.sqrt()).ceil() as u32).min(ask.most);
        let why = if level == 0 { Why::NoDemand } else { Why::HitTarget };
        Target { level, why }
    }
}

// === impl Why ===

impl Why {
    /// The reason, for people.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Fixed => "the level is fixed",
            Self::Expected => "demand was announced",
            Self::NoDemand => "nothing is asked for",
            Self::HitTarget => "nearly every claim finds a token",
            Self::WasteLimit => "more would expire unused",
            Self::Most => "the pool's maximum",
            Self::Burst => "a burst has begun",
        }
    }
}
