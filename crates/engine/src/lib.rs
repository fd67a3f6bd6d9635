//! The machine: what happens to a claim, on ports only. No backend, no HTTP, no clock and no chance of its own.
//!
//! # Layout, in the order a claim meets it
//! - [`admit`](Engine::claim): 1 a claim arrives
//! - `driver`: 2 lease what is due, step each, bounded concurrency
//! - `submit`: 3 intent, submission, lost reply
//! - `poll`: 4 when to ask, what the answer means; `polling`: the schedules; `afloat`, `together`: many in one call;
//!   `pingback`: the provider says when
//! - `settle`: 5 hand the fact to the store, wake the waiting
//! - [`fetch`](Engine::fetch): 6 the worker asks for the answer
//! - `slots`, `fair`: how many at once, and whose turn it is; `budget`, `breaker`, `pace`: what holds submissions back;
//!   `quota`: what holds polls back
//! - `pools`: standing orders; [`letters`](Engine::revive): dead letters brought back; `outbox`, `alerts`: what others are told
//! - [`Rounds`]: the same machine where nothing stays, moved from outside
//! - `archive`: history that is kept elsewhere; `keeper`: lease upkeep and sweeping; `tasks`: the only `spawn`

mod admit;
mod afloat;
mod alerts;
mod archive;
mod breaker;
mod budget;
mod config;
mod driver;
mod estimate;
mod fair;
mod fetch;
mod health;
mod held;
mod keeper;
mod letters;
mod outbox;
mod pace;
mod pingback;
mod poll;
mod polling;
mod pools;
mod quota;
mod rounds;
mod settle;
mod slots;
mod submit;
mod tasks;
mod together;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use domain::{
    claim::Allowance,
    fingerprint::Fingerprint,
    id::{HolderId, SolveId, WorkerName},
    ledger::Entry,
    ports::{Chance, Clock, Courier, Doorbell, Provider, Records, Store, StoreError},
    site::Sites,
    time::Timestamp,
};
use futures_util::FutureExt;

pub use admit::{Admitted, Ask, ClaimRefusal};
pub use alerts::Alerts;
pub use config::EngineConfig;
pub use fetch::{Explained, FetchRefusal, Outcome};
pub use health::Health;
pub use letters::{Bulk, BulkDone, Revived, Which};
pub use polling::{
    Family, Fixed, FixedPolling, LearnedConfig, LearnedPolling, PollAsk, Polling, Seen, Timing,
    batch,
};
pub use pools::{PoolRefusal, PoolWish};
pub use rounds::{Rounds, Tally};
pub use slots::Slots;
pub use tasks::Tasks;

/// The outside, as the engine sees it.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Decisions.
    pub store: Arc<dyn Store>,
    /// Readings.
    pub records: Arc<dyn Records>,
    /// Hints.
    pub doorbell: Arc<dyn Doorbell>,
    /// The paid service.
    pub provider: Arc<dyn Provider>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Callbacks and alerts.
    pub courier: Arc<dyn Courier>,
}

/// The machine. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ports: Ports,
    config: EngineConfig,
    /// Declarations can change while running.
    sites: RwLock<Arc<Sites>>,
    /// This life of this process, as a number.
    holder: AtomicU64,
    /// Our own lease, as far as we know: milliseconds; checked just before money leaves.
    held_until: AtomicU64,
    /// New work wakes the driver through this.
    wake: tokio::sync::Notify,
    /// Set once: nothing new is admitted or submitted.
    draining: AtomicBool,
    breakers: breaker::Breakers,
    /// Slots at the provider.
    places: slots::Places,
    /// What waits for one.
    queue: Mutex<fair::Fair<Box<held::Held>>>,
    /// The tasks at the provider, as far as this process has dealt with them.
    sent: Mutex<BTreeMap<SolveId, held::Sent>>,
    /// Tasks the provider has called back about.
    nudges: Mutex<BTreeSet<SolveId>>,
    /// Solves whose lost tasks the provider's calls have named.
    confirmed: Mutex<pingback::Confirmed>,
    /// How often the account may ask for tasks.
    quota: quota::Quota,
    /// Whether several tasks can be asked for in one call.
    together: together::Together,
    /// Shares of the slots can change while running.
    priorities: RwLock<BTreeMap<WorkerName, u32>>,
    /// Budgets that alerts watch can change while running.
    allowances: RwLock<BTreeMap<WorkerName, Allowance>>,
    /// Challenges that have a pool, as far as this process knows.
    pooled: RwLock<BTreeSet<Fingerprint>>,
    /// A claim for a pool came in.
    pool_hint: tokio::sync::Notify,
    /// "Zero balance" with threads free, in a row.
    empty_in_a_row: AtomicU32,
    /// The provider had no slot: ask for its threads.
    ask_threads: tokio::sync::Notify,
    /// A claim with a callback may have ended.
    outbox: tokio::sync::Notify,
    /// Somebody uses callbacks: ends are hints for the outbox.
    has_callbacks: AtomicBool,
    /// The last entry of the ledger that is in the archive, as far as this process knows.
    archived: Mutex<Option<Entry>>,
    health: health::Vitals,
    tasks: Tasks,
    /// The driver has ended: upkeep may end too.
    done: tokio::sync::watch::Sender<bool>,
}

