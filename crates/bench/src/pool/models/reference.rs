//! The reference policy: the number of tokens to hold at the rate of the latest arrivals, and the escrow that bounds
//! waste. For `models`.

use std::collections::{BTreeMap, VecDeque};

use crate::load::as_f64;

use super::super::{LIFE, SOLVES, WASTE};

#[derive(Debug)]
pub(super) struct Reference {
    arrivals: VecDeque<f64>,
    /// Tokens that may still expire unused.
    budget: f64,
    /// Levels by the logarithm of the rate, in twentieths.
    levels: BTreeMap<i64, usize>,
}

const ARRIVALS: usize = 12;
const FEWEST: usize = 3;
const HITS: f64 = 0.95;
const FREE_WASTE: f64 = 10.0;
const MOST_WASTE: f64 = 60.0;
const HIGHEST: usize = 60;
const FINE: f64 = 20.0;

// === impl Reference ===

impl Default for Reference {
    fn default() -> Self {
        Self { arrivals: VecDeque::new(), budget: FREE_WASTE, levels: BTreeMap::new() }
    }
}

impl Reference {
    pub(super) fn arrive(&mut self, at: f64) {
        if self.arrivals.len() == ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(at);
    }

    pub(super) fn served(&mut self) {
        self.budget = MOST_WASTE.min(self.budget + WASTE);
    }

    pub(super) fn died(&mut self) {
        self.budget -= 1.0;
    }

    /// Whether to order one more, with this many spare tokens.
    pub(super) fn wants(&mut self, now: f64, spare: usize) -> bool {
        spare < self.level(now) && self.budget - as_f64(spare as u64) >= 1.0
    }

    fn level(&mut self, now: f64) -> usize {
        let Some(first) = self.arrivals.front().filter(|_| self.arrivals.len() >= FEWEST) else {
            return 0;
        };
        let rate = as_f64(self.arrivals.len() as u64 - 1) / (now - first).max(1e-6);
        #[expect(clippy::cast_possible_truncation, reason = "the logarithm of a rate is small")]
        let key = (rate.ln() * FINE).round() as i64;
        let level = || best_level((rate.ln() * FINE).round() / FINE);
        *self.levels.entry(key).or_insert_with(level)
    }
}

/// The level for this logarithm of a rate: enough hits, unless that wastes too many tokens.
fn best_level(ln_rate: f64) -> usize {
    let rate = ln_rate.exp();
    let solving = rate * SOLVES.mean();
    let hits = |level: &usize| at_most(*level as u64, solving) >= HITS;
    let enough = (1..HIGHEST).find(|level| hits(&(level - 1))).unwrap_or(HIGHEST);
    let dies = |level: &usize| died(*level, solving, rate * LIFE) <= WASTE;
    let endurable = (1..=HIGHEST).take_while(dies).last().unwrap_or(0);
    enough.min(endurable)
}

/// The probability that a token expires unused, averaged over its position in the stock.
fn died(level: usize, solving: f64, living: f64) -> f64 {
    let (mut sum, mut all, mut chance) = (0.0, 0.0, (-solving).exp());
    for under_way in 0..level as u64 {
        if under_way > 0 {
            chance *= solving / as_f64(under_way);
        }
        all += chance;
        sum += chance * at_most(level as u64 - under_way - 1, living);
    }
    if all > 0.0 { sum / all } else { 0.0 }
}

/// The probability of at most `count` arrivals when `mean` are expected.
fn at_most(count: u64, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for n in 1..=count {
        term *= mean / as_f64(n);
        sum += term;
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the reference model, for a life of 100 s.
    #[test]
    fn levels_are_those_of_the_reference_model() {
        for (every, level) in [(300.0, 0), (60.0, 0), (30.0, 1), (10.0, 5), (2.0, 15), (1.0, 25)] {
            assert_eq!(best_level((1.0_f64 / every).ln()), level, "one in {every} s");
        }
    }
}
