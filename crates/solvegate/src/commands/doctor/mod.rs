//! `solvegate doctor`: checks everything `serve` depends on and gives a remedy for each problem. It submits nothing and
//! buys nothing.

mod port;
mod service;
mod sites;
mod store;

use serde_json::json;
use stores::{Finding, Weight};

use super::Context;
use crate::{
    config::{Config, DEFAULT_FILE, Service, Sources},
    exit::{Exit, Failure},
    output,
};

/// The result of one check.
struct Check {
    about: &'static str,
    finding: Finding,
    /// The exit code if this is the first check that fails.
    exit: Exit,
}

/// Prints all checks. The exit code is the one `serve` would end with.
pub(super) async fn run(context: &Context, as_json: bool) -> Result<(), Failure> {
    let checks = examine(&context.sources).await?;
    if as_json { show_json(&checks) } else { show(&checks) }?;
    let mut bad = checks.iter().filter(|check| check.finding.weight == Weight::Bad);
    let Some(first) = bad.next() else { return Ok(()) };
    let what = match bad.count() {
        0 => format!("the check of the {} failed; see the remedy below the ✗", first.about),
        more => format!("{} checks failed; see the remedy below each ✗", more + 1),
    };
    Err(Failure::new(first.exit, what))
}

async fn examine(sources: &Sources) -> Result<Vec<Check>, Failure> {
    let config = match sources.load() {
        Ok(config) => config,
        Err(error) => {
            let remedy =
                "fix this and run doctor again; the other checks need a valid configuration";
            let finding = Finding::bad(error.to_string(), remedy);
            return Ok(vec![Check { exit: Exit::Usage, ..Check::new("configuration", finding) }]);
        }
    };
    let mut checks = vec![configured(sources)];
    checks.extend(service::examine(&config).await?);
    checks.extend(store::examine(&config).await);
    checks.extend(shared_settings(&config));
    checks.push(port::examine(&config).await);
    checks.extend(sites::examine(&config));
    Ok(checks)
}

fn configured(sources: &Sources) -> Check {
    let what = match sources.path() {
        Some(file) => format!("{} is valid", file.display()),
        None => format!(
            "no {DEFAULT_FILE} found; using defaults for everything not set in the environment"
        ),
    };
    Check::new("configuration", Finding::good(what))
}

/// Settings that all gateways on a shared store need in common.
fn shared_settings(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if !config.store.is_shared() {
        return checks;
    }
    if config.admins.is_empty() || config.workers.is_empty() {
        let finding = Finding::risky(
            "each gateway makes its own keys at its first start",
            "write [admin] key and [[worker]] name and key into the configuration of every gateway",
        );
        checks.push(Check::new("keys", finding));
    }
    if config.upstream.service == Service::Simulator {
        let finding = Finding::risky(
            "each gateway runs its own simulator, which does not know the tasks of the others",
            "start `solvegate sim` once, and pass --upstream URL to every gateway",
        );
        checks.push(Check::new("simulator", finding));
    }
    checks
}

fn show(checks: &[Check]) -> Result<(), Failure> {
    for Check { about, finding, .. } in checks {
        let (mark, _) = mark_and_name(finding.weight);
        output::line(format_args!("{mark} {about:<14} {}", finding.what))?;
        if let Some(remedy) = &finding.remedy {
            output::line(format_args!("{:17}→ {remedy}", ""))?;
        }
    }
    Ok(())
}

fn show_json(checks: &[Check]) -> Result<(), Failure> {
    let is_well = checks.iter().all(|check| check.finding.weight != Weight::Bad);
    let as_json = |Check { about, finding, .. }: &Check| {
        let Finding { weight, what, remedy } = finding;
        let (_, weight) = mark_and_name(*weight);
        json!({ "about": about, "weight": weight, "what": what, "remedy": remedy })
    };
    let checks: Vec<_> = checks.iter().map(as_json).collect();
    output::json(&json!({ "well": is_well, "checks": checks }))
}

// === impl Check ===

impl Check {
    fn new(about: &'static str, finding: Finding) -> Self {
        Self { about, finding, exit: Exit::Failed }
    }

    /// A check of something outside of this process.
    fn outside(about: &'static str, finding: Finding) -> Self {
        Self { exit: Exit::Unreachable, ..Self::new(about, finding) }
    }
}

fn mark_and_name(weight: Weight) -> (char, &'static str) {
    match weight {
        Weight::Good => ('✓', "good"),
        Weight::Risky => ('!', "risky"),
        Weight::Bad => ('✗', "bad"),
    }
}
