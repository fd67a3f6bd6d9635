//! The ledger against the provider's balance, and the replay of the ledger, on whole simulated days: gateways that crash and
//! lose replies, pools, budgets, store faults and wrong clocks.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    ledger::{Counts, Entry, Event},
    money::Money,
    ports::{Scope, TotalsFilter},
    reconcile::{BooksVerdict, Collector, Reconciliation},
    time::Day,
    what_if::{Outcome, Replay, Settings, WhatIf},
};
use simulation::world::{Plan, Traces};

const SEEDS: u64 = 48;

fn run(seed: u64) -> (Traces, Vec<Entry>) {
    let plan = Plan { balance: true, ..Plan::swarm(seed) };
    let traces = plan.run();
    assert!(traces.observed.violations.is_empty(), "seed {seed}: {:?}", traces.observed.violations);
    let entries = traces.observed.entries();
    (traces, entries)
}

fn judge(entries: &[Entry]) -> Reconciliation {
    let mut collector = Collector::new(entries[0].at.day());
    for entry in entries {
        collector.add(entry);
    }
    collector.finish().judge(&BTreeMap::new(), None)
}

/// The same day, with a charge of seven millionths before the last reading. No price is that small.
fn with_a_loss(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut amounts = entries.iter_mut().filter_map(|entry| match &mut entry.event {
        Event::BalanceRead { amount, .. } => Some(amount),
        _ => None,
    });
    if let Some(last) = amounts.next_back() {
        *last = *last - Money::from_micros(7);
    }
    entries
}

#[test]
fn the_books_of_every_simulated_day_add_up_and_a_loss_is_found() {
    let (mut judged, mut settled, mut uncertain) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (traces, entries) = run(seed);
        let found = judge(&entries);
        assert_ne!(found.verdict, BooksVerdict::DoesNotAddUp, "seed {seed}: {found:#?}");
        assert!(found.top_ups.is_empty(), "seed {seed}: {:?}", found.top_ups);
        if found.verdict != BooksVerdict::AddsUp {
            continue;
        }
        judged += 1;
        uncertain += found.items.len();
        let charged: Money = found.segments.iter().map(|segment| segment.charged).sum();
        assert!(charged <= traces.account.ledger().charged, "seed {seed}");
        settled += found.segments.iter().map(|segment| segment.attempts).sum::<u64>();
        let lossy = judge(&with_a_loss(entries));
        assert_eq!(lossy.verdict, BooksVerdict::DoesNotAddUp, "seed {seed}");
    }
    assert!(judged > SEEDS / 2, "{judged} of {SEEDS} days were judged");
    assert!(settled > 100 && uncertain > 10, "{settled} attempts, {uncertain} uncertain");
    eprintln!("{judged} of {SEEDS} days judged, {settled} attempts, {uncertain} uncertain");
}

fn replay(entries: &[Entry], settings: Settings) -> WhatIf {
    let mut replay = Replay::new(settings, Duration::from_secs(60));
    for entry in entries {
        replay.add(entry, None);
    }
    replay.finish()
}

/// The store's own sums.
fn totals(traces: &Traces) -> Counts {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (from, to) = (Day::from_number(0), Day::from_number(100_000));
    let all = TotalsFilter { scope: Scope::All, from, to };
    let mut sums = Counts::default();
    for total in runtime.block_on(traces.backend.records.totals(all)).unwrap() {
        sums.add(&total.counts);
    }
    sums
}

#[test]
fn what_if_with_unchanged_settings_is_what_happened() {
    let mut attempts = 0;
    for seed in 0..SEEDS / 2 {
        let (traces, entries) = run(seed);
        let WhatIf { actual, estimate, added, saved, .. } = replay(&entries, Settings::default());
        assert_eq!((added, saved), (0, 0), "seed {seed}");
        assert_eq!(Outcome { polls: 0, ..actual }, Outcome { polls: 0, ..estimate }, "seed {seed}");
        let sums = totals(&traces);
        let counted =
            (actual.attempts, actual.cost, actual.cost_unknown, actual.wasted, actual.solves);
        let written =
            (sums.attempts, sums.cost, sums.cost_unknown, sums.wasted, sums.opened + sums.ordered);
        assert_eq!(counted, written, "seed {seed}");
        assert_eq!(actual.claims, sums.claims, "seed {seed}");
        let served = |entry: &&Entry| matches!(entry.event, Event::Allotted { .. });
        assert_eq!(actual.served, entries.iter().filter(served).count() as u64, "seed {seed}");
        attempts += actual.attempts;
    }
    assert!(attempts > 100, "{attempts}");
}

#[test]
fn without_pools_nothing_is_ordered() {
    for seed in 0..SEEDS / 4 {
        let (_, entries) = run(seed);
        let found = replay(&entries, Settings { no_pools: true, ..Settings::default() });
        let ordered = entries.iter().filter(|entry| matches!(entry.event, Event::Ordered { .. }));
        assert_eq!(found.saved, ordered.count() as u64, "seed {seed}");
        assert_eq!(found.estimate.solves, found.actual.solves - found.saved + found.added);
    }
}
