//! A gateway in virtual time: the real engine on the memory store, the simulator in process, and a clock that jumps to
//! whatever is due next. Hours pass in a moment, and nothing depends on how busy the machine is. For `slots`, `polling`
//! and `pool`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{
    challenge::Challenge,
    claim::{Allowance, Door},
    id::{Project, WorkerName},
    ledger::Entry,
    ports::{Chance, Clock, NoCourier, Scope},
    time::Timestamp,
};
use engine::{Ask, Engine, EngineConfig, Outcome, Ports};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use simulator::{Account, BehaviourConfig, Latency, SimProvider, VirtualClock};
use solvegate::{
    commands::progress::Progress,
    exit::{Exit, Failure},
};

use crate::challenges::challenge;

/// A gateway, the service behind it and the time of both.
#[derive(Debug)]
pub(crate) struct World {
    /// The gateway.
    pub(crate) engine: Engine,
    /// The service's side: its own ledger, and what can be changed on the way.
    pub(crate) account: Account,
}

/// Chance from a seed: equal seeds, equal runs.
#[derive(Debug)]
struct SeededChance(Mutex<fastrand::Rng>);

/// Lives in virtual time, on a thread of its own: this one's time is real.
pub(crate) async fn in_virtual_time<T: Send + 'static>(
    live: impl AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let living = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime?.block_on(live())
    });
    living.await.map_err(Failure::of(Exit::Failed))?
}

/// Lives once for every seed 1, 2, ..., as many at a time as there are cores. In the order of the seeds.
pub(crate) async fn for_each_seed<T, L>(
    seeds: u32,
    progress: &Progress,
    live: impl Fn(u64) -> L,
) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    L: AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
{
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lives = stream::iter(1..=u64::from(seeds)).map(|seed| in_virtual_time(live(seed)));
    lives.buffered(cores).inspect(|_| progress.add(1)).try_collect().await
}

// === impl World ===

impl World {
    /// Starts a gateway before a service. To be called in virtual time; the service's seed is everybody's.
    pub(crate) async fn start(
        service: BehaviourConfig,
        config: EngineConfig,
    ) -> Result<Self, Failure> {
        Self::start_at(service, config, Latency::default()).await
    }

    /// The same, with the service so far away.
    pub(crate) async fn start_at(
        service: BehaviourConfig,
        config: EngineConfig,
        latency: Latency,
    ) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> =
            Arc::new(VirtualClock::new(tokio::time::Instant::now(), Duration::ZERO));
        let chance = SeededChance(Mutex::new(fastrand::Rng::with_seed(service.seed)));
        let account = Account::new(service);
        let backend = stores::open("memory:").map_err(Failure::of(Exit::Failed))?;
        let provider = SimProvider::new(account.clone(), Arc::clone(&clock), latency);
        let ports = Ports {
            store: backend.store,
            records: backend.records,
            doorbell: backend.doorbell,
            provider: Arc::new(provider),
            clock,
            chance: Arc::new(chance),
            courier: Arc::new(NoCourier),
        };
        let engine = Engine::start(ports, config).await.map_err(Failure::of(Exit::Failed))?;
        Ok(Self { engine, account })
    }

    /// A worker claims and has to wait; the number makes it a claim of its own.
    pub(crate) async fn claim(&self, worker: &WorkerName, number: usize) -> Result<(), Failure> {
        let outcome = self.ask(worker, number, challenge()?).await?;
        if matches!(outcome, Outcome::Waiting { .. }) {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failed,
            "a new claim has its answer already: nothing can be measured",
        ))
    }

    /// A worker claims and may be served at once; the number makes it a claim of its own.
    pub(crate) async fn ask(
        &self,
        worker: &WorkerName,
        number: usize,
        challenge: Challenge,
    ) -> Result<Outcome, Failure> {
        let ask = Ask {
            worker: worker.clone(),
            project: Project::new("bench").map_err(Failure::of(Exit::Failed))?,
            door: Door::V1,
            challenge,
            key: Some(format!("{number:016}")),
            fresh: false,
            deadline: None,
            allowance: Allowance::default(),
            narrowing: None,
            collect: true,
            callback_url: None,
        };
        Ok(self.engine.claim(ask).await.map_err(Failure::of(Exit::Failed))?.outcome)
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }

    /// Time passes.
    pub(crate) async fn pass(&self, length: Duration) {
        self.engine.clock().sleep_until(self.now().plus(length)).await;
    }

    /// Time passes until nothing is under way any more, in steps, for at most so long.
    pub(crate) async fn pass_until_idle(
        &self,
        step: Duration,
        most: Duration,
    ) -> Result<(), Failure> {
        let given_up = self.now().plus(most);
        while self.is_busy().await? {
            if self.now() > given_up {
                let why = format!(
                    "solves are still under way after {} s of virtual time",
                    most.as_secs()
                );
                return Err(Failure::new(Exit::Timeout, why));
            }
            self.pass(step).await;
        }
        Ok(())
    }

    /// The gateway's ledger.
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let entries = self.engine.records().entries(0, usize::MAX).await;
        entries.map_err(Failure::of(Exit::Failed))
    }

    async fn is_busy(&self) -> Result<bool, Failure> {
        let active = self.engine.records().active(Scope::All, 1).await;
        Ok(!active.map_err(Failure::of(Exit::Failed))?.is_empty())
    }
}

impl Chance for SeededChance {
    fn draw(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }
}
