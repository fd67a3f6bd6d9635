//! Workers, their keys and their limits.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
    key::KeyDigest,
    rate::Rate,
    secret::Secret,
    site::HostRule,
};

use crate::config::{
    ConfigError,
    written::{Given, WorkerKeys},
};

/// A program that may ask for solves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub name: WorkerName,
    pub key: Secret,
    pub project: Project,
    /// Daily limits, as the store counts them.
    pub budget: Allowance,
    pub rate: Option<Rate>,
    pub sites: Option<Vec<HostRule>>,
    pub priority: u32,
}

impl Worker {
    /// The budgets, for alerts.
    pub fn allowances(workers: &[Self]) -> BTreeMap<WorkerName, Allowance> {
        workers.iter().map(|worker| (worker.name.clone(), worker.budget)).collect()
    }
}

/// Names under which the gateway itself writes into the ledger.
const RESERVED_NAMES: [&str; 2] = ["pool", "admin"];

pub(super) fn check(
    keys: Vec<WorkerKeys>,
    admin: Option<&Secret>,
) -> Result<Vec<Worker>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut secrets: BTreeSet<Secret> = admin.cloned().into_iter().collect();
    let mut workers = Vec::new();
    for (at, keys) in keys.into_iter().enumerate() {
        let worker = check_worker(at, keys)?;
        let refused = |what| Err(ConfigError::at(format!("[[worker]] {}", worker.name), what));
        if RESERVED_NAMES.contains(&worker.name.as_str()) {
            return refused("the gateway itself uses this name in the ledger; choose another");
        }
        if !names.insert(worker.name.clone()) {
            return refused("the name is used twice; give each worker its own");
        }
        if !secrets.insert(worker.key.clone()) {
            return refused("the key is used twice; give each worker and the admin their own");
        }
        workers.push(worker);
    }
    Ok(workers)
}

fn check_worker(at: usize, keys: WorkerKeys) -> Result<Worker, ConfigError> {
    let Some(Given { value: name, .. }) = keys.name else {
        return Err(ConfigError::at(format!("[[worker]] number {}", at + 1), "name is missing"));
    };
    let place = format!("[[worker]] {name}");
    let Some(key) = keys.key else {
        return Err(ConfigError::at(place, "key is missing; write key = \"env:NAME\""));
    };
    let project = match keys.project {
        Some(project) => project.value,
        None => Project::new(name.as_str()).map_err(|error| ConfigError::at(place, error))?,
    };
    let budget = keys.budget;
    Ok(Worker {
        key: check_key(key)?,
        project,
        budget: Allowance {
            solves_per_day: budget.solves_per_day.map(|number| number.value),
            cost_per_day: budget.cost_per_day.map(|amount| amount.value),
        },
        rate: keys.rate.map(|rate| rate.value),
        sites: keys.sites.map(|sites| sites.value),
        priority: keys.priority.check(check_priority)?,
        name,
    })
}

pub(super) fn check_key(key: Given<Secret>) -> Result<Secret, ConfigError> {
    key.check(|key| match KeyDigest::of(key.expose()) {
        Ok(_) => Ok(key),
        Err(_) => Err(format!(
            "the key has {} characters; client libraries insist on exactly 32 printable ones",
            key.expose().len()
        )),
    })
}

fn check_priority(priority: u32) -> Result<u32, &'static str> {
    if (1..=100).contains(&priority) {
        return Ok(priority);
    }
    Err("is not from 1 (the default) to 100; it is the share of the slots")
}
