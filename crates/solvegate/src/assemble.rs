//! Connects the ports and starts the engine from a configuration. The only place that knows every crate.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::WorkerName,
    ports::{Chance, ClaimFilter, Clock, NoWebhooks, Provider, Scope, WebhookSender},
    prices::PriceList,
    secret::Secret,
    time::Timestamp,
};
use engine::{Engine, EngineConfig, Family, Observation, Polling, Ports, Slots};
use simulator::{BehaviourConfig, Sim, SimConfig, SimHandle, pace::SolveTime};
use stores::{Backend, Finding, Keyring, Weight};
use upstream::{
    Pingback, UnlistedHosts, Upstream, UpstreamConfig, WebhookClient, WebhookConfig,
    WebhooksByWorker,
};

use crate::{
    chance::SystemChance,
    clock::SystemClock,
    config::{Admin, Config, Service, StoreUrl, Worker},
    exit::{Exit, Failure},
    keys, place,
};

/// A running engine with its ports.
#[derive(Debug)]
pub struct Assembled {
    pub engine: Engine,
    /// The client of the service; a reload gives it another key.
    pub upstream: Arc<Upstream>,
    /// Also generates keys.
    pub chance: Arc<SystemChance>,
    /// Sends callbacks; a reload replaces the workers' own.
    webhooks: Arc<WebhooksByWorker>,
    clock: Arc<dyn Clock>,
    /// Signs the addresses of pingbacks, if they are configured.
    pub pingback: Option<Secret>,
    /// The simulator, if it is the upstream; dropping it stops it.
    sim: Option<SimHandle>,
}

type WorkerSenders = BTreeMap<WorkerName, Arc<dyn WebhookSender>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Serve workers, and keep pools.
    Serving,
    /// Solve one claim.
    Solving,
    /// Read and change records; submit nothing.
    Reading,
}

/// How long paid tasks may take to finish during a drain; the doors have the rest of the 25 s.
const DRAIN_GRACE: Duration = Duration::from_secs(20);

/// How often the balance is read for `solvegate reconcile`.
const BALANCE_EVERY: Duration = Duration::from_secs(15 * 60);

/// The tasks of the built-in simulator, in the data directory.
const SIMULATOR_TASKS: &str = "simulator-tasks.jsonl";

const USE_THE_RUNNING_ONE: &str =
    "; if a gateway is using it, call that one: --server http://127.0.0.1:8402 --key file:PATH";

// === impl Assembled ===

impl Assembled {
    pub async fn start(config: &Config, purpose: Purpose) -> Result<Self, Failure> {
        // A store on a server needs no directory; it is created with the first file in it.
        if let Some(data) = config.secrets_dir() {
            keys::create_private_dir(data)?;
            keys::warn_of_open_dir(data);
        }
        let chance = Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?);
        let keys = keyring(config, &chance);
        let backend = connect(&config.store, keys).await?;
        let archive = match &config.ledger {
            Some(ledger) => Some(connect(ledger, keys).await?.archive),
            None => None,
        };
        let clock: Arc<dyn Clock> = Arc::new(if config.store.is_shared() {
            SystemClock::start()
        } else {
            SystemClock::start_after(last_seen(&backend).await?)
        });
        backend.timing.follow(Arc::clone(&clock));
        let pingback = keys::pingback_secret(config, &chance)?;
        let (mut wanted, sim) = find_service(config, &clock, &chance).await?;
        if let (Some(ours), Some(secret)) = (&config.upstream.pingback, pingback.clone()) {
            wanted.pingback = Some(Pingback { base: ours.base(), secret });
        }
        let upstream =
            Upstream::new(wanted, Arc::clone(&clock)).map_err(Failure::of(Exit::Usage))?;
        let upstream = Arc::new(upstream);
        let webhooks = open_webhooks(config, &clock, &chance)?;
        // Reports a bad alert address at start instead of at the first alert. It may be temporary, so only a warning.
        if let Some(alerts) = config.alerts.as_ref().filter(|_| purpose != Purpose::Reading)
            && let Err(why) = webhooks.check(None, alerts.url.expose()).await
        {
            tracing::warn!(%why, "alerts disabled, check [alerts] url");
        }
        let mut settings = engine_config(config);
        settings.archive = archive;
        settings.keeps_pools = purpose == Purpose::Serving;
        settings.balance_every = (purpose == Purpose::Serving).then_some(BALANCE_EVERY);
        settings.place = place::of(config.listen).filter(|_| purpose == Purpose::Serving);
        if purpose == Purpose::Reading {
            settings.slots = Slots::Fixed(0);
            settings.drain_grace = Duration::ZERO;
        }
        let ports = Ports {
            store: backend.store,
            records: backend.records,
            notifier: backend.notifier,
            provider: Arc::clone(&upstream) as Arc<dyn Provider>,
            webhooks: Arc::clone(&webhooks) as Arc<dyn WebhookSender>,
            clock: Arc::clone(&clock),
            chance: Arc::clone(&chance) as Arc<dyn Chance>,
        };
        let engine =
            Engine::start(ports, settings).await.map_err(Failure::of(Exit::Unreachable))?;
        Ok(Self { engine, upstream, chance, webhooks, clock, pingback, sim })
    }

    /// The senders of the workers that have callbacks of their own, for [`Assembled::replace_webhooks`].
    pub fn webhooks_of(&self, config: &Config) -> Result<WorkerSenders, Failure> {
        worker_webhooks(config, &self.clock, &self.chance)
    }

    pub fn replace_webhooks(&self, senders: WorkerSenders) {
        self.webhooks.replace(senders);
    }

    /// Drains the engine and then stops the simulator, whose tasks the engine may be waiting for.
    pub async fn stop(self) {
        self.engine.drain().await;
        if let Some(sim) = self.sim {
            sim.stop().await;
        }
    }
}

