//! Who is calling: key → worker, with its project, allowance, rate and narrowing. Keys themselves are never kept.

mod failures;
mod key;
mod rate;

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
    site::HostRule,
};

pub(crate) use failures::Failures;
pub use key::{BadKey, KeyDigest};
pub(crate) use rate::Meter;
pub use rate::{BadRate, Rate};

/// A program of the team that asks us.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its name.
    pub name: WorkerName,
    /// The digest of its key.
    pub key: KeyDigest,
    /// What its cost is charged to.
    pub project: Project,
    /// Its share of the slots; 1 is the usual one.
    pub priority: u32,
    /// What it may open a day.
    pub allowance: Allowance,
    /// How many claims it may make in a time.
    pub rate: Option<Rate>,
    /// The declared sites it may use; all when `None`.
    pub narrowing: Option<Arc<[HostRule]>>,
}

/// All workers. Cloning shares them; they can be replaced while running.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<RwLock<Arc<Roll>>>);

/// A worker and the meter of its rate.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) worker: Worker,
    pub(crate) meter: Option<Meter>,
}

#[derive(Debug, Default)]
struct Roll(HashMap<KeyDigest, Arc<Known>>);

/// Two workers cannot be told apart.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWorkers {
    /// The same name twice.
    #[error("two workers are called {0}; every worker needs a name of its own")]
    SameName(WorkerName),
    /// The same key twice.
    #[error("the workers {0} and {1} have the same key; every worker needs a key of its own")]
    SameKey(WorkerName, WorkerName),
}

// === impl Workers ===

impl Workers {
    /// These workers.
    pub fn new(workers: Vec<Worker>) -> Result<Self, BadWorkers> {
        let roll = Roll::of(workers, &Roll::default())?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(roll)))))
    }

    /// Puts other workers in force at once. A worker that keeps key and rate keeps its meter, so that a reload is no
    /// way around a rate.
    pub fn replace(&self, workers: Vec<Worker>) -> Result<(), BadWorkers> {
        let roll = Roll::of(workers, &self.roll())?;
        *self.0.write().expect("no holder of this lock can panic") = Arc::new(roll);
        Ok(())
    }

    /// All workers, by name.
    pub fn list(&self) -> Vec<Worker> {
        let mut all: Vec<_> = self.roll().0.values().map(|known| known.worker.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The worker with this key.
    pub(crate) fn find(&self, key: KeyDigest) -> Option<Arc<Known>> {
        let roll = self.roll();
        // The map may compare digests in a time that depends on them; the answer depends on the comparison in here.
        roll.0.get(&key).filter(|known| known.worker.key.is(key)).cloned()
    }

    fn roll(&self) -> Arc<Roll> {
        Arc::clone(&self.0.read().expect("no holder of this lock can panic"))
    }
}

// === impl Roll ===

impl Roll {
    fn of(workers: Vec<Worker>, before: &Self) -> Result<Self, BadWorkers> {
        let mut roll: HashMap<KeyDigest, Arc<Known>> = HashMap::new();
        for worker in workers {
            if roll.values().any(|known| known.worker.name == worker.name) {
                return Err(BadWorkers::SameName(worker.name));
            }
            let key = worker.key;
            let known = Arc::new(before.known(worker));
            if let Some(other) = roll.insert(key, Arc::clone(&known)) {
                let names = (other.worker.name.clone(), known.worker.name.clone());
                return Err(BadWorkers::SameKey(names.0, names.1));
            }
        }
        Ok(Self(roll))
    }

    fn known(&self, worker: Worker) -> Known {
        let kept = self.0.get(&worker.key).filter(|known| known.worker.rate == worker.rate);
        let meter = match kept {
            Some(known) => known.meter.clone(),
            None => worker.rate.map(Meter::new),
        };
        Known { worker, meter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, key: &str, rate: Option<&str>) -> Worker {
        Worker {
            name: WorkerName::new(name).unwrap(),
            key: KeyDigest::of(key).unwrap(),
            project: Project::new("tests").unwrap(),
            priority: 1,
            allowance: Allowance::default(),
            rate: rate.map(|rate| rate.parse().unwrap()),
            narrowing: None,
        }
    }

    const ONE: &str = "11111111111111111111111111111111";
    const TWO: &str = "22222222222222222222222222222222";

    #[test]
    fn a_worker_is_found_by_its_key_until_it_is_replaced() {
        let workers = Workers::new(vec![worker("a", ONE, None)]).unwrap();
        let key = KeyDigest::of(ONE).unwrap();
        assert_eq!(workers.find(key).unwrap().worker.name.as_str(), "a");
        workers.replace(vec![worker("b", TWO, None)]).unwrap();
        assert!(workers.find(key).is_none());
        assert_eq!(workers.list().len(), 1);
    }

    #[test]
    fn two_workers_cannot_share_a_name_or_a_key() {
        let same_name = vec![worker("a", ONE, None), worker("a", TWO, None)];
        assert!(matches!(Workers::new(same_name), Err(BadWorkers::SameName(_))));
        let same_key = vec![worker("a", ONE, None), worker("b", ONE, None)];
        assert!(matches!(Workers::new(same_key), Err(BadWorkers::SameKey(..))));
    }

    #[test]
    fn a_reload_does_not_refill_a_rate() {
        let workers = Workers::new(vec![worker("a", ONE, Some("1/h"))]).unwrap();
        let key = KeyDigest::of(ONE).unwrap();
        let take = || workers.find(key).unwrap().meter.clone().unwrap().take();
        assert!(take().is_ok());
        workers.replace(vec![worker("a", ONE, Some("1/h"))]).unwrap();
        assert!(take().is_err());
    }

    #[test]
    fn no_key_is_shown_by_debug() {
        let shown = format!("{:?}", Workers::new(vec![worker("a", ONE, None)]).unwrap());
        assert!(!shown.contains("1111"), "{shown}");
    }
}
