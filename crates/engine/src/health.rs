//! How the engine is doing, for `/readyz`, status pages and estimates. Never used to decide about money.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{challenge::Kind, ports::StoreError};

use crate::Engine;

/// How the engine is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes claims.
    pub ready: bool,
    /// What is wrong, one line each; empty when all is well.
    pub troubles: Vec<String>,
    /// Tasks at the provider.
    pub in_flight: usize,
    /// Solves waiting for a slot or their time.
    pub queued: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Vitals {
    in_flight: AtomicUsize,
    queued: AtomicUsize,
    /// The store's last trouble, until it answers again.
    store: Mutex<Option<String>>,
    /// A part of the machine that panicked.
    failed: Mutex<Option<&'static str>>,
    /// What solves took lately, by kind.
    solves: Mutex<BTreeMap<Kind, VecDeque<Duration>>>,
}

/// So many solves are remembered, and so many are needed to call something impossible.
const REMEMBERED: usize = 64;
const ENOUGH: usize = 20;
/// Callers may name kinds nobody knows: not all of them are remembered.
const MOST_KINDS: usize = 256;
const USUAL: Duration = Duration::from_secs(5);

impl Engine {
    /// How the engine is doing.
    pub fn health(&self) -> Health {
        let inner = &*self.0;
        let store = inner.health.store.lock().expect("no holder of this lock can panic").clone();
        let draining = inner.is_draining();
        let mut troubles: Vec<String> = store.iter().cloned().collect();
        let failed = *inner.health.failed.lock().expect("no holder of this lock can panic");
        troubles.extend(failed.map(|part| format!("the {part} panicked: restart the gateway")));
        troubles.extend(draining.then(|| "draining".to_owned()));
        troubles.extend(inner.breakers.troubles());
        Health {
            ready: store.is_none() && !draining,
            troubles,
            in_flight: inner.health.in_flight(),
            queued: inner.health.queued(),
        }
    }

    /// The account's trouble, if it has any.
    pub fn account_trouble(&self) -> Option<String> {
        self.0.breakers.account.trouble()
    }
}

impl Vitals {
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn set_load(&self, in_flight: usize, queued: usize) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.queued.store(queued, Ordering::Relaxed);
    }

    pub(crate) fn part_failed(&self, part: &'static str) {
        *self.failed.lock().expect("no holder of this lock can panic") = Some(part);
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        *self.store.lock().expect("no holder of this lock can panic") = Some(error.to_string());
    }

    pub(crate) fn store_answered(&self) {
        *self.store.lock().expect("no holder of this lock can panic") = None;
    }

    pub(crate) fn solved_in(&self, kind: &Kind, length: Duration) {
        let mut solves = self.solves.lock().expect("no holder of this lock can panic");
        if solves.len() >= MOST_KINDS && !solves.contains_key(kind) {
            return;
        }
        let lately = solves.entry(kind.clone()).or_default();
        lately.push_back(length);
        if lately.len() > REMEMBERED {
            lately.pop_front();
        }
    }

    pub(crate) fn usual_solve(&self, kind: &Kind) -> Duration {
        let solves = self.solves.lock().expect("no holder of this lock can panic");
        let Some(lately) = solves.get(kind).filter(|lately| !lately.is_empty()) else {
            return USUAL;
        };
        lately.iter().sum::<Duration>() / u32::try_from(lately.len()).unwrap_or(u32::MAX)
    }

    /// The fastest solve of the kind lately, once there were enough to go by.
    pub(crate) fn fastest_solve(&self, kind: &Kind) -> Option<Duration> {
        let solves = self.solves.lock().expect("no holder of this lock can panic");
        solves.get(kind).filter(|lately| lately.len() >= ENOUGH)?.iter().min().copied()
    }

    /// The fastest solve of any kind lately.
    pub(crate) fn fastest_of_all(&self) -> Duration {
        let solves = self.solves.lock().expect("no holder of this lock can panic");
        solves.values().flatten().min().copied().unwrap_or_default()
    }
}
