//! Workers, their keys and their limits.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    claim::Allowance,
    declarations::{KnownWorkers, WorkerScope},
    id::{Project, WorkerName},
    key::AccessKey,
    rate::Rate,
};

use super::{
    Admin,
    access_keys::{self, TakenKeys},
    budgets,
    notifications::{self, WorkerCallbacks},
};
use crate::config::{
    ConfigError,
    written::{Given, WorkerKeys},
};

/// A program that may ask for solves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub name: WorkerName,
    /// Each of them gives access.
    pub keys: Vec<AccessKey>,
    pub project: Project,
    /// The other projects it may charge.
    pub projects: Vec<Project>,
    /// Its limits, as the store counts them.
    pub budget: Allowance,
    /// Where its callbacks differ from those of the others.
    pub callbacks: Option<WorkerCallbacks>,
    pub rate: Option<Rate>,
    pub poll_rate: Rate,
    pub read_rate: Rate,
    /// Whether it may read the account's balance.
    pub balance: bool,
    /// The most of its solves that wait for a slot.
    pub queue: usize,
    /// The declarations it may use.
    pub scope: WorkerScope,
    pub priority: u32,
}

impl Worker {
    /// What each may use. [`LOCAL`] is known too, because the command line solves in its name on the same store.
    pub fn scopes(workers: &[Self]) -> KnownWorkers {
        let local = WorkerName::new(LOCAL).expect("a valid worker name");
        let mut scopes = BTreeMap::from([(local, WorkerScope::FULL)]);
        let each = workers.iter().map(|worker| (worker.name.clone(), worker.scope.clone()));
        scopes.extend(each);
        KnownWorkers::Listed(scopes)
    }
}

/// The worker of the command line, and of a gateway without configured workers.
pub const LOCAL: &str = "local";

/// Names under which the gateway itself writes into the ledger.
const RESERVED_NAMES: [&str; 3] = ["pool", "admin", "sighup"];
const MAX_PROJECTS: usize = 100;

pub(super) fn check(
    keys: Vec<WorkerKeys>,
    admins: &[Admin],
    taken: &mut TakenKeys,
) -> Result<Vec<Worker>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut workers = Vec::new();
    for (at, keys) in keys.into_iter().enumerate() {
        let worker = check_worker(at, keys)?;
        let place = format!("[[worker]] {}", worker.name);
        let refused = |what| Err(ConfigError::at(&place, what));
        if RESERVED_NAMES.contains(&worker.name.as_str()) {
            return refused("the gateway itself uses this name in the ledger; choose another");
        }
        if admins.iter().any(|admin| admin.name == worker.name) {
            return refused("an admin has this name; give each worker and each admin its own");
        }
        if !names.insert(worker.name.clone()) {
            return refused("the name is used twice; give each worker its own");
        }
        taken.take(&place, &worker.keys)?;
        workers.push(worker);
    }
    Ok(workers)
}

fn check_worker(at: usize, keys: WorkerKeys) -> Result<Worker, ConfigError> {
    let Some(Given { value: name, .. }) = keys.name else {
        return Err(ConfigError::at(format!("[[worker]] number {}", at + 1), "name is missing"));
    };
    let place = format!("[[worker]] {name}");
    let access = access_keys::check(&place, keys.key, keys.keys)?;
    let project = match keys.project {
        Some(project) => project.value,
        None => Project::new(name.as_str()).map_err(|error| ConfigError::at(place, error))?,
    };
    let sites = keys.sites.map(|sites| sites.value);
    // A worker that is kept to some sites is not meant to send pictures of others.
    let images = keys.images.map_or(sites.is_none(), |given| given.value);
    let scope = WorkerScope { sites: sites.map(Into::into), images };
    Ok(Worker {
        keys: access,
        project,
        projects: keys.projects.check(check_projects)?,
        budget: budgets::allowance(keys.budget),
        callbacks: notifications::of_worker(keys.callbacks),
        rate: keys.rate.map(|rate| rate.value),
        poll_rate: keys.poll_rate.value,
        read_rate: keys.read_rate.value,
        balance: keys.balance.value,
        queue: keys.queue.check(check_queue)?,
        scope,
        priority: keys.priority.check(check_priority)?,
        name,
    })
}

/// Every project makes rows of daily totals that are kept for 400 days.
fn check_projects(projects: Vec<Project>) -> Result<Vec<Project>, String> {
    if projects.len() <= MAX_PROJECTS {
        return Ok(projects);
    }
    Err(format!("names {} projects; a worker may have {MAX_PROJECTS} at most", projects.len()))
}

/// Checks a number of waiting solves.
pub(super) fn check_queue(solves: u32) -> Result<usize, &'static str> {
    match usize::try_from(solves) {
        Ok(solves @ 1..=100_000) => Ok(solves),
        Ok(_) | Err(_) => Err("is not from 1 to 100000; it is the number of solves that may wait"),
    }
}

fn check_priority(priority: u32) -> Result<u32, &'static str> {
    if (1..=100).contains(&priority) {
        return Ok(priority);
    }
    Err("is not from 1 (the default) to 100; it is the share of the slots")
}
