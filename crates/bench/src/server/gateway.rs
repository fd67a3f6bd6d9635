//! The measured gateway: the real HTTP layer with authentication, sites and ledger, the real engine, the real stores.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    claim::{Allowance, Door},
    id::{Project, WorkerName},
    ports::{Chance, Clock, NoWebhooks, Notifier, Provider, Records, Store},
};
use doors::{Doors, DoorsConfig, KeyDigest, Limits, ServeConfig, Worker, Workers};
use engine::{ClaimRequest, Engine, EngineConfig, FixedPolling, Ports, Slots};
use simulator::{Account, BehaviourConfig, Latency, SimProvider};
use solvegate::{
    chance::SystemChance,
    clock::SystemClock,
    exit::{Exit, Failure},
};
use stores::{Backend, LocalNotifier, StoreAdapter};
use tokio::net::TcpListener;

use crate::{
    challenges::{challenge, declared},
    requests::HOST,
    vitals::StoreCounts,
};

use super::{
    GatewayArgs, Hello, MeasuredServer, ProviderKind, never_ready::NeverReadyProvider, stock,
    take_commands,
};

/// The ports of a store, and its counters if it has any.
struct Opened {
    store: Arc<dyn Store>,
    records: Arc<dyn Records>,
    notifier: Arc<dyn Notifier>,
    embedded: Option<Arc<StoreAdapter>>,
}

struct Gateway {
    engine: Engine,
    embedded: Option<Arc<StoreAdapter>>,
}

/// Longer than any bench, so that no claim lapses while it is measured.
const DEADLINE: Duration = Duration::from_secs(3600);
/// All callers come from one address.
const CONNECTIONS: usize = 10_000;
const WORKER: &str = "bench";

/// Serves until stdin ends.
pub(super) async fn run(listener: TcpListener, args: &GatewayArgs) -> Result<(), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let chance = Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?);
    let opened = open(args).await?;
    // Before the engine starts, because its driver would lease the solves that fill the stock.
    stock::fill(&*opened.store, &*clock, &*chance, args.stock).await?;
    let ports = Ports {
        store: opened.store,
        records: opened.records,
        notifier: opened.notifier,
        provider: provider(args.provider, &clock),
        webhooks: Arc::new(NoWebhooks),
        clock,
        chance: Arc::clone(&chance) as Arc<dyn Chance>,
    };
    let settings = engine_config(args.provider)?;
    let engine = Engine::start(ports, settings).await.map_err(Failure::of(Exit::Failed))?;
    let limits = Limits {
        connections: CONNECTIONS,
        connections_per_address: CONNECTIONS,
        ..Limits::default()
    };
    let hello = Hello { address: listener.local_addr()?, key: chance.key() };
    let workers = Workers::new(vec![worker(&hello.key)?]).map_err(Failure::of(Exit::Failed))?;
    let config = DoorsConfig { workers, limits, ..DoorsConfig::default() };
    let router = doors::router(&Doors::new(engine.clone(), config));
    let gateway = Gateway { engine, embedded: opened.embedded };
    let serving = doors::serve(
        listener,
        router,
        ServeConfig { tls: None, limits },
        std::future::pending::<()>(),
    );
    tokio::select! {
        () = serving => Ok(()),
        ended = take_commands(&hello, &gateway) => ended,
    }
}

async fn open(args: &GatewayArgs) -> Result<Opened, Failure> {
    let unreachable = Failure::of(Exit::Unreachable);
    if let Some(url) = &args.store {
        let backend = stores::connect(url).await.map_err(unreachable)?;
        let Backend { store, records, notifier, .. } = backend;
        return Ok(Opened { store, records, notifier, embedded: None });
    }
    let notifier = Arc::new(LocalNotifier::new());
    let Some(data) = &args.data else {
        let store = Arc::new(StoreAdapter::in_memory());
        return Ok(Opened { store: store.clone(), records: store, notifier, embedded: None });
    };
    let store = Arc::new(StoreAdapter::embedded(data).map_err(unreachable)?);
    Ok(Opened { store: store.clone(), records: store.clone(), notifier, embedded: Some(store) })
}

