//! A report: medians over rounds, the bars they are compared with, and the machine they were measured on. There are few
//! rounds and their values are ratios, so a histogram library such as `hdrhistogram` would not help.

use comfy_table::Table;
use serde::Serialize;
use solvegate::{exit::Failure, output};

use crate::{cli::RunOptions, vitals::machine_load};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    /// Only figures of a `release` build mean anything.
    build: &'static str,
    rounds: u32,
    /// Seconds of load per round; `None` for benches without load.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    machine: Machine,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grids: Vec<Grid>,
    figures: Vec<Figure>,
    notes: Vec<String>,
}

/// The load of the machine, which shows whether others used it.
#[derive(Debug, Serialize)]
struct Machine {
    cores: usize,
    load_before: f64,
    load_after: f64,
}

/// One figure over all rounds. `None` when no round has a value.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    what: String,
    unit: &'static str,
    median: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_to: Option<HeldTo>,
}

/// A table of medians over all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Grid {
    /// The heading of the rows, then the figures with their units.
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: String,
    medians: Vec<Option<f64>>,
}

/// A bar, and whether the median meets it.
#[derive(Debug, Serialize)]
struct HeldTo {
    #[serde(flatten)]
    bar: Bar,
    verdict: Verdict,
}

/// The bar of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "is_to_be", rename_all = "snake_case")]
pub(crate) enum Bar {
    AtMost {
        /// The requirement.
        bar: f64,
        /// The stretch goal.
        stretch: f64,
    },
    AtLeast {
        /// The requirement.
        bar: f64,
        /// The stretch goal.
        stretch: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Missed,
    Met,
    Stretch,
}

// === impl Report ===

impl Report {
    pub(crate) fn begin(bench: &'static str, rounds: RunOptions) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let load = machine_load();
        Self {
            bench,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            rounds: rounds.rounds,
            seconds: Some(rounds.seconds),
            machine: Machine { cores, load_before: load, load_after: load },
            grids: Vec::new(),
            figures: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// For benches whose rounds take as long as their work.
    pub(crate) fn without_load(mut self) -> Self {
        self.seconds = None;
        self
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds a table, printed above the figures.
    pub(crate) fn show(&mut self, grid: Grid) {
        self.grids.push(grid);
    }

    /// Adds a remark, printed below the figures.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(crate) fn end(mut self) -> Self {
        self.machine.load_after = machine_load();
        if cfg!(debug_assertions) {
            self.note("a debug build, whose figures mean nothing; measure with scripts/bench");
        }
        self
    }

    /// Prints a table, or JSON.
    pub(crate) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            return output::json(self);
        }
        let Machine { cores, load_before, load_after } = self.machine;
        let length = self.seconds.map_or_else(String::new, |seconds| format!(" of {seconds} s"));
        output::line(format_args!(
            "bench {}, {} build, {} rounds{length}; {cores} cores, load {load_before:.2} before and {load_after:.2} after",
            self.bench, self.build, self.rounds
        ))?;
        for grid in &self.grids {
            output::line(format_args!("{}\n", grid.table()))?;
        }
        output::line(format_args!("{}", self.table()))?;
        for note in &self.notes {
            output::line(format_args!("{note}"))?;
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = output::table(["figure", "median", "least", "most", "unit", "bar", ""]);
        for figure in &self.figures {
            let (bar, verdict) =
                figure.held_to.as_ref().map_or((String::new(), ""), |HeldTo { bar, verdict }| {
                    (bar.to_string(), verdict.word())
                });
            let [median, least, most] = [figure.median, figure.least, figure.most].map(four_digits);
            table.add_row([&figure.what, &median, &least, &most, figure.unit, &bar, verdict]);
        }
        table
    }
}

/// Formats a value with four significant digits.
fn four_digits(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

// === impl Grid ===

impl Grid {
    pub(crate) fn new<const N: usize>(columns: [&'static str; N]) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row with the values of all rounds for each column but the first.
    pub(crate) fn row<const N: usize>(&mut self, what: impl Into<String>, columns: [Vec<f64>; N]) {
        let medians = columns.map(|rounds| Figure::new("", "", rounds).median);
        self.rows.push(Row { what: what.into(), medians: medians.into() });
    }

    fn table(&self) -> Table {
        let mut table = output::table([]);
        table.set_header(&self.columns);
        for row in &self.rows {
            let medians = row.medians.iter().map(|median| four_digits(*median));
            table.add_row(std::iter::once(row.what.clone()).chain(medians));
        }
        table
    }
}

// === impl Figure ===

impl Figure {
    /// A figure over these rounds, without those that have no value, such as a division by zero.
    pub(crate) fn new(
        what: impl Into<String>,
        unit: &'static str,
        rounds: impl IntoIterator<Item = f64>,
    ) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().filter(|value| value.is_finite()).collect();
        rounds.sort_by(f64::total_cmp);
        Self {
            what: what.into(),
            unit,
            median: median(&rounds),
            least: rounds.first().copied(),
            most: rounds.last().copied(),
            held_to: None,
        }
    }

    /// Compares the median with a bar.
    #[must_use]
    pub(crate) fn held_to(mut self, bar: Bar) -> Self {
        self.held_to = self.median.map(|median| HeldTo { bar, verdict: bar.verdict(median) });
        self
    }

    /// Compares the worst round with a bar, for requirements without exception.
    #[must_use]
    pub(crate) fn always_held_to(mut self, bar: Bar) -> Self {
        let worst = match bar {
            Bar::AtMost { .. } => self.most,
            Bar::AtLeast { .. } => self.least,
        };
        self.held_to = worst.map(|worst| HeldTo { bar, verdict: bar.verdict(worst) });
        self
    }
}

/// The median of a sorted list.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

// === impl Bar ===

impl Bar {
    fn verdict(self, value: f64) -> Verdict {
        let (met, stretched) = match self {
            Self::AtMost { bar, stretch } => (value <= bar, value <= stretch),
            Self::AtLeast { bar, stretch } => (value >= bar, value >= stretch),
        };
        match (met, stretched) {
            (_, true) => Verdict::Stretch,
            (true, false) => Verdict::Met,
            (false, false) => Verdict::Missed,
        }
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost { bar, stretch } => write!(f, "<= {bar} ({stretch})"),
            Self::AtLeast { bar, stretch } => write!(f, ">= {bar} ({stretch})"),
        }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Met => "met",
            Self::Stretch => "met, stretch too",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_rounds_that_cannot_tell_do_not_count() {
        let figure = Figure::new("f", "x", [3.0, f64::NAN, 1.0, 2.0, f64::INFINITY]);
        assert_eq!((figure.least, figure.median, figure.most), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!(Figure::new("f", "x", [1.0, 2.0]).median, Some(1.5));
        assert_eq!(Figure::new("f", "x", [f64::NAN]).median, None);
    }

    #[test]
    fn what_must_never_be_is_missed_by_one_round() {
        let none = Bar::AtMost { bar: 0.0, stretch: 0.0 };
        let verdict = |figure: Figure| figure.held_to.map(|held| held.verdict);
        let rounds = || Figure::new("f", "", [0.0, 0.0, 1.0]);
        assert_eq!(verdict(rounds().held_to(none)), Some(Verdict::Stretch));
        assert_eq!(verdict(rounds().always_held_to(none)), Some(Verdict::Missed));
        let least = Bar::AtLeast { bar: 1.0, stretch: 1.0 };
        assert_eq!(verdict(rounds().always_held_to(least)), Some(Verdict::Missed));
    }

    #[test]
    fn a_bar_is_met_on_its_own_side() {
        let most = Bar::AtMost { bar: 2.0, stretch: 1.5 };
        let verdicts = [1.5, 2.0, 2.1].map(|value| most.verdict(value));
        assert_eq!(verdicts, [Verdict::Stretch, Verdict::Met, Verdict::Missed]);
        let least = Bar::AtLeast { bar: 0.6, stretch: 0.8 };
        let verdicts = [0.9, 0.6, 0.5].map(|value| least.verdict(value));
        assert_eq!(verdicts, [Verdict::Stretch, Verdict::Met, Verdict::Missed]);
    }
}
