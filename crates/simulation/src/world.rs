//! A simulated world from one seed: gateways, workers, a provider and a nemesis, in virtual time. It ends with a quiet
//! period without faults, after which every claim must have ended.

pub mod budgets;
mod clocks;
pub mod pools;
mod workers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::{
    challenge::Kind,
    declarations::{Declarations, Images},
    money::Money,
    ports::{Clock, Provider, WebhookSender},
    site::Site,
    solve::AmbiguousPolicy,
    time::Timestamp,
};
use engine::{Engine, EngineConfig, FixedPolling, Ports, Slots};
use simulator::{Account, BehaviourConfig, Fault, FaultPlan, Latency, SimProvider, VirtualClock};
use stores::{Backend, Timing};
use tokio::sync::watch;

use crate::{
    books::PRICE,
    clocks::{GatewayClock, WallClock},
    monitor::{Monitor, Observed},
    ports::{Bug, Gate, Life, Receiver, RemoteProvider, RemoteStore, SeededChance, StoreFaults},
};

/// The choices that a seed makes.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each kind of trouble is on or off by itself")]
pub struct Plan {
    pub seed: u64,
    pub gateways: usize,
    pub workers: usize,
    pub claims_each: usize,
    pub faults: bool,
    pub crashes: bool,
    pub pauses: bool,
    pub cuts: bool,
    pub jumps: bool,
    /// Some gateways come back from a crash with a clock that is far ahead.
    pub wrong_clocks: bool,
    /// An operator revives and purges dead letters.
    pub operator: bool,
    /// Claims have callbacks, to a receiver that is down now and then.
    pub callbacks: bool,
    /// The number of slots is learned.
    pub auto: bool,
    pub store_faults: StoreFaults,
    pub bug: Option<Bug>,
    pub policy: AmbiguousPolicy,
    /// Adds pools, more claims, and account trouble.
    pub pools: bool,
    /// A client announces demand.
    pub announces: bool,
    /// The number of slots, unless it is learned.
    pub slots: usize,
    /// An operator pauses and resumes submissions, and withdraws and declares the site.
    pub stops: bool,
    /// Gateways read the account's balance, which then only changes by charges and refunds.
    pub balance: bool,
}

/// A token that a worker received.
#[derive(Clone, Debug)]
pub struct ReceivedToken {
    /// The worker's name for the piece of work; equal pieces may get equal tokens.
    pub work: String,
    pub exclusive: bool,
    /// The maximum age of a token of this kind.
    pub usable: Duration,
    pub token: String,
    /// True time.
    pub at: Timestamp,
}

/// Everything that a run leaves for the judge.
pub struct Traces {
    /// Our ledger, other events, and the violations found during the run.
    pub observed: Observed,
    pub backend: Backend,
    pub account: Account,
    pub got: Vec<ReceivedToken>,
    pub lives: Vec<Arc<Life>>,
    /// Announced demand, including calls whose reply was lost.
    pub announced: Vec<(Kind, u32)>,
    /// The ids of the callbacks that the receiver accepted.
    pub delivered_callbacks: BTreeSet<String>,
    pub plan: Plan,
    /// How much a token may age between a gateway's decision and the worker: a paused process delivers when it wakes,
    /// and the clocks of replicas may differ by as much as the wall clock jumped.
    pub slack: Duration,
    pub crashes: usize,
}

pub struct Gateway {
    pub engine: Option<Engine>,
    pub record: Arc<Life>,
    pub life: watch::Sender<u64>,
    pub gate: Arc<Gate>,
    /// Its clock is far ahead, so it must not be ready.
    pub is_ahead: bool,
}

pub struct World {
    pub plan: Plan,
    pub monitor: Arc<Monitor>,
    pub start: tokio::time::Instant,
    pub clock: Arc<dyn Clock>,
    pub backend: Backend,
    pub account: Account,
    pub gateways: Vec<Mutex<Gateway>>,
    pub receiver: Arc<Receiver>,
    pub got: Mutex<Vec<ReceivedToken>>,
    pub lives: Mutex<Vec<Arc<Life>>>,
    pub crashes: Mutex<usize>,
    pub announced: Mutex<Vec<(Kind, u32)>>,
    /// Gateways no longer declare pools.
    pub is_closing: AtomicBool,
    pub store_faults: Arc<Mutex<StoreFaults>>,
    /// It may jump; a gateway notices when it compares its clock with the store's.
    pub wall: Arc<WallClock>,
}

