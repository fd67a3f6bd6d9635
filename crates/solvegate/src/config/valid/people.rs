//! Who may ask, and how much.

use std::collections::BTreeSet;

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
    money::Money,
    secret::Secret,
    site::HostRule,
};

use doors::Rate;

use super::{plain, sites};
use crate::config::{
    ConfigError,
    raw::{RawAdmin, RawBudget, RawWorker},
    secret::Reader,
};

/// A program of the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name.
    pub name: WorkerName,
    /// Its key.
    pub key: Secret,
    /// What its cost is charged to.
    pub project: Project,
    /// What it may open a day.
    pub budget: Budget,
    /// How fast it may ask.
    pub rate: Option<Rate>,
    /// Its own narrowing of the declared sites.
    pub sites: Option<Vec<HostRule>>,
    /// Its share of the slots, beside the others'.
    pub priority: u32,
}

/// What a worker may open a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// New solves.
    pub solves_per_day: Option<u64>,
    /// Money, at list price.
    pub cost_per_day: Option<Money>,
}

// === impl Worker ===

impl Worker {
    /// Its budget as the store counts it.
    pub fn allowance(&self) -> Allowance {
        Allowance {
            solves_per_day: self.budget.solves_per_day,
            cost_per_day: self.budget.cost_per_day,
        }
    }
}

/// Names under which the gateway itself writes into the ledger.
const OUR_NAMES: [&str; 2] = ["pool", "admin"];

/// Client libraries insist on this length.
const KEY_LENGTH: usize = 32;

pub(super) fn check_admin(
    raw: RawAdmin,
    secrets: &Reader<'_>,
) -> Result<Option<Secret>, ConfigError> {
    let Some(raw) = raw.key else { return Ok(None) };
    let key = secrets.read("[admin] key", &raw)?;
    check_key("[admin] key", key).map(Some)
}

pub(super) fn check_workers(
    raw: Vec<RawWorker>,
    admin: Option<&Secret>,
    secrets: &Reader<'_>,
) -> Result<Vec<Worker>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut keys: BTreeSet<Secret> = admin.cloned().into_iter().collect();
    let mut workers = Vec::new();
    for (at, raw) in raw.into_iter().enumerate() {
        let worker = check_worker(at, raw, secrets)?;
        let refused = |what| Err(ConfigError::at(format!("[[worker]] {}", worker.name), what));
        if OUR_NAMES.contains(&worker.name.as_str()) {
            return refused("the gateway writes its own work down under this name; choose another");
        }
        if !names.insert(worker.name.clone()) {
            return refused("the name is used twice; a worker is known by its name");
        }
        if !keys.insert(worker.key.clone()) {
            return refused(
                "the key is used twice; give every worker and the admin a key of their own",
            );
        }
        workers.push(worker);
    }
    Ok(workers)
}

fn check_worker(at: usize, raw: RawWorker, secrets: &Reader<'_>) -> Result<Worker, ConfigError> {
    let place = match &raw.name {
        Some(name) => format!("[[worker]] {name}"),
        None => format!("[[worker]] number {}", at + 1),
    };
    let refused = |what: String| ConfigError::at(&place, what);
    let name = raw.name.ok_or_else(|| refused("name is missing".into()))?;
    let name = WorkerName::new(name).map_err(|error| refused(error.to_string()))?;
    let project = raw.project.unwrap_or_else(|| name.as_str().to_owned());
    let key = raw.key.ok_or_else(|| refused("key is missing; write key = \"env:NAME\"".into()))?;
    let rules = |hosts: Vec<String>| {
        hosts.iter().map(|host| sites::check_rule(&place, host)).collect::<Result<_, _>>()
    };
    Ok(Worker {
        key: check_key(&place, secrets.read(&place, &key)?)?,
        project: Project::new(project).map_err(|error| refused(error.to_string()))?,
        budget: check_budget(&place, &raw.budget)?,
        rate: raw
            .rate
            .map(|text| text.parse::<Rate>())
            .transpose()
            .map_err(|e| refused(e.to_string()))?,
        sites: raw.sites.map(rules).transpose()?,
        priority: check_priority(&place, raw.priority)?,
        name,
    })
}

fn check_key(place: &str, key: Secret) -> Result<Secret, ConfigError> {
    let length = key.expose().len();
    if doors::KeyDigest::of(key.expose()).is_ok() {
        return Ok(key);
    }
    let what = format!(
        "the key has {length} characters; client libraries insist on exactly {KEY_LENGTH} printable ones"
    );
    Err(ConfigError::at(place, what))
}

fn check_priority(place: &str, written: Option<u32>) -> Result<u32, ConfigError> {
    let priority = written.unwrap_or(1);
    if (1..=100).contains(&priority) {
        return Ok(priority);
    }
    let what = "priority is a share of the slots, from 1 (the usual one) to 100";
    Err(ConfigError::at(place, what))
}

fn check_budget(place: &str, raw: &RawBudget) -> Result<Budget, ConfigError> {
    let cost = raw.cost_per_day.as_ref().map(|amount| plain::money(place, amount)).transpose()?;
    Ok(Budget { solves_per_day: raw.solves_per_day, cost_per_day: cost })
}
