//! The configuration of an engine. Its values are already validated.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    budget::Budgets,
    challenge::Kind,
    declarations::Declarations,
    id::{Place, WorkerName},
    ports::Archive,
    prices::PriceList,
    retry::{Profile, RetryTable},
    token::TokenLifetime,
};

use crate::{Alerts, FixedPolling, Polling, PoolWish, Slots};

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct EngineConfig {
    /// What may be solved, and for whom.
    pub declarations: Arc<Declarations>,
    /// What the provider's codes mean.
    pub retry: RetryTable,
    pub polling: Arc<Polling>,
    pub slots: Slots,
    /// Shares of the slots, by worker; 1 for others.
    pub priorities: BTreeMap<WorkerName, u32>,
    /// Submissions a second, for all processes of the store together.
    pub submits_per_second: u32,
    /// The list prices of one solve.
    pub prices: PriceList,
    /// The budgets of the account and the workers. Those of the pools are in `pools`.
    pub budgets: Budgets,
    /// Token lifetimes that differ from the kind's default.
    pub token_lifetimes: BTreeMap<Kind, TokenLifetime>,
    /// The deadline of claims that name none.
    pub deadline: Duration,
    /// How long the answer of a claim without a key is reused.
    pub reuse_window: Duration,
    /// How long a named key replays a failure before it opens the work again.
    pub failure_window: Duration,
    /// AUTHORISE events allowed per day.
    pub ambiguity_budget: u32,
    /// How long the provider keeps a result.
    pub harvest: Duration,
    /// How long the account's circuit breaker stays open before a submission probes.
    pub probe_every: Duration,
    /// How long a drain waits for paid tasks.
    pub drain_grace: Duration,
    /// When this many solves wait for a slot, new claims are refused.
    pub most_queued: usize,
    /// The same for the bytes of their pictures.
    pub most_queued_bytes: usize,
    /// The most solves of a worker that wait for a slot, on all gateways together.
    pub queue_limits: BTreeMap<WorkerName, usize>,
    /// Where the process runs, if no other one can run there meanwhile: a restart then counts as the same gateway.
    pub place: Option<Place>,
    /// Whether slots and submissions a second are shared with the other processes of the store, or this one uses all of them.
    pub shares_account: bool,
    /// Whether this process keeps pools filled; one that runs for a single claim does not.
    pub keeps_pools: bool,
    pub pools: Vec<PoolWish>,
    /// Whether tasks are polled in batches, where the provider supports it.
    pub batches: bool,
    /// Whether the provider calls back when a task is over.
    pub pingback: bool,
    /// How often the account's balance is written to the ledger, if at all.
    pub balance_every: Option<Duration>,
    /// Where alerts go, if anywhere.
    pub alerts: Option<Alerts>,
    /// Where history is kept; in the store if `None`.
    pub archive: Option<Arc<dyn Archive>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            declarations: Arc::default(),
            retry: RetryTable::in_php(Profile::Default),
            polling: FixedPolling::default().into(),
            slots: Slots::Fixed(50),
            priorities: BTreeMap::new(),
            submits_per_second: 20,
            prices: PriceList::default(),
            budgets: Budgets::default(),
            token_lifetimes: BTreeMap::new(),
            deadline: Duration::from_secs(180),
            reuse_window: Duration::from_secs(60),
            failure_window: Duration::from_secs(30),
            ambiguity_budget: 50,
            harvest: Duration::from_secs(600),
            probe_every: Duration::from_secs(60),
            drain_grace: Duration::from_secs(20),
            most_queued: 10_000,
            most_queued_bytes: 256 << 20,
            queue_limits: BTreeMap::new(),
            place: None,
            shares_account: true,
            keeps_pools: true,
            pools: Vec::new(),
            batches: true,
            pingback: false,
            balance_every: None,
            alerts: None,
            archive: None,
        }
    }
}

impl EngineConfig {
    pub fn token_lifetime(&self, kind: &Kind) -> TokenLifetime {
        self.token_lifetimes.get(kind).copied().unwrap_or_else(|| {
            let (lifetime, margin) = kind.lifetime_and_margin();
            TokenLifetime::new(lifetime, margin)
                .expect("every kind's own margin leaves something, see its test")
        })
    }
}
