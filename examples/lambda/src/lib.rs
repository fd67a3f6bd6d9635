//! The v1 door as a Lambda function: one invocation serves one request, another makes a round of what is due. No process
//! stays and nothing sleeps until a task is over; the table alone remembers.
//!
//! - [`Function`]: what a container keeps between invocations, and the handler
//! - `event`: requests and answers as API Gateway and function URLs write them; [`WallClock`]: time for what is frozen

mod clock;
mod event;

use std::{sync::Arc, time::Duration};

use domain::{
    id::ClaimId,
    ports::{Clock, NoCourier, StoreError},
    time::Timestamp,
};
use doors::{Doors, DoorsConfig, Limits, Workers};
use engine::{Ports, Rounds, Tally};
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::{
    assemble::{door_worker, engine_config},
    chance::SystemChance,
    config::{Config, Service},
    exit::{Exit, Failure},
};
use upstream::{Upstream, UpstreamConfig};

pub use clock::WallClock;

use event::Event;

/// What a container keeps between invocations. None of it is needed: another container goes on from the table.
#[derive(Debug)]
pub struct Function {
    rounds: Rounds,
    doors: Doors,
    clock: Arc<dyn Clock>,
}

/// A submission that has begun ends within this time, its intent and its outcome included; none begins later.
const RESERVE: Duration = Duration::from_secs(25);

impl Function {
    /// Opens the table and finds the service, as the configuration names them. Nothing is leased.
    pub async fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let (url, key) = check(config)?;
        let backend =
            stores::connect(config.store.expose()).await.map_err(Failure::of(Exit::Unreachable))?;
        let provider = Upstream::new(UpstreamConfig::new(url, key), Arc::clone(&clock))
            .map_err(Failure::of(Exit::Usage))?;
        let ports = Ports {
            store: backend.store,
            records: backend.records,
            doorbell: backend.doorbell,
            provider: Arc::new(provider),
            clock: Arc::clone(&clock),
            chance: Arc::new(SystemChance::start().map_err(Failure::of(Exit::Failed))?),
            courier: Arc::new(NoCourier),
        };
        let rounds = Rounds::new(ports, engine_config(config));
        let workers = config.workers.iter().map(door_worker).collect::<Result<Vec<_>, _>>()?;
        let settings = DoorsConfig {
            workers: Workers::new(workers).map_err(Failure::of(Exit::Usage))?,
            // No invocation waits for an answer, whatever the caller prefers.
            limits: Limits { wait: Duration::ZERO, ..Limits::default() },
            ..DoorsConfig::default()
        };
        let doors = Doors::new(rounds.engine().clone(), settings);
        Ok(Self { rounds, doors, clock })
    }

    /// Serves one event. `deadline` is when the invocation is ended from outside.
    pub async fn handle(&mut self, event: Value, deadline: Timestamp) -> Result<Value, Failure> {
        let until = deadline.minus(RESERVE);
        if until <= self.clock.now() {
            let what = "there is no time to submit anything; give the function a timeout of 60 s";
            return Err(Failure::new(Exit::Usage, what));
        }
        match Event::read(event).map_err(Failure::of(Exit::Usage))? {
            Event::Request(request) => Ok(self.serve(*request, until).await),
            Event::Schedule => {
                let tally = self.rounds.everything(until).await;
                tally.map(told).map_err(Failure::of(Exit::Unreachable))
            }
        }
    }

    /// The door's answer. A claim that waits has its solve submitted before the answer leaves.
    async fn serve(&mut self, request: event::Request, until: Timestamp) -> Value {
        let answer = event::answer(doors::router(&self.doors), request).await;
        if let Some(claim) = waiting(&answer) {
            let result = self.rounds.submit(claim, until).await;
            note(claim, &result);
        }
        self.rounds.rest().await;
        answer.into_json()
    }
}

/// What wants a process that stays is refused rather than silently left out.
fn check(config: &Config) -> Result<(&str, domain::secret::Secret), Failure> {
    let refuse = |what: &str| Err(Failure::new(Exit::Usage, what));
    if !config.store.is_table() {
        return refuse(
            "the function needs a table: set DYNAMODB_TABLE, or [store] url = \"dynamodb:TABLE\"",
        );
    }
    if config.ledger.is_some() || config.alerts.is_some() || !config.pools.is_empty() {
        return refuse(
            "pools, alerts and [store] ledger need a gateway that stays: leave them out",
        );
    }
    if config.upstream.pingback.is_some() || config.callbacks.secret.is_some() {
        return refuse("pingbacks and callbacks need a gateway that stays: leave them out");
    }
    if config.workers.is_empty() {
        return refuse("nobody could call: name a [[worker]] and its key");
    }
    match &config.upstream.service {
        Service::Elsewhere { url, key } => Ok((url, key.clone())),
        Service::Simulator => {
            refuse("a simulator in the function would forget its tasks: set [upstream] url and key")
        }
    }
}

/// The claim an answer says is waiting.
fn waiting(answer: &event::Answer) -> Option<ClaimId> {
    if answer.status != StatusCode::ACCEPTED {
        return None;
    }
    let told: Value = serde_json::from_slice(&answer.body).ok()?;
    told.get("id")?.as_str()?.parse().ok()
}

/// The claim is durable: what could not be done now is done by the next round, and the caller is not told.
fn note(claim: ClaimId, result: &Result<Tally, StoreError>) {
    match result {
        Ok(tally) => tracing::info!(%claim, submitted = tally.submitted, "claim waits"),
        Err(error) => tracing::error!(%claim, %error, "not submitted yet; the next round does it"),
    }
}

fn told(tally: Tally) -> Value {
    let Tally { lapsed, leased, submitted, polled, over, unsure } = tally;
    tracing::info!(lapsed, leased, submitted, polled, over, unsure, "round made");
    json!({
        "lapsed": lapsed,
        "leased": leased,
        "submitted": submitted,
        "polled": polled,
        "over": over,
        "unsure": unsure,
    })
}
