//! The behaviour that every store must have: one list of [cases](CASES), run on every backend by `tests/conformance.rs`.
//! After each case the ledger is checked against the invariants.
//!
//! # Layout
//! - `cases/`: the cases; `world`: the context of a case, with its store and its clock
//! - `servers/`: private Redis, PostgreSQL and DynamoDB servers, and proxies that break connections
//! - `corner`: a key prefix, schema or table that no other case uses
//!
//! The crate is for tests only; nothing that ships links it.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking on everything it does not expect"
)]

mod cases;
mod corner;
pub mod servers;
mod world;

use std::{any::Any, collections::BTreeMap};

use domain::{
    chain::{Break, ChainReport, Verifier},
    claim::Claim,
    counts::check::{differences, is_complete},
    invariant::Checker,
    ledger::{Counts, Entry, Event},
    ports::{ClaimFilter, Records, Scope, TotalsFilter},
    time::{Day, Timestamp},
    token::MIN_LEFT,
};

use stores::Backend;

pub use cases::{CASES, Case};
pub use corner::{
    connect_sealed_to_corner, connect_to_corner, encryption_key, fresh_corner, keyring,
};
pub use world::{PRICE, World, accepted, admin, derived, named, over, refused, task, token_of};

/// Entries in one reading of a ledger. A server under load has to answer it within the store's second.
const PAGE: usize = 1_000;

/// An empty store, and the resources that must outlive it.
#[derive(Debug)]
pub struct Fresh {
    pub backend: Backend,
    /// Dropped after the case: a directory or a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Runs one case on an empty store and checks the ledger it leaves.
pub async fn run(case: Case, fresh: Fresh) {
    let records = fresh.backend.records.clone();
    case.run(World::new(&fresh.backend)).await;
    check(records.as_ref()).await;
}

/// Checks that the ledger has no gap and breaks no invariant, and that the totals match its entries.
pub async fn check(records: &dyn Records) {
    let entries = all_entries(records).await;
    let verified = verify_chain(records).await.expect("the chain has no break");
    assert_eq!((verified.entries, verified.unhashed), (entries.len() as u64, 0));
    let first = entries.first().map_or(1, |entry| entry.seq);
    for (place, entry) in (first..).zip(&entries) {
        assert_eq!(entry.seq, place, "the ledger has a gap");
    }
    if first > 1 {
        // Retention dropped the beginning, so the totals include entries that are gone.
        return;
    }
    let violations = Checker::check(&entries);
    assert!(violations.is_empty(), "{violations:?}\n{entries:#?}");
    let ask = TotalsFilter {
        scope: Scope::All,
        from: Day::from_number(0),
        to: Day::from_number(u32::MAX),
    };
    let mut sum = Counts::default();
    let totals = records.totals(ask).await.expect("the totals can be read");
    for total in &totals {
        sum.add(&total.counts);
    }
    let count = |is: fn(&Event) -> bool| {
        entries.iter().filter(|entry| entry.kind.is_some() && is(&entry.event)).count() as u64
    };
    assert_eq!(sum.opened, count(|event| matches!(event, Event::Opened { .. })));
    // The first replay of a claim is an entry, and later ones are only counted.
    assert!(sum.replayed >= count(|event| matches!(event, Event::Replayed)));
    assert_eq!(sum.joined, count(|event| matches!(event, Event::Joined)));
    assert_eq!(sum.solved, count(|event| matches!(event, Event::Ready { .. })));
    assert_eq!(sum.wasted, count(|event| matches!(event, Event::Wasted { .. })));
    let claims = all_claims(records).await;
    if is_complete(&claims, &entries) {
        let wrong = differences(&claims, &entries, &totals);
        assert!(wrong.is_empty(), "{wrong:#?}\n{entries:#?}");
    }
}

async fn all_claims(records: &dyn Records) -> Vec<Claim> {
    let mut filter = ClaimFilter::all(Scope::All, 1000);
    let mut all = Vec::new();
    loop {
        let page = records.history(filter.clone()).await.expect("the claims can be read");
        all.extend(page.items);
        let Some(next) = page.next else { return all };
        filter.from = Some(next);
    }
}

/// Verifies the hash chain of a ledger, as `audit verify` does.
pub async fn verify_chain(records: &dyn Records) -> Result<ChainReport, Break> {
    let mut verifier = Verifier::default();
    let mut from = 0;
    loop {
        let items = records.chain(from, PAGE).await.expect("the ledger can be read");
        let Some(last) = items.last() else { return Ok(verifier.report()) };
        from = last.seq() + 1;
        for item in &items {
            verifier.check(item)?;
        }
    }
}

/// All entries of a ledger, in order.
pub async fn all_entries(records: &dyn Records) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let from = all.last().map_or(0, |entry| entry.seq + 1);
        let page = records.entries(from, PAGE).await.expect("the ledger can be read");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Counts the tokens in stock that can still be handed out, from the ledger. Holds for kinds whose tokens work once.
pub async fn tokens_in_stock(records: &dyn Records, now: Timestamp) -> usize {
    let mut stock = BTreeMap::new();
    for entry in all_entries(records).await {
        match entry.event {
            Event::Banked { task, usable_until } => drop(stock.insert(task, usable_until)),
            Event::Allotted { task, .. } | Event::Wasted { task } => drop(stock.remove(&task)),
            _ => {}
        }
    }
    stock.into_values().filter(|usable_until| now.plus(MIN_LEFT) <= *usable_until).count()
}
