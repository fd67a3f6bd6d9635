//! The learned schedule: asks when tasks of the family are likely to be ready, more often the more claims wait.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use super::{
    Family, PollAsk, Schedule,
    memory::{Memory, Times},
    plan::{END, Plan, Terms},
};

/// What the learned schedule goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedConfig {
    /// No two polls of a task are closer.
    pub min_gap: Duration,
    /// A task is polled at most so often.
    pub most: u32,
    /// What one poll is worth, in seconds that one claim's token lies undetected.
    pub cost: f64,
}

/// The plans that follow from what was learned, for each family and number of claims.
#[derive(Debug)]
pub struct Learned {
    config: LearnedConfig,
    plans: Mutex<BTreeMap<(Family, u32), Made>>,
}

#[derive(Debug)]
struct Made {
    /// Of the fit it was made from.
    version: u64,
    plan: Plan,
    q99: f64,
}

/// Plans kept; each is some forty kilobytes.
const PLANS: usize = 64;
/// A task for stock counts a tenth of a claim.
const STOCK: f64 = 0.1;
/// With more claims than this nothing changes any more.
const MOST_CLAIMS: usize = 16;
/// As long as more polls than this are left, no gap but the first is longer than these, in seconds: what was learned
/// may be wrong. The last polls are spread over the time until the provider forgets the task.
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

    /// The age at which to ask, before jitter.
    fn next_age(&self, ask: &PollAsk<'_>, memory: &Memory) -> f64 {
        let left = self.config.most.saturating_sub(ask.polls);
        memory.read(ask.family, |times| {
            let key = (ask.family.clone(), weight(ask.waiting));
            let mut plans = self.plans.lock().expect("no holder of this lock can panic");
            if plans.len() >= PLANS && !plans.contains_key(&key) {
                plans.clear();
            }
            let fresh = || self.make(times, key.1);
            let made = plans.entry(key.clone()).or_insert_with(fresh);
            if made.version != times.version() {
                *made = fresh();
            }
            made.next_age(ask, left)
        })
    }

    fn make(&self, times: &Times, weight: u32) -> Made {
        let claims = if weight == 0 { STOCK } else { f64::from(weight) };
        let terms = Terms {
            cost: self.config.cost / claims,
            min_gap: self.config.min_gap.as_secs_f64(),
            most: usize::try_from(self.config.most).unwrap_or(usize::MAX),
        };
        let fit = times.fit();
        Made {
            version: times.version(),
            plan: Plan::of(&fit.curve, terms),
            q99: fit.usual.quantile(0.99),
        }
    }
}

