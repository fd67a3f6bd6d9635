//! The same schedule gives the same answers and the same history on every store. Memory is the model; the embedded
//! store is closed and reopened in between. `redis/differential.rs` does the same with servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, path::Path};

use crate::schedule::{Comparison, EVENTS, compare_all};
use domain::{lease::Holder, time::Timestamp};
use stores::Backend;

const STEPS: usize = 300;
const SEEDS: u64 = 32;

fn embedded(dir: &Path) -> Backend {
    stores::open(&format!("embedded:{}", dir.display())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_schedule_gives_the_same_history() {
    let happened = compare_all(SEEDS, reopened_now_and_then).await;
    assert_eq!(happened.len(), EVENTS, "the schedules reach everything: {happened:?}");
}

async fn reopened_now_and_then(mut comparison: Comparison) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut other = embedded(dir.path());
    for _ in 0..STEPS {
        if comparison.chance().u8(..) < 8 {
            drop(other);
            other = embedded(dir.path());
            forget_holders(&comparison).await;
        }
        comparison.step(&other, 0).await;
    }
    comparison.finish(&other).await
}

/// A reopened embedded store knows that the holders of its leases are dead. The model learns it from leases that have ended.
async fn forget_holders(comparison: &Comparison) {
    for id in &comparison.holders {
        let holder = Holder::apart(*id, Timestamp::default());
        comparison.model.store.hold(holder).await.unwrap();
    }
}
