//! Wires the ports: configuration in, running engine out. The only place that knows every crate.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    claim::Allowance,
    id::WorkerName,
    ports::{Archive, Chance, ClaimFilter, Clock, Courier, NoCourier, Provider, Scope},
    secret::Secret,
    time::Timestamp,
};
use doors::KeyDigest;
use engine::{Engine, EngineConfig, Family, Polling, Ports, Seen, Slots};
use simulator::{BehaviourConfig, Sim, SimConfig, SimHandle, pace::SolveTime};
use stores::{Backend, Finding, Weight};
use upstream::{Hooks, HooksConfig, Pingback, Upstream, UpstreamConfig};

use crate::{
    chance::SystemChance,
    clock::SystemClock,
    config::{Alerts, Config, Service, StoreUrl, Worker},
    exit::{Exit, Failure},
    keys,
};

/// A running engine and what it stands on.
#[derive(Debug)]
pub struct Assembled {
    /// The machine.
    pub engine: Engine,
    /// Where keys come from too.
    pub chance: Arc<SystemChance>,
    /// What pingbacks are proved with, when the service calls back.
    pub pingback: Option<Secret>,
    /// The simulator, when it is the upstream. Dropped, it stops.
    sim: Option<SimHandle>,
}

/// What an engine is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To serve whoever comes, and to keep pools for them.
    Serving,
    /// To solve for one caller.
    Solving,
    /// To read records: nothing is submitted.
    Reading,
}

/// Paid tasks may finish for so long when stopping; the doors take the rest of the 25 s.
const DRAIN_GRACE: Duration = Duration::from_secs(20);

const ASK_THE_OTHER: &str =
    "; is it a gateway? Then ask that one: --server http://127.0.0.1:8402 --key file:PATH";

// === impl Assembled ===

impl Assembled {
    /// Opens the store, starts or finds the service, starts the engine.
    pub async fn start(config: &Config, purpose: Purpose) -> Result<Self, Failure> {
        let backend = open_store(config).await?;
        let archive = open_ledger(config).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start_after(last_seen(&backend).await?));
        let chance = Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?);
        let pingback = keys::pingback_secret(config, &chance)?;
        let (mut wanted, sim) = find_service(config, &clock, &chance).await?;
        if let (Some(ours), Some(secret)) = (&config.upstream.pingback, pingback.clone()) {
            wanted.pingback = Some(Pingback { base: ours.base(), secret });
        }
        let provider =
            Upstream::new(wanted, Arc::clone(&clock)).map_err(Failure::of(Exit::Usage))?;
        let provider: Arc<dyn Provider> = Arc::new(provider);
        let courier = open_courier(config, &clock, &chance)?;
        if let Some(alerts) = config.alerts.as_ref().filter(|_| purpose != Purpose::Reading) {
            check_alerts(&*courier, alerts).await;
        }
        let mut settings = engine_config(config);
        settings.archive = archive;
        settings.keeps_pools = purpose == Purpose::Serving;
        if purpose == Purpose::Reading {
            settings.slots = Slots::Fixed(0);
            settings.drain_grace = Duration::ZERO;
        }
        let ports = Ports {
            store: backend.store,
            records: backend.records,
            doorbell: backend.doorbell,
            provider,
            courier,
            clock,
            chance: Arc::clone(&chance) as Arc<dyn Chance>,
        };
        let engine =
            Engine::start(ports, settings).await.map_err(Failure::of(Exit::Unreachable))?;
        Ok(Self { engine, chance, pingback, sim })
    }

    /// Drains the engine, then stops the simulator, whose tasks the engine may still have waited for.
    pub async fn stop(self) {
        self.engine.drain().await;
        if let Some(sim) = self.sim {
            sim.stop().await;
        }
    }
}

async fn open_store(config: &Config) -> Result<Backend, Failure> {
    // What lies on a server needs no directory; then it is made with the first file in it.
    if let Some(data) = config.data.as_deref().filter(|_| !config.store.is_shared()) {
        keys::make_private(data)?;
    }
    connect(&config.store).await
}

/// Where history is kept, if not in the store.
async fn open_ledger(config: &Config) -> Result<Option<Arc<dyn Archive>>, Failure> {
    match &config.ledger {
        Some(ledger) => Ok(Some(connect(ledger).await?.archive)),
        None => Ok(None),
    }
}

async fn connect(url: &StoreUrl) -> Result<Backend, Failure> {
    let backend = stores::connect(url.expose()).await.map_err(|error| {
        let is_in_use = matches!(error, stores::OpenError::InUse { .. });
        let way_out = if is_in_use { ASK_THE_OTHER } else { "" };
        Failure::new(Exit::Unreachable, format!("{error}{way_out}"))
    })?;
    tell(&backend.findings);
    Ok(backend)
}

/// Says what was seen of the store's server.
fn tell(findings: &[Finding]) {
    for Finding { weight, what, remedy } in findings {
        let remedy = remedy.as_deref().unwrap_or_default();
        match weight {
            Weight::Good => {}
            Weight::Risky | Weight::Bad => tracing::warn!(remedy, "store: {what}"),
        }
    }
    let good = findings.iter().filter(|finding| finding.weight == Weight::Good);
    let good: Vec<_> = good.map(|finding| &*finding.what).collect();
    if !good.is_empty() {
        tracing::info!("store: {}", good.join("; "));
    }
}

