//! A store with an archive.

mod faulty;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    claim::Claim,
    id::ClaimId,
    ledger::{Entry, Event},
    ports::{ClaimFilter, Records, Scope},
};
use engine::Engine;
use stores::{Backend, LocalNotifier, StoreAdapter};

use self::faulty::{FaultMode, FaultyArchive};
use simulation::stage::{Stage, open, seconds, served, story};

const HOUR: u64 = 3600;

/// A store whose rows can be counted, and its archive.
struct ArchivedStore {
    store: Arc<StoreAdapter>,
    kept: Backend,
    archive: Arc<FaultyArchive>,
}

fn with_archive(stage: &mut Stage) -> ArchivedStore {
    let store = Arc::new(StoreAdapter::in_memory());
    stage.backend = Backend {
        store: store.clone(),
        records: store.clone(),
        archive: store.clone(),
        notifier: Arc::new(LocalNotifier::new()),
        name: "memory",
        findings: Vec::new(),
        timing: Arc::default(),
        adapter: store.clone(),
    };
    let kept = stores::open("memory:").unwrap();
    let archive = FaultyArchive { archive: kept.archive.clone(), mode: Mutex::default() };
    let archive = Arc::new(archive);
    stage.config.archive = Some(archive.clone());
    ArchivedStore { store, kept, archive }
}

fn page(limit: usize) -> ClaimFilter {
    ClaimFilter::all(Scope::All, limit)
}

/// All of history, page by page.
async fn history(records: &dyn Records) -> Vec<Claim> {
    let (mut filter, mut all) = (page(3), Vec::new());
    loop {
        let page = records.history(filter.clone()).await.unwrap();
        all.extend(page.items);
        filter.from = page.next;
        if page.next.is_none() {
            return all;
        }
    }
}

async fn solve(gateway: &Engine, key: &str) -> ClaimId {
    let id = open(gateway, key).await;
    served(gateway, id, seconds(30)).await;
    id
}

/// Lets hours pass, in steps in which every part of the gateway wakes a few times.
async fn skip(stage: &Stage, hours: u64) {
    for _ in 0..hours {
        tokio::time::advance(seconds(HOUR)).await;
        stage.pass(seconds(8)).await;
    }
}

fn has_no_gap(entries: &[Entry]) -> bool {
    (1..).zip(entries).all(|(place, entry)| entry.seq == place)
}

#[test]
fn a_store_with_an_archive_does_not_grow_with_history() {
    story(async |mut stage| {
        let archived = with_archive(&mut stage);
        let gateway = stage.gateway(1).await;
        let (mut solved, mut rows) = (Vec::new(), Vec::new());
        for day in 0..8 {
            for n in 0..5 {
                solved.push(solve(&gateway, &format!("{day}-{n}")).await);
                skip(&stage, 5).await;
            }
            rows.push(archived.store.counters().rows);
        }
        // A day leaves only its totals; before archiving it had some eighty rows.
        assert!(rows[7] <= rows[2] + 10, "{rows:?}");
        let entries = gateway.records().entries(0, usize::MAX).await.unwrap();
        assert!(has_no_gap(&entries));
        let left = archived.store.entries(0, usize::MAX).await.unwrap();
        assert!(left.len() < entries.len() / 3, "{} of {}", left.len(), entries.len());
        // Queries find all of it.
        let all: Vec<_> = history(gateway.records()).await.iter().rev().map(|c| c.id).collect();
        assert_eq!(all, solved);
        for id in solved {
            let explained = gateway.explain(&Scope::All, id).await.unwrap();
            let first = &explained.entries.first().unwrap().event;
            assert!(matches!(first, Event::Opened { .. }), "{first:?}");
            let delivered = |event: &Event| matches!(event, Event::Delivered { .. });
            assert!(explained.entries.iter().any(|entry| delivered(&entry.event)));
        }
    });
}

#[test]
fn a_claim_is_found_before_it_is_archived_and_after() {
    story(async |mut stage| {
        let archived = with_archive(&mut stage);
        let gateway = stage.gateway(1).await;
        archived.archive.set(FaultMode::Unavailable);
        let id = solve(&gateway, "a").await;
        let fresh = gateway.explain(&Scope::All, id).await.unwrap();
        archived.archive.set(FaultMode::Healthy);
        assert_eq!(history(gateway.records()).await.len(), 1, "the store knows it");
        stage.pass(seconds(5)).await;
        let archived = gateway.explain(&Scope::All, id).await.unwrap();
        assert_eq!(fresh.entries, archived.entries, "archived once, unchanged");
        assert_eq!(history(gateway.records()).await, [archived.claim]);
    });
}

