//! The real engine with a provider whose solve times are random: claims arrive one by one, each with its own challenge,
//! and the ledgers of both sides show how long ready tokens waited for a poll.

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
    virtual_gateway::VirtualGateway,
};

use super::best::Achieved;

pub(super) struct Watch {
    gateway: VirtualGateway,
    worker: WorkerName,
    chance: fastrand::Rng,
    sent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollMode {
    Single,
    Batch,
}

/// Observations of some solves.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// Per solve: polls, or calls with batch polls; and the mean lag.
    pub(super) achieved: Achieved,
    pub(super) lag_p95: f64,
    /// The provider's solve times, in seconds.
    pub(super) times: Vec<f64>,
}

/// The start of an observation, and the number of polls until then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Timestamp,
    calls: u64,
}

pub(super) const KIND: Kind = Kind::Turnstile;
/// The optimal schedules assume no network latency.
const NEAR: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(2 * 3600);

// === impl Watch ===

impl Watch {
    /// A gateway with this schedule and a provider with these solve times.
    pub(super) async fn start(
        truth: LogNormal,
        polling: Arc<Polling>,
        mode: PollMode,
        seed: u64,
    ) -> Result<Self, Failure> {
        let mut service = BehaviourConfig::new(seed);
        service.solve_times.insert(KIND, truth.solve_time());
        let config = EngineConfig {
            declarations: declared(&[HOST])?,
            polling,
            batches: mode == PollMode::Batch,
            slots: Slots::Fixed(1000),
            deadline: LONGEST,
            // A known price avoids the additional poll that asks for it.
            prices: BTreeMap::from([(KIND, Money::from_micros(1000))]).into(),
            ..EngineConfig::default()
        };
        let latency = Latency { least: NEAR, most: NEAR, ..Latency::default() };
        Ok(Self {
            gateway: VirtualGateway::start_at(service, config, latency).await?,
            worker: WorkerName::new("a").map_err(Failure::of(Exit::Failed))?,
            chance: fastrand::Rng::with_seed(!seed),
            sent: 0,
        })
    }

    /// Observes `count` claims, `apart` seconds apart on average, until the last is served.
    pub(super) async fn solve(&mut self, count: usize, apart: f64) -> Result<Observed, Failure> {
        let from = self.mark();
        self.claim(count, apart).await?;
        self.gateway.pass_until_idle(Duration::from_secs(10), LONGEST).await?;
        self.seen_since(from).await
    }

    /// Observes `count` claims, `apart` seconds apart on average, after `warm` others.
    pub(super) async fn solve_while_more_come(
        &mut self,
        warm: usize,
        count: usize,
        apart: f64,
    ) -> Result<Observed, Failure> {
        self.claim(warm, apart).await?;
        let from = self.mark();
        self.claim(count, apart).await?;
        self.seen_since(from).await
    }

    async fn claim(&mut self, count: usize, apart: f64) -> Result<(), Failure> {
        for _ in 0..count {
            let gap = -apart * (1.0 - self.chance.f64()).ln();
            self.gateway.pass(Duration::from_secs_f64(gap)).await;
            self.sent += 1;
            let sitekey = format!("key-{}", self.sent);
            let challenge = on_page(KIND, sitekey, &ChallengeText::new().pageurl)?;
            let outcome = self.gateway.claim(&self.worker, self.sent, challenge).await?;
            if !matches!(outcome, Outcome::Waiting { .. }) {
                let why = "a new challenge was answered at once";
                return Err(Failure::new(Exit::Failed, why));
            }
        }
        Ok(())
    }

    fn mark(&self) -> Mark {
        let calls = self.gateway.account.with(|service| service.ledger().poll_calls);
        Mark { at: self.gateway.now(), calls }
    }

    async fn seen_since(&self, from: Mark) -> Result<Observed, Failure> {
        let calls = self.mark().calls - from.calls;
        let ledger = self.gateway.account.ledger();
        let tasks: BTreeMap<&TaskId, &Accepted> =
            ledger.accepted.iter().map(|task| (&task.task, task)).collect();
        let (mut lags, mut times) = (Vec::new(), Vec::new());
        for entry in self.gateway.entries().await?.iter().filter(|entry| entry.at >= from.at) {
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
        Ok(Observed { achieved, lag_p95, times })
    }
}
