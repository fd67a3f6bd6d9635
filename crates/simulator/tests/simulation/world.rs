//! A whole world from one seed: gateways, workers, a provider and a nemesis, in virtual time. It ends with a time of
//! healing, after which everything must have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    challenge::{Challenge, Draft, Kind},
    claim::{Allowance, Door},
    id::{ClaimId, Project, WorkerName},
    money::Money,
    ports::{Clock, Courier, Provider, Scope},
    secret::Secret,
    site::{PageUrl, Site, Sites},
    solve::AmbiguousPolicy,
    time::Timestamp,
};
use engine::{Ask, Engine, EngineConfig, FixedPolling, Outcome, Ports, Slots};
use simulator::{Account, BehaviourConfig, Fault, FaultPlan, Latency, SimProvider, VirtualClock};
use stores::Backend;
use tokio::sync::watch;

use crate::ports::{Bug, FarProvider, FarStore, Gate, Life, Receiver, SeededChance, StoreWeather};

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each kind of trouble is on or off by itself")]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) gateways: usize,
    pub(crate) workers: usize,
    pub(crate) claims_each: usize,
    pub(crate) faults: bool,
    pub(crate) crashes: bool,
    pub(crate) pauses: bool,
    pub(crate) cuts: bool,
    pub(crate) jumps: bool,
    /// Somebody brings dead letters back, and throws some away.
    pub(crate) operator: bool,
    /// Claims want to be told of their end, by a receiver that is down now and then.
    pub(crate) callbacks: bool,
    /// The number of slots is learned.
    pub(crate) auto: bool,
    pub(crate) weather: StoreWeather,
    pub(crate) bug: Option<Bug>,
    pub(crate) policy: AmbiguousPolicy,
}

/// A token as a worker got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// The worker's own name for the piece of work; equal pieces may get equal tokens.
    pub(crate) work: String,
    pub(crate) exclusive: bool,
    /// How old a token of its kind may be.
    pub(crate) usable: Duration,
    pub(crate) token: String,
    /// True time.
    pub(crate) at: Timestamp,
}

/// Everything a run leaves for the judge.
pub(crate) struct Traces {
    pub(crate) backend: Backend,
    pub(crate) account: Account,
    pub(crate) got: Vec<Got>,
    pub(crate) lives: Vec<Arc<Life>>,
    /// Messages the receiver took.
    pub(crate) told: BTreeSet<String>,
    pub(crate) plan: Plan,
    /// How much older a token may get between a gateway's decision and the worker's hand: a paused process hands over
    /// when it wakes, and replicas' clocks may differ by as much as the wall clock jumped.
    pub(crate) slack: Duration,
    pub(crate) crashes: usize,
}

pub(crate) struct Gateway {
    pub(crate) engine: Option<Engine>,
    pub(crate) record: Arc<Life>,
    pub(crate) life: watch::Sender<u64>,
    pub(crate) gate: Arc<Gate>,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) start: tokio::time::Instant,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) backend: Backend,
    pub(crate) account: Account,
    pub(crate) gateways: Vec<Mutex<Gateway>>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) got: Mutex<Vec<Got>>,
    pub(crate) lives: Mutex<Vec<Arc<Life>>>,
    pub(crate) crashes: Mutex<usize>,
    /// How far the machine's wall clock is ahead; it may jump, a running process does not notice.
    pub(crate) wall: Mutex<Duration>,
}

const SLOTS: Slots = Slots::Fixed(10);
const SETTLE: Duration = Duration::from_secs(20 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Plan {
    /// Swarm style: each seed turns on a random subset of what can go wrong.
    pub(crate) fn swarm(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xD15E_A5E5);
        let weather = StoreWeather {
            latency: rng.u64(0..40),
            unreached: if rng.bool() { rng.u32(0..30) } else { 0 },
            reply_lost: if rng.bool() { rng.u32(0..30) } else { 0 },
        };
        Self {
            seed,
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
            weather,
            bug: None,
            policy: if rng.u32(0..4) == 0 {
                AmbiguousPolicy::Never
            } else {
                AmbiguousPolicy::ResubmitOnce
            },
        }
    }

    /// Runs the world to its end in virtual time.
    pub(crate) fn run(self) -> Traces {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async move {
            let world = World::new(self);
            world.live().await
        })
    }
}

