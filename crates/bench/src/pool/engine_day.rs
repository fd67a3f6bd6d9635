//! A day of the real engine, with a pool or without, and its outcome from its ledger and the provider's.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    budget::Allowance,
    challenge::Kind,
    id::{ClaimId, Project, TaskId, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    pool::Level,
    time::Timestamp,
    token::{MIN_LEFT, TokenLifetime},
};
use engine::{EngineConfig, LearnedConfig, PoolWish, Slots};
use simulator::{BehaviourConfig, Ledger};
use solvegate::exit::{Exit, Failure};

use crate::{
    challenges::{challenge, declared},
    requests::HOST,
    virtual_gateway::VirtualGateway,
};

use super::{
    LIFE, LIFETIME, SOLVES,
    outcome::{DayOutcome, Served},
    workload::Workload,
};

struct Reader {
    start: Timestamp,
    outcome: DayOutcome,
    arrived: BTreeMap<ClaimId, Timestamp>,
    /// Tokens in stock, and until when they are handed out.
    stock: BTreeMap<TaskId, Timestamp>,
    /// Tokens of claims. Nobody fetches them here, so the ledger records them as wasted too.
    allotted: BTreeSet<TaskId>,
    /// The time at which the site stops accepting each.
    expires: BTreeMap<TaskId, Timestamp>,
}

const KIND: Kind = Kind::Turnstile;
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// More than any demand here needs.
const MOST: u32 = 200;
const SLOTS: usize = 500;
/// After the last claim, until it is served.
const TAIL: Duration = Duration::from_secs(600);

/// Runs a day with an `auto` pool, or without a pool.
pub(super) async fn play(
    work: &Workload,
    has_pool: bool,
    seed: u64,
) -> Result<DayOutcome, Failure> {
    let mut service = BehaviourConfig::new(seed);
    service.solve_times.insert(KIND, SOLVES.solve_time());
    let gateway = VirtualGateway::start(service, config(has_pool)?).await?;
    let worker = WorkerName::new("a").map_err(Failure::of(Exit::Failed))?;
    let start = gateway.now();
    for (number, at) in work.arrivals.iter().enumerate() {
        let at = start.plus(Duration::from_secs_f64(*at));
        gateway.pass(at.since(gateway.now())).await;
        gateway.claim(&worker, number, challenge()?).await?;
    }
    let end = start.plus(Duration::from_secs_f64(work.counted.end)).plus(TAIL);
    gateway.pass(end.since(gateway.now())).await;
    let service = gateway.account.ledger();
    Ok(Reader::new(start, &service).read(&gateway.entries().await?, end))
}

fn config(has_pool: bool) -> Result<EngineConfig, Failure> {
    let wish = PoolWish {
        challenge: challenge()?,
        project: Project::new("pool").map_err(Failure::of(Exit::Failed))?,
        level: Level::Auto,
        most: MOST,
        waste: 100,
        budget: Allowance::default(),
    };
    let lifetime = Duration::from_secs_f64(LIFETIME);
    let margin = lifetime.saturating_sub(Duration::from_secs_f64(LIFE) + MIN_LEFT);
    let life = TokenLifetime::new(lifetime, margin).map_err(Failure::of(Exit::Failed))?;
    Ok(EngineConfig {
        declarations: declared(&[HOST])?,
        polling: LearnedConfig::default().into(),
        slots: Slots::Fixed(SLOTS),
        token_lifetimes: BTreeMap::from([(KIND, life)]),
        // A known price avoids the additional poll that asks for it.
        prices: BTreeMap::from([(KIND, Money::from_micros(1000))]).into(),
        deadline: LONGEST,
        pools: if has_pool { vec![wish] } else { Vec::new() },
        ..EngineConfig::default()
    })
}

// === impl Reader ===

impl Reader {
    fn new(start: Timestamp, service: &Ledger) -> Self {
        let lifetime = Duration::from_secs_f64(LIFETIME);
        let tasks = service.accepted.iter();
        let expires = tasks
            .clone()
            .filter_map(|task| Some((task.task.clone(), task.ready_at?.plus(lifetime))));
        let bought = tasks.clone().map(|task| task.at.since(start).as_secs_f64()).collect();
        Self {
            start,
            outcome: DayOutcome { bought, ..DayOutcome::default() },
            arrived: BTreeMap::new(),
            stock: BTreeMap::new(),
            allotted: BTreeSet::new(),
            expires: expires.collect(),
        }
    }

    fn read(mut self, entries: &[Entry], end: Timestamp) -> DayOutcome {
        for entry in entries {
            if let Some(claim) = entry.claim {
                self.arrived.entry(claim).or_insert(entry.at);
            }
            if let Event::Banked { task, usable_until } = &entry.event {
                self.stock.insert(task.clone(), *usable_until);
            } else if let Event::Wasted { task } = &entry.event
                && !self.allotted.contains(task)
            {
                // The sweep records it later; the token expired when it could no longer be handed out.
                let died = self.stock.remove(task).map_or(entry.at, last_moment);
                self.died(died.min(entry.at));
            } else if let Event::Allotted { task, .. } = &entry.event
                && let Some(claim) = entry.claim
            {
                self.stock.remove(task);
                self.allotted.insert(task.clone());
                self.hand_over(claim, task, entry.at);
            }
        }
        let left: Vec<Timestamp> = self.stock.values().copied().map(last_moment).collect();
        left.into_iter().filter(|died| *died < end).for_each(|died| self.died(died));
        self.outcome
    }

    fn died(&mut self, at: Timestamp) {
        self.outcome.died.push(at.since(self.start).as_secs_f64());
    }

    fn hand_over(&mut self, claim: ClaimId, task: &TaskId, at: Timestamp) {
        let seconds = |at: Timestamp| at.since(self.start).as_secs_f64();
        // A token without a task at the provider would be worthless.
        let expires = self.expires.get(task).map_or(f64::NEG_INFINITY, |at| seconds(*at));
        let arrived = self.arrived.get(&claim).map_or(f64::NAN, |at| seconds(*at));
        let at = seconds(at);
        self.outcome.served.push(Served { arrived, at, left: expires - at });
    }
}

fn last_moment(usable_until: Timestamp) -> Timestamp {
    usable_until.minus(MIN_LEFT)
}
