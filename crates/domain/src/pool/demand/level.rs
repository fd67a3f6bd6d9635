//! The level with the least cost: how often claims find a token at a level, and how often its last token expires unused.
//!
//! Open orders are Poisson with the mean of rate · solve time, whatever the distribution of solve times (Palm), and the
//! last of S tokens is used when S claims arrive within solve time + life. The rate itself is only estimated, which makes
//! both counts negative binomial. A burst leaves its whole level unused at its end, and that cost is shared by its `size`
//! claims. An allowance bounds the waste. The larger the part of it that a level puts at risk, the more its tokens cost,
//! and only the claims still to come can pay for them. A scarce allowance therefore goes to bursts that last, instead of
//! in part to every burst.

use super::{Target, TargetInputs, Why};

/// The expected demand from now on.
pub(super) struct Ahead {
    /// Arrivals per second.
    pub(super) rate: f64,
    /// The number of arrivals the rate was estimated from.
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

/// A token that expires unused costs as much as half a claim that has to wait.
const PRICE: f64 = 0.5;
/// How much more a token costs when the level uses the whole allowance.
const SCARCE: f64 = 4.0;
/// The highest level that is considered, which bounds the computation.
const HIGHEST: u32 = 250;
/// When fewer claims than this have to wait, more tokens make no difference.
const NO_WAIT: f64 = 1e-5;

/// The level with the least cost of waiting claims and of tokens that expire, from age or at the end of the demand. `room`
/// is the number of spare tokens that the allowance covers.
pub(super) fn best_level(ahead: &Ahead, inputs: &TargetInputs, room: u32) -> Target {
    let solving = inputs.timing.mean.as_secs_f64();
    let mut under_way = Arrivals::within(solving, ahead);
    let mut in_time = Arrivals::within(solving + inputs.life.as_secs_f64(), ahead);
    let most = inputs.most.min(HIGHEST).min(room);
    // The share of claims that wait, and their wait as a share of the solve time. Both are 1 without stock.
    let mut wait = 1.0;
    let (mut best, mut least, mut why) = (0, 2.0, Why::HitTarget);
    for level in 1..=most {
        let (waits, dies) = (1.0 - under_way.sum, in_time.sum);
        wait -= waits / under_way.mean;
        if dies > inputs.waste {
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