impl World {
    fn new(plan: Plan) -> Arc<Self> {
        let start = tokio::time::Instant::now();
        let mut behaviour = BehaviourConfig::new(plan.seed);
        // With learned slots the provider has few enough to be felt.
        behaviour.threads = Some(if plan.auto { 6 } else { 40 });
        behaviour.captchaai = plan.auto && plan.seed.is_multiple_of(2);
        let account = Account::new(behaviour);
        if plan.faults {
            // A provider that names another's task instead of a new one lies beyond what a gateway can see.
            let swarm = FaultPlan::swarm(plan.seed).list();
            let honest = swarm.into_iter().filter(|planned| planned.fault != Fault::SameTask);
            account.faults(|faults| {
                *faults = FaultPlan::new(plan.seed);
                honest.for_each(|planned| faults.add(planned));
            });
        }
        let gateway = |_| {
            Mutex::new(Gateway {
                engine: None,
                record: Arc::default(),
                life: watch::Sender::new(0),
                gate: Arc::new(Gate::default()),
            })
        };
        Arc::new(Self {
            clock: Arc::new(VirtualClock::new(start, Duration::ZERO)),
            backend: stores::open("memory:").unwrap(),
            gateways: (0..plan.gateways).map(gateway).collect(),
            receiver: Arc::default(),
            got: Mutex::default(),
            lives: Mutex::default(),
            crashes: Mutex::default(),
            wall: Mutex::default(),
            account,
            start,
            plan,
        })
    }

    async fn live(self: Arc<Self>) -> Traces {
        for i in 0..self.gateways.len() {
            self.boot(i).await;
        }
        let mut everybody = tokio::task::JoinSet::new();
        for worker in 0..self.plan.workers {
            everybody.spawn(Arc::clone(&self).work(worker));
        }
        let mut nemesis = tokio::task::JoinSet::new();
        nemesis.spawn(Arc::clone(&self).nemesis());
        if self.plan.operator {
            nemesis.spawn(Arc::clone(&self).operate());
        }
        while everybody.join_next().await.is_some() {}
        nemesis.abort_all();
        self.heal().await;
        self.traces()
    }

