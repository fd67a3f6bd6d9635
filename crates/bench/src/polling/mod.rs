//! `bench polling`, in virtual time: how long tokens are ready before a poll finds them, and how many polls that takes,
//! with the learned schedule, a fixed one of 5 s, and the optimum. Every round is a run with its own seed.
//!
//! `best`: the optimal schedules, from the true distribution; `watch`: the engine at work

mod best;
mod watch;

use std::sync::Arc;

use clap::Args;
use engine::{Family, FixedPolling, LearnedConfig, Polling};
use solvegate::{commands::progress::Progress, exit::Failure};

use self::{
    best::{Best, Schedule},
    watch::{KIND, Observed, PollMode, Watch},
};
use crate::{
    cli::RunOptions,
    load::as_f64,
    lognormal::LogNormal,
    report::{Bar, Figure, Grid, Report},
    virtual_gateway::for_each_seed,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PollingArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// Number of solves measured in each run, after those it learns from
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    pub(crate) solves: u32,
}

/// One distribution of solve times, with one seed.
#[derive(Clone, Debug)]
struct Trial {
    truth: LogNormal,
    best: Arc<Best>,
    /// The optimal schedules once the provider has become slower.
    best_slower: Arc<Best>,
    /// The price of a poll at which the optimal schedule polls as often as the fixed one.
    price: f64,
    solves: usize,
    seed: u64,
}

#[derive(Debug)]
struct TrialResults {
    /// The first hundred solves, without prior knowledge.
    first: Observed,
    /// The solves after them.
    learned: Observed,
    /// The same, with as many polls as the fixed schedule.
    as_often: Observed,
    fixed: Observed,
    /// The optimal lags with as many polls.
    best: f64,
    best_as_often: f64,
    relearned: usize,
}

/// The distributions of the reference model.
const TRUTHS: [LogNormal; 6] = [
    LogNormal { median: 8.0, sigma: 0.3 },
    LogNormal { median: 8.0, sigma: 0.5 },
    LogNormal { median: 15.0, sigma: 0.3 },
    LogNormal { median: 15.0, sigma: 0.5 },
    LogNormal { median: 35.0, sigma: 0.3 },
    LogNormal { median: 35.0, sigma: 0.5 },
];
const FIXED: f64 = 5.0;
/// Polling every 5 s takes more than the usual limit of twenty polls, so the compared schedules have a higher limit.
const MOST: u32 = 60;
const FIRST: usize = 100;

/// How much slower the provider becomes.
const DRIFT: f64 = 1.5;
/// The schedule is evaluated every `STEP` solves, `STEPS` times.
const STEP: usize = 20;
const STEPS: usize = 20;
/// Relearned means a lag within this factor of a schedule that never knew another speed.
const AGAIN: f64 = 1.10;

/// Solves per second with batch polls.
const RATES: [f64; 2] = [1.0, 2.0];
const BATCH: LogNormal = LogNormal { median: 15.0, sigma: 0.5 };
const WARM: usize = 150;

const BEST: Bar = Bar::AtMost { bar: 1.10, stretch: 1.05 };
const BESIDE_FIXED: Bar = Bar::AtMost { bar: 0.85, stretch: 0.75 };
const FIRST_BESIDE_FIXED: Bar = Bar::AtMost { bar: 1.2, stretch: 1.0 };
const RELEARN: Bar = Bar::AtMost { bar: 300.0, stretch: 100.0 };
const BATCH_LAG: Bar = Bar::AtMost { bar: 0.6, stretch: 0.3 };
/// For each of [`RATES`].
const CALLS: [Bar; 2] =
    [Bar::AtMost { bar: 1.1, stretch: 1.1 }, Bar::AtMost { bar: 0.6, stretch: 0.6 }];

