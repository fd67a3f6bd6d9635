//! One gateway at a time compacts the log into segments, in small steps, and another takes over when it dies.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test outside the store under test, which fails by panicking and shows its figures"
)]

use std::time::{Duration, Instant};

use domain::{
    claim::Delivery,
    ports::{ClaimFilter, Scope, StoreError, TotalsFilter},
};
use store_tests::{
    World, check,
    servers::{Faults, HttpProxy, dynamodb_url, shared_dynamodb},
};
use stores::DynamoDbProbe;
use tokio::task::JoinSet;

use super::{often_compacting, often_compacting_at, open};
use crate::{
    gateways::{Gateway, concurrent_callers, gateways},
    prefix,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn segments_hold_the_same_as_the_log() {
    let table = prefix();
    concurrent_callers::solves_by_twenty(&gateways(&often_compacting(), &table, 3).await, 400)
        .await;
    let (_, probe) = DynamoDbProbe::connect(&shared_dynamodb().url(&table)).await.unwrap();
    let found = probe.take_stock().await.expect("the server is up");
    eprintln!("400 solves: {found:?}");
    assert!(found.compacted > 0 && found.segments > 50, "{found:?}");
}

async fn admit_many(world: &World, count: u32, name: &str) {
    let mut admitting = JoinSet::new();
    for number in 0..count {
        let (world, new) = (world.clone(), world.turnstile(&format!("{number}-{name}")));
        admitting.spawn(async move { world.admit(new).await });
    }
    admitting.join_all().await;
}

/// Gateways die during compaction; each time the next one continues from what it finds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compactor_that_dies_is_replaced() {
    let table = prefix();
    let url = often_compacting_at(&shared_dynamodb().url(&table));
    open(&url).await;
    for round in 0_u64..12 {
        let url = url.clone();
        let dying = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async {
                let backend = stores::connect(&url).await.unwrap();
                let world = World::new(&backend);
                // Many at a time, so that segments are written at the same time.
                let claims = async {
                    for number in 0_u64.. {
                        admit_many(&world, 40, &format!("{round}-{number}")).await;
                    }
                };
                // The runtime is dropped in the middle of whatever it does then.
                let life = Duration::from_millis(40 + 23 * round);
                tokio::time::timeout(life, claims).await.ok();
            });
            runtime.shutdown_background();
        });
        dying.await.unwrap();
    }
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    let start = Instant::now();
    loop {
        world.admit(world.turnstile(&format!("last-{}", start.elapsed().as_millis()))).await;
        let found = probe.take_stock().await.expect("the server is up");
        if found.commits - found.compacted < 10 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "no gateway compacts: {found:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    check(backend.records.as_ref()).await;
}

/// Solves of one day. `scripts/test --long` runs enough to fill segments many times.
fn solves() -> u32 {
    if std::env::var_os("SOLVEGATE_LONG").is_some() { 10_000 } else { 2_000 }
}

/// Thousands of solves of one day and one site key. A page of history and the totals of the day read a bounded number of
/// items, and no partition takes most of the writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_solves_are_read_by_a_few_items_and_written_to_many_places() {
    let (table, proxy) = (prefix(), HttpProxy::start(shared_dynamodb().port(), 1));
    let url = dynamodb_url(proxy.port(), &table);
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    let (before, solves) = (probe.usage(), solves());
    let gateway = Gateway { backend: backend.clone(), world: world.clone() };
    concurrent_callers::solves_by_twenty(&[gateway], solves.into()).await;
    let used = probe.usage();
    let units = (used.write_units - before.write_units) / f64::from(solves);
    eprintln!("{solves} solves, twenty at a time: {units:.2} write units each; {used:?}");
    let filter = ClaimFilter { sitekey: Some("a".into()), ..ClaimFilter::all(Scope::All, 50) };
    let page = backend.records.history(filter).await.unwrap();
    assert_eq!(page.items.len(), 50);
    let history = probe.usage();
    let day = world.now().day();
    let ask = TotalsFilter { scope: Scope::All, from: day, to: day };
    assert!(!backend.records.totals(ask).await.unwrap().is_empty());
    let totals = probe.usage();
    let read = |after: f64, before: f64| after - before;
    let page_units = read(history.read_units, used.read_units);
    let totals_units = read(totals.read_units, history.read_units);
    eprintln!("a page of history: {page_units} read units; the totals of the day: {totals_units}");
    assert!(page_units < 120.0 && totals_units < 20.0, "{page_units} {totals_units}");
    let written = proxy.items_written();
    let all: u64 = written.values().sum();
    let most = written.iter().max_by_key(|(_, count)| **count).unwrap();
    eprintln!("{all} items written under {} partition keys, most under {most:?}", written.len());
    assert!(*most.1 * 5 < all, "{most:?} of {all}");
    probe.take_stock().await.expect("the server is up");
}