/// The keys that secrets are encrypted with in the store.
pub fn keyring(config: &Config, chance: &Arc<SystemChance>) -> Option<&'static Keyring> {
    let (current, old) = config.encryption.as_ref()?;
    Some(Keyring::new(current, old.as_ref(), Arc::clone(chance) as Arc<dyn Chance>))
}

async fn connect(url: &StoreUrl, keys: Option<&'static Keyring>) -> Result<Backend, Failure> {
    if url.is_exposed() {
        tracing::warn!(store = %url, "connection to the store can be read on the network (insecure_store)");
    }
    let backend = stores::connect_sealed(url.expose(), keys).await.map_err(|error| {
        let is_in_use = matches!(error, stores::OpenError::InUse { .. });
        let hint = if is_in_use { USE_THE_RUNNING_ONE } else { "" };
        let is_wrong_key = matches!(error, stores::OpenError::Key { .. });
        let exit = if is_wrong_key { Exit::Usage } else { Exit::Unreachable };
        Failure::new(exit, format!("{error}{hint}"))
    })?;
    for Finding { weight, what, remedy } in &backend.findings {
        let remedy = remedy.as_deref().unwrap_or_default();
        match weight {
            Weight::Good => tracing::info!(finding = %what, "store checked"),
            Weight::Risky | Weight::Bad => {
                tracing::warn!(finding = %what, remedy, "store check found a problem");
            }
        }
    }
    Ok(backend)
}

/// The latest time recorded in the store.
async fn last_seen(backend: &Backend) -> Result<Timestamp, Failure> {
    let newest = ClaimFilter::all(Scope::All, 1);
    let page = backend.records.history(newest).await.map_err(Failure::of(Exit::Unreachable))?;
    let moments = page.items.iter().flat_map(|c| [Some(c.opened_at), c.ended_at, c.delivered_at]);
    Ok(moments.flatten().max().unwrap_or_default())
}

/// The address of the service; starts the simulator if that is the service.
pub async fn find_service(
    config: &Config,
    clock: &Arc<dyn Clock>,
    chance: &SystemChance,
) -> Result<(UpstreamConfig, Option<SimHandle>), Failure> {
    match &config.upstream.service {
        Service::Elsewhere { url, key } => Ok((UpstreamConfig::new(url, key.clone()), None)),
        Service::Simulator => {
            let mut settings = SimConfig::new(BehaviourConfig::new(chance.draw()));
            settings.clock = Arc::clone(clock);
            // The store goes on with its tasks after a restart, so the simulator must know them still.
            let data = config.secrets_dir().filter(|data| data.is_dir());
            settings.tasks_file = data.map(|data| data.join(SIMULATOR_TASKS));
            let sim = Sim::start(settings).await.map_err(Failure::of(Exit::Unreachable))?;
            let mut wanted = UpstreamConfig::new(sim.url(), Secret::new(chance.key()));
            wanted.priced = true;
            Ok((wanted, Some(sim)))
        }
    }
}

/// The sender of callbacks and alerts, with those of the workers that have callbacks of their own.
fn open_webhooks(
    config: &Config,
    clock: &Arc<dyn Clock>,
    chance: &SystemChance,
) -> Result<Arc<WebhooksByWorker>, Failure> {
    let webhooks = WebhooksByWorker::new(common_webhooks(config, clock, chance)?);
    webhooks.replace(worker_webhooks(config, clock, chance)?);
    Ok(Arc::new(webhooks))
}

/// The senders of the workers that have callbacks of their own.
fn worker_webhooks(
    config: &Config,
    clock: &Arc<dyn Clock>,
    chance: &SystemChance,
) -> Result<WorkerSenders, Failure> {
    let mut senders = BTreeMap::new();
    for worker in &config.workers {
        let Some(own) = &worker.callbacks else { continue };
        let common = || keys::callback_secret(config, chance);
        let (secret, previous) = match own.secret.clone() {
            Some((current, previous)) => (Some(current), previous),
            None => (common()?, config.callbacks.previous.clone()),
        };
        let refused = |what: &dyn fmt::Display| {
            Failure::new(Exit::Usage, format!("[[worker]] {} callbacks {what}", worker.name))
        };
        let secret = secret
            .ok_or_else(|| refused(&"secret: is missing, and there is none in [callbacks]"))?;
        let settings = WebhookConfig {
            previous,
            trusted: own.hosts.as_ref().unwrap_or(&config.callbacks.hosts).clone(),
            unlisted: UnlistedHosts::Only(None),
            ..WebhookConfig::new(secret)
        };
        let client = WebhookClient::new(settings, Arc::clone(clock));
        let client = client.map_err(|error| refused(&error))?;
        senders.insert(worker.name.clone(), Arc::new(client) as Arc<dyn WebhookSender>);
    }
    Ok(senders)
}