pub(crate) async fn run(args: PollingArgs) -> Result<Report, Failure> {
    let PollingArgs { rounds, solves } = args;
    let (seeds, solves) = (rounds.rounds, solves as usize);
    let mut report = Report::begin("polling", rounds).without_load();
    let runs = seeds as usize * (TRUTHS.len() + RATES.len());
    let progress = Progress::new("runs", Some(runs), rounds.json);
    let mut grid = Grid::new(["", "polls per solve", "lag s", "p95 s"]);
    for truth in TRUTHS {
        let trial = Trial::of(truth, solves);
        let results = for_each_seed(seeds, &progress, |seed| {
            let trial = Trial { seed, ..trial.clone() };
            async move || trial.play().await
        });
        add_figures(&mut report, &mut grid, truth, &results.await?);
    }
    for (rate, calls) in RATES.into_iter().zip(CALLS) {
        let observed = for_each_seed(seeds, &progress, |seed| {
            async move || watch_batch(rate, solves, seed).await
        });
        add_batch_figures(&mut report, &mut grid, (rate, calls), &observed.await?);
    }
    report.show(grid);
    note(&mut report);
    Ok(report.end())
}

fn note(report: &mut Report) {
    report.note(
        "virtual time: the figures depend on the seeds 1, 2, ... and not on the machine; the network takes a \
         millisecond, because the best schedules assume none; no two polls of a task are closer than a second",
    );
    report.note(
        "learned: as `serve` polls, after the first 100 solves. The best lag is that of as many polls of the very same solves; \
         the fixed one's is scaled to as many polls by its interval. as often as fixed: with a price of a poll at which the \
         best schedule polls as often as every 5 s does, and, like those two, without the limit of 20 polls a task",
    );
    report.note(
        "relearned: after a service became 1.5 times as slow, until the schedule's lag is and stays within 10 % of that of a \
         schedule that never knew another speed; evaluated every 20 solves, up to 400",
    );
}

async fn watch_batch(rate: f64, solves: usize, seed: u64) -> Result<Observed, Failure> {
    let polling = learned(LearnedConfig::default());
    let mut watch = Watch::start(BATCH, polling, PollMode::Batch, seed).await?;
    watch.solve_while_more_come(WARM, solves, 1.0 / rate).await
}

fn learned(config: LearnedConfig) -> Arc<Polling> {
    config.into()
}

fn fixed() -> Arc<Polling> {
    FixedPolling { most: MOST, ..FixedPolling::default() }.into()
}

fn family() -> Family {
    Family { kind: KIND, proxied: false }
}

// === impl Trial ===

impl Trial {
    fn of(truth: LogNormal, solves: usize) -> Self {
        let best = Best::of(truth);
        let price = best.price_of(Schedule::every(FIXED).with(&best.times).polls);
        let best_slower = Arc::new(Best::of(truth.times(DRIFT)));
        Self { truth, best: Arc::new(best), best_slower, price, solves, seed: 0 }
    }

    async fn play(&self) -> Result<TrialResults, Failure> {
        let polling = learned(LearnedConfig::default());
        let (first, learned) = self.watch(Arc::clone(&polling)).await?;
        let (_, as_often) = self.watch(self.as_often()).await?;
        let (_, fixed) = self.watch(fixed()).await?;
        Ok(TrialResults {
            best: self.best.lag_at(learned.achieved.polls, &learned.times),
            best_as_often: self.best.lag_at(as_often.achieved.polls, &as_often.times),
            first,
            learned,
            as_often,
            fixed,
            relearned: self.relearn(polling).await?,
        })
    }

    /// Polls as often as the fixed schedule.
    fn as_often(&self) -> Arc<Polling> {
        learned(LearnedConfig { cost: self.price, most: MOST, ..LearnedConfig::default() })
    }

    /// The first hundred solves, and the solves after them.
    async fn watch(&self, polling: Arc<Polling>) -> Result<(Observed, Observed), Failure> {
        let mut watch = Watch::start(self.truth, polling, PollMode::Single, self.seed).await?;
        let apart = self.truth.median;
        Ok((watch.solve(FIRST, apart).await?, watch.solve(self.solves, apart).await?))
    }