    /// All faults off; enough time for every lease, deadline and harvest to end.
    async fn heal(&self) {
        self.account.faults(FaultPlan::clear);
        self.receiver.is_down.store(false, std::sync::atomic::Ordering::SeqCst);
        self.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000_000)));
        for i in 0..self.gateways.len() {
            let gate = Arc::clone(&self.gateways[i].lock().unwrap().gate);
            gate.cut.store(false, std::sync::atomic::Ordering::SeqCst);
            self.boot(i).await;
        }
        self.sleep(SETTLE).await;
        for gateway in &self.gateways {
            if let Some(engine) = gateway.lock().unwrap().engine.take() {
                engine.crash();
            }
        }
    }

    fn traces(&self) -> Traces {
        let pause = if self.plan.pauses { LONGEST_PAUSE } else { Duration::ZERO };
        let skew = if self.plan.gateways > 1 { *self.wall.lock().unwrap() } else { Duration::ZERO };
        Traces {
            slack: pause + skew,
            backend: self.backend.clone(),
            account: self.account.clone(),
            got: self.got.lock().unwrap().clone(),
            lives: self.lives.lock().unwrap().clone(),
            told: self.receiver.got.lock().unwrap().iter().map(|(id, _)| id.clone()).collect(),
            plan: self.plan,
            crashes: *self.crashes.lock().unwrap(),
        }
    }

    pub(crate) async fn sleep(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now().plus(length)).await;
    }

    /// Starts gateway `i` if it is down. A cut-off store keeps it down; it is tried again.
    pub(crate) async fn boot(&self, i: usize) {
        let (gate, life) = {
            let gateway = self.gateways[i].lock().unwrap();
            if gateway.engine.is_some() {
                return;
            }
            (Arc::clone(&gateway.gate), *gateway.life.borrow() + 1)
        };
        let seed = self.plan.seed.wrapping_mul(31).wrapping_add(i as u64 * 1009 + life);
        let offset = *self.wall.lock().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(self.start, offset));
        for attempt in 0..50 {
            let record = Arc::new(Life::default());
            let ports = self.ports(&gate, &clock, seed + 100_000 * attempt, &record);
            if let Ok(engine) = Engine::start(ports, self.config()).await {
                let mut gateway = self.gateways[i].lock().unwrap();
                gateway.engine = Some(engine);
                gateway.record = Arc::clone(&record);
                self.lives.lock().unwrap().push(record);
                gateway.life.send_replace(life);
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
        let store = FarStore {
            store: Arc::clone(&self.backend.store),
            clock: Arc::clone(clock),
            gate: Arc::clone(gate),
            weather: Mutex::new(self.plan.weather),
            rng: Mutex::new(fastrand::Rng::with_seed(seed ^ 0x5707)),
            bug,
        };
        // The provider lives in true time, whatever the gateway's clock says.
        let provider: Arc<dyn Provider> = Arc::new(SimProvider::new(
            self.account.clone(),
            Arc::clone(&self.clock),
            Latency::default(),
        ));
        let provider = FarProvider {
            life: Arc::clone(life),
            provider,
            clock: Arc::clone(clock),
            gate: Arc::clone(gate),
            bug,
        };
        Ports {
            store: Arc::new(store),
            records: Arc::clone(&self.backend.records),
            doorbell: Arc::clone(&self.backend.doorbell),
            provider: Arc::new(provider),
            clock: Arc::clone(clock),
            chance: Arc::new(SeededChance::new(seed)),
            courier: Arc::clone(&self.receiver) as Arc<dyn Courier>,
        }
    }

    fn config(&self) -> EngineConfig {
        let site = Site {
            rule: "shop.example.com".parse().unwrap(),
            basis: "simulated shop".into(),
            expires: None,
            reuse: None,
            ambiguous: self.plan.policy,
            key_ignores_proxy: false,
        };
        let second = Duration::from_secs(1);
        EngineConfig {
            sites: Arc::new(Sites::new(vec![site], Some("simulated pictures".into()))),
            polling: FixedPolling { first: second, interval: second, min_gap: second, most: 20 }
                .into(),
            slots: if self.plan.auto { Slots::Auto } else { SLOTS },
            prices: BTreeMap::from([(Kind::Turnstile, Money::from_micros(1000))]),
            ..EngineConfig::default()
        }
    }

    /// A living gateway's engine, and what tells of its death.
    pub(crate) fn gateway(
        &self,
        rng: &mut fastrand::Rng,
    ) -> Option<(Engine, watch::Receiver<u64>)> {
        let gateway = self.gateways[rng.usize(0..self.gateways.len())].lock().unwrap();
        let life = gateway.life.subscribe();
        gateway.engine.clone().map(|engine| (engine, life))
    }
}

// === the workers ===

/// How a worker feels this time.
#[derive(Clone, Copy)]
struct Mood {
    patience: Duration,
    whim: u32,
}

/// One piece of work.
struct Work {
    name: String,
    worker: WorkerName,
    kind: Kind,
    sitekey: u32,
    key: Option<String>,
}

impl World {
    async fn work(self: Arc<Self>, number: usize) {
        let mut rng = fastrand::Rng::with_seed(self.plan.seed.wrapping_mul(7919) + number as u64);
        for turn in 0..self.plan.claims_each {
            self.sleep(Duration::from_millis(rng.u64(0..8_000))).await;
            let work = Self::choose(number, turn, &mut rng);
            self.pursue(&work, &mut rng).await;
            if rng.u32(0..8) == 0 {
                // A redelivered message: the same work again, perhaps after its token has died.
                self.sleep(Duration::from_secs(rng.u64(30..200))).await;
                self.pursue(&work, &mut rng).await;
            }
        }
    }

    /// Two workers at a time share a name, so that keys, joins and stock meet.
    fn choose(number: usize, turn: usize, rng: &mut fastrand::Rng) -> Work {
        let kind = [Kind::Turnstile, Kind::RecaptchaV2, Kind::Image][rng.usize(0..3)].clone();
        let worker = WorkerName::new(format!("team-{}", number / 2)).unwrap();
        let key = rng.bool().then(|| format!("job-{}-{}", number / 2, turn));
        let sitekey = if key.is_some() { u32::try_from(turn).unwrap() % 3 } else { rng.u32(0..3) };
        let keyed = [Kind::Turnstile, Kind::RecaptchaV2][turn % 2].clone();
        let kind = if key.is_some() { keyed } else { kind };
        let name =
            key.clone().map_or_else(|| format!("{number}/{turn}"), |key| format!("{worker}/{key}"));
        Work { name, worker, kind, sitekey, key }
    }

