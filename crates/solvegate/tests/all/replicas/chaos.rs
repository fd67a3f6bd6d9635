//! Everything at once: three gateways under load while gateways are killed, stopped, cut off and given wrong clocks, their
//! requests and replies are lost, late or refused, and the store's server is killed. One seed decides what happens; it is
//! printed, and `SOLVEGATE_RANDOM_SEED` repeats it. The judge is the simulator's ledger.

mod servers;
mod trouble;

use std::{
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::{
    charges::every_charge_is_explained,
    clocks::{clock_library, shifted_clock},
    fleet::{Fleet, GATEWAYS},
    judge::{every_solve_ends, every_task_is_priced, judge},
    load::{Load, Manner},
    now,
};
use crate::support::{Settings, pause};
use servers::{Server, Site};
use trouble::{Deck, Kind, Trouble};

/// Claims at once, as far as the machine can. Whoever waits longer for a reply than `hangs_up_after` asks another gateway.
const MANNER: Manner = Manner {
    at_once: 250,
    deadline_s: 300,
    hangs_up_after: Duration::from_secs(8),
    asks_again: Some(4),
};
const CLAIMS_A_SECOND: usize = 30;

/// Claims in one run: 1,000, and 20,000 with `SOLVEGATE_LONG`.
fn claims() -> usize {
    if std::env::var_os("SOLVEGATE_LONG").is_some() { 20_000 } else { 1_000 }
}

fn seed() -> u64 {
    let chosen = std::env::var_os("SOLVEGATE_RANDOM_SEED");
    let chosen = chosen.map(|text| text.to_str().and_then(|text| text.parse().ok()));
    chosen.map_or_else(|| RandomState::new().hash_one(()), |seed| seed.expect("it is a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos_on_redis_costs_nothing_that_the_ledger_does_not_explain() {
    survived("Redis", Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos_on_postgres_costs_nothing_that_the_ledger_does_not_explain() {
    survived("PostgreSQL", Server::postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos_on_dynamodb_costs_nothing_that_the_ledger_does_not_explain() {
    survived("DynamoDB", Server::dynamodb()).await;
}

async fn survived(name: &str, server: Server) {
    let (seed, claims) = (seed(), claims());
    println!("{name}: {claims} claims, troubles drawn from seed {seed}");
    let site = Site::open(server, seed).await;
    let url = site.url();
    let settings = Settings { poll_ms: 250, ..Settings::default() };
    let fleet = Fleet::with_each(site.urls(), &["--solve-time", "700ms"], settings);
    // Slow replies, so that submissions are under way when their gateway dies, and lost ones.
    let slow = json!({ "on": "submit", "fault": { "trickle": 900 }, "rate": 0.15 });
    let lost = json!({ "on": "submit", "fault": "drop", "accepted": true, "rate": 0.01 });
    for fault in [lost, slow] {
        fleet.sim.fault(fault).await;
    }
    let over = Duration::from_secs(u64::try_from(claims / CLAIMS_A_SECOND).unwrap());
    let load = Load::start_as(MANNER, &fleet.doors, claims, over);
    let mut run = Run::new(fleet, site);
    let troubles = run.trouble(&load, over, seed).await;
    println!("{name}: {troubles} troubles in {:?}", run.began.elapsed());
    let outcomes = load.outcomes().await;
    let store = stores::connect(&url).await.unwrap();
    every_solve_ends(&store).await;
    every_task_is_priced(&store).await;
    println!("{name}: over after {:?}", run.began.elapsed());
    let paid = run.fleet.sim.ledger().await;
    judge(&store, &paid, &outcomes, claims).await.hold(&outcomes);
    every_charge_is_explained(&*store.records, &paid, &outcomes).await;
    store_tests::check(&*store.records).await;
}

/// A run with its troubles.
struct Run {
    fleet: Fleet,
    site: Site,
    began: Instant,
    /// Troubles, and when they end.
    under_way: Vec<(Instant, Trouble)>,
    library: PathBuf,
    _dir: TempDir,
}

// === impl Run ===

impl Run {
    fn new(fleet: Fleet, site: Site) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = clock_library(dir.path());
        Self { fleet, site, began: now(), under_way: Vec::new(), library, _dir: dir }
    }

    /// One trouble after the other while workers begin, then ends all. Returns how many there were. On a busy machine the
    /// last workers begin later, and undisturbed.
    async fn trouble(&mut self, load: &Load, over: Duration, seed: u64) -> usize {
        let mut deck = Deck::new(seed, self.site.can_throttle());
        let mut count = 0;
        while load.waits_to_begin() && self.began.elapsed() < over {
            let gap = deck.gap();
            self.pass(now() + gap).await;
            let free = self.free();
            if free.is_empty() {
                continue;
            }
            self.begin(deck.next(&free)).await;
            count += 1;
        }
        for (_, trouble) in std::mem::take(&mut self.under_way) {
            self.end(trouble).await;
        }
        count
    }

    /// The gateways without trouble. One of them always has none, so that the load goes on.
    fn free(&self) -> Vec<usize> {
        let is_free =
            |gateway: &usize| self.under_way.iter().all(|(_, trouble)| trouble.gateway != *gateway);
        let free: Vec<usize> = (0..GATEWAYS).filter(is_free).collect();
        if free.len() > 1 { free } else { Vec::new() }
    }

    /// Waits until then, and ends the troubles that end meanwhile.
    async fn pass(&mut self, until: Instant) {
        loop {
            let next = (0..self.under_way.len()).min_by_key(|at| self.under_way[*at].0);
            let Some(at) = next.filter(|at| self.under_way[*at].0 <= until) else { break };
            let (end, trouble) = self.under_way.swap_remove(at);
            pause(end.saturating_duration_since(now())).await;
            self.end(trouble).await;
        }
        pause(until.saturating_duration_since(now())).await;
    }

    async fn begin(&mut self, trouble: Trouble) {
        println!("{:>7.1?} {trouble:?}", self.began.elapsed());
        let Trouble { gateway, lasts, kind } = trouble;
        let way = self.site.way(gateway);
        match kind {
            Kind::Killed { .. } => self.fleet.kill(gateway),
            Kind::Stopped => self.fleet.gateway(gateway).process.signal(Signal::STOP),
            Kind::CutOff => way.wire.cut(),
            Kind::Unheard => way.wire.drop_answers(),
            Kind::Late { by } => way.wire.delay(by),
            Kind::CutInRequest { after } => way.wire.cut_after_request(after),
            Kind::Throttled { percent } => way.throttle(percent),
            Kind::ServerDown => return self.site.restart_server(lasts).await,
            Kind::LosesReplies { after, times } => {
                for _ in 0..times {
                    way.wire.lose_answer(after);
                    pause(lasts / times).await;
                }
                return way.heal();
            }
        }
        self.under_way.push((now() + lasts, trouble));
    }

    async fn end(&mut self, trouble: Trouble) {
        let Trouble { gateway, kind, .. } = trouble;
        match kind {
            Kind::Killed { clock_ms } => {
                let environment = shifted_clock(&self.library, clock_ms);
                self.fleet.restart_with(gateway, environment).await;
            }
            Kind::Stopped => self.fleet.gateway(gateway).process.signal(Signal::CONT),
            Kind::CutOff | Kind::Unheard | Kind::Late { .. } | Kind::CutInRequest { .. } => {
                self.site.way(gateway).heal();
            }
            Kind::Throttled { .. } => self.site.way(gateway).heal(),
            Kind::LosesReplies { .. } | Kind::ServerDown => {}
        }
    }
}