#[test]
fn while_the_archive_is_unavailable_nothing_waits_and_nothing_is_lost() {
    for mode in [FaultMode::Unavailable, FaultMode::Hanging, FaultMode::ReplyLost] {
        story(async |mut stage| {
            let archived = with_archive(&mut stage);
            let gateway = stage.gateway(1).await;
            solve(&gateway, "before").await;
            archived.archive.set(mode);
            // Long enough to drop everything, had it been archived.
            for n in 0..3 {
                solve(&gateway, &format!("away-{n}")).await;
                skip(&stage, 30).await;
            }
            let kept = archived.store.entries(0, usize::MAX).await.unwrap();
            assert!(kept.iter().filter(|e| matches!(e.event, Event::Opened { .. })).count() >= 3);
            archived.archive.set(FaultMode::Healthy);
            // A call without a reply ends only with its process.
            gateway.crash();
            let gateway = stage.gateway(2).await;
            skip(&stage, 1).await;
            let entries = gateway.records().entries(0, usize::MAX).await.unwrap();
            assert!(has_no_gap(&entries), "{mode:?}");
            assert_eq!(entries.last(), kept.last());
            assert_eq!(history(gateway.records()).await.len(), 4);
            skip(&stage, 30).await;
            assert!(archived.store.history(page(9)).await.unwrap().items.is_empty(), "{mode:?}");
        });
    }
}

#[test]
fn a_gateway_that_dies_between_the_stores_leaves_no_gap_and_no_copy() {
    story(async |mut stage| {
        let archived = with_archive(&mut stage);
        for seed in 0..6 {
            let gateway = stage.gateway(seed).await;
            // The batch is archived, and the gateway crashes before the reply arrives.
            archived.archive.set(if seed % 2 == 0 {
                FaultMode::ReplyLost
            } else {
                FaultMode::Healthy
            });
            solve(&gateway, &format!("{seed}")).await;
            stage.pass(Duration::from_millis(1000 + 137 * seed)).await;
            gateway.crash();
        }
        archived.archive.set(FaultMode::Healthy);
        stage.gateway(9).await;
        stage.pass(seconds(20)).await;
        let entries = archived.kept.records.entries(0, usize::MAX).await.unwrap();
        assert_eq!(entries, archived.store.entries(0, usize::MAX).await.unwrap());
    });
}

#[test]
fn several_gateways_archive_everything_once_and_one_takes_over_from_a_dead_one() {
    story(async |mut stage| {
        let archived = with_archive(&mut stage);
        let gateways = [stage.gateway(1).await, stage.gateway(2).await, stage.gateway(3).await];
        for n in 0..9 {
            solve(&gateways[n % 3], &format!("{n}")).await;
        }
        let entries = async || archived.kept.records.entries(0, usize::MAX).await.unwrap();
        let known = async || archived.store.entries(0, usize::MAX).await.unwrap();
        stage.pass(seconds(20)).await;
        assert_eq!(entries().await, known().await);
        for (n, gateway) in gateways.iter().enumerate().take(2) {
            gateway.crash();
            solve(&gateways[2], &format!("late-{n}")).await;
            stage.pass(seconds(20)).await;
            assert_eq!(entries().await, known().await);
        }
    });
}

#[test]
fn a_store_that_starts_empty_goes_on_in_the_same_archive() {
    story(async |mut stage| {
        let archived = with_archive(&mut stage);
        let gateway = stage.gateway(1).await;
        let old = solve(&gateway, "a").await;
        stage.pass(seconds(5)).await;
        gateway.crash();
        stage.backend = stores::open("memory:").unwrap();
        let gateway = stage.gateway(2).await;
        let new = solve(&gateway, "b").await;
        stage.pass(seconds(5)).await;
        let entries = archived.kept.records.entries(0, usize::MAX).await.unwrap();
        assert!(has_no_gap(&entries));
        let all: Vec<_> = history(gateway.records()).await.iter().map(|claim| claim.id).collect();
        assert_eq!(all, [new, old]);
        assert!(!gateway.explain(&Scope::All, old).await.unwrap().entries.is_empty());
    });
}
