//! The engine moves claims from admission to delivery. It reaches everything outside through ports: it has no backend, no
//! HTTP, no clock and no randomness of its own.
//!
//! # Layout
//! - `pipeline`: the life of a claim, step by step: [admit](Engine::claim), submit, poll, settle, [fetch](Engine::fetch)
//! - `scheduler`: which solve moves next, and what holds submissions back
//! - `polling`: when tasks are polled, alone or in batches
//! - `maintenance`: services that run beside the driver, one per file
//! - `reconcile`: [the ledger against the provider's balance](Engine::reconcile); `what_if`: [other settings](Engine::what_if)
//! - `dead_letters`: [reviving](Engine::revive) and [purging](Engine::purge) them
//! - `serverless`: the same engine where no process stays ([`ServerlessDriver`])
//! - `shared`: what all parts share; `tasks`: the only `spawn`

mod config;
mod dead_letters;
mod health;
mod maintenance;
mod pipeline;
mod polling;
mod reconcile;
mod scheduler;
mod serverless;
mod shared;
mod tasks;
mod what_if;

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    actor::Actor,
    admin_action::AdminAction,
    budget::Budgets,
    declarations::Declarations,
    id::WorkerName,
    money::Money,
    ports::{
        Chance, Clock, DaySpending, Fault, Notifier, PoolState, Provider, Records, Store,
        StoreError, Threads, WebhookSender,
    },
};

pub use config::EngineConfig;
pub use dead_letters::{BulkReport, BulkRequest, DeadLetterSelection, Revived};
pub use health::Health;
pub use maintenance::{
    alerts::Alerts,
    pools::{PoolRefusal, PoolWish},
    refusals::RefusedRequest,
};
pub use pipeline::{
    admit::{Admitted, ClaimRefusal, ClaimRequest},
    fetch::{Explained, FetchRefusal, Outcome},
};
pub use polling::{
    Family, FixedPolling, LearnedConfig, Observation, PollQuery, Polling, SolveTimeMemory, Timing,
};
pub use reconcile::{ReconcileRefusal, Reconciled, ReconciledItem};
pub use scheduler::{queue_room::QueueFull, slots::Slots};
pub use serverless::{RoundReport, ServerlessDriver};
pub use tasks::Tasks;

use maintenance::{archive::WithArchive, lease_renewal, pauses, polling_memory};
use polling::batch;
use scheduler::driver;
use shared::Shared;

/// The outside, as the engine sees it.
#[derive(Clone, Debug)]
pub struct Ports {
    pub store: Arc<dyn Store>,
    pub records: Arc<dyn Records>,
    /// Notifies callers that a claim has changed.
    pub notifier: Arc<dyn Notifier>,
    /// The paid service.
    pub provider: Arc<dyn Provider>,
    pub clock: Arc<dyn Clock>,
    pub chance: Arc<dyn Chance>,
    /// Delivers callbacks and alerts.
    pub webhooks: Arc<dyn WebhookSender>,
}

/// The engine. Clones share one engine. Its methods are in the files of what they do, those about the gateway itself here.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Shared>);

