//! What the engine is configured with; already valid.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    money::Money,
    retry::{Profile, RetryTable},
    site::Sites,
    token::ShelfLife,
};

/// What the engine is configured with.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Which pages may be solved for.
    pub sites: Arc<Sites>,
    /// What failures mean.
    pub retry: RetryTable,
    /// When to ask for a task.
    pub polling: Arc<dyn Polling>,
    /// Tasks under way at the provider at once.
    pub slots: usize,
    /// Submissions a second, of the whole process.
    pub submits_per_second: u32,
    /// Listed price of one solve, by kind.
    pub prices: BTreeMap<Kind, Money>,
    /// Lifetimes that differ from the kind's own.
    pub shelf_lives: BTreeMap<Kind, ShelfLife>,
    /// How long a claim waits when it does not say.
    pub deadline: Duration,
    /// How long a keyless claim's answer is given again.
    pub reuse_window: Duration,
    /// AUTHORISE events a day.
    pub ambiguity_budget: u32,
    /// How long the provider keeps a result.
    pub harvest: Duration,
    /// How long account trouble lasts before one submission tries again.
    pub probe_every: Duration,
    /// How long paid tasks may finish when draining.
    pub drain_grace: Duration,
}

/// When to ask for a task. The learned schedule will be another one of these.
pub trait Polling: fmt::Debug + Send + Sync + 'static {
    /// How long to wait before the next poll of a task that was polled `polls` times, last (or accepted) just now.
    fn gap(&self, polls: u32) -> Duration;

    /// A task is polled at most so often.
    fn most(&self) -> u32;
}

/// First poll after `first`, then every `interval`, at most `most` of them; the last third spreads out, so that
/// `most` polls cover the provider's retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPolling {
    /// Wait before the first poll.
    pub first: Duration,
    /// Wait between polls.
    pub interval: Duration,
    /// No two polls of a task are closer.
    pub min_gap: Duration,
    /// At most so many.
    pub most: u32,
}

impl Polling for FixedPolling {
    fn gap(&self, polls: u32) -> Duration {
        let steady = self.most - self.most / 3;
        let gap = match polls {
            0 => self.first,
            n if n < steady => self.interval,
            n => self.interval.saturating_mul(2u32.saturating_pow((n - steady).min(10) + 1)),
        };
        gap.clamp(self.min_gap, Duration::from_secs(120).max(self.min_gap))
    }

    fn most(&self) -> u32 {
        self.most
    }
}

impl Default for FixedPolling {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(5), interval: seconds(5), min_gap: seconds(1), most: 20 }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sites: Arc::default(),
            retry: RetryTable::in_php(Profile::Default),
            polling: Arc::new(FixedPolling::default()),
            slots: 50,
            submits_per_second: 20,
            prices: BTreeMap::new(),
            shelf_lives: BTreeMap::new(),
            deadline: Duration::from_secs(180),
            reuse_window: Duration::from_secs(60),
            ambiguity_budget: 50,
            harvest: Duration::from_secs(600),
            probe_every: Duration::from_secs(60),
            drain_grace: Duration::from_secs(20),
        }
    }
}

impl EngineConfig {
    /// How long tokens of the kind live here.
    pub fn shelf_life(&self, kind: &Kind) -> ShelfLife {
        self.shelf_lives.get(kind).copied().unwrap_or_else(|| {
            let (lifetime, margin) = kind.lifetime_and_margin();
            ShelfLife::new(lifetime, margin)
                .expect("every kind's own margin leaves something, see its test")
        })
    }
}
