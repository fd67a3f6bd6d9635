//! Faults that only a test inside the crate can inject.

use std::{path::Path, sync::atomic::Ordering};

use domain::{
    id::{HolderId, SolveId},
    ports::{LeaseRequest, StoreError},
    time::Timestamp,
};
use redb::ReadableDatabase;
use store_tests::World;

mod damage;

use super::{Embedded, ROWS};
use crate::{
    OpenError,
    adapter::{Extent, Lane, StoreAdapter, TransactionRunner as _},
    schema::tables::{Claims, Holders, Solves},
    tx::{ReadTx, TypedRead, TypedWrite, WriteTx},
};

fn open(dir: &Path) -> (std::sync::Arc<Embedded>, World) {
    let embedded = std::sync::Arc::new(Embedded::open(dir, None).unwrap());
    let store = std::sync::Arc::new(StoreAdapter::new(embedded.clone()));
    (embedded, World::on(store.clone(), store.clone(), store))
}

fn is_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(why @ StoreError::Unavailable { .. }) => why.to_string(),
        Err(_) | Ok(_) => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_is_answered_until_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let kept = world.open(world.turnstile("a")).await;
    store.shared.disk.broken.store(true, Ordering::SeqCst);
    let lost = world.turnstile("a");
    let why = is_unavailable(world.store.admit(lost.clone(), world.now()).await);
    assert!(why.contains("the disk is broken, for a test") && why.contains("restart"), "{why}");
    // The disk works again, but what it has written is unknown, so the store does not use it.
    store.shared.disk.broken.store(false, Ordering::SeqCst);
    let fsyncs = store.counters().fsyncs;
    assert_eq!(is_unavailable(world.store.admit(lost.clone(), world.now()).await), why);
    assert_eq!(is_unavailable(world.store.find_claim(kept.id).await), why);
    assert_eq!(is_unavailable(world.records.entries(0, 1).await), why);
    assert_eq!(store.counters().fsyncs, fsyncs);
    drop((store, world));
    let (_store, world) = open(dir.path());
    assert_eq!(world.find(&kept).await, kept);
    // A decision that was not answered may be there or not, but never half of it.
    store_tests::check(world.records.as_ref()).await;
}

#[tokio::test]
async fn a_decision_that_meets_a_bad_row_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let (bad, good) =
        (world.open(world.turnstile("a")).await, world.open(world.turnstile("a")).await);
    corrupt_row(&store, &Claims::key(bad.id));
    let now = world.now();
    let answers = futures_util::future::join_all(
        [bad.id, good.id, bad.id, good.id].map(|id| world.store.withdraw(id, None, now)),
    )
    .await;
    for (place, answer) in answers.into_iter().enumerate() {
        match answer {
            Err(StoreError::Corrupt { what, .. }) => assert_eq!((place % 2, what), (0, "claims")),
            Err(other) => panic!("{other}"),
            Ok(_) => assert_eq!(place % 2, 1),
        }
    }
    assert!(matches!(world.store.find_claim(bad.id).await, Err(StoreError::Corrupt { .. })));
}

#[tokio::test]
async fn a_decision_that_fails_half_way_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let claim = world.open(world.turnstile("a")).await;
    let (before, claim_id) = (world.entries().await, claim.id);
    let fail_half_way = move |tx: &mut dyn WriteTx| {
        assert!(tx.take::<Claims>(&claim_id).unwrap().is_some());
        tx.take::<Solves>(&SolveId::from_number(1)).unwrap();
        false
    };
    store.decide(Box::new(fail_half_way), Lane::Normal).await.unwrap();
    assert_eq!(world.find(&claim).await, claim);
    assert_eq!(world.entries().await, before);
}

#[tokio::test]
async fn a_panic_in_a_decision_stops_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let claim = world.open(world.turnstile("a")).await;
    let panicked =
        store.decide(Box::new(|_| panic!("an impossible page, for a test")), Lane::Normal).await;
    let is_corrupt = |why| matches!(why, StoreError::Corrupt { what: "file", .. });
    assert!(panicked.is_err_and(is_corrupt));
    assert!(world.store.find_claim(claim.id).await.is_err_and(is_corrupt));
    drop((store, world));
    let (_store, world) = open(dir.path());
    assert_eq!(world.find(&claim).await, claim);
}

#[tokio::test]
async fn holders_from_before_a_restart_are_dead_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, world) = open(dir.path());
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.submit(&claim, "t1").await;
    drop((store, world));
    let (store, world) = open(dir.path());
    let last = lease.holder;
    let read = Box::new(move |tx: &dyn ReadTx| {
        assert_eq!(tx.get::<Holders>(&last).unwrap().unwrap().until, Timestamp::default());
    });
    store.read(read, Extent::OneRow).await.unwrap();
    let holder = world.holder(7).await;
    let ask = LeaseRequest::any(holder, 9);
    let taken = world.store.lease(ask, world.now()).await.unwrap().remove(0);
    assert_eq!((taken.solve.id, taken.holder), (lease.solve.id, HolderId::from_number(7)));
    assert!(taken.fence > lease.fence);
}

#[tokio::test]
async fn an_unknown_format_inside_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path(), None).unwrap());
    let file = dir.path().join("store.redb");
    let database = redb::Database::open(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    transaction.open_table(meta).unwrap().insert("format", [99_u8].as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = Embedded::open(dir.path(), None).unwrap_err();
    assert!(matches!(refused, OpenError::Format { .. }), "{refused}");
}

impl Claims {
    fn key(id: domain::id::ClaimId) -> Vec<u8> {
        crate::schema::codec::key_bytes::<Self>(&id)
    }
}

/// Flips a bit of a stored row.
fn corrupt_row(store: &Embedded, key: &[u8]) {
    let database = &store.shared.database;
    let mut row = {
        let transaction = database.begin_read().unwrap();
        transaction.open_table(ROWS).unwrap().get(key).unwrap().unwrap().value().to_vec()
    };
    row[20] ^= 1;
    let transaction = database.begin_write().unwrap();
    transaction.open_table(ROWS).unwrap().insert(key, row.as_slice()).unwrap();
    transaction.commit().unwrap();
}

/// A copy of the descriptor, as a forked process has one until it executes its program.
#[test]
fn a_closed_store_can_be_opened_again_while_a_copy_of_its_lock_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), None).unwrap();
    let copy = store.shared.lock.copy();
    drop(store);
    drop(Embedded::open(dir.path(), None).unwrap());
    drop(copy);
}
