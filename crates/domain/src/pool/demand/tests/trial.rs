//! A small pool in virtual time: fungible tokens, claims served in order, earliest expiry first, every refill counted
//! against the allowed waste. Time is in milliseconds.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use crate::{
    pool::{Demand, FREE_WASTE, TargetInputs, Timing},
    time::Timestamp,
};

/// Pseudo-random numbers that are the same everywhere (splitmix64).
pub(super) struct Dice(pub(super) u64);

/// The distribution of solve times, the lifetime of tokens and the allowed waste.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) median: f64,
    pub(super) sigma: f64,
    pub(super) life: f64,
    /// Tokens that may expire unused per thousand served.
    pub(super) waste: u32,
}

/// Arrivals in seconds, and when the run ends.
pub(super) struct Workload {
    pub(super) arrivals: Vec<f64>,
    pub(super) end: f64,
}

/// Something that decides how many tokens to have ready.
pub(super) trait LevelPolicy {
    fn arrive(&mut self, at: Timestamp);
    fn level(&self, inputs: &TargetInputs, room: u32) -> u32;
    /// Whether refills count against the allowed waste.
    fn is_bound(&self) -> bool;
}

/// A level that never changes; 0 is on demand.
pub(super) struct FixedLevel(pub(super) u32);

/// The reference policy: rate of the last twelve arrivals, 95 % hits, and a limit on the waste.
#[derive(Default)]
pub(super) struct Reference(VecDeque<Timestamp>);

#[derive(Default)]
pub(super) struct Trial {
    ready: BinaryHeap<Reverse<u64>>,
    stock: VecDeque<u64>,
    waiting: VecDeque<u64>,
    pub(super) served: u32,
    pub(super) hits: u32,
    pub(super) wasted: u32,
    pub(super) bought: u32,
    waited: u64,
}

const MOST: u32 = 200;

// === impl Dice ===

