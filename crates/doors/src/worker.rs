//! The workers by key, with project, allowance and rate limit. The engine's declarations say what each may use. Only digests of keys are kept.

mod rate;

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    sync::Arc,
};

use domain::{
    claim::Allowance,
    id::{Project, WorkerName},
    key::{AccessKey, KeyDigest},
    rate::Rate,
    time::Timestamp,
};
use parking_lot::RwLock;

use crate::error::Refusal;

pub(crate) use rate::RateLimiter;

/// A program that may call the gateway.
#[derive(Clone, Debug)]
pub struct Worker {
    pub name: WorkerName,
    /// Each of them gives access; there are several while a key is being replaced.
    pub keys: Vec<AccessKey>,
    /// The project its cost is charged to, unless a claim names another.
    pub project: Project,
    /// The other projects that its claims may name.
    pub projects: Vec<Project>,
    /// Its share of the slots, relative to other workers; the default is 1.
    pub priority: u32,
    /// Its daily budget.
    pub allowance: Allowance,
    /// Whether it may read the account's balance.
    pub balance: bool,
    /// Its limit on claims, for all gateways together.
    pub rate: Option<Rate>,
    /// Its limit on fetches of single claims, for all gateways together.
    pub poll_rate: Option<Rate>,
    /// Its limit on other requests, for all gateways together.
    pub read_rate: Option<Rate>,
}

/// All workers. Clones share them, and a reload replaces them.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<RwLock<Arc<WorkerIndex>>>);

/// A worker and the state of its rate limits.
#[derive(Debug)]
pub(crate) struct KnownWorker {
    pub(crate) worker: Worker,
    pub(crate) claims: Option<Arc<RateLimiter>>,
    pub(crate) polls: Option<Arc<RateLimiter>>,
    pub(crate) reads: Option<Arc<RateLimiter>>,
}

/// The owner of a key.
#[derive(Debug)]
pub(crate) enum KeyOwner {
    Worker(Arc<KnownWorker>),
    /// The key was this worker's; its `until` has passed.
    Formerly(Arc<KnownWorker>),
    Nobody,
}

#[derive(Debug, Default)]
struct WorkerIndex {
    by_key: HashMap<KeyDigest, (AccessKey, Arc<KnownWorker>)>,
    by_name: BTreeMap<WorkerName, Arc<KnownWorker>>,
}

/// Two workers have the same name or the same key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWorkers {
    #[error("two workers are called {0}; every worker needs its own name")]
    SameName(WorkerName),
    #[error("the workers {0} and {1} have the same key; every worker needs its own key")]
    SameKey(WorkerName, WorkerName),
}

// === impl Worker ===

impl Worker {
    /// The project, if the worker may charge it.
    pub(crate) fn check_project(&self, project: Project) -> Result<Project, Refusal> {
        if project == self.project || self.projects.contains(&project) {
            return Ok(project);
        }
        let allowed = std::iter::once(&self.project).chain(&self.projects);
        let allowed: Vec<_> = allowed.map(Project::as_str).collect();
        Err(Refusal::Project { project, allowed: allowed.join(", ") })
    }
}

// === impl Workers ===

impl Workers {
    pub fn new(workers: Vec<Worker>) -> Result<Self, BadWorkers> {
        let index = WorkerIndex::build(workers, &WorkerIndex::default())?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(index)))))
    }

    /// Replaces the workers. A worker that keeps its rate keeps the state of its rate limit, so that neither a reload nor
    /// a new key can be used to get around it.
    ///
    /// `meanwhile` puts the rest of the new configuration into force. No key is looked up until it has returned, so that no
    /// request meets new keys under old rules. On an error it does not run.
    pub fn replace(
        &self,
        workers: Vec<Worker>,
        meanwhile: impl FnOnce(),
    ) -> Result<(), BadWorkers> {
        let index = WorkerIndex::build(workers, &self.index())?;
        let mut in_force = self.0.write();
        meanwhile();
        *in_force = Arc::new(index);
        Ok(())
    }

    /// All workers, sorted by name.
    pub fn list(&self) -> Vec<Worker> {
        self.index().by_name.values().map(|known| known.worker.clone()).collect()
    }

    pub(crate) fn find(&self, key: KeyDigest, now: Timestamp) -> KeyOwner {
        let index = self.index();
        // The map's lookup may leak timing, so the result depends on this constant-time comparison.
        match index.by_key.get(&key).filter(|(found, _)| found.digest.is(key)) {
            Some((found, known)) if found.is_valid(now) => KeyOwner::Worker(Arc::clone(known)),
            Some((_, known)) => KeyOwner::Formerly(Arc::clone(known)),
            None => KeyOwner::Nobody,
        }
    }

    fn index(&self) -> Arc<WorkerIndex> {
        Arc::clone(&self.0.read())
    }
}

// === impl WorkerIndex ===

impl WorkerIndex {
    fn build(workers: Vec<Worker>, before: &Self) -> Result<Self, BadWorkers> {
        let mut index = Self::default();
        for worker in workers {
            let name = worker.name.clone();
            let known = Arc::new(before.carry_over(worker));
            for key in &known.worker.keys {
                let entry = (*key, Arc::clone(&known));
                if let Some((_, other)) = index.by_key.insert(key.digest, entry) {
                    return Err(BadWorkers::SameKey(other.worker.name.clone(), name));
                }
            }
            match index.by_name.entry(name) {
                Entry::Vacant(free) => free.insert(known),
                Entry::Occupied(taken) => return Err(BadWorkers::SameName(taken.key().clone())),
            };
        }
        Ok(index)
    }

