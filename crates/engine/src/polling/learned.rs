//! The learned schedule: asks when tasks of the family are likely to be ready, more often the more claims wait.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use super::{
    Family, PollAsk, Polling, Seen, Timing,
    memory::{Learned, Memory},
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

/// Learns how long tasks take, and polls so that the lag is least for the polls it costs.
#[derive(Debug)]
pub struct LearnedPolling {
    config: LearnedConfig,
    memory: Memory,
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

// === impl LearnedPolling ===

impl LearnedPolling {
    /// Nothing learned yet.
    pub fn new(config: LearnedConfig) -> Self {
        Self { config, memory: Memory::default(), plans: Mutex::default() }
    }

    /// The age at which to ask, before jitter.
    fn next_age(&self, ask: &PollAsk<'_>) -> f64 {
        let left = self.config.most.saturating_sub(ask.polls);
        self.memory.read(ask.family, |learned| {
            let key = (ask.family.clone(), weight(ask.waiting));
            let mut plans = self.plans.lock().expect("no holder of this lock can panic");
            if plans.len() >= PLANS && !plans.contains_key(&key) {
                plans.clear();
            }
            let make = || self.make(learned, key.1);
            let made = plans.entry(key.clone()).or_insert_with(make);
            if made.version != learned.version() {
                *made = make();
            }
            made.next_age(ask, left)
        })
    }

    fn make(&self, learned: &Learned, weight: u32) -> Made {
        let claims = if weight == 0 { STOCK } else { f64::from(weight) };
        let terms = Terms {
            cost: self.config.cost / claims,
            min_gap: self.config.min_gap.as_secs_f64(),
            most: usize::try_from(self.config.most).unwrap_or(usize::MAX),
        };
        let fit = learned.fit();
        Made {
            version: learned.version(),
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

impl Polling for LearnedPolling {
    fn next(&self, ask: &PollAsk<'_>) -> Duration {
        let age = ask.age.as_secs_f64();
        let gap = (self.next_age(ask) - if ask.polls == 0 { 0.0 } else { age }).max(0.0);
        #[expect(clippy::cast_precision_loss, reason = "the low bits of a random number")]
        let chance = ask.jitter as f64 / u64::MAX as f64;
        let gap = gap * (1.0 - JITTER + 2.0 * JITTER * chance);
        let gap = gap.max(self.config.min_gap.as_secs_f64());
        let wait = if ask.polls == 0 { gap - age } else { gap.min((END - age).max(gap.min(1.0))) };
        Duration::from_secs_f64(wait.max(0.0))
    }

    fn most(&self) -> u32 {
        self.config.most
    }

    fn min_gap(&self) -> Duration {
        self.config.min_gap
    }

    fn learn(&self, family: &Family, seen: Seen) {
        self.memory.learn(family, seen);
    }

    fn chance_ready(&self, family: &Family, asked: Duration, age: Duration) -> f64 {
        self.memory.read(family, |learned| learned.fit().curve.chance(asked, age))
    }

    fn timing(&self, family: &Family) -> Timing {
        self.memory.timing(family)
    }

    fn save(&self) -> Vec<(String, Vec<u8>)> {
        self.memory.save()
    }

    fn load(&self, name: &str, bytes: &[u8]) {
        self.memory.load(name, bytes);
    }

    fn mode(&self) -> &'static str {
        "learned"
    }
}
