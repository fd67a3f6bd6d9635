//! The v1 API as a Lambda function: one invocation serves one request, a scheduled one runs a round of everything that
//! is due. No process stays, no invocation waits for a task, and all state is in the table.
//!
//! - [`Function`]: the state of a container between invocations, and the handler
//! - `event`: requests and answers of API Gateway and function URLs; [`WallClock`]: time in a container that may be frozen

mod clock;
mod event;

use std::{sync::Arc, time::Duration};

use domain::{
    id::ClaimId,
    ports::{Clock, NoWebhooks, StoreError},
    time::Timestamp,
};
use doors::{Doors, DoorsConfig, Limits, Workers};
use engine::{Ports, RoundReport, ServerlessDriver};
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::{
    assemble::{door_worker, engine_config, keyring},
    chance::SystemChance,
    config::{Config, Service},
    exit::{Exit, Failure},
};
use upstream::{Upstream, UpstreamConfig};

pub use clock::WallClock;

use event::Event;

/// The state of a container between invocations. It is only a cache: another container continues from the table.
#[derive(Debug)]
pub struct Function {
    rounds: ServerlessDriver,
    doors: Doors,
    clock: Arc<dyn Clock>,
}

/// A submission takes at most this long, including its intent and its outcome, so none begins later.
const RESERVE: Duration = Duration::from_secs(25);

impl Function {
    /// Opens the table and connects to the provider of the configuration. Nothing is leased.
    pub async fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let (url, key) = check(config)?;
        let chance = Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?);
        let keys = keyring(config, &chance);
        let backend = stores::connect_sealed(config.store.expose(), keys)
            .await
            .map_err(Failure::of(Exit::Unreachable))?;
        let provider = Upstream::new(UpstreamConfig::new(url, key), Arc::clone(&clock))
            .map_err(Failure::of(Exit::Usage))?;
        let ports = Ports {
            store: backend.store,
            records: backend.records,
            notifier: backend.notifier,
            provider: Arc::new(provider),
            clock: Arc::clone(&clock),
            chance,
            webhooks: Arc::new(NoWebhooks),
        };
        let rounds = ServerlessDriver::new(ports, engine_config(config));
        let workers = config.workers.iter().map(door_worker).collect();
        let settings = DoorsConfig {
            workers: Workers::new(workers).map_err(Failure::of(Exit::Usage))?,
            // No invocation waits for an answer, whatever the caller prefers.
            limits: Limits { wait: Duration::ZERO, ..Limits::default() },
            ..DoorsConfig::default()
        };
        let doors = Doors::new(rounds.engine().clone(), settings);
        Ok(Self { rounds, doors, clock })
    }

    /// Serves one event. Lambda ends the invocation at `deadline`.
    pub async fn handle(&mut self, event: Value, deadline: Timestamp) -> Result<Value, Failure> {
        let until = deadline.minus(RESERVE);
        if until <= self.clock.now() {
            let what = "there is no time to submit anything; give the function a timeout of 60 s";
            return Err(Failure::new(Exit::Usage, what));
        }
        match Event::read(event).map_err(Failure::of(Exit::Usage))? {
            Event::Request(request) => Ok(self.serve(*request, until).await),
            Event::Schedule => {
                let tally = self.rounds.run_all(until).await;
                tally.map(round_report).map_err(Failure::of(Exit::Unreachable))
            }
        }
    }

    /// Answers a request. The solve of a waiting claim is submitted before the answer leaves.
    async fn serve(&mut self, request: event::Request, until: Timestamp) -> Value {
        let answer = event::answer(doors::router(&self.doors), request).await;
        if let Some(claim) = waiting(&answer) {
            let result = self.rounds.submit(claim, until).await;
            note(claim, &result);
        }
        self.rounds.finish().await;
        answer.into_json()
    }
}

/// Refuses settings that need a long-running process, instead of ignoring them.
fn check(config: &Config) -> Result<(&str, domain::secret::Secret), Failure> {
    let refuse = |what: &str| Err(Failure::new(Exit::Usage, what));
    if !config.store.is_table() {
        return refuse(
            "the function needs a table: set DYNAMODB_TABLE, or [store] url = \"dynamodb:TABLE\"",
        );
    }
    if config.ledger.is_some() || config.alerts.is_some() || !config.pools.is_empty() {
        return refuse("pools, alerts and [store] ledger need a long-running gateway: remove them");
    }
    if config.upstream.pingback.is_some() || config.callbacks.secret.is_some() {
        return refuse("pingbacks and callbacks need a long-running gateway: remove them");
    }
    if config.workers.is_empty() {
        return refuse("no worker can call the function: add a [[worker]] with its key");
    }
    match &config.upstream.service {
        Service::Elsewhere { url, key } => Ok((url, key.clone())),
        Service::Simulator => {
            refuse("a simulator in the function would lose its tasks: set [upstream] url and key")
        }
    }
}

/// The claim in an answer, if it waits.
fn waiting(answer: &event::Answer) -> Option<ClaimId> {
    if answer.status != StatusCode::ACCEPTED {
        return None;
    }
    let claim: Value = serde_json::from_slice(&answer.body).ok()?;
    claim.get("id")?.as_str()?.parse().ok()
}

/// The claim is durable: the next round retries, so the caller does not learn of the failure.
fn note(claim: ClaimId, result: &Result<RoundReport, StoreError>) {
    match result {
        Ok(tally) => tracing::info!(%claim, submitted = tally.submitted, "admitted claim"),
        Err(error) => tracing::error!(%claim, %error, "failed to submit, retrying next round"),
    }
}

fn round_report(tally: RoundReport) -> Value {
    let RoundReport { lapsed, leased, submitted, polled, over, unsure } = tally;
    tracing::info!(lapsed, leased, submitted, polled, over, unsure, "finished round");
    json!({
        "lapsed": lapsed,
        "leased": leased,
        "submitted": submitted,
        "polled": polled,
        "over": over,
        "unsure": unsure,
    })
}