impl Engine {
    /// Takes the process's lease and starts the driver, the keeper and the sweeper.
    ///
    /// With a store in memory and the simulated provider, in virtual time:
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use domain::{
    ///     challenge::{Challenge, Draft, Kind},
    ///     claim::{Allowance, Door},
    ///     id::{Project, WorkerName},
    ///     ports::{Chance, NoCourier, Scope},
    ///     site::Sites,
    /// };
    /// use engine::{Ask, Engine, EngineConfig, Outcome, Ports};
    /// use simulator::{Account, BehaviourConfig, Latency, SimProvider, VirtualClock};
    ///
    /// # #[derive(Debug, Default)]
    /// # struct Counter(std::sync::atomic::AtomicU64);
    /// # impl Chance for Counter {
    /// #     fn draw(&self) -> u64 {
    /// #         // Ids are cut from these bits, so neighbours must not look alike.
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
    ///         doorbell: backend.doorbell,
    ///         provider: Arc::new(provider),
    ///         clock,
    ///         chance: Arc::new(Counter::default()),
    ///         courier: Arc::new(NoCourier),
    ///     };
    ///     // A claim is refused unless somebody has written down why it is allowed.
    ///     let sites = Arc::new(Sites::new(Vec::new(), Some("pictures of our own shop".into())));
    ///     let engine = Engine::start(ports, EngineConfig { sites, ..EngineConfig::default() });
    ///     let engine = engine.await.unwrap();
    ///
    ///     let files = [("body".to_owned(), vec![1, 2, 3])].into();
    ///     let ask = Ask {
    ///         worker: WorkerName::new("ann").unwrap(),
    ///         project: Project::new("shop").unwrap(),
    ///         door: Door::V1,
    ///         challenge: Challenge::new(Kind::Image, Draft { files, ..Draft::default() }).unwrap(),
    ///         key: Some("order-17".into()),
    ///         fresh: false,
    ///         deadline: None,
    ///         allowance: Allowance::default(),
    ///         narrowing: None,
    ///         collect: true,
    ///         callback_url: None,
    ///     };
    ///     let Outcome::Waiting { claim, .. } = engine.claim(ask).await.unwrap().outcome else { panic!() };
    ///     let outcome = engine.fetch(&Scope::All, claim.id, Duration::from_secs(60)).await.unwrap();
    ///     assert!(matches!(outcome, Outcome::Served { .. }));
    ///     assert_eq!(account.ledger().accepted.len(), 1, "paid once");
    ///     engine.drain().await;
    /// }
    /// ```
    pub async fn start(mut ports: Ports, config: EngineConfig) -> Result<Self, StoreError> {
        let source = Arc::clone(&ports.records);
        if let Some(archive) = config.archive.clone() {
            ports.records = Arc::new(archive::WithArchive { store: ports.records, archive });
        }
        let inner = Arc::new(Inner::new(ports, config));
        keeper::renew(&inner).await?;
        inner.remember_together().await;
        keeper::recall(&inner).await;
        start_parts(&inner, source);
        Ok(Self(inner))
    }

    /// The readings.
    pub fn records(&self) -> &dyn Records {
        &*self.0.ports.records
    }

    /// The clock everything goes by.
    pub fn clock(&self) -> &dyn Clock {
        &*self.0.ports.clock
    }

    /// What it was configured with.
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// The declarations in force.
    pub fn sites(&self) -> Arc<Sites> {
        Arc::clone(&self.0.sites.read().expect("no holder of this lock can panic"))
    }

    /// Puts other declarations in force; claims already admitted go on.
    pub fn set_sites(&self, sites: Arc<Sites>) {
        *self.0.sites.write().expect("no holder of this lock can panic") = sites;
    }

    /// Puts other shares of the slots in force; what waits already keeps its place.
    pub fn set_priorities(&self, priorities: BTreeMap<WorkerName, u32>) {
        *self.0.priorities.write().expect("no holder of this lock can panic") = priorities;
    }

    /// Lets alerts watch other budgets; claims bring their own.
    pub fn set_allowances(&self, allowances: BTreeMap<WorkerName, Allowance>) {
        *self.0.allowances.write().expect("no holder of this lock can panic") = allowances;
    }

    /// Stops admitting and submitting, lets paid tasks finish for up to the configured grace, then gives up the
    /// lease so that others go on at once. Nothing is lost: what is left is recovered from the store.
    pub async fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
        self.0.wake.notify_one();
        self.0.tasks.finish().await;
    }

