//! A store lost writes, and two gateways restore different versions of one solve: the driver never learned that its answer was
//! committed, and the other gateway had already delivered the token.

use std::sync::Arc;

use domain::{
    claim::{Admission, Claim},
    ledger::{Entry, Event},
    money::Money,
    solve::Stage,
};
use store_tests::World;

use super::{RecoveryRecord, Restored, restore};
use crate::{
    adapter::{StoreAdapter, TransactionRunner as _, decision},
    backends::memory::Memory,
};

/// A memory store, and the test helpers on top of it.
struct Store {
    memory: Arc<Memory>,
    world: World,
}

/// One solve before and after its answer, as two gateways restore it.
struct Versions {
    challenge: RecoveryRecord,
    submitted: RecoveryRecord,
    served: Claim,
}

// === impl Store ===

impl Store {
    fn new() -> Self {
        let memory = Arc::new(Memory::new(None));
        let store = Arc::new(StoreAdapter::new(memory.clone()));
        Self { memory, world: World::on(store.clone(), store.clone(), store) }
    }

    async fn restore(&self, record: RecoveryRecord) -> Restored {
        let now = self.world.now();
        let (decide, result) = decision(move |tx| restore(tx, &record, now));
        self.memory.decide(decide, crate::adapter::Lane::Normal).await.unwrap();
        result.take().unwrap()
    }

    async fn prices(&self) -> Vec<Option<Money>> {
        let entries = self.world.entries().await.into_iter();
        let price = |entry: Entry| {
            if let Event::Ready { cost, .. } = entry.event { Some(cost) } else { None }
        };
        entries.filter_map(price).collect()
    }
}

async fn versions() -> Versions {
    let before = Store::new();
    let world = &before.world;
    let new = world.turnstile("a");
    let challenge = RecoveryRecord::Challenge(new.solve, new.challenge.clone());
    let claim = world.open(new).await;
    let lease = world.submit(&claim, "t1").await;
    let submitted = world.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(submitted.stage, Stage::Submitted);
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    world.fetch(&claim).await;
    let served = world.find(&claim).await;
    Versions { challenge, submitted: RecoveryRecord::Solve(Box::new(submitted)), served }
}

/// The driver reports its answer again, because it never learned that the first report was committed.
async fn the_answer_is_priced_once_and_not_handed_out_again(store: &Store, served: &Claim) {
    let (world, solve) = (&store.world, served.solve.unwrap());
    for _ in 0..2 {
        world.settle(solve, 1, world.solved("t1")).await;
    }
    assert_eq!(store.prices().await, [Some(store_tests::PRICE)]);
    assert_eq!(world.find(served).await.token, served.token);
    // The restored records use the first id of the other store.
    world.fresh_solve();
    let next = world.admit(world.turnstile("a")).await;
    assert!(matches!(next, Admission::Opened(_)), "the token went to a second claim: {next:?}");
    store_tests::check(world.records.as_ref()).await;
}

#[tokio::test]
async fn a_token_restored_after_its_solve_keeps_its_price() {
    let (store, known) = (Store::new(), versions().await);
    assert_eq!(store.restore(known.challenge).await, Restored::New);
    assert_eq!(store.restore(known.submitted).await, Restored::New);
    assert_eq!(
        store.restore(RecoveryRecord::Claim(Box::new(known.served.clone()))).await,
        Restored::New
    );
    the_answer_is_priced_once_and_not_handed_out_again(&store, &known.served).await;
}

#[tokio::test]
async fn a_token_restored_before_its_solve_is_not_handed_out_again() {
    let (store, known) = (Store::new(), versions().await);
    assert_eq!(
        store.restore(RecoveryRecord::Claim(Box::new(known.served.clone()))).await,
        Restored::New
    );
    assert_eq!(store.restore(known.challenge).await, Restored::New);
    assert_eq!(store.restore(known.submitted).await, Restored::New);
    the_answer_is_priced_once_and_not_handed_out_again(&store, &known.served).await;
}

/// The gateway that submitted and the one that admitted restore at the same time. If this record were lost, nothing would
/// poll the paid task.
#[tokio::test]
async fn a_solve_restored_before_its_challenge_is_restored_after_it() {
    let (store, known) = (Store::new(), versions().await);
    assert_eq!(store.restore(known.submitted.clone()).await, Restored::ChallengeMissing);
    assert_eq!(store.restore(known.challenge).await, Restored::New);
    assert_eq!(store.restore(known.submitted.clone()).await, Restored::New);
    assert_eq!(store.restore(known.submitted).await, Restored::Known);
    let solve = known.served.solve.unwrap();
    store.world.settle(solve, 1, store.world.solved("t1")).await;
    assert_eq!(store.prices().await, [Some(store_tests::PRICE)]);
}
