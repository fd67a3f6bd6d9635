//! The learned schedule: polls when tasks of the family are likely to be ready, more often the more claims wait.
//!
//! # Layout
//! - `cells`: time in steps of two per cent, the unit of everything here
//! - `memory`: how long tasks took, per family, as seen through the polls; kept over a restart
//! - `fit`, `curve`: the distribution behind the observations
//! - `plan`: the schedule with the least lag for its polls

mod cells;
mod curve;
mod fit;
pub(super) mod memory;
mod plan;

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use super::{Family, PollQuery, STOCK_WEIGHT};

use self::{
    memory::{FamilyTimes, SolveTimeMemory},
    plan::{END, Plan, PlanTerms},
};

/// Limits and prices of the learned schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedConfig {
    pub min_gap: Duration,
    pub most: u32,
    /// The cost of a poll, in seconds that one claim's token lies undetected.
    pub cost: f64,
}

/// Polls so that the lag is least for the polls it costs.
#[derive(Debug)]
pub(super) struct Learned {
    config: LearnedConfig,
    /// The current plans, for each family and number of claims.
    plans: Mutex<BTreeMap<(Family, u32), CachedPlan>>,
}

#[derive(Debug)]
struct CachedPlan {
    /// The version of the fit it was made from.
    version: u64,
    plan: Plan,
    q99: f64,
}

/// Each plan takes about forty kilobytes.
const MAX_PLANS: usize = 64;
/// More claims than this make no difference.
const MAX_CLAIMS: usize = 16;
/// As long as more polls than this are left, no gap but the first exceeds these limits, in seconds, because what was learned
/// may be wrong. The last polls are spread over the time until the provider drops the task.
const RESERVE: u32 = 6;
const LONGEST: f64 = 15.0;
const LONGEST_LATE: f64 = 5.0;
const LONGEST_VERY_LATE: f64 = 10.0;
const JITTER: f64 = 0.05;

// === impl LearnedConfig ===

impl Default for LearnedConfig {
    fn default() -> Self {
        Self { min_gap: Duration::from_secs(1), most: 20, cost: 0.5 }
    }
}

// === impl Learned ===

impl Learned {
    pub(super) fn new(config: LearnedConfig) -> Self {
        Self { config, plans: Mutex::default() }
    }

    pub(super) fn next(&self, query: &PollQuery<'_>, memory: &SolveTimeMemory) -> Duration {
        let age = query.age.as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "the high bits of a random number are enough"
        )]
        let chance = query.jitter as f64 / u64::MAX as f64;
        let jitter = 1.0 - JITTER + 2.0 * JITTER * chance;
        if query.polls == 0 {
            let first = seconds(self.next_age(query, memory) * jitter).max(self.config.min_gap);
            return first.saturating_sub(query.age);
        }
        let gap = (self.next_age(query, memory) - age) * jitter;
        seconds(gap.min(END - age)).max(self.config.min_gap)
    }

    /// The age at the next poll, before jitter.
    fn next_age(&self, query: &PollQuery<'_>, memory: &SolveTimeMemory) -> f64 {
        let left = self.config.most.saturating_sub(query.polls);
        memory.read(query.family, |times| {
            let key = (query.family.clone(), weight(query.waiting));
            let mut plans = self.plans.lock();
            if plans.len() >= MAX_PLANS && !plans.contains_key(&key) {
                plans.clear();
            }
            let fresh = || self.make(times, key.1);
            let made = plans.entry(key.clone()).or_insert_with(fresh);
            if made.version != times.version {
                *made = fresh();
            }
            made.next_age(query, left)
        })
    }

    fn make(&self, times: &FamilyTimes, weight: u32) -> CachedPlan {
        let claims = if weight == 0 { STOCK_WEIGHT } else { f64::from(weight) };
        let terms = PlanTerms {
            cost: self.config.cost / claims,
            min_gap: self.config.min_gap.as_secs_f64(),
            most: usize::try_from(self.config.most).unwrap_or(usize::MAX),
        };
        let fit = &times.fit;
        CachedPlan {
            version: times.version,
            plan: Plan::of(&fit.curve, terms),
            q99: fit.usual.quantile(0.99),
        }
    }
}

