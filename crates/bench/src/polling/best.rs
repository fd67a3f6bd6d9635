//! Optimal schedules for a known distribution, computed backwards from the end on a grid of tenths of a second, for any
//! number of polls; and the result of any other schedule.

use std::time::Duration;

use engine::{Family, PollQuery, Polling};

use crate::{load::as_f64, lognormal::LogNormal};

/// The result of a schedule, per solve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Achieved {
    pub(super) polls: f64,
    /// Mean seconds from ready to found.
    pub(super) lag: f64,
}

/// The ages of a task, in seconds, at which it is polled until it is ready.
#[derive(Clone, Debug)]
pub(super) struct Schedule(Vec<f64>);

/// The optimal schedules for one distribution.
#[derive(Debug)]
pub(super) struct Best {
    /// The probability that a solve is ready, at every step of the grid.
    by: Vec<f64>,
    /// Its integral.
    area: Vec<f64>,
    /// Sorted by the number of polls.
    schedules: Vec<Schedule>,
    /// Quantiles of the solve time.
    pub(super) times: Vec<f64>,
}

const STEP: f64 = 0.1;
/// The minimum and, except for the first poll, maximum number of steps between polls.
const LEAST_GAP: usize = 10;
const LONGEST_GAP: usize = 150;
/// The share of solves beyond the end of the grid.
const BEHIND: f64 = 1e-4;
const PRICES: i32 = 18;
const CHEAPEST: f64 = 0.05;
const PRICE_GROWS: f64 = 1.3;
const TIMES: u64 = 2_000;

// === impl Schedule ===

impl Schedule {
    /// At a fixed interval, for longer than any solve.
    pub(super) fn every(interval: f64) -> Self {
        let ages = std::iter::successors(Some(interval), |age| Some(age + interval));
        Self(ages.take_while(|age| *age < simulator::pace::LONGEST.as_secs_f64()).collect())
    }

    /// The polls of a task that is never ready, with one waiting claim and without jitter.
    pub(super) fn of(polling: &Polling, family: &Family) -> Self {
        let mut age = Duration::ZERO;
        let next = |polls| {
            let ask = PollQuery { family, polls, age, waiting: 1, jitter: u64::MAX / 2 };
            age += polling.next(&ask);
            age.as_secs_f64()
        };
        Self((0..polling.most).map(next).collect())
    }

    /// The result for tasks with these solve times.
    pub(super) fn with(&self, times: &[f64]) -> Achieved {
        let (mut polls, mut lag) = (0, 0.0);
        for time in times {
            let before = self.0.partition_point(|age| age < time);
            polls += before as u64 + 1;
            lag += self.0.get(before).map_or(0.0, |found| found - time);
        }
        let count = as_f64(times.len() as u64);
        Achieved { polls: as_f64(polls) / count, lag: lag / count }
    }
}

// === impl Best ===

impl Best {
    pub(super) fn of(truth: LogNormal) -> Self {
        let end = truth.quantile(1.0 - BEHIND);
        let ages = std::iter::successors(Some(0.0), |age| Some(age + STEP));
        let by: Vec<f64> = ages.take_while(|age| *age <= end).map(|age| truth.by(age)).collect();
        let mut area = vec![0.0; by.len()];
        for i in 1..by.len() {
            area[i] = area[i - 1] + STEP * f64::midpoint(by[i], by[i - 1]);
        }
        let mut best = Self { by, area, schedules: Vec::new(), times: truth.quantiles(TIMES) };
        let price = |n| CHEAPEST * PRICE_GROWS.powi(n);
        best.schedules = (0..PRICES).rev().map(|n| best.at_price(price(n))).collect();
        best
    }

