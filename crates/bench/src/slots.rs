//! `bench slots`, in virtual time: how long slots are idle while claims wait, who gets them, and how often the service
//! has none. One of four workers sends nine claims of ten. Every round is a run with a seed of its own.

use std::time::Duration;

use domain::{
    id::{BadName, WorkerName},
    ledger::{Entry, Event},
};
use engine::{EngineConfig, Slots};
use simulator::BehaviourConfig;
use solvegate::exit::{Exit, Failure};

use crate::{
    challenges::declared,
    cli::RunOptions,
    load::as_f64,
    report::{Bar, Figure, Report},
    requests::HOST,
    slot_usage::{Level, SlotUsage, Span},
    virtual_world::{World, in_virtual_time},
};

/// A run.
#[derive(Clone, Copy, Debug)]
struct SlotScenario {
    name: &'static str,
    /// One number is told by the service and stays; several follow one another and are to be found out.
    threads: &'static [u32],
    /// Times as they have been seen at real services; otherwise every task takes eight seconds.
    is_realistic: bool,
}

/// What came of one run. Parts are in percent.
#[derive(Debug)]
struct SlotResults {
    idle: f64,
    idle_at_service: f64,
    /// In the order of [`WORKERS`].
    shares: [f64; 4],
    refusals: usize,
    worst_minute: usize,
    most_at_once: i64,
    served: usize,
    /// One for each number of threads.
    phases: Vec<Phase>,
}

/// While the service had one number of threads.
#[derive(Debug)]
struct Phase {
    span: Span,
    threads: u32,
    /// What the gateway took them for at the end.
    believed: u32,
    idle: f64,
}

/// The first one is greedy.
const WORKERS: [&str; 4] = ["greedy", "a", "b", "c"];
const CLAIMS: usize = 500;
/// Enough that some wait until the last minute of changing threads.
const CLAIMS_OF_CHANGING: usize = 1200;
const SOLVE_TIME: Duration = Duration::from_secs(8);
/// How long a number of threads stays.
const PHASE: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(2 * 3600);

const SCENARIOS: [SlotScenario; 4] = [
    SlotScenario { name: "5 threads, told", threads: &[5], is_realistic: false },
    SlotScenario { name: "5 threads, told, real times", threads: &[5], is_realistic: true },
    SlotScenario { name: "5-2-8 threads, learned", threads: &[5, 2, 8], is_realistic: false },
    SlotScenario {
        name: "5-2-8 threads, learned, real times",
        threads: &[5, 2, 8],
        is_realistic: true,
    },
];

const IDLE: Bar = Bar::AtMost { bar: 2.0, stretch: 0.5 };
/// Of a fair share.
const UNFAIR: Bar = Bar::AtMost { bar: 10.0, stretch: 5.0 };
const THREADS: Bar = Bar::AtMost { bar: 5.0, stretch: 5.0 };
const NONE: Bar = Bar::AtMost { bar: 0.0, stretch: 0.0 };
/// The service bans for 120 a minute.
const REFUSALS: Bar = Bar::AtMost { bar: 119.0, stretch: 20.0 };

/// Runs it.
pub(crate) async fn run(rounds: RunOptions) -> Result<Report, Failure> {
    let mut report = Report::begin("slots", rounds).without_load();
    for scenario in SCENARIOS {
        let mut results = Vec::new();
        for seed in 1..=u64::from(rounds.rounds) {
            results.push(in_virtual_time(async move || scenario.play(seed).await).await?);
        }
        scenario.add_to(&mut report, &results);
    }
    report.note(
        "virtual time: the figures depend on the seeds 1, 2, ... and not on the machine; only while claims wait",
    );
    report.note(
        "slots idle: of the threads there are, those we have no attempt out for, from intent to settling; the service's \
         are idle too from the end of a task until the polling schedule asks for it and the next one arrives",
    );
    Ok(report.end())
}

// === impl SlotScenario ===

impl SlotScenario {
    async fn play(self, seed: u64) -> Result<SlotResults, Failure> {
        let config = EngineConfig {
            sites: declared(&[HOST])?,
            slots: Slots::Auto,
            deadline: LONGEST,
            ..EngineConfig::default()
        };
        let world = World::start(self.service(seed), config).await?;
        self.claim_all(&world).await?;
        let mut phases = Vec::new();
        for threads in self.threads.iter().copied() {
            let from = world.now();
            world.account.with(|service| service.set_threads(Some(threads)));
            if self.is_told() {
                world.pass_until_idle(Duration::from_secs(10), LONGEST).await?;
            } else {
                world.pass(PHASE).await;
            }
            let span = Span { from, to: world.now() };
            let believed = world.engine.threads().total;
            phases.push(Phase { span, threads, believed, idle: f64::NAN });
        }
        SlotResults::read(&world, phases).await
    }