    /// The number of solves until the schedule has learned that the provider became slower.
    async fn relearn(&self, polling: Arc<Polling>) -> Result<usize, Failure> {
        let truth = self.truth.times(DRIFT);
        let never_knew = learned(LearnedConfig::default());
        let start = |polling| Watch::start(truth, polling, PollMode::Single, self.seed);
        let mut watch = start(Arc::clone(&never_knew)).await?;
        watch.solve(STEP * STEPS, truth.median).await?;
        let beside = |polling| self.best_slower.beside(&Schedule::of(polling, &family()));
        let enough = AGAIN * beside(&*never_knew);
        let mut watch = start(Arc::clone(&polling)).await?;
        let mut relearned = 0;
        for step in 0..=STEPS {
            if beside(&*polling) > enough {
                relearned = (step + 1) * STEP;
            }
            watch.solve(STEP, truth.median).await?;
        }
        Ok(relearned)
    }
}

// === impl TrialResults ===

impl TrialResults {
    /// The lag relative to that of a fixed interval with as many polls. The lag of an interval is half of it, and it
    /// takes half a poll more than the solve time divided by the interval.
    fn beside_fixed(&self, observed: &Observed) -> f64 {
        let fixed = self.fixed.achieved;
        let polls = observed.achieved.polls;
        observed.achieved.lag / (fixed.lag * (fixed.polls - 0.5) / (polls - 0.5))
    }
}

fn add_figures(report: &mut Report, grid: &mut Grid, truth: LogNormal, results: &[TrialResults]) {
    let mut row = |name: &str, of: fn(&TrialResults) -> &Observed| {
        show(grid, format!("{truth}: {name}"), results.iter().map(of));
    };
    row("learned", |results| &results.learned);
    row("first 100", |results| &results.first);
    row("learned, as often as fixed", |results| &results.as_often);
    row("fixed 5 s", |results| &results.fixed);
    let each = |of: fn(&TrialResults) -> f64| results.iter().map(of).collect::<Vec<_>>();
    let best = [each(|run| run.learned.achieved.polls), each(|run| run.best), vec![]];
    grid.row(format!("{truth}: best"), best);
    let best = [each(|run| run.as_often.achieved.polls), each(|run| run.best_as_often), vec![]];
    grid.row(format!("{truth}: best, as often as fixed"), best);
    let mut add = |what: &str, bar: Bar, of: fn(&TrialResults) -> f64| {
        let figure = Figure::new(format!("{truth}: {what}"), "", results.iter().map(of));
        report.add(figure.held_to(bar));
    };
    add("lag / best", BEST, |run| run.learned.achieved.lag / run.best);
    add("lag / fixed", BESIDE_FIXED, |run| run.beside_fixed(&run.learned));
    add("first 100: lag / fixed", FIRST_BESIDE_FIXED, |run| run.beside_fixed(&run.first));
    add("solves to relearn", RELEARN, |run| as_f64(run.relearned as u64));
    add("as often as fixed: lag / best", BEST, |run| run.as_often.achieved.lag / run.best_as_often);
    add("as often as fixed: lag / fixed", BESIDE_FIXED, |run| run.beside_fixed(&run.as_often));
}

fn add_batch_figures(
    report: &mut Report,
    grid: &mut Grid,
    (rate, bar): (f64, Bar),
    seen: &[Observed],
) {
    let name = format!("batch, {rate}/s of {BATCH}");
    show(grid, name.clone(), seen.iter());
    let calls = seen.iter().map(|observed| observed.achieved.polls);
    report.add(Figure::new(format!("{name}: calls per solve"), "", calls).held_to(bar));
    let lags = seen.iter().map(|observed| observed.achieved.lag);
    report.add(Figure::new(format!("{name}: lag"), "s", lags).held_to(BATCH_LAG));
}

fn show<'w>(grid: &mut Grid, name: String, seen: impl Iterator<Item = &'w Observed>) {
    let seen: Vec<&Observed> = seen.collect();
    let each = |of: fn(&Observed) -> f64| seen.iter().map(|observed| of(observed)).collect();
    let polls = each(|observed| observed.achieved.polls);
    grid.row(
        name,
        [polls, each(|observed| observed.achieved.lag), each(|observed| observed.lag_p95)],
    );
}
