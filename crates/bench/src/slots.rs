//! `bench slots`, in virtual time: how long slots are idle while claims wait, how they are shared, and how often the
//! provider refuses for lack of one. One of four workers sends nine claims of ten. Every round is a run with its own
//! seed.

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
    late_worker,
    load::as_f64,
    report::{Bar, Figure, Report},
    requests::HOST,
    slot_usage::{Level, SlotUsage, Span},
    virtual_gateway::{VirtualGateway, in_virtual_time},
};

#[derive(Clone, Copy, Debug)]
struct SlotScenario {
    name: &'static str,
    /// The provider reports a single number; several follow one another unreported and must be learned.
    threads: &'static [u32],
    /// Solve times like those of real providers; otherwise every task takes eight seconds.
    is_realistic: bool,
}

/// The results of one run. Shares are in percent.
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

/// The time during which the provider had one number of threads.
#[derive(Debug)]
struct Phase {
    span: Span,
    threads: u32,
    /// The gateway's estimate at the end.
    believed: u32,
    idle: f64,
}

/// The first one is greedy.
const WORKERS: [&str; 4] = ["greedy", "a", "b", "c"];
const CLAIMS: usize = 500;
/// Enough that some still wait in the last minute.
const CLAIMS_OF_CHANGING: usize = 1200;
const SOLVE_TIME: Duration = Duration::from_secs(8);
const PHASE: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(2 * 3600);

const SCENARIOS: [SlotScenario; 4] = [
    SlotScenario { name: "5 threads, reported", threads: &[5], is_realistic: false },
    SlotScenario { name: "5 threads, reported, real times", threads: &[5], is_realistic: true },
    SlotScenario { name: "5-2-8 threads, learned", threads: &[5, 2, 8], is_realistic: false },
    SlotScenario {
        name: "5-2-8 threads, learned, real times",
        threads: &[5, 2, 8],
        is_realistic: true,
    },
];

const IDLE: Bar = Bar::AtMost { bar: 0.5, stretch: 0.1 };
/// Two threads become eight, and nobody says so.
const IDLE_LEARNED: Bar = Bar::AtMost { bar: 3.0, stretch: 1.0 };
/// In percent of a fair share.
const UNFAIR: Bar = Bar::AtMost { bar: 10.0, stretch: 5.0 };
const THREADS: Bar = Bar::AtMost { bar: 5.0, stretch: 5.0 };
const NONE: Bar = Bar::AtMost { bar: 0.0, stretch: 0.0 };
/// The provider bans after 120 a minute.
const REFUSALS: Bar = Bar::AtMost { bar: 119.0, stretch: 20.0 };

pub(crate) async fn run(rounds: RunOptions) -> Result<Report, Failure> {
    let mut report = Report::begin("slots", rounds).without_load();
    for scenario in SCENARIOS {
        let mut results = Vec::new();
        for seed in 1..=u64::from(rounds.rounds) {
            results.push(in_virtual_time(async move || scenario.play(seed).await).await?);
        }
        scenario.add_to(&mut report, &results);
    }
    late_worker::add_to(&mut report, rounds).await?;
    report.note(
        "virtual time: the figures depend on the seeds 1, 2, ... and not on the machine; only while claims wait",
    );
    report.note(
        "slots idle: the share of the threads without an attempt of ours, from intent to settling; the service's are idle \
         too from the end of a task until a poll finds it and the next one arrives",
    );
    Ok(report.end())
}

// === impl SlotScenario ===

impl SlotScenario {
    async fn play(self, seed: u64) -> Result<SlotResults, Failure> {
        let config = EngineConfig {
            declarations: declared(&[HOST])?,
            slots: Slots::Auto,
            deadline: LONGEST,
            ..EngineConfig::default()
        };
        let gateway = VirtualGateway::start(self.service(seed), config).await?;
        self.claim_all(&gateway).await?;
        let mut phases = Vec::new();
        for threads in self.threads.iter().copied() {
            let from = gateway.now();
            gateway.account.with(|service| service.set_threads(Some(threads)));
            if self.reports_threads() {
                gateway.pass_until_idle(Duration::from_secs(10), LONGEST).await?;
            } else {
                gateway.pass(PHASE).await;
            }
            let span = Span { from, to: gateway.now() };
            let believed = gateway.engine.threads().total;
            phases.push(Phase { span, threads, believed, idle: f64::NAN });
        }
        SlotResults::read(&gateway, phases).await
    }

    /// All workers claim at once. The greedy worker comes first: in a plain queue the others would wait for all its
    /// claims.
    async fn claim_all(self, gateway: &VirtualGateway) -> Result<(), Failure> {
        let [greedy, others @ ..] = workers()?;
        let of_greedy = self.claims() / 10 * 9;
        for number in 0..self.claims() {
            let worker = match number.checked_sub(of_greedy) {
                None => &greedy,
                Some(turn) => &others[turn % others.len()],
            };
            gateway.claim_and_wait(worker, number).await?;
        }
        Ok(())
    }

    fn reports_threads(self) -> bool {
        self.threads.len() == 1
    }

    fn claims(self) -> usize {
        if self.reports_threads() { CLAIMS } else { CLAIMS_OF_CHANGING }
    }

    fn service(self, seed: u64) -> BehaviourConfig {
        let service = BehaviourConfig {
            threads: self.threads.first().copied(),
            // This provider reports its threads.
            captchaai: self.reports_threads(),
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
        let idle = if self.reports_threads() { IDLE } else { IDLE_LEARNED };
        report.add(figure("slots idle", "%", &|run| run.idle).held_to(idle));
        report.add(figure("the service's threads idle", "%", &|run| run.idle_at_service));
        report.add(figure("furthest from a fair share", "%", &SlotResults::unfair).held_to(UNFAIR));
        for (n, worker) in WORKERS.iter().enumerate() {
            report.add(figure(&format!("share of {worker}"), "%", &|run| run.shares[n]));
        }
        let refusals = figure("refusals", "", &|run| as_f64(run.refusals as u64));
        report.add(if self.reports_threads() { refusals.held_to(NONE) } else { refusals });
        let worst =
            figure("refusals in the worst minute", "", &|run| as_f64(run.worst_minute as u64));
        report.add(if self.reports_threads() { worst } else { worst.held_to(REFUSALS) });
        let most = figure("most tasks at once", "", &|run| as_f64(run.most_at_once.unsigned_abs()));
        report.add(if self.reports_threads() { most.held_to(THREADS) } else { most });
        report.add(figure("claims served", "", &|run| as_f64(run.served as u64)));
        for (n, threads) in self.threads.iter().enumerate() {
            if !self.reports_threads() {
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
    async fn read(gateway: &VirtualGateway, mut phases: Vec<Phase>) -> Result<Self, Failure> {
        let entries = gateway.entries().await?;
        let turns = SlotUsage::of(&entries, gateway.now());
        let start = phases.first().map_or_else(|| gateway.now(), |phase| phase.span.from);
        let waiting = Span { from: start, to: turns.last.unwrap_or(start) };
        let all_wait = turns.while_all_wait(start);
        let mut threads = Level::default();
        for phase in &phases {
            threads.set(phase.span.from, phase.threads);
        }
        let (used, at_work) = (turns.level(), Level::at_work(&gateway.account.ledger()));
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

    /// The largest deviation of a worker from its fair share, in percent of it.
    fn unfair(&self) -> f64 {
        let fair = 100.0 / as_f64(WORKERS.len() as u64);
        let off = self.shares.iter().map(|share| (share - fair).abs() / fair);
        100.0 * off.fold(0.0, f64::max)
    }
}
