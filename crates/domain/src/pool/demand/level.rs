//! The sums behind a target: how often a level answers at once, how often its last token dies, and which level is best.
//!
//! Orders under way are Poisson with the mean of rate · solve time, whatever the solve times' shape (Palm), and the last
//! of S tokens is used when S claims arrive within solve time + life. The rate itself is only estimated, which makes both
//! counts negative binomial. A burst leaves its whole level unused at its end: one of `size` claims pays for that. What
//! may die is bounded by an allowance: the more of it a level puts at stake, the dearer its tokens, and only the claims
//! still to come can pay. So an allowance that is short goes to bursts that last, rather than in part to every one.

use super::{DemandAsk, Target, Why};

/// What is expected of the demand from now on.
pub(super) struct Ahead {
    /// Arrivals per second.
    pub(super) rate: f64,
    /// How many arrivals the rate is known from.
    pub(super) weight: f64,
    /// Arrivals from one end of demand to the next.
    pub(super) size: f64,
    /// More arrivals than this are unlikely before the end.
    pub(super) left: f64,
}

/// How many arrive in a given time, when the rate is itself uncertain: terms and sums of a negative binomial.
struct Arrivals {
    mean: f64,
    weight: f64,
    step: f64,
    term: f64,
    sum: f64,
}

/// A token that dies is as bad as half a claim that has to wait.
const PRICE: f64 = 0.5;
/// So many times dearer is a token when the level takes up the whole allowance.
const SCARCE: f64 = 4.0;
/// No level is above this: it bounds the work.
const HIGHEST: u32 = 250;
/// More tokens cannot make a difference once so few claims have to wait.
const NO_WAIT: f64 = 1e-5;

/// The level with the least cost: claims that wait, and tokens that die of age or at the end of the demand. `room`: so
/// many spare tokens the allowance covers.
pub(super) fn best_level(ahead: &Ahead, ask: &DemandAsk, room: u32) -> Target {
    let solving = ask.timing.mean.as_secs_f64();
    let mut under_way = Arrivals::within(solving, ahead);
    let mut in_time = Arrivals::within(solving + ask.life.as_secs_f64(), ahead);
    let most = ask.most.min(HIGHEST).min(room);
    // Of all claims those that wait, and how long they do as a share of a solve; both are 1 without any stock.
    let mut wait = 1.0;
    let (mut best, mut least, mut why) = (0, 2.0, Why::HitTarget);
    for level in 1..=most {
        let (waits, dies) = (1.0 - under_way.sum, in_time.sum);
        wait -= waits / under_way.mean;
        if dies > ask.waste {
            why = if best + 1 == level { Why::WasteLimit } else { why };
            break;
        }
        if f64::from(level) > ahead.left {
            why = if best + 1 == level { Why::Ending } else { why };
            break;
        }
        let stake = f64::from(level);
        let scarce = SCARCE * (stake / f64::from(room)).powi(2);
        let lost = PRICE * (dies + stake / ahead.size + scarce * (dies + stake / ahead.left));
        let cost = waits + wait + lost;
        if cost < least {
            (best, least) = (level, cost);
        }
        if lost >= least || waits < NO_WAIT {
            break;
        }
        under_way.next(level);
        in_time.next(level);
    }
    if best == most && why == Why::HitTarget {
        why = if most == room { Why::Allowance } else { Why::Most };
    }
    Target { level: best, why }
}

// === impl Arrivals ===

impl Arrivals {
    fn within(seconds: f64, ahead: &Ahead) -> Self {
        let mean = ahead.rate * seconds;
        let term = (-ahead.weight * (mean / ahead.weight).ln_1p()).exp();
        Self { mean, weight: ahead.weight, step: mean / (ahead.weight + mean), term, sum: term }
    }

    /// Adds the chance of exactly `count` arrivals.
    fn next(&mut self, count: u32) {
        let count = f64::from(count);
        self.term *= (self.weight + count - 1.0) / count * self.step;
        self.sum += self.term;
    }
}
