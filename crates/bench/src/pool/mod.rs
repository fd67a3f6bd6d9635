//! `bench pool`, in virtual time: claims answered at once by an `auto` pool, and its waste and cost, beside the same
//! claims on demand, the tutorials' pool, the reference policy and a policy that knows the future. Every round is a day
//! with its own seed.
//!
//! `workload`: the arrivals; `engine_day`: a day of the real engine; `models`: of the alternatives; `outcome`: its
//! result

mod engine_day;
mod models;
mod outcome;
mod workload;

use clap::Args;
use solvegate::{commands::progress::Progress, exit::Failure};

use self::{
    outcome::{Counted, DayOutcome},
    workload::{Day, Workload},
};
use crate::{
    cli::RunOptions,
    lognormal::LogNormal,
    report::{Bar, Figure, Grid, Report},
    virtual_gateway::for_each_seed,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PoolArgs {
    #[command(flatten)]
    pub(crate) rounds: RunOptions,
    /// Hours of a day
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=168))]
    pub(crate) hours: u32,
}

/// A kind of day, and its bars.
#[derive(Clone, Copy, Debug)]
struct PoolScenario {
    name: &'static str,
    day: Day,
    hits: Option<Bar>,
    waste: Option<Bar>,
    cost: Option<Bar>,
    /// In percent of the tokens that the tutorials' pool buys in the counted time.
    of_tutorial: Option<Bar>,
}

/// One day under five policies.
#[derive(Debug)]
struct DayResults {
    counted: std::ops::Range<f64>,
    auto: DayOutcome,
    on_demand: DayOutcome,
    tutorial: DayOutcome,
    reference: DayOutcome,
    clairvoyant: DayOutcome,
}

const SOLVES: LogNormal = LogNormal { median: 15.0, sigma: 0.5 };
/// How long a site accepts a token, and how long we hand it out, in seconds.
const LIFETIME: f64 = 120.0;
const LIFE: f64 = 100.0;
/// Tokens that may expire unused, per token served.
const WASTE: f64 = 0.10;
/// The least remaining lifetime of a token at delivery: the margin and the floor.
const LEAST_LEFT: f64 = LIFETIME - LIFE;

const SMOOTH: PoolScenario = PoolScenario {
    name: "",
    day: Day::Silent,
    hits: Some(Bar::AtLeast { bar: 99.0, stretch: 99.5 }),
    waste: Some(Bar::AtMost { bar: 1.0, stretch: 0.5 }),
    cost: None,
    of_tutorial: None,
};
const SCENARIOS: [PoolScenario; 8] = [
    PoolScenario { name: "1 per 20 s", day: Day::Smooth { rate: 0.05, hours: 16.0 }, ..SMOOTH },
    PoolScenario { name: "0.2/s", day: Day::Smooth { rate: 0.2, hours: 6.0 }, ..SMOOTH },
    PoolScenario {
        name: "1/s",
        day: Day::Smooth { rate: 1.0, hours: 1.75 },
        cost: Some(Bar::AtMost { bar: 1.01, stretch: 1.005 }),
        ..SMOOTH
    },
    PoolScenario { name: "2/s", day: Day::Smooth { rate: 2.0, hours: 1.25 }, ..SMOOTH },
    PoolScenario { name: "diurnal", day: Day::Diurnal, ..SMOOTH },
    PoolScenario {
        name: "periodic bursts",
        day: Day::Periodic,
        hits: Some(Bar::AtLeast { bar: 90.0, stretch: 95.0 }),
        waste: Some(Bar::AtMost { bar: 20.0, stretch: 10.0 }),
        ..SMOOTH
    },
    PoolScenario {
        name: "random bursts",
        day: Day::Random,
        hits: Some(Bar::AtLeast { bar: 70.0, stretch: 80.0 }),
        waste: Some(Bar::AtMost { bar: 25.0, stretch: 22.0 }),
        ..SMOOTH
    },
    PoolScenario {
        name: "silent day",
        hits: None,
        waste: None,
        of_tutorial: Some(Bar::AtMost { bar: 1.0, stretch: 0.5 }),
        ..SMOOTH
    },
];
const POLICIES: [&str; 5] = ["auto", "on demand", "tutorials' pool", "reference", "clairvoyant"];
const COLUMNS: [&str; 7] =
    ["", "hits %", "mean wait s", "waste %", "bought per served", "bought", "expired delivered"];
const NONE: Bar = Bar::AtMost { bar: 0.0, stretch: 0.0 };
const NEVER_BROKEN: Bar = Bar::AtLeast { bar: 0.0, stretch: 0.0 };