    /// Asks, waits, and asks again under the same key, as a worker behind a bad network would.
    async fn pursue(&self, work: &Work, rng: &mut fastrand::Rng) {
        for _ in 0..4 {
            let patience = Duration::from_millis(rng.u64(500..40_000));
            if let Some((engine, mut life)) = self.gateway(rng) {
                let mood = Mood { patience, whim: rng.u32(0..20) };
                tokio::select! {
                    biased;
                    done = self.ask(&engine, work, mood) => if done { return },
                    _ = life.changed() => {}
                }
            }
            self.sleep(Duration::from_millis(rng.u64(100..3_000))).await;
        }
    }

    /// One try; `true` when nothing is left to do.
    async fn ask(&self, engine: &Engine, work: &Work, mood: Mood) -> bool {
        let mut ask = work.ask(mood.whim == 0);
        if self.plan.callbacks && mood.whim % 2 == 1 {
            ask.callback_url = Some(Secret::new("https://hooks.example.com/"));
        }
        let Ok(admitted) = engine.claim(ask).await else { return false };
        let id = match admitted.outcome {
            Outcome::Waiting { claim, .. } => claim.id,
            Outcome::Served { claim, .. } => return self.take(work, claim),
            Outcome::Failed(_)
            | Outcome::Lapsed(_)
            | Outcome::Withdrawn(_)
            | Outcome::Expired(_) => return true,
        };
        self.wait(engine, work, id, mood).await
    }

    async fn wait(&self, engine: &Engine, work: &Work, id: ClaimId, mood: Mood) -> bool {
        let scope = Scope::Worker(work.worker.clone());
        if mood.whim == 1 {
            // Withdrawing may race with the answer; both ends are fine.
            drop(engine.withdraw(&scope, id).await);
            return true;
        }
        if mood.whim == 2 {
            return true; // never comes back for it
        }
        match engine.fetch(&scope, id, mood.patience).await {
            Ok(Outcome::Served { claim, .. }) => self.take(work, claim),
            Ok(Outcome::Waiting { .. }) | Err(_) => false,
            Ok(
                Outcome::Failed(_)
                | Outcome::Lapsed(_)
                | Outcome::Withdrawn(_)
                | Outcome::Expired(_),
            ) => true,
        }
    }

    fn take(&self, work: &Work, claim: domain::claim::Claim) -> bool {
        let token = claim.token.expect("a served claim has a token");
        let exclusive = claim.kind != Kind::Image;
        // Keyless claims with equal parameters are the same piece of work while its window lasts.
        let name = if work.key.is_some() { work.name.clone() } else { format!("{}", claim.id) };
        let (lifetime, margin) = claim.kind.lifetime_and_margin();
        let got = Got {
            work: name,
            exclusive,
            usable: lifetime.saturating_sub(margin),
            token: token.answer.text.expose().to_owned(),
            at: self.clock.now(),
        };
        self.got.lock().unwrap().push(got);
        true
    }
}

impl Work {
    fn ask(&self, fresh: bool) -> Ask {
        let draft = if self.kind == Kind::Image {
            Draft {
                files: BTreeMap::from([("body".to_owned(), vec![7; 100 + self.sitekey as usize])]),
                ..Draft::default()
            }
        } else {
            let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
            Draft {
                sitekey: Some(format!("key-{}", self.sitekey)),
                pageurl: Some(pageurl),
                ..Draft::default()
            }
        };
        Ask {
            worker: self.worker.clone(),
            project: Project::new("simulated").unwrap(),
            door: Door::V1,
            challenge: Challenge::new(self.kind.clone(), draft).unwrap(),
            key: self.key.clone(),
            fresh: fresh && self.key.is_none(),
            deadline: None,
            allowance: Allowance::default(),
            narrowing: None,
            collect: true,
            callback_url: None,
        }
    }
}
