//! Bursts of demand: the one that is on, and what the past ones were like.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::level::Ahead;
use crate::time::Timestamp;

/// The burst that is on, or the last one. The rate is a gamma posterior: `weight` arrivals in `exposure` seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    onset: Timestamp,
    last: Timestamp,
    count: u32,
    weight: f64,
    exposure: f64,
}

/// What the past bursts were like; recent ones count more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Past {
    /// Silences that ended, and the share of them that a burst followed rather than a lone claim or two.
    onsets: u32,
    real: f64,
    bursts: u32,
    /// Arrivals per second, arrivals (logarithm), seconds (logarithm).
    pace: Spread,
    size: Spread,
    length: Spread,
    /// When the last one began, how long after the one before, and how often in a row it was as long as that.
    onset: Timestamp,
    period: Duration,
    regular: u32,
}

/// Fading mean and variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Spread {
    mean: f64,
    variance: f64,
}

/// A burst that is expected.
pub(super) struct Next {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) ahead: Ahead,
}

/// Arrivals the rate is taken from: older ones fade.
const WINDOW: f64 = 48.0;
/// A rate is not judged by less than this many seconds: claims may come all at once.
const SHORTEST_EXPOSURE: f64 = 2.0;
/// A silence ends a burst when it is this unlikely within it, not if shorter than the one, always if longer than the
/// other: tokens live about as long.
const OVER: f64 = 1e-6;
const SHORTEST_SILENCE: f64 = 60.0;
const LONGEST_SILENCE: f64 = 300.0;
/// Fewer arrivals than this are no burst.
const BURST: u32 = 3;
/// How much the newest burst counts.
const NEWEST: f64 = 0.2;
/// Past bursts are worth at most this many arrivals of the present one.
const PRIOR: f64 = 8.0;
/// Sizes are never trusted to be more alike than this (deviation of the logarithm).
const LEAST_DEVIATION: f64 = 0.01;
/// Regular bursts begin within this of their time, and are worth waiting for from this size.
const PUNCTUAL: Duration = Duration::from_secs(20);
const WORTH_WAITING: f64 = 10.0;

// === impl Run ===

impl Run {
    /// A burst that begins now, judged by the `prior` weight and exposure until it is known better.
    pub(super) fn begin(at: Timestamp, prior: (f64, f64)) -> Self {
        Self { onset: at, last: at, count: 1, weight: prior.0, exposure: prior.1 }
    }

    pub(super) fn arrive(&mut self, at: Timestamp) {
        let kept = 1.0 - 1.0 / WINDOW;
        self.weight = self.weight * kept + 1.0;
        self.exposure = self.exposure * kept + self.silence(at);
        self.count = self.count.saturating_add(1);
        self.last = self.last.max(at);
    }

    pub(super) fn rate(&self, now: Timestamp) -> f64 {
        self.weight / (self.exposure + self.silence(now)).max(SHORTEST_EXPOSURE)
    }

    /// Seconds since the last arrival.
    pub(super) fn silence(&self, now: Timestamp) -> f64 {
        now.since(self.last).as_secs_f64()
    }

    /// How likely a silence at least so long is while the burst lasts.
    pub(super) fn odds_of(&self, silence: f64) -> f64 {
        let exposure = self.exposure.max(SHORTEST_EXPOSURE);
        (exposure / (exposure + silence)).powf(self.weight)
    }

