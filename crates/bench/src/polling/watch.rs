//! The real engine at work before a service whose times are drawn: claims that come one by one, each with a challenge of
//! its own, and how long their tokens lay undetected. Read from the ledgers of both sides.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    challenge::Kind,
    id::{TaskId, WorkerName},
    ledger::Event,
    money::Money,
    time::Timestamp,
};
use engine::{EngineConfig, Outcome, Polling, Slots};
use simulator::{BehaviourConfig, Latency, ledger::Accepted};
use solvegate::exit::{Exit, Failure};

use crate::{
    challenges::{declared, on_page},
    load::as_f64,
    lognormal::LogNormal,
    requests::{ChallengeText, HOST},
    virtual_world::World,
};

use super::best::Achieved;

/// A gateway that is watched.
pub(super) struct Watch {
    world: World,
    worker: WorkerName,
    chance: fastrand::Rng,
    sent: usize,
}

/// How tasks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollMode {
    Single,
    Batch,
}

/// What was seen of some solves.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Per solve: polls, or calls where many are asked for in one; and the mean lag.
    pub(super) achieved: Achieved,
    pub(super) lag_p95: f64,
    /// How long each took the service, in seconds.
    pub(super) times: Vec<f64>,
}

/// When the watching began, and how often the service had been asked.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Timestamp,
    calls: u64,
}

/// What is solved.
pub(super) const KIND: Kind = Kind::Turnstile;
/// The best schedules know of no network.
const NEAR: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(2 * 3600);

// === impl Watch ===

impl Watch {
    /// A gateway with this schedule before a service with these times.
    pub(super) async fn start(
        truth: LogNormal,
        polling: Arc<dyn Polling>,
        mode: PollMode,
        seed: u64,
    ) -> Result<Self, Failure> {
        let mut service = BehaviourConfig::new(seed);
        service.solve_times.insert(KIND, truth.solve_time());
        let config = EngineConfig {
            sites: declared(&[HOST])?,
            polling,
            batches: mode == PollMode::Batch,
            slots: Slots::Fixed(1000),
            deadline: LONGEST,
            // Whose price is known are not asked for once more by themselves.
            prices: BTreeMap::from([(KIND, Money::from_micros(1000))]),
            ..EngineConfig::default()
        };
        let latency = Latency { least: NEAR, most: NEAR, ..Latency::default() };
        Ok(Self {
            world: World::start_at(service, config, latency).await?,
            worker: WorkerName::new("a").map_err(Failure::of(Exit::Failed))?,
            chance: fastrand::Rng::with_seed(!seed),
            sent: 0,
        })
    }

    /// So many claims, this far apart on average, until the last is served; what was seen of all of them.
    pub(super) async fn solve(&mut self, count: usize, apart: f64) -> Result<Watched, Failure> {
        let from = self.mark();
        self.claim(count, apart).await?;
        self.world.pass_until_idle(Duration::from_secs(10), LONGEST).await?;
        self.seen_since(from).await
    }

    /// So many claims, this far apart on average, after `warm` others; what was seen while they came.
    pub(super) async fn solve_while_more_come(
        &mut self,
        warm: usize,
        count: usize,
        apart: f64,
    ) -> Result<Watched, Failure> {
        self.claim(warm, apart).await?;
        let from = self.mark();
        self.claim(count, apart).await?;
        self.seen_since(from).await
    }

    async fn claim(&mut self, count: usize, apart: f64) -> Result<(), Failure> {
        for _ in 0..count {
            let gap = -apart * (1.0 - self.chance.f64()).ln();
            self.world.pass(Duration::from_secs_f64(gap)).await;
            self.sent += 1;
            let sitekey = format!("key-{}", self.sent);
            let challenge = on_page(KIND, sitekey, &ChallengeText::new().pageurl)?;
            let outcome = self.world.ask(&self.worker, self.sent, challenge).await?;
            if !matches!(outcome, Outcome::Waiting { .. }) {
                let why = "a challenge nobody asked for before has its answer already";
                return Err(Failure::new(Exit::Failed, why));
            }
        }
        Ok(())
    }

    fn mark(&self) -> Mark {
        let calls = self.world.account.with(|service| service.ledger().poll_calls);
        Mark { at: self.world.now(), calls }
    }

    async fn seen_since(&self, from: Mark) -> Result<Watched, Failure> {
        let calls = self.mark().calls - from.calls;
        let ledger = self.world.account.ledger();
        let tasks: BTreeMap<&TaskId, &Accepted> =
            ledger.accepted.iter().map(|task| (&task.task, task)).collect();
        let (mut lags, mut times) = (Vec::new(), Vec::new());
        for entry in self.world.entries().await?.iter().filter(|entry| entry.at >= from.at) {
            if let Event::Ready { task, .. } = &entry.event
                && let Some(task) = tasks.get(task)
                && let Some(ready_at) = task.ready_at
            {
                lags.push(entry.at.since(ready_at).as_secs_f64());
                times.push(ready_at.since(task.at).as_secs_f64());
            }
        }
        lags.sort_by(f64::total_cmp);
        let solves = as_f64(lags.len() as u64);
        let achieved =
            Achieved { polls: as_f64(calls) / solves, lag: lags.iter().sum::<f64>() / solves };
        let lag_p95 = lags.get(lags.len() * 19 / 20).copied().unwrap_or(f64::NAN);
        Ok(Watched { achieved, lag_p95, times })
    }
}