const SETTLE: Duration = Duration::from_secs(20 * 60);
/// A callback that failed several times is retried half an hour later. This is long enough for six tries, even when a
/// gateway dies during one of them and the try counts.
const CALLBACKS_SETTLE: Duration = Duration::from_secs(60 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Plan {
    /// Swarm testing: each seed turns on a random subset of the faults.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xD15E_A5E5);
        let store_faults = StoreFaults {
            latency: rng.u64(0..40),
            // Drawn apart, so that the other seeds play what they played before there was this fault.
            slow: if seed % 3 == 1 { fastrand::Rng::with_seed(!seed).u32(10..100) } else { 0 },
            unreached: if rng.bool() { rng.u32(0..30) } else { 0 },
            reply_lost: if rng.bool() { rng.u32(0..30) } else { 0 },
        };
        let plan = Self {
            seed,
            pools: false,
            announces: false,
            slots: 10,
            // Drawn apart as well.
            stops: seed % 7 == 1,
            balance: false,
            wrong_clocks: seed % 5 == 2,
            gateways: rng.usize(1..=3),
            workers: rng.usize(2..=6),
            claims_each: rng.usize(2..=8),
            faults: rng.u32(0..4) > 0,
            crashes: rng.u32(0..3) > 0,
            pauses: rng.bool(),
            cuts: rng.bool(),
            jumps: rng.bool(),
            operator: rng.bool(),
            callbacks: rng.bool(),
            auto: rng.u32(0..3) == 0,
            store_faults,
            bug: None,
            policy: if rng.u32(0..4) == 0 {
                AmbiguousPolicy::Never
            } else {
                AmbiguousPolicy::ResubmitOnce
            },
        };
        let plan = plan.competing();
        if rng.bool() {
            return plan;
        }
        Self {
            pools: true,
            announces: rng.u32(0..3) == 0,
            slots: rng.usize(2..=10),
            claims_each: plan.claims_each * 2,
            ..plan
        }
    }

    /// A slow network is slow on both sides of the gateway.
    fn provider_latency(&self) -> Latency {
        let usual = Latency::default();
        if self.store_faults.slow == 0 {
            usual
        } else {
            Latency { most: usual.deadline / 8, ..usual }
        }
    }

    /// Runs the world in virtual time, to its end or to the first violation.
    pub fn run(self) -> Traces {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async move {
            let world = World::new(self);
            tokio::select! {
                biased;
                () = world.monitor.first_violation() => {}
                () = Arc::clone(&world).live() => {}
            }
            world.traces().await
        })
    }
}