/// The sender of alerts, and of the callbacks of all other workers; without a secret there are none.
fn common_webhooks(
    config: &Config,
    clock: &Arc<dyn Clock>,
    chance: &SystemChance,
) -> Result<Arc<dyn WebhookSender>, Failure> {
    let Some(secret) = keys::callback_secret(config, chance)? else {
        return Ok(Arc::new(NoWebhooks));
    };
    let settings = WebhookConfig {
        previous: config.callbacks.previous.clone(),
        trusted: config.callbacks.hosts.clone(),
        unlisted: UnlistedHosts::Only(config.alerts.as_ref().map(|alerts| alerts.url.clone())),
        ..WebhookConfig::new(secret)
    };
    let client = WebhookClient::new(settings, Arc::clone(clock));
    let named = |error| Failure::new(Exit::Usage, format!("[callbacks] {error}"));
    Ok(Arc::new(client.map_err(named)?))
}

pub fn engine_config(config: &Config) -> EngineConfig {
    EngineConfig {
        declarations: Arc::new(config.declarations.clone()),
        retry: config.retry.clone(),
        polling: polling(config),
        batches: config.polling.batches,
        pools: config.pools.clone(),
        pingback: config.upstream.pingback.is_some(),
        slots: config.upstream.slots,
        priorities: priorities(&config.workers),
        most_queued: config.claims.max_queued,
        queue_limits: queue_limits(&config.workers),
        alerts: config.alerts.clone(),
        submits_per_second: config.upstream.submits_per_second,
        prices: prices(config),
        budgets: config.budgets(),
        token_lifetimes: config.lifetimes.clone(),
        deadline: config.claims.deadline,
        reuse_window: config.claims.reuse_window,
        failure_window: config.claims.failure_window,
        ambiguity_budget: config.claims.ambiguity_budget,
        drain_grace: DRAIN_GRACE,
        ..EngineConfig::default()
    }
}

/// The prices of one solve. The simulator's own count where the configuration names none, so that savings are shown and
/// budgets hold from the first run.
fn prices(config: &Config) -> PriceList {
    let mut prices = config.upstream.prices.clone();
    let is_open = prices.usual.is_none() && prices.plan.is_none();
    if config.upstream.service == Service::Simulator && is_open {
        for kind in Kind::known() {
            let price = simulator::pace::price(&kind);
            prices.kinds.entry(kind).or_insert(price);
        }
        let other = Kind::Other("other".into());
        prices.usual = Some(simulator::pace::price(&other));
    }
    prices
}

/// The polling schedule. The solve times of the simulator are known, so it does not have to learn them.
fn polling(config: &Config) -> Arc<Polling> {
    let polling = config.polling.schedule.start();
    match config.upstream.service {
        Service::Elsewhere { .. } => {}
        Service::Simulator => Kind::known().for_each(|kind| preload_schedule(&polling, kind)),
    }
    polling
}

/// Quantiles of the simulator's solve times at even probabilities, as fractions of the median.
const QUANTILES: [f64; 8] = [0.63, 0.77, 0.86, 0.95, 1.05, 1.16, 1.3, 1.58];

fn preload_schedule(polling: &Polling, kind: Kind) {
    let median = SolveTime::pleasant(&kind).median;
    let family = Family { kind, proxied: false };
    for fraction in QUANTILES {
        let by = median.mul_f64(fraction);
        polling.memory.learn(&family, Observation::Ready { after: by.mul_f64(0.9), by });
    }
}

pub fn door_worker(worker: &Worker) -> doors::Worker {
    doors::Worker {
        name: worker.name.clone(),
        keys: worker.keys.clone(),
        project: worker.project.clone(),
        projects: worker.projects.clone(),
        allowance: worker.budget,
        rate: worker.rate,
        poll_rate: Some(worker.poll_rate),
        read_rate: Some(worker.read_rate),
        balance: worker.balance,
        priority: worker.priority,
    }
}

pub fn door_admin(admin: &Admin) -> doors::Admin {
    let (name, role, keys) = (admin.name.clone(), admin.role, admin.keys.clone());
    doors::Admin { name, role, keys }
}

/// The most waiting solves of each worker.
pub fn queue_limits(workers: &[Worker]) -> BTreeMap<WorkerName, usize> {
    workers.iter().map(|worker| (worker.name.clone(), worker.queue)).collect()
}

/// The workers' shares of the slots.
pub fn priorities(workers: &[Worker]) -> BTreeMap<WorkerName, u32> {
    workers.iter().map(|worker| (worker.name.clone(), worker.priority)).collect()
}