impl Engine {
    /// Takes the process's lease and starts the driver and the maintenance services.
    ///
    /// With a store in memory and the simulated provider, in virtual time:
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use domain::{
    ///     challenge::{Challenge, ChallengeParts, Kind},
    ///     claim::{Allowance, Door},
    ///     declarations::{Declarations, Images},
    ///     id::{Project, WorkerName},
    ///     ports::{Chance, NoWebhooks, Scope},
    /// };
    /// use engine::{ClaimRequest, Engine, EngineConfig, Outcome, Ports};
    /// use simulator::{Account, BehaviourConfig, Latency, SimProvider, VirtualClock};
    ///
    /// # #[derive(Debug, Default)]
    /// # struct Counter(std::sync::atomic::AtomicU64);
    /// # impl Chance for Counter {
    /// #     fn draw(&self) -> u64 {
    /// #         // Ids are made from these bits, so neighbours must differ.
    /// #         let n = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    /// #         n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    /// #     }
    /// # }
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() {
    ///     let backend = stores::open("memory:").unwrap();
    ///     let account = Account::new(BehaviourConfig::new(7));
    ///     let clock = Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
    ///     let provider = SimProvider::new(account.clone(), clock.clone(), Latency::default());
    ///     let ports = Ports {
    ///         store: backend.store,
    ///         records: backend.records,
    ///         notifier: backend.notifier,
    ///         provider: Arc::new(provider),
    ///         clock,
    ///         chance: Arc::new(Counter::default()),
    ///         webhooks: Arc::new(NoWebhooks),
    ///     };
    ///     // A claim is refused unless a declaration says why it is allowed.
    ///     let images = Some(Images::new("pictures of our own shop"));
    ///     let declarations = Declarations { images, ..Declarations::default() }.into();
    ///     let config = EngineConfig { declarations, ..EngineConfig::default() };
    ///     let engine = Engine::start(ports, config);
    ///     let engine = engine.await.unwrap();
    ///
    ///     let files = [("body".to_owned(), vec![1, 2, 3])].into();
    ///     let request = ClaimRequest {
    ///         worker: WorkerName::new("ann").unwrap(),
    ///         project: Project::new("shop").unwrap(),
    ///         door: Door::V1,
    ///         challenge: Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() }).unwrap(),
    ///         key: Some("order-17".into()),
    ///         fresh: false,
    ///         deadline: None,
    ///         allowance: Allowance::default(),
    ///         collect: true,
    ///         callback_url: None,
    ///         address: None,
    ///     };
    ///     let Outcome::Waiting { claim, .. } = engine.claim(request).await.unwrap().outcome else { panic!() };
    ///     let outcome = engine.fetch(&Scope::All, claim.id, Duration::from_secs(60)).await.unwrap();
    ///     assert!(matches!(outcome, Outcome::Served { .. }));
    ///     assert_eq!(account.ledger().accepted.len(), 1, "paid once");
    ///     engine.drain().await;
    /// }
    /// ```
    pub async fn start(mut ports: Ports, config: EngineConfig) -> Result<Self, StoreError> {
        let source = Arc::clone(&ports.records);
        if let Some(archive) = config.archive.clone() {
            ports.records = Arc::new(WithArchive { store: ports.records, archive });
        }
        let shared = Arc::new(Shared::new(ports, config));
        match lease_renewal::renew(&shared).await {
            // It starts, says in `/readyz` what is wrong, and waits for the clock to be corrected.
            Ok(()) | Err(StoreError::WrongClock(_)) => {}
            Err(error) => return Err(error),
        }
        pauses::refresh(&shared).await?;
        batch::load_support(&shared).await;
        polling_memory::load(&shared).await;
        maintenance::spawn(&shared, "driver", driver::run(Arc::clone(&shared)));
        maintenance::start(&shared, source);
        Ok(Self(shared))
    }

    /// Stops admitting and submitting, lets paid tasks finish for up to the configured grace period, then gives up the
    /// lease so that other gateways take over at once. Nothing is lost: the store has everything that is left.
    pub async fn drain(&self) {
        self.0.scheduler.start_draining();
        self.0.tasks.finish().await;
    }

    /// Ends at once, as a crash would.
    #[cfg(feature = "test-util")]
    pub fn crash(&self) {
        self.0.tasks.abort();
    }

    /// Writes down what somebody did that is about no claim or pool, such as a reload.
    pub async fn administer(&self, by: Actor, action: AdminAction) -> Result<(), StoreError> {
        self.0.ports.store.administer(by, action, self.0.now()).await
    }

    pub async fn pools(&self) -> Result<Vec<PoolState>, StoreError> {
        self.records().pools(self.0.now()).await
    }

    /// The account's trouble, while its circuit breaker is open.
    pub fn account_trouble(&self) -> Option<String> {
        self.0.scheduler.breakers.account.trouble()
    }

    pub async fn balance(&self) -> Result<Money, Fault> {
        self.0.ports.provider.balance().await
    }

    /// Our own threads: slots, and how many of them are in use.
    pub fn threads(&self) -> Threads {
        let slots = &self.0.scheduler.slots;
        let total = u32::try_from(slots.limit()).unwrap_or(u32::MAX);
        let working = u32::try_from(slots.used()).unwrap_or(u32::MAX);
        Threads { total, working }
    }

    pub fn records(&self) -> &dyn Records {
        &*self.0.ports.records
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.0.ports.clock
    }

    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    pub fn declarations(&self) -> Arc<Declarations> {
        self.0.declarations()
    }

    /// Replaces the declarations, all at once. Queued claims that they no longer allow fail.
    pub fn set_declarations(&self, declarations: Arc<Declarations>) {
        *self.0.declarations.write() = declarations;
        // A declaration is part of the fingerprints of pools.
        self.0.set_budgets((*self.0.budgets()).clone());
        self.0.scheduler.wake();
    }

    /// Replaces the limits on the workers' waiting solves. Solves that already wait stay.
    pub fn set_queue_limits(&self, limits: BTreeMap<WorkerName, usize>) {
        *self.0.scheduler.queue_limits.write() = limits;
    }

    /// How many gateways share the store, as of the last renewal of this one's lease. Limits of all gateways together are
    /// divided by it.
    pub fn gateways(&self) -> usize {
        self.0.scheduler.lease.gateways()
    }

    /// Replaces the workers' shares of the slots. Solves that already wait keep their place.
    pub fn set_priorities(&self, priorities: BTreeMap<WorkerName, u32>) {
        *self.0.scheduler.priorities.write() = priorities;
    }

    /// Replaces the budgets of the account and the workers.
    pub fn set_budgets(&self, budgets: Budgets) {
        self.0.set_budgets(budgets);
    }

    /// The budgets in force, and what is used of them.
    pub async fn spending(&self) -> Result<(Arc<Budgets>, DaySpending), StoreError> {
        let spending = self.0.ports.records.spending(self.0.now().day()).await?;
        Ok((self.0.budgets(), spending))
    }
}
