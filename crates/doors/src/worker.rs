//! The workers by key, with project, allowance, rate limit and allowed sites. Only digests of keys are kept.

mod rate;

use std::{collections::HashMap, sync::Arc};

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
    key::KeyDigest,
    rate::Rate,
    site::HostRule,
};
use parking_lot::RwLock;

pub(crate) use rate::ClaimRateLimiter;

/// A program that may call the gateway.
#[derive(Clone, Debug)]
pub struct Worker {
    pub name: WorkerName,
    pub key: KeyDigest,
    /// The project its cost is charged to.
    pub project: Project,
    /// Its share of the slots, relative to other workers; the default is 1.
    pub priority: u32,
    /// Its daily budget.
    pub allowance: Allowance,
    /// Its limit on claims per second, minute or hour.
    pub rate: Option<Rate>,
    /// The declared sites it may use; all when `None`.
    pub allowed_hosts: Option<Arc<[HostRule]>>,
}

/// All workers. Clones share them, and a reload replaces them.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<RwLock<Arc<WorkerIndex>>>);

/// A worker and the state of its rate limit.
#[derive(Debug)]
pub(crate) struct KnownWorker {
    pub(crate) worker: Worker,
    pub(crate) rate_limiter: Option<ClaimRateLimiter>,
}

#[derive(Debug, Default)]
struct WorkerIndex(HashMap<KeyDigest, Arc<KnownWorker>>);

/// Two workers have the same name or the same key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWorkers {
    #[error("two workers are called {0}; every worker needs its own name")]
    SameName(WorkerName),
    #[error("the workers {0} and {1} have the same key; every worker needs its own key")]
    SameKey(WorkerName, WorkerName),
}

// === impl Workers ===

impl Workers {
    pub fn new(workers: Vec<Worker>) -> Result<Self, BadWorkers> {
        let index = WorkerIndex::build(workers, &WorkerIndex::default())?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(index)))))
    }

    /// Replaces the workers. A worker that keeps its key and rate keeps the state of its rate limit, so that a reload cannot
    /// be used to get around it.
    pub fn replace(&self, workers: Vec<Worker>) -> Result<(), BadWorkers> {
        let index = WorkerIndex::build(workers, &self.index())?;
        *self.0.write() = Arc::new(index);
        Ok(())
    }

    /// All workers, sorted by name.
    pub fn list(&self) -> Vec<Worker> {
        let mut all: Vec<_> = self.index().0.values().map(|known| known.worker.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub(crate) fn find(&self, key: KeyDigest) -> Option<Arc<KnownWorker>> {
        let index = self.index();
        // The map's lookup may leak timing, so the result depends on this constant-time comparison.
        index.0.get(&key).filter(|known| known.worker.key.is(key)).cloned()
    }

    fn index(&self) -> Arc<WorkerIndex> {
        Arc::clone(&self.0.read())
    }
}

// === impl WorkerIndex ===

impl WorkerIndex {
    fn build(workers: Vec<Worker>, before: &Self) -> Result<Self, BadWorkers> {
        let mut index: HashMap<KeyDigest, Arc<KnownWorker>> = HashMap::new();
        for worker in workers {
            if index.values().any(|known| known.worker.name == worker.name) {
                return Err(BadWorkers::SameName(worker.name));
            }
            let key = worker.key;
            let known = Arc::new(before.carry_over(worker));
            if let Some(other) = index.insert(key, Arc::clone(&known)) {
                let names = (other.worker.name.clone(), known.worker.name.clone());
                return Err(BadWorkers::SameKey(names.0, names.1));
            }
        }
        Ok(Self(index))
    }

    /// Keeps the state of an unchanged rate limit.
    fn carry_over(&self, worker: Worker) -> KnownWorker {
        let kept = self.0.get(&worker.key).filter(|known| known.worker.rate == worker.rate);
        let rate_limiter = match kept {
            Some(known) => known.rate_limiter.clone(),
            None => worker.rate.map(ClaimRateLimiter::new),
        };
        KnownWorker { worker, rate_limiter }
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
            allowed_hosts: None,
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
        let take = || workers.find(key).unwrap().rate_limiter.clone().unwrap().take();
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
