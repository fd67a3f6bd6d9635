use std::sync::Arc;

use store_tests::World;

use super::{PAGE, release};
use crate::{
    adapter::{Lane, StoreAdapter, TransactionRunner as _, decision},
    backends::memory::Memory,
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