impl World {
    fn new(plan: Plan) -> Arc<Self> {
        let start = tokio::time::Instant::now();
        let mut behaviour = BehaviourConfig::new(plan.seed);
        // With learned slots the provider has few enough for the limit to matter.
        behaviour.threads = Some(if plan.auto { 6 } else { 40 });
        behaviour.captchaai = plan.auto && plan.seed.is_multiple_of(2);
        if plan.balance {
            // The books close only at the prices that the gateways know.
            behaviour.prices.insert(Kind::Turnstile, PRICE);
        }
        let account = Account::new(behaviour);
        if plan.faults {
            // A gateway cannot detect a provider that returns the id of another task instead of a new one.
            let swarm = FaultPlan::swarm(plan.seed).list();
            let honest = swarm.into_iter().filter(|planned| planned.fault != Fault::SameTask);
            account.faults(|faults| {
                *faults = FaultPlan::new(plan.seed);
                honest.for_each(|planned| faults.add(planned));
            });
        }
        let gateway = |_| {
            Mutex::new(Gateway {
                is_ahead: false,
                engine: None,
                record: Arc::default(),
                life: watch::Sender::new(0),
                gate: Arc::new(Gate::default()),
            })
        };
        let backend = stores::open("memory:").unwrap();
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(start, Duration::ZERO));
        let records = Arc::clone(&backend.records);
        let monitor = Monitor::new(records, plan.budgets(), account.clone(), Arc::clone(&clock));
        Arc::new(Self {
            monitor: Arc::new(monitor),
            clock,
            backend,
            gateways: (0..plan.gateways).map(gateway).collect(),
            receiver: Arc::default(),
            got: Mutex::default(),
            lives: Mutex::default(),
            crashes: Mutex::default(),
            announced: Mutex::default(),
            is_closing: AtomicBool::new(false),
            store_faults: Arc::new(Mutex::new(plan.store_faults)),
            wall: Arc::new(WallClock::new(start)),
            account,
            start,
            plan,
        })
    }

    async fn live(self: Arc<Self>) {
        for i in 0..self.gateways.len() {
            self.boot(i).await;
        }
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..self.plan.workers {
            workers.spawn(Arc::clone(&self).work(worker));
        }
        let mut nemesis = tokio::task::JoinSet::new();
        nemesis.spawn(Arc::clone(&self).nemesis());
        if self.plan.operator {
            nemesis.spawn(Arc::clone(&self).operate());
        }
        if self.plan.stops {
            nemesis.spawn(Arc::clone(&self).stop_and_resume());
        }
        if self.plan.announces {
            nemesis.spawn(Arc::clone(&self).announce());
        }
        if self.plan.store_faults.slow > 0 {
            nemesis.spawn(Arc::clone(&self).recover_store());
        }
        while let Some(ended) = workers.join_next().await {
            ended.expect("a worker ends by itself");
        }
        if let Some(ended) = nemesis.try_join_next() {
            ended.expect("the nemesis runs until it is stopped");
        }
        nemesis.abort_all();
        self.heal().await;
    }

    /// Ends the store's faults while workers still wait. As long as calls fail, gateways lease everything again and again,
    /// which repairs what an earlier fault has damaged.
    async fn recover_store(self: Arc<Self>) {
        self.sleep(Duration::from_secs(10 + self.plan.seed % 90)).await;
        self.end_store_faults();
        std::future::pending::<()>().await;
    }

    fn end_store_faults(&self) {
        let mut store_faults = self.store_faults.lock().unwrap();
        *store_faults = StoreFaults { latency: store_faults.latency, ..StoreFaults::default() };
    }

    /// Ends all faults and leaves enough time for every lease, deadline and harvest to end.
    async fn heal(&self) {
        self.monitor.record("all workers are done, all faults end".into());
        self.account.faults(FaultPlan::clear);
        self.end_store_faults();
        self.is_closing.store(true, Ordering::SeqCst);
        self.receiver.is_down.store(false, std::sync::atomic::Ordering::SeqCst);
        self.end_stops().await;
        if !self.plan.balance {
            self.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000_000)));
        }
        self.end_wrong_clocks();
        for i in 0..self.gateways.len() {
            let gate = Arc::clone(&self.gateways[i].lock().unwrap().gate);
            gate.cut.store(false, std::sync::atomic::Ordering::SeqCst);
            self.boot(i).await;
        }
        self.close_pools().await;
        self.sleep(if self.plan.callbacks { CALLBACKS_SETTLE } else { SETTLE }).await;
        for (i, gateway) in self.gateways.iter().enumerate() {
            if let Some(engine) = gateway.lock().unwrap().engine.take() {
                self.monitor.check_health(i, &engine.health());
                engine.crash();
            }
        }
    }

    async fn traces(&self) -> Traces {
        self.monitor.check_new_entries().await;
        let pause = if self.plan.pauses { LONGEST_PAUSE } else { Duration::ZERO };
        let skew = if self.plan.gateways > 1 { self.wall.ahead() } else { Duration::ZERO };
        Traces {
            observed: self.monitor.result(),
            slack: pause + skew,
            backend: self.backend.clone(),
            account: self.account.clone(),
            got: self.got.lock().unwrap().clone(),
            lives: self.lives.lock().unwrap().clone(),
            announced: self.announced.lock().unwrap().clone(),
            delivered_callbacks: self
                .receiver
                .got
                .lock()
                .unwrap()
                .iter()
                .map(|(id, _)| id.clone())
                .collect(),
            plan: self.plan,
            crashes: *self.crashes.lock().unwrap(),
        }
    }

    pub async fn sleep(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    /// Starts gateway `i` if it is down, with retries while the store is unreachable.
    pub async fn boot(&self, i: usize) {
        let (gate, life) = {
            let gateway = self.gateways[i].lock().unwrap();
            if gateway.engine.is_some() {
                return;
            }
            (Arc::clone(&gateway.gate), *gateway.life.borrow() + 1)
        };
        let seed = self.plan.seed.wrapping_mul(31).wrapping_add(i as u64 * 1009 + life);
        let off = self.clock_error(seed, life);
        let clock: Arc<dyn Clock> = Arc::new(GatewayClock::start(&self.wall, off));
        for attempt in 0..50 {
            let record = Arc::new(Life { gateway: i, ..Life::default() });
            let ports = self.ports(&gate, &clock, seed.wrapping_add(100_000 * attempt), &record);
            if let Ok(engine) = Engine::start(ports, self.config()).await {
                // They may have changed since.
                self.declare(&engine);
                let mut gateway = self.gateways[i].lock().unwrap();
                gateway.engine = Some(engine);
                gateway.record = Arc::clone(&record);
                gateway.is_ahead = !off.is_zero();
                self.lives.lock().unwrap().push(record);
                gateway.life.send_replace(life);
                self.monitor.record(format!("gateway {i} started, its clock {off:?} ahead"));
                return;
            }
            self.sleep(Duration::from_secs(1)).await;
        }
    }

    fn ports(
        &self,
        gate: &Arc<Gate>,
        clock: &Arc<dyn Clock>,
        seed: u64,
        life: &Arc<Life>,
    ) -> Ports {
        let bug = self.plan.bug;
        let timing = Timing::default();
        timing.follow(Arc::clone(clock));
        let store = RemoteStore {
            timing,
            wall: Arc::clone(&self.wall) as Arc<dyn Clock>,
            monitor: Arc::clone(&self.monitor),
            life: Arc::clone(life),
            store: Arc::clone(&self.backend.store),
            clock: Arc::clone(clock),
            gate: Arc::clone(gate),
            store_faults: Arc::clone(&self.store_faults),
            rng: Mutex::new(fastrand::Rng::with_seed(seed ^ 0x5707)),
            bug,
        };
        // The provider runs in true time, whatever the gateway's clock says.
        let provider: Arc<dyn Provider> = Arc::new(SimProvider::new(
            self.account.clone(),
            Arc::clone(&self.clock),
            self.plan.provider_latency(),
        ));
        let provider = RemoteProvider {
            monitor: Arc::clone(&self.monitor),
            life: Arc::clone(life),
            provider,
            clock: Arc::clone(clock),
            gate: Arc::clone(gate),
            bug,
        };
        Ports {
            store: Arc::new(store),
            records: Arc::clone(&self.backend.records),
            notifier: Arc::clone(&self.backend.notifier),
            provider: Arc::new(provider),
            clock: Arc::clone(clock),
            chance: Arc::new(SeededChance::new(seed)),
            webhooks: Arc::clone(&self.receiver) as Arc<dyn WebhookSender>,
        }
    }

    /// The declarations in force at every gateway.
    pub fn declarations(&self) -> Arc<Declarations> {
        let site = Site {
            ambiguous: self.plan.policy,
            ..Site::new("shop.example.com".parse().unwrap(), "simulated shop")
        };
        let images = Some(Images::new("simulated pictures"));
        let sites = if self.monitor.is_withdrawn() { Vec::new() } else { vec![site] };
        Declarations { sites, images, ..Declarations::default() }.into()
    }

    fn config(&self) -> EngineConfig {
        let second = Duration::from_secs(1);
        let closing = self.is_closing.load(Ordering::SeqCst);
        EngineConfig {
            declarations: self.declarations(),
            polling: FixedPolling { first: second, interval: second, min_gap: second, most: 20 }
                .into(),
            slots: if self.plan.auto { Slots::Auto } else { Slots::Fixed(self.plan.slots) },
            pools: if closing { Vec::new() } else { self.plan.pool_wishes() },
            prices: BTreeMap::from([(Kind::Turnstile, PRICE)]).into(),
            budgets: self.plan.budgets(),
            balance_every: self.plan.balance.then_some(60 * second),
            ..EngineConfig::default()
        }
    }

    /// The engine of a running gateway, and a channel that reports its crash.
    pub fn gateway(&self, rng: &mut fastrand::Rng) -> Option<(Engine, watch::Receiver<u64>)> {
        let gateway = self.gateways[rng.usize(0..self.gateways.len())].lock().unwrap();
        let life = gateway.life.subscribe();
        gateway.engine.clone().map(|engine| (engine, life))
    }
}
