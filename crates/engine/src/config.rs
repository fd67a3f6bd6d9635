//! What the engine is configured with; already valid.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::WorkerName,
    money::Money,
    retry::{Profile, RetryTable},
    site::Sites,
    token::ShelfLife,
};

use crate::{Alerts, Slots};

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
    pub slots: Slots,
    /// Shares of the slots, by worker; 1 for those not named.
    pub priorities: BTreeMap<WorkerName, u32>,
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
    /// With so many solves waiting for a slot, new claims are refused rather than queued.
    pub most_queued: usize,
    /// Whom to tell about trouble.
    pub alerts: Option<Alerts>,
}

/// When to ask for a task. The learned schedule will be another one of these.
pub trait Polling: fmt::Debug + Send + Sync + 'static {
    /// How long to wait before the next poll of a task that was polled `polls` times, last (or accepted) just now.
    fn gap(&self, polls: u32) -> Duration;

    /// A task is polled at most so often.
    fn most(&self) -> u32;
}

/// First poll after `first`, then every `interval`; later polls spread out, to twice and at last six times the interval,
/// so that `most` of them cover what providers take at the longest. Never over half a minute: a token found later than
/// that has little of its life left.
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

const LONGEST_GAP: Duration = Duration::from_secs(30);

impl Polling for FixedPolling {
    fn gap(&self, polls: u32) -> Duration {
        let gap = match polls {
            0 => self.first,
            n if n * 10 < self.most * 4 => self.interval,
            n if n * 10 < self.most * 7 => self.interval.saturating_mul(2),
            _ => self.interval.saturating_mul(6),
        };
        gap.clamp(self.min_gap, LONGEST_GAP.max(self.first).max(self.min_gap))
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
            slots: Slots::Fixed(50),
            priorities: BTreeMap::new(),
            submits_per_second: 20,
            prices: BTreeMap::new(),
            shelf_lives: BTreeMap::new(),
            deadline: Duration::from_secs(180),
            reuse_window: Duration::from_secs(60),
            ambiguity_budget: 50,
            harvest: Duration::from_secs(600),
            probe_every: Duration::from_secs(60),
            drain_grace: Duration::from_secs(20),
            most_queued: 10_000,
            alerts: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_polls_cover_what_providers_take_and_none_comes_too_late() {
        let polling = FixedPolling::default();
        let gaps: Vec<Duration> = (0..polling.most).map(|n| polling.gap(n)).collect();
        assert!(gaps.iter().sum::<Duration>() >= Duration::from_secs(270), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(30)));
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "never faster again");
    }
}