/// The latest moment the store knows of.
async fn last_seen(backend: &Backend) -> Result<Timestamp, Failure> {
    let newest = ClaimFilter::all(Scope::All, 1);
    let page = backend.records.history(newest).await.map_err(Failure::of(Exit::Unreachable))?;
    let moments = page.items.iter().flat_map(|c| [Some(c.opened_at), c.ended_at, c.delivered_at]);
    Ok(moments.flatten().max().unwrap_or_default())
}

/// The service, started here if it is the simulator.
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
            let sim = Sim::start(settings).await.map_err(Failure::of(Exit::Unreachable))?;
            let mut wanted = UpstreamConfig::new(sim.url(), Secret::new(chance.key()));
            wanted.priced = true;
            Ok((wanted, Some(sim)))
        }
    }
}

/// Who tells callbacks and alerts; nobody, when there is no secret to sign them with.
fn open_courier(
    config: &Config,
    clock: &Arc<dyn Clock>,
    chance: &SystemChance,
) -> Result<Arc<dyn Courier>, Failure> {
    let Some(secret) = keys::callback_secret(config, chance)? else {
        return Ok(Arc::new(NoCourier));
    };
    let wanted =
        HooksConfig { trusted: config.callbacks.hosts.clone(), ..HooksConfig::new(secret) };
    let hooks = Hooks::new(wanted, Arc::clone(clock)).map_err(Failure::of(Exit::Usage))?;
    Ok(Arc::new(hooks))
}

/// An address that cannot be told is noticed at start rather than at the first trouble. It may only be away for now.
async fn check_alerts(courier: &dyn Courier, alerts: &Alerts) {
    if let Err(why) = courier.check(alerts.url.expose()).await {
        tracing::warn!(%why, "alerts disabled, check [alerts] url");
    }
}

/// What the engine is told of it all.
pub fn engine_config(config: &Config) -> EngineConfig {
    let prices = match (&config.upstream.service, config.upstream.prices.is_empty()) {
        // The simulator's own list, so that savings have a price from the first try.
        (Service::Simulator, true) => {
            Kind::known().map(|kind| (kind.clone(), simulator::pace::price(&kind))).collect()
        }
        (Service::Simulator | Service::Elsewhere { .. }, _) => config.upstream.prices.clone(),
    };
    EngineConfig {
        sites: config.declarations.sites(),
        retry: config.retry.clone(),
        polling: polling(config),
        batches: config.polling.batches,
        pools: config.pools.clone(),
        pingback: config.upstream.pingback.is_some(),
        slots: config.upstream.slots,
        priorities: priorities(&config.workers),
        alerts: alerts(config),
        submits_per_second: config.upstream.submits_per_second,
        prices,
        shelf_lives: BTreeMap::clone(&config.shelf_lives),
        deadline: config.claims.deadline,
        reuse_window: config.claims.reuse_window,
        ambiguity_budget: config.claims.ambiguity_budget,
        drain_grace: DRAIN_GRACE,
        ..EngineConfig::default()
    }
}

/// The schedule. How long the simulator takes is known, as its prices are: a first try is as quick as a later one.
fn polling(config: &Config) -> Arc<dyn Polling> {
    let polling = config.polling.schedule.start();
    match config.upstream.service {
        Service::Elsewhere { .. } => {}
        Service::Simulator => Kind::known().for_each(|kind| teach(&*polling, kind)),
    }
    polling
}

/// Fractions of the median at evenly spread chances, as the simulator's spread has them.
const USUAL_TIMES: [f64; 8] = [0.63, 0.77, 0.86, 0.95, 1.05, 1.16, 1.3, 1.58];

fn teach(polling: &dyn Polling, kind: Kind) {
    let median = SolveTime::pleasant(&kind).median;
    let family = Family { kind, proxied: false };
    for fraction in USUAL_TIMES {
        let by = median.mul_f64(fraction);
        polling.learn(&family, Seen::Ready { after: by.mul_f64(0.9), by });
    }
}

/// A configured worker as the doors know it.
pub fn door_worker(worker: &Worker) -> Result<doors::Worker, Failure> {
    Ok(doors::Worker {
        name: worker.name.clone(),
        key: key_digest(&worker.key)?,
        project: worker.project.clone(),
        allowance: worker.allowance(),
        rate: worker.rate,
        narrowing: worker.sites.clone().map(Into::into),
        priority: worker.priority,
    })
}

/// What the doors compare a key with.
pub fn key_digest(key: &Secret) -> Result<KeyDigest, Failure> {
    KeyDigest::of(key.expose()).map_err(Failure::of(Exit::Usage))
}

/// The workers' shares of the slots.
pub fn priorities(workers: &[Worker]) -> BTreeMap<WorkerName, u32> {
    workers.iter().map(|worker| (worker.name.clone(), worker.priority)).collect()
}

/// The workers' budgets, for alerts.
pub fn allowances(workers: &[Worker]) -> BTreeMap<WorkerName, Allowance> {
    workers.iter().map(|worker| (worker.name.clone(), worker.allowance())).collect()
}

fn alerts(config: &Config) -> Option<engine::Alerts> {
    let alerts = config.alerts.as_ref()?;
    Some(engine::Alerts {
        url: alerts.url.clone(),
        dead_letters: alerts.dead_letters,
        cooldown: alerts.cooldown,
        allowances: allowances(&config.workers),
    })
}