    /// Everybody claims at once. The greedy one's come first: in a plain queue the others would wait for all of them.
    async fn claim_all(self, world: &World) -> Result<(), Failure> {
        let [greedy, others @ ..] = workers()?;
        let of_greedy = self.claims() / 10 * 9;
        for number in 0..self.claims() {
            let worker = match number.checked_sub(of_greedy) {
                None => &greedy,
                Some(turn) => &others[turn % others.len()],
            };
            world.claim(worker, number).await?;
        }
        Ok(())
    }

    fn is_told(self) -> bool {
        self.threads.len() == 1
    }

    fn claims(self) -> usize {
        if self.is_told() { CLAIMS } else { CLAIMS_OF_CHANGING }
    }

    fn service(self, seed: u64) -> BehaviourConfig {
        let service = BehaviourConfig {
            threads: self.threads.first().copied(),
            // Those tell their threads.
            captchaai: self.is_told(),
            bans: true,
            realistic: self.is_realistic,
            ..BehaviourConfig::new(seed)
        };
        if self.is_realistic { service } else { service.solving_in(SOLVE_TIME) }
    }

    fn add_to(self, report: &mut Report, results: &[SlotResults]) {
        let figure = |what: &str, unit, of: &dyn Fn(&SlotResults) -> f64| {
            Figure::new(format!("{}: {what}", self.name), unit, results.iter().map(of))
        };
        report.add(figure("slots idle", "%", &|run| run.idle).held_to(IDLE));
        report.add(figure("the service's threads idle", "%", &|run| run.idle_at_service));
        report.add(figure("furthest from a fair share", "%", &SlotResults::unfair).held_to(UNFAIR));
        for (n, worker) in WORKERS.iter().enumerate() {
            report.add(figure(&format!("share of {worker}"), "%", &|run| run.shares[n]));
        }
        let refusals = figure("refusals", "", &|run| as_f64(run.refusals as u64));
        report.add(if self.is_told() { refusals.held_to(NONE) } else { refusals });
        let worst =
            figure("refusals in the worst minute", "", &|run| as_f64(run.worst_minute as u64));
        report.add(if self.is_told() { worst } else { worst.held_to(REFUSALS) });
        let most = figure("most tasks at once", "", &|run| as_f64(run.most_at_once.unsigned_abs()));
        report.add(if self.is_told() { most.held_to(THREADS) } else { most });
        report.add(figure("claims served", "", &|run| as_f64(run.served as u64)));
        for (n, threads) in self.threads.iter().enumerate() {
            if !self.is_told() {
                let idle = format!("with {threads} threads: slots idle");
                report.add(figure(&idle, "%", &|run| run.phases[n].idle));
            }
            let believed = format!("with {threads} threads: believed at the end");
            report.add(figure(&believed, "", &|run| f64::from(run.phases[n].believed)));
        }
    }
}

fn workers() -> Result<[WorkerName; 4], Failure> {
    let [greedy, a, b, c] = WORKERS.map(WorkerName::new);
    let name = |name: Result<WorkerName, BadName>| name.map_err(Failure::of(Exit::Failed));
    Ok([name(greedy)?, name(a)?, name(b)?, name(c)?])
}

// === impl SlotResults ===

impl SlotResults {
    async fn read(world: &World, mut phases: Vec<Phase>) -> Result<Self, Failure> {
        let entries = world.entries().await?;
        let turns = SlotUsage::of(&entries, world.now());
        let start = phases.first().map_or_else(|| world.now(), |phase| phase.span.from);
        let waiting = Span { from: start, to: turns.last.unwrap_or(start) };
        let all_wait = turns.while_all_wait(start);
        let mut threads = Level::default();
        for phase in &phases {
            threads.set(phase.span.from, phase.threads);
        }
        let (used, at_work) = (turns.level(), Level::at_work(&world.account.ledger()));
        for phase in &mut phases {
            phase.idle = 100.0 * Level::idle(&threads, &used, phase.span.within(waiting));
        }
        let served = |entry: &&Entry| matches!(entry.event, Event::Allotted { .. });
        Ok(Self {
            idle: 100.0 * Level::idle(&threads, &used, waiting),
            idle_at_service: 100.0 * Level::idle(&threads, &at_work, waiting),
            shares: workers()?.map(|worker| 100.0 * turns.share(&worker, all_wait)),
            refusals: turns.refused.len(),
            worst_minute: turns.worst_minute(),
            most_at_once: at_work.most(),
            served: entries.iter().filter(served).count(),
            phases,
        })
    }

    /// How far the worker that is worst off, or best, is from its fair share, in percent of it.
    fn unfair(&self) -> f64 {
        let fair = 100.0 / as_f64(WORKERS.len() as u64);
        let off = self.shares.iter().map(|share| (share - fair).abs() / fair);
        100.0 * off.fold(0.0, f64::max)
    }
}
