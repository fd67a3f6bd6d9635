//! A gateway in virtual time: the real engine on the memory store, the simulator in process, and a clock that jumps to
//! the next event. Hours pass in a moment, and nothing depends on the load of the machine. For `slots`, `polling` and
//! `pool`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{
    challenge::Challenge,
    claim::{Allowance, Door},
    id::{Project, WorkerName},
    ledger::Entry,
    ports::{Chance, Clock, NoWebhooks, Scope},
    time::Timestamp,
};
use engine::{ClaimRequest, Engine, EngineConfig, Outcome, Ports};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use simulator::{Account, BehaviourConfig, Latency, SimProvider, VirtualClock};
use solvegate::{
    commands::progress::Progress,
    exit::{Exit, Failure},
};

use crate::challenges::challenge;

/// A gateway, its provider, and their clock.
#[derive(Debug)]
pub(crate) struct VirtualGateway {
    pub(crate) engine: Engine,
    /// The provider's account: its ledger, and settings that can change during a run.
    pub(crate) account: Account,
}

/// Randomness from a seed: equal seeds give equal runs.
#[derive(Debug)]
struct SeededChance(Mutex<fastrand::Rng>);

/// Runs a future in virtual time, on its own thread, because this thread's time is real.
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

/// Runs a future for every seed 1, 2, ..., on all cores, and returns the results in the order of the seeds.
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
    let runs = stream::iter(1..=u64::from(seeds)).map(|seed| in_virtual_time(live(seed)));
    runs.buffered(cores).inspect(|_| progress.add(1)).try_collect().await
}

// === impl VirtualGateway ===

impl VirtualGateway {
    /// Starts a gateway and its provider. Call it in virtual time. The provider's seed also seeds the gateway.
    pub(crate) async fn start(
        service: BehaviourConfig,
        config: EngineConfig,
    ) -> Result<Self, Failure> {
        Self::start_at(service, config, Latency::default()).await
    }

    /// Like [`Self::start`], with this latency to the provider.
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
            notifier: backend.notifier,
            provider: Arc::new(provider),
            clock,
            chance: Arc::new(chance),
            webhooks: Arc::new(NoWebhooks),
        };
        let engine = Engine::start(ports, config).await.map_err(Failure::of(Exit::Failed))?;
        Ok(Self { engine, account })
    }

    /// A claim that must wait; each number is a different claim.
    pub(crate) async fn claim_and_wait(
        &self,
        worker: &WorkerName,
        number: usize,
    ) -> Result<(), Failure> {
        let outcome = self.claim(worker, number, challenge()?).await?;
        if matches!(outcome, Outcome::Waiting { .. }) {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failed,
            "a new claim was answered at once, so there is nothing to measure",
        ))
    }

    /// A claim that may be served at once; each number is a different claim.
    pub(crate) async fn claim(
        &self,
        worker: &WorkerName,
        number: usize,
        challenge: Challenge,
    ) -> Result<Outcome, Failure> {
        let request = ClaimRequest {
            worker: worker.clone(),
            project: Project::new("bench").map_err(Failure::of(Exit::Failed))?,
            door: Door::V1,
            challenge,
            key: Some(format!("{number:016}")),
            fresh: false,
            deadline: None,
            allowance: Allowance::default(),
            collect: true,
            callback_url: None,
            address: None,
        };
        Ok(self.engine.claim(request).await.map_err(Failure::of(Exit::Failed))?.outcome)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }

    pub(crate) async fn pass(&self, length: Duration) {
        self.engine.clock().sleep_until(self.now().plus(length)).await;
    }

    /// Lets time pass in steps until no solve is active, up to a limit.
    pub(crate) async fn pass_until_idle(
        &self,
        step: Duration,
        most: Duration,
    ) -> Result<(), Failure> {
        let given_up = self.now().plus(most);
        while self.is_busy().await? {
            if self.now() > given_up {
                let why =
                    format!("solves are still active after {} s of virtual time", most.as_secs());
                return Err(Failure::new(Exit::Timeout, why));
            }
            self.pass(step).await;
        }
        Ok(())
    }

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
