//! One path in one round: the number of answers, and the resources the server used for them.

use std::time::Duration;

use solvegate::exit::Failure;

use crate::{
    load::{Load, LoadResult, as_f64},
    report::{Bar, Figure, Report},
    requests::Request,
    server_process::Server,
    vitals::Vitals,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    answered: LoadResult,
    before: Vitals,
    after: Vitals,
}

/// A path and its ceiling, round by round.
#[derive(Debug, Default)]
pub(crate) struct Path {
    rounds: Vec<(Sample, Sample)>,
}

impl Sample {
    /// Loads a server and reads its vitals before and after.
    pub(crate) async fn take(server: &mut Server, load: &Load) -> Result<Self, Failure> {
        let before = server.vitals()?;
        let answered = load.run().await?;
        Ok(Self { answered, before, after: server.vitals()? })
    }

    /// Loads a server briefly, so that one-time work is not measured.
    pub(crate) async fn warm_up(load: &Load) -> Result<LoadResult, Failure> {
        Load { length: load.length / 10, ..load.clone() }.run().await
    }

    pub(crate) fn rate(&self) -> f64 {
        self.answered.rate()
    }

    /// Microseconds of the server's processor time per answer.
    pub(crate) fn cpu_us(&self) -> f64 {
        let cpu = self.after.cpu.saturating_sub(self.before.cpu);
        cpu.as_secs_f64() * 1e6 / self.requests()
    }

    pub(crate) fn fsyncs(&self) -> f64 {
        as_f64(self.after.store.fsyncs - self.before.store.fsyncs) / self.requests()
    }

    /// Decisions of the store per transaction.
    pub(crate) fn decisions_per_commit(&self) -> f64 {
        let decisions = self.after.store.decisions - self.before.store.decisions;
        as_f64(decisions) / as_f64(self.after.store.commits - self.before.store.commits)
    }

    /// Bytes written to disk per answer.
    pub(crate) fn written(&self) -> f64 {
        as_f64(self.after.written_bytes - self.before.written_bytes) / self.requests()
    }

    pub(crate) fn requests(&self) -> f64 {
        as_f64(self.answered.requests)
    }
}

impl Path {
    pub(crate) fn push(&mut self, ceiling: Sample, path: Sample) {
        self.rounds.push((ceiling, path));
    }

    /// A figure of the path alone.
    pub(crate) fn figure(
        &self,
        what: String,
        unit: &'static str,
        of: fn(&Sample) -> f64,
    ) -> Figure {
        Figure::new(what, unit, self.rounds.iter().map(|(_, path)| of(path)))
    }

    /// Bytes written per answer, times `factor`.
    pub(crate) fn written(&self, what: String, factor: f64) -> Figure {
        Figure::new(what, "x", self.rounds.iter().map(|(_, path)| path.written() * factor))
    }

    fn ratio(&self, what: String, of: fn(&Sample) -> f64) -> Figure {
        let ratios = self.rounds.iter().map(|(ceiling, path)| of(path) / of(ceiling));
        Figure::new(what, "x", ratios)
    }

    /// Adds the path's ratios, processor time first, and the figures behind them.
    pub(crate) fn add_to(&self, report: &mut Report, name: &str, bars: Bars) {
        let Bars { cpu, rate } = bars;
        let held = |figure: Figure, bar: Option<Bar>| match bar {
            Some(bar) => figure.held_to(bar),
            None => figure,
        };
        report.add(held(self.ratio(format!("{name}: cpu / bare"), Sample::cpu_us), cpu));
        report.add(held(self.ratio(format!("{name}: req/s / bare"), Sample::rate), rate));
        report.add(self.figure(format!("{name}: cpu per request"), "us", Sample::cpu_us));
        report.add(self.figure(format!("{name}: requests"), "1/s", Sample::rate));
    }

    /// Adds the figures of the ceiling.
    pub(crate) fn add_ceiling_to(&self, report: &mut Report, name: &str) {
        let of = |of: fn(&Sample) -> f64| self.rounds.iter().map(move |(ceiling, _)| of(ceiling));
        report.add(Figure::new(format!("{name}: cpu per request"), "us", of(Sample::cpu_us)));
        report.add(Figure::new(format!("{name}: requests"), "1/s", of(Sample::rate)));
    }
}

/// The bars of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bars {
    pub(crate) cpu: Option<Bar>,
    pub(crate) rate: Option<Bar>,
}

/// The same request from every caller.
pub(crate) fn load_of(
    server: &Server,
    requests: Vec<Request>,
    status: u16,
    length: Duration,
) -> Load {
    Load { address: server.address(), requests, length, most: u64::MAX, status }
}
