//! Statistics of bursts: the current one, and the past ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::level::Ahead;
use crate::time::Timestamp;

/// The current burst, or the last one. The rate is a gamma posterior: `weight` arrivals in `exposure` seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    onset: Timestamp,
    last: Timestamp,
    pub(super) count: u32,
    pub(super) weight: f64,
    exposure: f64,
}

/// Statistics of past bursts; recent ones count more.
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

/// The rate is estimated from about this many arrivals; older ones fade.
const WINDOW: f64 = 48.0;
/// The shortest time (seconds) a rate is estimated from, because claims may come all at once.
const SHORTEST_EXPOSURE: f64 = 2.0;
/// A silence ends a burst when it is less likely than this within it, but never before the shortest and always after the
/// longest silence (seconds). Tokens live about as long as the longest.
const OVER: f64 = 1e-6;
const SHORTEST_SILENCE: f64 = 60.0;
const LONGEST_SILENCE: f64 = 300.0;
/// The fewest arrivals that count as a burst.
const BURST: u32 = 3;
/// The weight of the newest burst in the means.
const NEWEST: f64 = 0.2;
/// The prior from past bursts weighs at most as much as this many arrivals of the current one.
const PRIOR: f64 = 8.0;
/// The smallest deviation (of the logarithm) that sizes and lengths are trusted to have.
const LEAST_DEVIATION: f64 = 0.01;
/// Regular bursts begin within this of their time, and are worth waiting for from this size.
const PUNCTUAL: Duration = Duration::from_secs(20);
const WORTH_WAITING: f64 = 10.0;

// === impl Run ===

impl Run {
    /// A burst that begins now, with `prior` weight and exposure.
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

    /// The probability of a silence at least this long while the burst lasts.
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
}

// === impl Past ===

impl Past {
    /// Adds a finished burst.
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

    /// The weight and exposure a new burst starts with. The more alike the past ones were, the larger the weight.
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

    /// The typical number of arrivals in a burst.
    pub(super) fn usual_size(&self) -> f64 {
        self.size.mean.exp()
    }

    /// The median number of further arrivals, estimated from size or length, whichever varies less.
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
        // The first claims may stay alone. Tokens wasted on lone claims should not outnumber claims that wait.
        let lone = if run.count < BURST { self.real / (1.0 - self.real).max(1e-3) } else { left };
        left.min(lone)
    }

    /// The next burst, if bursts come at regular times.
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

    /// The median rest when `so_far` is reached already, for a log-logistic value. Its long tail fits for two reasons: a
    /// burst that far outlasts the usual ones will last about as long again, and few bursts are little evidence.
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