fn provider(behind: ProviderKind, clock: &Arc<dyn Clock>) -> Arc<dyn Provider> {
    if behind != ProviderKind::Fast {
        return Arc::new(NeverReadyProvider::default());
    }
    let behaviour = BehaviourConfig::new(1).solving_in(Duration::from_millis(1));
    let latency = Latency { least: Duration::ZERO, most: Duration::ZERO, ..Latency::default() };
    Arc::new(SimProvider::new(Account::new(behaviour), Arc::clone(clock), latency))
}

fn engine_config(behind: ProviderKind) -> Result<EngineConfig, Failure> {
    let (slots, poll_every) = match behind {
        ProviderKind::Nothing => (0, DEADLINE),
        ProviderKind::Fast => (100_000, Duration::from_millis(1)),
        ProviderKind::NeverReady => (1_000_000, DEADLINE),
    };
    let polling =
        FixedPolling { first: poll_every, interval: poll_every, min_gap: poll_every, most: 20 };
    Ok(EngineConfig {
        declarations: declared(&[HOST])?,
        polling: polling.into(),
        slots: Slots::Fixed(slots),
        submits_per_second: 1_000_000,
        prices: BTreeMap::from([(Kind::Turnstile, simulator::pace::price(&Kind::Turnstile))])
            .into(),
        deadline: DEADLINE,
        // With no slots everything queues, so that admission alone is measured.
        most_queued: usize::MAX,
        ..EngineConfig::default()
    })
}

fn worker(key: &str) -> Result<Worker, Failure> {
    Ok(Worker {
        name: worker_name()?,
        keys: vec![KeyDigest::of(key).map_err(Failure::of(Exit::Failed))?.into()],
        project: project()?,
        projects: Vec::new(),
        allowance: Allowance::default(),
        rate: None,
        poll_rate: None,
        read_rate: None,
        balance: true,
        priority: 1,
    })
}

/// The worker of every bench.
pub(crate) fn worker_name() -> Result<WorkerName, Failure> {
    WorkerName::new(WORKER).map_err(Failure::of(Exit::Failed))
}

/// The project of every bench.
pub(crate) fn project() -> Result<Project, Failure> {
    Project::new(WORKER).map_err(Failure::of(Exit::Failed))
}

// === impl Gateway ===

impl Gateway {
    fn claim_request(number: usize) -> Result<ClaimRequest, Failure> {
        Ok(ClaimRequest {
            worker: worker_name()?,
            project: project()?,
            door: Door::V1,
            challenge: challenge()?,
            key: Some(format!("{number:016}")),
            fresh: false,
            deadline: None,
            allowance: Allowance::default(),
            collect: true,
            callback_url: None,
            address: None,
        })
    }
}

impl MeasuredServer for Gateway {
    fn counts(&self) -> StoreCounts {
        self.embedded.as_ref().map_or_else(StoreCounts::default, |store| StoreCounts {
            fsyncs: store.counters().fsyncs,
            commits: store.counters().commits,
            decisions: store.counters().decisions,
        })
    }

    async fn hold_solves(&self, count: usize) -> Result<(), Failure> {
        for number in 0..count {
            let claimed = self.engine.claim(Self::claim_request(number)?).await;
            claimed.map_err(Failure::of(Exit::Failed))?;
        }
        let clock = self.engine.clock();
        let given_up = clock.now().plus(Duration::from_secs(120));
        while self.engine.health().in_flight < count {
            if clock.now() > given_up {
                return Err(Failure::new(Exit::Timeout, "the solves were not submitted in time"));
            }
            clock.sleep_until(clock.now().plus(Duration::from_millis(20))).await;
        }
        Ok(())
    }
}