pub(crate) async fn run(PoolArgs { rounds, hours }: PoolArgs) -> Result<Report, Failure> {
    let mut report = Report::begin("pool", rounds).without_load();
    let runs = rounds.rounds as usize * SCENARIOS.len();
    let progress = Progress::new("days", Some(runs), rounds.json);
    let mut grid = Grid::new(COLUMNS);
    for scenario in SCENARIOS {
        let results = for_each_seed(rounds.rounds, &progress, |seed| {
            async move || scenario.play(hours, seed).await
        });
        scenario.add_to(&mut report, &mut grid, &results.await?);
    }
    report.show(grid);
    note(&mut report);
    Ok(report.end())
}

fn note(report: &mut Report) {
    report.note(format!(
        "virtual time: the figures depend on the seeds 1, 2, ... and not on the machine; solves take {SOLVES}, sites accept \
         tokens for {LIFETIME} s and we hand them out for {LIFE} s; `waste` of the pool is {WASTE}",
    ));
    report.note(
        "auto, on demand: the real engine with learned polling; the others are calculated, without a network, and except for the \
         tutorials' pool (a list of 5, one thread, polls every 5 s) without polls. Smooth demand counts after 15 minutes, the \
         silent day after its last claim, the others from the first claim on",
    );
    report.note(
        "margin of the bound: tokens that might still have expired unused, at the worst moment, before they exceed 10 and a tenth \
         of those served; the bars on hits and waste of one claim in 20 s cannot both be met with tokens of 100 s",
    );
}

// === impl PoolScenario ===

impl PoolScenario {
    async fn play(self, hours: u32, seed: u64) -> Result<DayResults, Failure> {
        let work = Workload::of(self.day, hours, seed);
        Ok(DayResults {
            auto: engine_day::play(&work, true, seed).await?,
            on_demand: engine_day::play(&work, false, seed).await?,
            tutorial: models::tutorial(&work, seed),
            reference: models::reference(&work, seed),
            clairvoyant: models::clairvoyant(&work, seed),
            counted: work.counted,
        })
    }

    fn add_to(self, report: &mut Report, grid: &mut Grid, results: &[DayResults]) {
        let name = self.name;
        for (n, who) in POLICIES.into_iter().enumerate() {
            let each = |figure: fn(&Counted) -> f64| {
                results.iter().map(|day| figure(&day.outcomes()[n].count(&day.counted))).collect()
            };
            let [hits, wait] = [each(|day| day.hits), each(|day| day.wait)];
            let [waste, cost] = [each(|day| day.waste), each(|day| day.cost)];
            let bought = each(|day| day.bought);
            let expired =
                results.iter().map(|day| day.outcomes()[n].handed_over_below(0.0)).collect();
            grid.row(format!("{name}: {who}"), [hits, wait, waste, cost, bought, expired]);
        }
        let figure = |what: &str, unit, of: &dyn Fn(&DayResults) -> f64| {
            Figure::new(format!("{name}: {what}"), unit, results.iter().map(of))
        };
        let auto = |day: &DayResults| day.auto.count(&day.counted);
        let idle = |day: &DayResults| 100.0 * auto(day).bought / day.idle_cost();
        let held = [
            (figure("hits", "%", &|day| auto(day).hits), self.hits),
            (figure("waste", "%", &|day| auto(day).waste), self.waste),
            (figure("bought per served", "", &|day| auto(day).cost), self.cost),
            (figure("bought / the tutorials' pool", "%", &idle), self.of_tutorial),
        ];
        for (figure, bar) in held {
            if let Some(bar) = bar {
                report.add(figure.held_to(bar));
            }
        }
        let late = |day: &DayResults| day.auto.handed_over_below(LEAST_LEFT);
        let expired = |day: &DayResults| day.auto.handed_over_below(0.0);
        report.add(figure("expired delivered", "", &expired).always_held_to(NONE));
        report.add(figure("delivered below the floor", "", &late).always_held_to(NONE));
        let margin = |day: &DayResults| day.auto.worst_margin(WASTE);
        report.add(figure("margin of the bound", "", &margin).always_held_to(NEVER_BROKEN));
    }
}

// === impl DayResults ===

impl DayResults {
    /// In the order of [`POLICIES`].
    fn outcomes(&self) -> [&DayOutcome; 5] {
        [&self.auto, &self.on_demand, &self.tutorial, &self.reference, &self.clairvoyant]
    }

    fn idle_cost(&self) -> f64 {
        self.tutorial.count(&self.counted).bought
    }
}
