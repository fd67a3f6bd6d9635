//! How the engine is doing, for `/readyz`, status pages and estimates. Never used to decide about money.

use std::{
    collections::BTreeMap,
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
    /// Mean solve time by kind, exponentially weighted, in milliseconds.
    solves: Mutex<BTreeMap<Kind, f64>>,
}

const WEIGHT: f64 = 0.1;
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
        troubles.extend(inner.breaker.trouble());
        Health {
            ready: store.is_none() && !draining,
            troubles,
            in_flight: inner.health.in_flight(),
            queued: inner.health.queued(),
        }
    }

    /// The account's trouble, if it has any.
    pub fn account_trouble(&self) -> Option<String> {
        self.0.breaker.trouble()
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
        let millis = length.as_secs_f64() * 1000.0;
        let mean = solves.entry(kind.clone()).or_insert(millis);
        *mean += WEIGHT * (millis - *mean);
    }

    pub(crate) fn usual_solve(&self, kind: &Kind) -> Duration {
        let solves = self.solves.lock().expect("no holder of this lock can panic");
        solves.get(kind).map_or(USUAL, |millis| Duration::from_secs_f64(millis.max(0.0) / 1000.0))
    }
}