/// Rounds to powers of two, so that tasks with about as many claims share a plan.
fn weight(waiting: usize) -> u32 {
    match waiting {
        0 => 0,
        some => u32::try_from(some.min(MAX_CLAIMS).next_power_of_two()).unwrap_or(1),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

// === impl CachedPlan ===

impl CachedPlan {
    fn next_age(&self, query: &PollQuery<'_>, left: u32) -> f64 {
        if query.polls == 0 {
            return self.plan.next(0.0, left);
        }
        let age = query.age.as_secs_f64();
        let next = self.plan.next(age, left);
        if left <= RESERVE {
            return next;
        }
        let longest = match age / self.q99 {
            late if late < 1.0 => LONGEST,
            late if late < 1.5 => LONGEST_LATE,
            _ => LONGEST_VERY_LATE,
        };
        next.min(age + longest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::challenge::Kind;
    use proptest::prelude::*;

    use super::{
        super::{Observation, Polling},
        *,
    };

    fn learned(config: LearnedConfig) -> Arc<Polling> {
        config.into()
    }

    fn family() -> Family {
        Family { kind: Kind::Hcaptcha, proxied: true }
    }

    /// The ages at which a task that never becomes ready is polled.
    fn ages(polling: &Polling, waiting: usize, mut jitter: impl FnMut() -> u64) -> Vec<Duration> {
        let family = family();
        let mut age = Duration::ZERO;
        let polls = 0..polling.most;
        let next = |polls| {
            let query = PollQuery { family: &family, polls, age, waiting, jitter: jitter() };
            age += polling.next(&query);
            age
        };
        polls.map(next).collect()
    }

    fn seen() -> impl Strategy<Value = Observation> {
        let ready = (0..700_000_u64, 0..200_000_u64).prop_map(|(after, more)| Observation::Ready {
            after: Duration::from_millis(after),
            by: Duration::from_millis(after + more),
        });
        let not =
            (0..700_000_u64).prop_map(|age| Observation::NotWithin(Duration::from_millis(age)));
        prop_oneof![8 => ready, 1 => not]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn after_any_observations_gaps_are_long_enough_and_the_last_polls_reach_the_end(
            seen in proptest::collection::vec(seen(), 0..120),
            min_gap in 10..8_000_u64,
            most in 2..40_u32,
            waiting in 0..40_usize,
            jitters in proptest::collection::vec(any::<u64>(), 40),
        ) {
            let min_gap = Duration::from_millis(min_gap);
            let polling = learned(LearnedConfig { min_gap, most, cost: 0.5 });
            for seen in seen {
                polling.memory.learn(&family(), seen);
            }
            let mut jitters = jitters.into_iter();
            let ages = ages(&polling, waiting, || jitters.next().unwrap_or(0));
            prop_assert!(ages[0] >= min_gap);
            prop_assert!(ages.windows(2).all(|pair| pair[1] >= pair[0] + min_gap), "{ages:?}");
            let late = ages.iter().filter(|age| **age > Duration::from_secs(400));
            prop_assert!(late.count() > 0, "no poll near the end: {ages:?}");
            let timing = polling.memory.timing(&family());
            prop_assert!(timing.q01 <= timing.mean && timing.q01 <= timing.q99, "{timing:?}");
            let chance = polling.memory.chance_ready(&family(), timing.q01, timing.q99);
            prop_assert!((0.0..=1.0).contains(&chance));
        }
    }

    #[test]
    fn the_more_claims_wait_the_sooner_a_task_is_polled() {
        let polling = learned(LearnedConfig::default());
        let ages = |waiting| ages(&polling, waiting, || u64::MAX / 2);
        let (stock, one, many) = (ages(0), ages(1), ages(16));
        assert!(stock[0] > one[0] && one[0] > many[0], "{stock:?} {one:?} {many:?}");
        assert!(stock[1] + one[0] > one[1] + stock[0], "{stock:?} {one:?}");
    }

    #[test]
    fn jitter_moves_a_poll_by_a_twentieth_at_most() {
        let polling = learned(LearnedConfig::default());
        let first = |jitter| ages(&polling, 1, || jitter)[0].as_secs_f64();
        let (early, late, middle) = (first(0), first(u64::MAX), first(u64::MAX / 2));
        assert!((early / middle - 0.95).abs() < 1e-6 && (late / middle - 1.05).abs() < 1e-6);
    }

    #[test]
    fn an_old_task_is_polled_at_once_and_a_late_one_every_five_or_ten_seconds() {
        let polling = learned(LearnedConfig::default());
        let next = |polls, age| {
            let age = Duration::from_secs(age);
            let family = family();
            polling.next(&PollQuery {
                family: &family,
                polls,
                age,
                waiting: 1,
                jitter: u64::MAX / 2,
            })
        };
        assert_eq!(next(0, 300), Duration::ZERO);
        let q99 = polling.memory.timing(&family()).q99.as_secs();
        assert!(next(5, q99 + 5) <= Duration::from_secs(5));
        assert!(next(5, 2 * q99) <= Duration::from_secs(10));
    }
}
