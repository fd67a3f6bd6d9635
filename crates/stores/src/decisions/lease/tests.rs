use std::sync::Arc;

use store_tests::World;

use super::*;
use crate::{
    adapter::{Lane, StoreAdapter, TransactionRunner as _, decision},
    backends::memory::Memory,
    optimistic::{
        OptimisticTx,
        in_process::{InProcessServer, KIND},
    },
    schema::codec::key_bytes,
};

/// A server has to read and write all of a page within its second.
#[tokio::test]
async fn a_holder_of_thousands_of_solves_gives_them_up_in_pages() {
    const SOLVES: usize = 2 * PAGE + PAGE / 2;
    let memory = Arc::new(Memory::new(None));
    let store = Arc::new(StoreAdapter::new(memory.clone()));
    let world = World::on(store.clone(), store.clone(), store);
    for number in 0..SOLVES {
        world.open(world.turnstile(&format!("s{number}"))).await;
    }
    let holder = world.holder(1).await;
    assert_eq!(world.lease_some(holder, SOLVES).await.len(), SOLVES);
    let (mut pages, mut from) = (0, None);
    loop {
        let (decide, slot) = decision(move |tx| release(tx, holder, from));
        memory.decide(decide, Lane::Urgent).await.unwrap();
        pages += 1;
        from = slot.take().unwrap();
        if from.is_none() {
            break;
        }
        let next = world.holder(2).await;
        assert_eq!(world.lease_some(next, 1).await.len(), 1, "others go on in the meantime");
    }
    assert_eq!(pages, 3);
    let next = world.holder(2).await;
    assert_eq!(world.lease_some(next, SOLVES).await.len(), SOLVES - 2);
}

#[tokio::test]
async fn a_holder_that_gives_up_thousands_of_solves_keeps_none() {
    const SOLVES: usize = PAGE + 1;
    let store = Arc::new(StoreAdapter::in_memory());
    let world = World::on(store.clone(), store.clone(), store);
    for number in 0..SOLVES {
        world.open(world.turnstile(&format!("s{number}"))).await;
    }
    let holder = world.holder(1).await;
    assert_eq!(world.lease_some(holder, SOLVES).await.len(), SOLVES);
    world.store.release(holder).await.unwrap();
    let next = world.holder(2).await;
    assert_eq!(world.lease_some(next, SOLVES).await.len(), SOLVES);
}

/// What it has changes with its every step, and each change would make a lease call of another gateway run again.
#[tokio::test]
async fn a_lease_call_does_not_read_the_solves_of_living_holders() {
    let server = InProcessServer::default();
    let (_, world) = server.gateways(&[1]).remove(0);
    for site in ["a", "b"] {
        world.open(world.turnstile(site)).await;
    }
    let living = world.holder(5).await;
    let held = world.lease(living).await;
    assert_eq!(held.len(), 2);
    let next = world.holder(9).await;
    let reads = {
        let rows = server.0.lock();
        let mut tx = OptimisticTx::new(KIND, &rows, false);
        let leased =
            DecisionCtx::run(&mut tx, world.now(), |ctx| lease(ctx, LeaseRequest::any(next, 10)));
        assert!(leased.unwrap().is_empty());
        tx.finish().reads
    };
    for lease in &held {
        let key = key_bytes::<Held>(&(living, lease.solve.due, lease.solve.id)).into();
        let is_read =
            reads.scans.iter().any(|(scan, read)| scan.covered(read.until.as_ref()).contains(&key));
        assert!(!is_read, "{:?}", reads.scans);
    }
    // Retention or a server's TTL may have removed the row of a dead holder.
    server.remove(&key_bytes::<Holders>(&living));
    assert_eq!(world.lease(next).await.len(), 2);
}