/// The cost of one solve at a time, when no commit is shared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_solve_alone_takes_a_few_write_units() {
    let table = prefix();
    let url = shared_dynamodb().url(&table);
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    let before = probe.usage();
    for number in 0..500 {
        let claim = world.serve(world.turnstile("a"), &format!("t{number}")).await;
        world.store.deliver(claim.id, world.now()).await.unwrap();
    }
    let used = probe.usage();
    let units = (used.write_units - before.write_units) / 500.0;
    let reads = (used.read_units - before.read_units) / 500.0;
    eprintln!("one at a time: {units:.2} write units and {reads:.2} read units a solve");
    assert!(units < 30.0, "{units}");
}

/// Admits small claims until everything is compacted that was written before.
async fn compact_all(world: &World, probe: &DynamoDbProbe) {
    let start = Instant::now();
    let before = probe.take_stock().await.expect("the server is up").commits;
    while probe.take_stock().await.expect("the server is up").compacted < before {
        // It may be refused while the compaction is behind.
        let more = world.turnstile(&format!("more-{}", start.elapsed().as_nanos()));
        drop(world.store.admit(more, world.now()).await);
        assert!(start.elapsed() < Duration::from_secs(60), "no gateway compacts");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Time to live must not delete a part of a row that is still there, however old it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_items_live_as_long_as_their_rows() {
    let url = often_compacting_at(&shared_dynamodb().url(&prefix()));
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    let picture = vec![7; 400 << 10];
    // Equal values, in one commit.
    let mut opening = JoinSet::new();
    for number in 0..3 {
        let mut new = world.image(&picture);
        new.fingerprint = world.turnstile(&format!("{number}")).fingerprint;
        let world = world.clone();
        opening.spawn(async move { world.open(new).await });
    }
    let claims = opening.join_all().await;
    compact_all(&world, &probe).await;
    let kept = probe.expire_overflow().await.unwrap();
    assert_eq!(kept, 6, "two parts of each picture");

    for gone in &claims[1..] {
        let task = format!("t{}", gone.id);
        world.submit(gone, &task).await;
        world.settle(gone.solve.unwrap(), 1, world.solved(&task)).await;
        world.fetch(gone).await;
    }
    world.pass(3601);
    world.sweep().await;
    compact_all(&world, &probe).await;
    assert_eq!(probe.expire_overflow().await.unwrap(), 2, "the rows of two pictures are gone");
    // A gateway that has nothing in its memory.
    let fresh = stores::connect(&url).await.unwrap();
    let found = fresh.store.find_challenge(claims[0].solve.unwrap()).await.unwrap();
    assert_eq!(found.unwrap().files()["body"], picture);
    check(fresh.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_first_commits_expired_is_refused_with_what_to_do() {
    let url = shared_dynamodb().url(&prefix());
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    for number in 0..5 {
        world.open(world.turnstile(&format!("s{number}"))).await;
    }
    let found = probe.take_stock().await.expect("the server is up");
    assert_eq!(found.compacted, 0, "{found:?}");
    for slot in 1..=2 {
        probe.delete_commit(slot).await.unwrap();
    }
    let refused = stores::connect(&url).await.expect_err("a part of the log is gone").to_string();
    assert!(refused.contains("the commits 1 to 2 were deleted by time to live"), "{refused}");
    assert!(refused.contains("restore the table"), "{refused}");
}

/// Requests that take a while must not make the compaction slower than the claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_is_compacted_in_many_places_at_once() {
    let proxy = HttpProxy::start(shared_dynamodb().port(), 1);
    let url = often_compacting_at(&dynamodb_url(proxy.port(), &prefix()));
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    let world = World::new(&backend);
    proxy.delay(Duration::from_millis(4));
    let most = || {
        let most = proxy.most_puts_at_once();
        most.into_iter().filter(|(key, _)| key.starts_with("SHEET#")).map(|(_, most)| most).max()
    };
    let start = Instant::now();
    // The first rounds make the segments.
    for round in 0_u32.. {
        admit_many(&world, 100, &format!("{round}")).await;
        while probe.lag() > 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if most() > Some(4) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "one at a time: {:?}", most());
    }
    proxy.delay(Duration::ZERO);
    compact_all(&world, &probe).await;
    check(backend.records.as_ref()).await;
}

/// Callers that try as fast as they can. What is not compacted stays bounded, and is compacted in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_burst_of_claims_does_not_outrun_the_compaction() {
    const MAX_LAG: u64 = 10;
    const CALLERS: u64 = 40;
    let proxy = HttpProxy::start(shared_dynamodb().port(), 1);
    let url = often_compacting_at(&dynamodb_url(proxy.port(), &prefix()));
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    probe.set_max_lag(MAX_LAG);
    let world = World::new(&backend);
    proxy.delay(Duration::from_millis(10));
    let mut calling = JoinSet::new();
    for caller in 0..CALLERS {
        let world = world.clone();
        calling.spawn(async move {
            for number in 0..25 {
                let new = world.turnstile(&format!("{caller}-{number}"));
                while world.store.admit(new.clone(), world.now()).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    let mut most = 0;
    while !calling.is_empty() {
        tokio::select! {
            done = calling.join_next() => drop(done.map(Result::unwrap)),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        most = most.max(probe.lag());
    }
    eprintln!("at most {most} commits were not compacted");
    // Those that were under way when the limit was reached are written.
    assert!(most <= 2 * MAX_LAG + CALLERS, "{most}");
    proxy.delay(Duration::ZERO);
    compact_all(&world, &probe).await;
    assert!(probe.lag() < 10, "{}", probe.lag());
    check(backend.records.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_refused_when_nothing_is_compacted_and_what_follows_money_is_not() {
    const MAX_LAG: u64 = 10;
    let proxy = HttpProxy::start(shared_dynamodb().port(), 1);
    let url = often_compacting_at(&dynamodb_url(proxy.port(), &prefix()));
    stores::migrate(&url).await.unwrap();
    let (backend, probe) = DynamoDbProbe::connect(&url).await.unwrap();
    probe.set_max_lag(MAX_LAG);
    let world = World::new(&backend);
    let paid = world.open(world.turnstile("paid")).await;
    world.submit(&paid, "t1").await;
    let queued = world.open(world.turnstile("queued")).await;
    proxy.set(Faults { denied: 100, only: Some("UpdateItem"), ..Faults::default() });
    let mut commits = 0;
    let refused = loop {
        match world.store.admit(world.turnstile("a"), world.now()).await {
            Ok(_) => commits += 1,
            Err(error) => break error,
        }
        assert!(commits <= 2 * MAX_LAG, "{commits} commits were not compacted");
    };
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("not compacted"), "{refused}");

    world.holder(1).await;
    world.settle(paid.solve.unwrap(), 1, world.solved("t1")).await;
    assert!(matches!(world.fetch(&paid).await, Delivery::Token(_)));
    world.submit(&queued, "t2").await;
    assert!(probe.lag() > 2 * MAX_LAG, "all of that was committed: {}", probe.lag());
    world.store.admit(world.turnstile("a"), world.now()).await.unwrap_err();

    proxy.set(Faults::default());
    let start = Instant::now();
    while world.store.admit(world.turnstile("a"), world.now()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "the compaction does not catch up");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    compact_all(&world, &probe).await;
    check(backend.records.as_ref()).await;
}
