//! What the engine is configured with; already valid.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::WorkerName,
    money::Money,
    ports::Archive,
    retry::{Profile, RetryTable},
    site::Sites,
    token::ShelfLife,
};

use crate::{Alerts, FixedPolling, Polling, PoolWish, Slots};

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
    /// Whether pools are kept at all: a process that is there for one claim leaves them as they are.
    pub keeps_pools: bool,
    /// Standing orders.
    pub pools: Vec<PoolWish>,
    /// Whether several tasks are asked for in one call, where the provider knows how.
    pub batches: bool,
    /// The provider calls back when a task is over.
    pub pingback: bool,
    /// Whom to tell about trouble.
    pub alerts: Option<Alerts>,
    /// Where history is kept; `None`: in the store.
    pub archive: Option<Arc<dyn Archive>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sites: Arc::default(),
            retry: RetryTable::in_php(Profile::Default),
            polling: FixedPolling::default().into(),
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
            keeps_pools: true,
            pools: Vec::new(),
            batches: true,
            pingback: false,
            alerts: None,
            archive: None,
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