    /// Ends at once, as a crash would, for tests of exactly that.
    pub fn crash(&self) {
        self.0.tasks.abort();
    }
}

/// Everything that runs beside the claims. The store's own readings are `source`.
fn start_parts(inner: &Arc<Inner>, source: Arc<dyn Records>) {
    inner.tasks.spawn(watch(Arc::clone(inner), "keeper", keeper::keep(Arc::clone(inner))));
    inner.tasks.spawn(watch(Arc::clone(inner), "sweeper", keeper::sweep(Arc::clone(inner))));
    inner.tasks.spawn(watch(Arc::clone(inner), "driver", driver::run(Arc::clone(inner))));
    inner.tasks.spawn(watch(Arc::clone(inner), "memory", keeper::memorise(Arc::clone(inner))));
    inner.tasks.spawn(watch(Arc::clone(inner), "outbox", outbox::run(Arc::clone(inner))));
    if inner.config.slots != Slots::Fixed(0) {
        inner.tasks.spawn(watch(Arc::clone(inner), "pools", pools::run(Arc::clone(inner))));
    }
    if inner.config.slots == Slots::Auto {
        let asker = keeper::ask_threads(Arc::clone(inner));
        inner.tasks.spawn(watch(Arc::clone(inner), "slots", asker));
    }
    if let Some(archive) = inner.config.archive.clone() {
        let teller = archive::run(Arc::clone(inner), source, archive);
        inner.tasks.spawn(watch(Arc::clone(inner), "archive", teller));
    }
    if let Some(alerts) = inner.config.alerts.clone() {
        let watcher = alerts::run(Arc::clone(inner), alerts);
        inner.tasks.spawn(watch(Arc::clone(inner), "alerts", watcher));
    }
}

/// A part of the machine that panics stops everything visibly: not ready, nothing new is taken.
async fn watch(inner: Arc<Inner>, name: &'static str, part: impl Future<Output = ()>) {
    if AssertUnwindSafe(part).catch_unwind().await.is_err() {
        tracing::error!(part = name, "engine task panicked, restart the gateway");
        inner.health.part_failed(name);
        inner.draining.store(true, Ordering::SeqCst);
    }
}

impl Inner {
    /// Nothing runs yet.
    fn new(ports: Ports, config: EngineConfig) -> Self {
        Self {
            sites: RwLock::new(Arc::clone(&config.sites)),
            holder: AtomicU64::new(HolderId::draw(&*ports.chance).number()),
            held_until: AtomicU64::new(0),
            wake: tokio::sync::Notify::new(),
            draining: AtomicBool::new(false),
            breakers: breaker::Breakers::new(config.probe_every),
            places: slots::Places::new(config.slots, ports.clock.now()),
            queue: Mutex::new(fair::Fair::new()),
            sent: Mutex::default(),
            nudges: Mutex::default(),
            confirmed: Mutex::default(),
            quota: quota::Quota::default(),
            together: together::Together::default(),
            priorities: RwLock::new(config.priorities.clone()),
            allowances: RwLock::new(alerts::allowances(&config)),
            pooled: RwLock::default(),
            pool_hint: tokio::sync::Notify::new(),
            empty_in_a_row: AtomicU32::new(0),
            ask_threads: tokio::sync::Notify::new(),
            outbox: tokio::sync::Notify::new(),
            has_callbacks: AtomicBool::new(false),
            archived: Mutex::default(),
            health: health::Vitals::default(),
            tasks: Tasks::default(),
            done: tokio::sync::watch::Sender::new(false),
            ports,
            config,
        }
    }

    /// Our name in this life.
    fn holder(&self) -> HolderId {
        HolderId::from_number(self.holder.load(Ordering::SeqCst))
    }

    fn queue(&self) -> MutexGuard<'_, fair::Fair<Box<held::Held>>> {
        self.queue.lock().expect("no holder of this lock can panic")
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<SolveId, held::Sent>> {
        self.sent.lock().expect("no holder of this lock can panic")
    }

    /// A worker's share of the slots.
    fn priority(&self, worker: &WorkerName) -> u32 {
        let priorities = self.priorities.read().expect("no holder of this lock can panic");
        priorities.get(worker).copied().unwrap_or(1)
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}
