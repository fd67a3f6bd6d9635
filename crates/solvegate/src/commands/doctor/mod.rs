//! `solvegate doctor`: looks at everything `serve` would stand on, and says what to do about what is wrong. Submits
//! nothing and buys nothing.

mod port;
mod service;
mod sites;
mod store;

use std::path::Path;

use serde_json::json;
use stores::{Finding, Weight};

use super::Context;
use crate::{
    config::{Config, DEFAULT_FILE, Service, Sources},
    exit::{Exit, Failure},
    output,
};

/// One thing that was looked at.
struct Line {
    about: &'static str,
    finding: Finding,
    /// How the command ends when this is wrong.
    exit: Exit,
}

/// Looks, tells, and ends as the first thing that is wrong would have ended `serve`.
pub(super) async fn run(context: &Context, as_json: bool) -> Result<(), Failure> {
    let lines = examine(&context.sources).await?;
    if as_json {
        show_json(&lines)?;
    } else {
        show(&lines)?;
    }
    let mut bad = lines.iter().filter(|line| line.finding.weight == Weight::Bad);
    let Some(first) = bad.next() else { return Ok(()) };
    let what = match bad.count() {
        0 => format!("{} is wrong; what to do is said below the ✗", first.about),
        more => format!("{} things are wrong; what to do is said below each ✗", more + 1),
    };
    Err(Failure::new(first.exit, what))
}

async fn examine(sources: &Sources) -> Result<Vec<Line>, Failure> {
    let config = match sources.load() {
        Ok(config) => config,
        Err(error) => return Ok(vec![misconfigured(&error.to_string())]),
    };
    let mut lines = vec![configured(sources)];
    lines.extend(service::examine(&config).await?);
    lines.extend(store::examine(&config).await);
    lines.extend(together(&config));
    lines.push(port::examine(&config).await);
    lines.extend(sites::examine(&config));
    Ok(lines)
}

fn configured(sources: &Sources) -> Line {
    let usual = Path::new(DEFAULT_FILE);
    let file = sources.file.as_deref().or_else(|| usual.exists().then_some(usual));
    let what = file.map_or_else(
        || {
            format!(
                "no {DEFAULT_FILE} found; using defaults for everything not set in the environment"
            )
        },
        |file| format!("{} can be used", file.display()),
    );
    Line::new("configuration", Finding::good(what))
}

fn misconfigured(error: &str) -> Line {
    let remedy = "fix this and run doctor again; the other checks need a valid configuration";
    Line { exit: Exit::Usage, ..Line::new("configuration", Finding::bad(error, remedy)) }
}

/// What several gateways on one store need in common.
fn together(config: &Config) -> Vec<Line> {
    let mut lines = Vec::new();
    if !config.store.is_shared() {
        return lines;
    }
    if config.admin.is_none() || config.workers.is_empty() {
        let finding = Finding::risky(
            "made at the first start and kept in the data directory: gateways elsewhere make their own",
            "write [admin] key and [[worker]] name and key into the configuration of all of them",
        );
        lines.push(Line::new("keys", finding));
    }
    if config.upstream.service == Service::Simulator {
        let finding = Finding::risky(
            "each gateway has a simulator of its own, which knows nothing of the others' tasks",
            "for more than a first try start `solvegate sim`, and give all of them --upstream URL",
        );
        lines.push(Line::new("simulator", finding));
    }
    lines
}

fn show(lines: &[Line]) -> Result<(), Failure> {
    for Line { about, finding, .. } in lines {
        let mark = match finding.weight {
            Weight::Good => '✓',
            Weight::Risky => '!',
            Weight::Bad => '✗',
        };
        output::line(format_args!("{mark} {about:<14} {}", finding.what))?;
        if let Some(remedy) = &finding.remedy {
            output::line(format_args!("{:17}→ {remedy}", ""))?;
        }
    }
    Ok(())
}

fn show_json(lines: &[Line]) -> Result<(), Failure> {
    let checks: Vec<_> = lines.iter().map(Line::as_json).collect();
    let is_well = lines.iter().all(|line| line.finding.weight != Weight::Bad);
    output::json(&json!({ "well": is_well, "checks": checks }))
}

// === impl Line ===

impl Line {
    fn new(about: &'static str, finding: Finding) -> Self {
        Self { about, finding, exit: Exit::Failed }
    }

    /// About something outside of this process.
    fn outside(about: &'static str, finding: Finding) -> Self {
        Self { exit: Exit::Unreachable, ..Self::new(about, finding) }
    }

    fn as_json(&self) -> serde_json::Value {
        let weight = match self.finding.weight {
            Weight::Good => "good",
            Weight::Risky => "risky",
            Weight::Bad => "bad",
        };
        let Finding { what, remedy, .. } = &self.finding;
        json!({ "about": self.about, "weight": weight, "what": what, "remedy": remedy })
    }
}