    /// The schedule with the least lag when a poll costs `price` seconds.
    fn at_price(&self, price: f64) -> Schedule {
        let end = self.by.len() - 1;
        let (mut lost, mut next) = (vec![0.0; end + 1], vec![end; end]);
        for i in (0..end).rev() {
            let latest = if i == 0 { end } else { end.min(i + LONGEST_GAP) };
            let mut least = f64::INFINITY;
            let earliest = end.min(i + LEAST_GAP);
            for (j, lost) in lost.iter().enumerate().take(latest + 1).skip(earliest) {
                let then = self.undetected(i, j) + lost;
                if then < least {
                    (least, next[i]) = (then, j);
                }
            }
            lost[i] = least + price * (1.0 - self.by[i]);
        }
        let steps = std::iter::successors(next.first(), |step| next.get(**step));
        Schedule(steps.map(|step| STEP * as_f64(*step as u64)).collect())
    }

    /// The mean time a ready solve waits between polls at these steps.
    fn undetected(&self, from: usize, to: usize) -> f64 {
        let length = STEP * as_f64((to - from) as u64);
        self.area[to] - self.area[from] - self.by[from] * length
    }

    /// The price at which the optimal schedule takes this many polls.
    pub(super) fn price_of(&self, polls: f64) -> f64 {
        let (mut low, mut high) = (CHEAPEST, CHEAPEST * PRICE_GROWS.powi(PRICES));
        for _ in 0..12 {
            let middle = (low * high).sqrt();
            let is_cheap = self.at_price(middle).with(&self.times).polls > polls;
            if is_cheap { low = middle } else { high = middle }
        }
        high
    }

    /// The lag of the optimal schedule with this many polls for these solve times, interpolated in logarithms.
    pub(super) fn lag_at(&self, polls: f64, times: &[f64]) -> f64 {
        let known: Vec<Achieved> = self.schedules.iter().map(|best| best.with(times)).collect();
        let right = known.partition_point(|best| best.polls < polls).clamp(1, known.len() - 1);
        let (few, many) = (known[right - 1], known[right]);
        let part = (polls / few.polls).ln() / (many.polls / few.polls).ln();
        few.lag * (many.lag / few.lag).powf(part)
    }

    /// The lag of a schedule relative to the optimal one with as many polls.
    pub(super) fn beside(&self, schedule: &Schedule) -> f64 {
        let Achieved { polls, lag } = schedule.with(&self.times);
        lag / self.lag_at(polls, &self.times)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::challenge::Kind;
    use engine::FixedPolling;

    use super::*;

    /// The table of the reference model: polls of a fixed interval of 5 s, and the optimal lag with as many.
    #[test]
    fn the_best_schedules_are_those_of_the_reference_model() {
        for (median, sigma, polls, lag) in [
            (8.0, 0.3, 2.19, 1.09),
            (8.0, 0.5, 2.31, 1.70),
            (15.0, 0.3, 3.64, 1.13),
            (15.0, 0.5, 3.90, 1.70),
            (35.0, 0.3, 7.82, 1.18),
            (35.0, 0.5, 8.43, 1.73),
        ] {
            let best = Best::of(LogNormal { median, sigma });
            let fixed = Schedule::every(5.0).with(&best.times);
            let found = (fixed.polls, best.lag_at(polls, &best.times));
            assert!((found.0 / polls - 1.0).abs() < 0.01, "{median} {sigma}: {found:?}");
            assert!((found.1 / lag - 1.0).abs() < 0.03, "{median} {sigma}: {found:?}");
            let priced = best.at_price(best.price_of(polls)).with(&best.times);
            assert!((priced.polls / polls - 1.0).abs() < 0.05, "{median} {sigma}: {priced:?}");
        }
    }

    #[test]
    fn a_fixed_schedule_is_judged_as_the_reference_model_does() {
        let best = Best::of(LogNormal { median: 15.0, sigma: 0.5 });
        let polling: Arc<Polling> = FixedPolling { most: 60, ..FixedPolling::default() }.into();
        let family = Family { kind: Kind::Turnstile, proxied: false };
        let judged = best.beside(&Schedule::of(&polling, &family));
        assert!((judged - 2.50 / 1.70).abs() < 0.05, "{judged}");
    }
}