/// Claims in powers of two: tasks with about as many share a plan.
fn weight(waiting: usize) -> u32 {
    match waiting {
        0 => 0,
        some => u32::try_from(some.min(MOST_CLAIMS).next_power_of_two()).unwrap_or(1),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

// === impl Made ===

impl Made {
    fn next_age(&self, ask: &PollAsk<'_>, left: u32) -> f64 {
        if ask.polls == 0 {
            return self.plan.next(0.0, left);
        }
        let age = ask.age.as_secs_f64();
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

impl Schedule for Learned {
    fn next(&self, ask: &PollAsk<'_>, memory: &Memory) -> Duration {
        let age = ask.age.as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "the high bits of a random number are enough"
        )]
        let chance = ask.jitter as f64 / u64::MAX as f64;
        let jitter = 1.0 - JITTER + 2.0 * JITTER * chance;
        if ask.polls == 0 {
            let first = seconds(self.next_age(ask, memory) * jitter).max(self.config.min_gap);
            return first.saturating_sub(ask.age);
        }
        let gap = (self.next_age(ask, memory) - age) * jitter;
        seconds(gap.min(END - age)).max(self.config.min_gap)
    }

    fn most(&self) -> u32 {
        self.config.most
    }

    fn min_gap(&self) -> Duration {
        self.config.min_gap
    }

    fn mode(&self) -> &'static str {
        "learned"
    }
}

#[cfg(test)]
mod tests {
    use domain::challenge::Kind;
    use proptest::prelude::*;

    use super::{
        super::{LearnedPolling, Polling, Seen},
        *,
    };

    fn family() -> Family {
        Family { kind: Kind::Hcaptcha, proxied: true }
    }

    /// The ages at which a task that never becomes ready is polled.
    fn ages(
        polling: &LearnedPolling,
        waiting: usize,
        mut jitter: impl FnMut() -> u64,
    ) -> Vec<Duration> {
        let family = family();
        let mut age = Duration::ZERO;
        let polls = 0..polling.most();
        let next = |polls| {
            let ask = PollAsk { family: &family, polls, age, waiting, jitter: jitter() };
            age += polling.next(&ask);
            age
        };
        polls.map(next).collect()
    }

    fn seen() -> impl Strategy<Value = Seen> {
        let ready = (0..700_000_u64, 0..200_000_u64).prop_map(|(after, more)| Seen::Ready {
            after: Duration::from_millis(after),
            by: Duration::from_millis(after + more),
        });
        let not = (0..700_000_u64).prop_map(|age| Seen::NotWithin(Duration::from_millis(age)));
        prop_oneof![8 => ready, 1 => not]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn whatever_was_seen_no_gap_is_too_short_and_the_last_polls_reach_the_end(
            seen in proptest::collection::vec(seen(), 0..120),
            min_gap in 10..8_000_u64,
            most in 2..40_u32,
            waiting in 0..40_usize,
            jitters in proptest::collection::vec(any::<u64>(), 40),
        ) {
            let min_gap = Duration::from_millis(min_gap);
            let polling = LearnedPolling::new(LearnedConfig { min_gap, most, cost: 0.5 });
            for seen in seen {
                polling.learn(&family(), seen);
            }
            let mut jitters = jitters.into_iter();
            let ages = ages(&polling, waiting, || jitters.next().unwrap_or(0));
            prop_assert!(ages[0] >= min_gap);
            prop_assert!(ages.windows(2).all(|pair| pair[1] >= pair[0] + min_gap), "{ages:?}");
            let late = ages.iter().filter(|age| **age > Duration::from_secs(400));
            prop_assert!(late.count() > 0, "nobody asks near the end: {ages:?}");
            let timing = polling.timing(&family());
            prop_assert!(timing.q01 <= timing.mean && timing.q01 <= timing.q99, "{timing:?}");
            let chance = polling.chance_ready(&family(), timing.q01, timing.q99);
            prop_assert!((0.0..=1.0).contains(&chance));
        }
    }

    #[test]
    fn the_more_claims_wait_the_sooner_a_task_is_asked_for() {
        let polling = LearnedPolling::new(LearnedConfig::default());
        let ages = |waiting| ages(&polling, waiting, || u64::MAX / 2);
        let (stock, one, many) = (ages(0), ages(1), ages(16));
        assert!(stock[0] > one[0] && one[0] > many[0], "{stock:?} {one:?} {many:?}");
        assert!(stock[1] + one[0] > one[1] + stock[0], "{stock:?} {one:?}");
    }

    #[test]
    fn jitter_moves_a_poll_by_a_twentieth_at_most() {
        let polling = LearnedPolling::new(LearnedConfig::default());
        let first = |jitter| ages(&polling, 1, || jitter)[0].as_secs_f64();
        let (early, late, middle) = (first(0), first(u64::MAX), first(u64::MAX / 2));
        assert!((early / middle - 0.95).abs() < 1e-6 && (late / middle - 1.05).abs() < 1e-6);
    }

    #[test]
    fn a_task_found_late_is_asked_for_at_once_and_one_that_is_late_every_five_or_ten_seconds() {
        let polling = LearnedPolling::new(LearnedConfig::default());
        let ask = |polls, age| {
            let age = Duration::from_secs(age);
            let family = family();
            polling.next(&PollAsk { family: &family, polls, age, waiting: 1, jitter: u64::MAX / 2 })
        };
        assert_eq!(ask(0, 300), Duration::ZERO);
        let q99 = polling.timing(&family()).q99.as_secs();
        assert!(ask(5, q99 + 5) <= Duration::from_secs(5));
        assert!(ask(5, 2 * q99) <= Duration::from_secs(10));
    }
}