    /// Whether an arrival now would begin another burst.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let silence = self.silence(now);
        self.count == 0
            || silence > LONGEST_SILENCE
            || silence > SHORTEST_SILENCE && self.odds_of(silence) < OVER
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

// === impl Past ===

impl Past {
    /// Takes a finished burst into account.
    pub(super) fn remember(&mut self, run: &Run) {
        if run.count == 0 {
            return;
        }
        self.onsets = self.onsets.saturating_add(1);
        let share = NEWEST.max(1.0 / (f64::from(self.onsets) + 1.0));
        let is_burst = run.count >= BURST;
        self.real += share * (f64::from(u8::from(is_burst)) - self.real);
        if !is_burst {
            return;
        }
        self.bursts = self.bursts.saturating_add(1);
        let share = NEWEST.max(1.0 / f64::from(self.bursts));
        let seconds = run.last.since(run.onset).as_secs_f64().max(SHORTEST_EXPOSURE);
        self.pace.add(f64::from(run.count - 1) / seconds, share);
        self.size.add(f64::from(run.count).ln(), share);
        self.length.add(seconds.ln(), share);
        let period = run.onset.since(self.onset);
        let is_punctual = period.abs_diff(self.period) <= PUNCTUAL.min(self.period / 10);
        self.regular = if is_punctual { self.regular.saturating_add(1) } else { 0 };
        (self.onset, self.period) = (run.onset, period);
    }

    /// Weight and exposure a new burst starts with; the more alike the past ones were, the heavier.
    pub(super) fn prior(&self) -> (f64, f64) {
        let pace = self.pace.mean;
        if !self.has_bursts() || pace <= 0.0 {
            return (0.0, 0.0);
        }
        let alike = pace * pace / self.pace.variance.max(f64::MIN_POSITIVE);
        let weight = alike.min(f64::from(self.bursts)).clamp(1.0, PRIOR);
        (weight, weight / pace)
    }

    pub(super) fn has_bursts(&self) -> bool {
        self.bursts > 0
    }

    /// Arrivals of the usual burst.
    pub(super) fn usual_size(&self) -> f64 {
        self.size.mean.exp()
    }

    /// How many more arrivals are as likely as not, judged by size or by length, whichever varies less.
    pub(super) fn left_of(&self, run: &Run, now: Timestamp) -> f64 {
        let count = f64::from(run.count);
        if !self.has_bursts() {
            return count;
        }
        let left = if self.length.variance < self.size.variance {
            let elapsed = now.since(run.onset).as_secs_f64().max(1.0);
            self.length.likely_rest(elapsed, self.bursts) * run.rate(now)
        } else {
            self.size.likely_rest(count, self.bursts)
        };
        // One claim may stay alone: the tokens lost to lone ones are not to outnumber the claims that wait once more.
        let lone = if run.count < BURST { self.real / (1.0 - self.real).max(1e-3) } else { left };
        left.min(lone)
    }

    /// The next burst, if they come at regular times.
    pub(super) fn next_burst(&self, run: &Run) -> Option<Next> {
        let (weight, exposure) = self.prior();
        if self.regular == 0 || self.usual_size() < WORTH_WAITING {
            return None;
        }
        let onset = if run.count >= BURST { run.onset } else { self.onset };
        let from = onset.plus(self.period);
        let size = self.usual_size();
        let ahead = Ahead { rate: weight / exposure, weight, size, left: size };
        Some(Next { from, until: from.plus(PUNCTUAL), ahead })
    }
}

// === impl Spread ===

impl Spread {
    fn add(&mut self, value: f64, share: f64) {
        let off = value - self.mean;
        self.mean += share * off;
        self.variance = (1.0 - share) * (self.variance + share * off * off);
    }

    /// What is as likely as not to follow when `so_far` is reached already, for a log-logistic value. Its long tail is
    /// the right one twice: what outlasts the usual by far will last as long again, and little is known from few.
    fn likely_rest(&self, so_far: f64, seen: u32) -> f64 {
        let doubt = f64::from(seen).powi(-3);
        let deviation = self.variance.sqrt().max(LEAST_DEVIATION).max(doubt);
        let shape = std::f64::consts::PI / 3f64.sqrt() / deviation;
        // Half of the chance to get this far: 1 + (x/m)^b = 2 (1 + (so_far/m)^b), solved for x without overflow.
        let reached = shape * (so_far.ln() - self.mean);
        let doubled = if reached > 30.0 {
            reached + std::f64::consts::LN_2
        } else {
            (1.0 + 2.0 * reached.exp()).ln()
        };
        (self.mean + doubled / shape).exp() - so_far
    }
}