impl Dice {
    pub(super) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let high = u32::try_from((z ^ (z >> 31)) >> 32).unwrap();
        (f64::from(high) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn gap(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

// === impl Setup ===

impl Setup {
    fn solve_time(&self, dice: &mut Dice) -> u64 {
        millis(self.median * (self.sigma * dice.normal()).exp())
    }

    /// How many tokens may expire unused after `served` claims.
    fn allowed(&self, served: u32) -> u32 {
        u32::try_from(FREE_WASTE).unwrap() + served * self.waste / 1000
    }

    pub(super) fn inputs(&self, now: Timestamp) -> TargetInputs {
        let mean = self.median * (self.sigma * self.sigma / 2.0).exp();
        let q99 = self.median * (2.326 * self.sigma).exp();
        let timing =
            Timing { mean: Duration::from_secs_f64(mean), q99: Duration::from_secs_f64(q99) };
        let life = Duration::from_secs_f64(self.life);
        TargetInputs { now, timing, life, waste: f64::from(self.waste) / 1000.0, most: MOST }
    }
}

// === impl LevelPolicy ===

impl LevelPolicy for Demand {
    fn arrive(&mut self, at: Timestamp) {
        self.arrive(at);
    }

    fn level(&self, inputs: &TargetInputs, room: u32) -> u32 {
        self.target(inputs, room).level
    }

    fn is_bound(&self) -> bool {
        true
    }
}

impl LevelPolicy for FixedLevel {
    fn arrive(&mut self, _at: Timestamp) {}

    fn level(&self, _ask: &TargetInputs, _room: u32) -> u32 {
        self.0
    }

    fn is_bound(&self) -> bool {
        false
    }
}

impl LevelPolicy for Reference {
    fn arrive(&mut self, at: Timestamp) {
        if self.0.len() == 12 {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    fn level(&self, inputs: &TargetInputs, _room: u32) -> u32 {
        if self.0.len() < 3 {
            return 0;
        }
        let gaps = u32::try_from(self.0.len() - 1).unwrap();
        let rate = f64::from(gaps) / inputs.now.since(self.0[0]).as_secs_f64().max(1e-6);
        let solving = rate * inputs.timing.mean.as_secs_f64();
        let using = solving + rate * inputs.life.as_secs_f64();
        let (mut a, mut b) = ((-solving).exp(), (-using).exp());
        let (mut hit, mut dies) = (a, b);
        for level in 1..=MOST {
            if dies > inputs.waste * hit {
                return level - 1;
            }
            if hit >= 0.95 {
                return level;
            }
            a *= solving / f64::from(level);
            b *= using / f64::from(level);
            hit += a;
            dies += b;
        }
        MOST
    }

    fn is_bound(&self) -> bool {
        true
    }
}

// === impl Trial ===

impl Trial {
    /// Serves a workload with a policy, which sets the level at every event and every five seconds.
    pub(super) fn run(work: &Workload, setup: &Setup, policy: &mut dyn LevelPolicy) -> Self {
        let mut trial = Self::default();
        let mut dice = Dice(7);
        let mut arrivals = work.arrivals.iter().map(|at| millis(*at)).peekable();
        let mut tick = 0;
        loop {
            let arrival = arrivals.peek().copied().unwrap_or(u64::MAX);
            let ready = trial.ready.peek().map_or(u64::MAX, |at| at.0);
            let expiry = trial.stock.front().copied().unwrap_or(u64::MAX);
            let now = arrival.min(ready).min(expiry).min(tick);
            if now > millis(work.end) {
                return trial;
            }
            if now == expiry {
                trial.stock.pop_front();
                trial.wasted += 1;
            } else if now == ready {
                trial.ready.pop();
                trial.deliver(now, setup);
            } else if now == arrival {
                arrivals.next();
                policy.arrive(Timestamp::from_millis(now));
                trial.claim(now);
            } else {
                tick += 5000;
            }
            trial.order(now, setup, policy, &mut dice);
            let allowed = setup.allowed(trial.served);
            assert!(!policy.is_bound() || trial.wasted <= allowed, "hard bound");
        }
    }

    fn deliver(&mut self, now: u64, setup: &Setup) {
        if let Some(since) = self.waiting.pop_front() {
            self.served += 1;
            self.waited += now - since;
        } else {
            self.stock.push_back(now + millis(setup.life));
        }
    }

    fn claim(&mut self, now: u64) {
        if self.stock.pop_front().is_some() {
            self.served += 1;
            self.hits += 1;
        } else {
            self.waiting.push_back(now);
        }
    }

    fn order(&mut self, now: u64, setup: &Setup, policy: &dyn LevelPolicy, dice: &mut Dice) {
        while self.ready.len() < self.waiting.len() {
            self.buy(now, setup, dice);
        }
        let room = setup.allowed(self.served).saturating_sub(self.wasted);
        let level = policy.level(&setup.inputs(Timestamp::from_millis(now)), room);
        while self.spare() < level && (!policy.is_bound() || self.spare() < room) {
            self.buy(now, setup, dice);
        }
    }

    fn spare(&self) -> u32 {
        u32::try_from(self.stock.len() + self.ready.len() - self.waiting.len()).unwrap()
    }

    fn buy(&mut self, now: u64, setup: &Setup, dice: &mut Dice) {
        self.bought += 1;
        self.ready.push(Reverse(now + setup.solve_time(dice)));
    }

    /// Percent of claims answered at once.
    pub(super) fn hit(&self) -> f64 {
        100.0 * f64::from(self.hits) / f64::from(self.served.max(1))
    }

    /// The percentage of tokens that expired unused.
    pub(super) fn waste(&self) -> f64 {
        100.0 * f64::from(self.wasted) / f64::from(self.bought.max(1))
    }

    /// Tokens bought for one served.
    pub(super) fn cost(&self) -> f64 {
        f64::from(self.bought) / f64::from(self.served.max(1))
    }

    /// Mean wait in seconds.
    pub(super) fn wait(&self) -> f64 {
        Duration::from_millis(self.waited).as_secs_f64() / f64::from(self.served.max(1))
    }
}

fn millis(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_millis()).unwrap()
}