    /// Keeps the state of unchanged rate limits.
    fn carry_over(&self, worker: Worker) -> KnownWorker {
        let before = self.by_name.get(&worker.name);
        let limiter = |rate: Option<Rate>, kept: Option<&Option<Arc<RateLimiter>>>| {
            let kept = kept.and_then(Clone::clone).filter(|kept| Some(kept.rate()) == rate);
            kept.or_else(|| rate.map(|rate| Arc::new(RateLimiter::new(rate))))
        };
        KnownWorker {
            claims: limiter(worker.rate, before.map(|known| &known.claims)),
            polls: limiter(worker.poll_rate, before.map(|known| &known.polls)),
            reads: limiter(worker.read_rate, before.map(|known| &known.reads)),
            worker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, key: &str, rate: Option<&str>) -> Worker {
        Worker {
            name: WorkerName::new(name).unwrap(),
            keys: vec![KeyDigest::of(key).unwrap().into()],
            project: Project::new("tests").unwrap(),
            projects: Vec::new(),
            priority: 1,
            allowance: Allowance::default(),
            rate: rate.map(|rate| rate.parse().unwrap()),
            balance: true,
            poll_rate: None,
            read_rate: None,
        }
    }

    const ONE: &str = "11111111111111111111111111111111";
    const TWO: &str = "22222222222222222222222222222222";

    fn digest(key: &str) -> KeyDigest {
        KeyDigest::of(key).unwrap()
    }

    const NOW: Timestamp = Timestamp::from_millis(1000);

    fn name_of(workers: &Workers, key: &str) -> Option<String> {
        match workers.find(digest(key), NOW) {
            KeyOwner::Worker(known) => Some(known.worker.name.to_string()),
            KeyOwner::Formerly(_) | KeyOwner::Nobody => None,
        }
    }

    #[test]
    fn a_worker_is_found_by_its_key_until_it_is_replaced() {
        let workers = Workers::new(vec![worker("a", ONE, None)]).unwrap();
        assert_eq!(name_of(&workers, ONE).as_deref(), Some("a"));
        workers.replace(vec![worker("b", TWO, None)], || ()).unwrap();
        assert!(matches!(workers.find(digest(ONE), NOW), KeyOwner::Nobody));
        assert_eq!(workers.list().len(), 1);
    }

    #[test]
    fn a_worker_has_several_keys_and_each_ends_at_its_own_moment() {
        let mut a = worker("a", ONE, None);
        a.keys.push(AccessKey { digest: digest(TWO), until: Some(NOW) });
        let workers = Workers::new(vec![a]).unwrap();
        assert_eq!(name_of(&workers, ONE).as_deref(), Some("a"));
        assert!(matches!(workers.find(digest(TWO), NOW), KeyOwner::Formerly(_)));
        let before = Timestamp::from_millis(999);
        assert!(matches!(workers.find(digest(TWO), before), KeyOwner::Worker(_)));
        assert_eq!(workers.list().len(), 1, "one worker, whatever the number of its keys");
    }

    #[test]
    fn two_workers_cannot_share_a_name_or_a_key() {
        let same_name = vec![worker("a", ONE, None), worker("a", TWO, None)];
        assert!(matches!(Workers::new(same_name), Err(BadWorkers::SameName(_))));
        let same_key = vec![worker("a", ONE, None), worker("b", ONE, None)];
        assert!(matches!(Workers::new(same_key), Err(BadWorkers::SameKey(..))));
    }

    #[test]
    fn neither_a_reload_nor_a_new_key_refills_a_rate() {
        let workers = Workers::new(vec![worker("a", ONE, Some("1/h"))]).unwrap();
        let take = |key| match workers.find(digest(key), NOW) {
            KeyOwner::Worker(known) => known.claims.clone().unwrap().take(NOW, 1).is_ok(),
            KeyOwner::Formerly(_) | KeyOwner::Nobody => panic!("the worker is not found"),
        };
        assert!(take(ONE));
        workers.replace(vec![worker("a", ONE, Some("1/h"))], || ()).unwrap();
        assert!(!take(ONE));
        workers.replace(vec![worker("a", TWO, Some("1/h"))], || ()).unwrap();
        assert!(!take(TWO), "nor does a new key");
    }

    #[test]
    fn no_key_is_looked_up_while_the_rest_comes_into_force() {
        let workers = Workers::new(vec![worker("a", ONE, None)]).unwrap();
        let mut was_locked = false;
        let new = vec![worker("b", TWO, None)];
        workers.replace(new, || was_locked = workers.0.try_read().is_none()).unwrap();
        assert!(was_locked);
        let twice = vec![worker("b", TWO, None), worker("b", ONE, None)];
        assert!(workers.replace(twice, || panic!("a mistake changes nothing")).is_err());
    }

    #[test]
    fn no_key_is_shown_by_debug() {
        let shown = format!("{:?}", Workers::new(vec![worker("a", ONE, None)]).unwrap());
        assert!(!shown.contains("1111"), "{shown}");
    }
}
