//! What every store must do: one list of [cases](CASES), run on every backend by `tests/conformance.rs`. After every case
//! the ledger is held against the invariants.
//!
//! # Layout
//! - `cases/`: the cases; `world`: the store, the clock and the short verbs they speak in
//! - `servers/`: private Redis, PostgreSQL and DynamoDB servers, and proxies that break connections
//! - `corner`: a part of a server that no other case uses
//!
//! The crate is for tests only and is linked into nothing that is shipped.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking on everything it does not expect"
)]

mod cases;
mod corner;
pub mod servers;
mod world;

use std::any::Any;

use domain::{
    invariant::Checker,
    ledger::{Counts, Event},
    ports::{Records, Scope, TotalsAsk},
    time::Day,
};

use stores::Backend;

pub use cases::{CASES, Case};
pub use corner::{connect_to_corner, fresh_corner};
pub use world::{PRICE, World, accepted, derived, named, over, refused, task, token_of};

/// A fresh, empty store, and whatever must outlive it.
#[derive(Debug)]
pub struct Fresh {
    /// The store.
    pub backend: Backend,
    /// Dropped after the case: a directory, a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Runs one case on a fresh store and checks what it left behind.
pub async fn run(case: Case, fresh: Fresh) {
    let records = fresh.backend.records.clone();
    case.run(World::new(&fresh.backend)).await;
    check(records.as_ref()).await;
}

/// The ledger has no gap, breaks no invariant, and the sums are the sums of its entries.
pub async fn check(records: &dyn Records) {
    let entries = records.entries(0, usize::MAX).await.expect("the ledger can be read");
    let first = entries.first().map_or(1, |entry| entry.seq);
    for (place, entry) in (first..).zip(&entries) {
        assert_eq!(entry.seq, place, "the ledger has a gap");
    }
    if first > 1 {
        // The beginning was dropped with the years; what is left cannot be summed up.
        return;
    }
    let violations = Checker::check(&entries);
    assert!(violations.is_empty(), "{violations:?}\n{entries:#?}");
    let ask =
        TotalsAsk { scope: Scope::All, from: Day::from_number(0), to: Day::from_number(u32::MAX) };
    let mut sum = Counts::default();
    for total in records.totals(ask).await.expect("the sums can be read") {
        sum.add(&total.counts);
    }
    let count = |is: fn(&Event) -> bool| {
        entries.iter().filter(|entry| entry.kind.is_some() && is(&entry.event)).count() as u64
    };
    assert_eq!(sum.opened, count(|event| matches!(event, Event::Opened { .. })));
    assert_eq!(sum.replayed, count(|event| matches!(event, Event::Replayed)));
    assert_eq!(sum.joined, count(|event| matches!(event, Event::Joined)));
    assert_eq!(sum.solved, count(|event| matches!(event, Event::Ready { .. })));
    assert_eq!(sum.wasted, count(|event| matches!(event, Event::Wasted { .. })));
    assert_eq!(sum.claims, sum.opened + sum.replayed + sum.joined + sum.stocked);
}
