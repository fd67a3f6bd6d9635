//! A store lost its writes, and two gateways restore different ages of one solve: the driver never heard that its answer was
//! committed, and the other gateway had already delivered the token.

use std::sync::Arc;

use domain::{
    claim::{Admission, Claim},
    ledger::{Entry, Event},
    money::Money,
    ports::StoreError,
    solve::Stage,
};
use store_tests::World;

use super::{Relic, restore};
use crate::{
    adapter::{Driver as _, StoreAdapter, decision},
    memory::Memory,
};

/// A store, and the world that tests speak to it through.
struct Store {
    memory: Arc<Memory>,
    world: World,
}

/// One solve before and after its answer, as two gateways remember it.
struct Memories {
    challenge: Relic,
    submitted: Relic,
    served: Claim,
}

// === impl Store ===

impl Store {
    fn new() -> Self {
        let memory = Arc::new(Memory::default());
        let store = Arc::new(StoreAdapter::new(memory.clone()));
        Self { memory, world: World::on(store.clone(), store.clone(), store) }
    }

    async fn restore(&self, relic: Relic) -> Result<bool, StoreError> {
        let now = self.world.now();
        let (decide, result) = decision(move |tx| restore(tx, &relic, now));
        self.memory.decide(decide).await?;
        result.take()
    }

    async fn prices(&self) -> Vec<Option<Money>> {
        let entries = self.world.entries().await.into_iter();
        let price = |entry: Entry| {
            if let Event::Ready { cost, .. } = entry.event { Some(cost) } else { None }
        };
        entries.filter_map(price).collect()
    }
}

async fn memories() -> Memories {
    let before = Store::new();
    let world = &before.world;
    let new = world.turnstile("a");
    let challenge = Relic::Challenge(new.solve, new.challenge.clone());
    let claim = world.open(new).await;
    let lease = world.submit(&claim, "t1").await;
    let submitted = world.store.find_solve(lease.solve.id).await.unwrap().unwrap();
    assert_eq!(submitted.stage, Stage::Submitted);
    world.tell(lease.solve.id, 1, world.solved("t1")).await;
    world.fetch(&claim).await;
    let served = world.find(&claim).await;
    Memories { challenge, submitted: Relic::Solve(Box::new(submitted)), served }
}

/// The driver tells its answer again, because it never heard that the first time was committed.
async fn the_answer_is_priced_once_and_not_handed_out_again(store: &Store, served: &Claim) {
    let (world, solve) = (&store.world, served.solve.unwrap());
    for _ in 0..2 {
        world.tell(solve, 1, world.solved("t1")).await;
    }
    assert_eq!(store.prices().await, [Some(store_tests::PRICE)]);
    assert_eq!(world.find(served).await.token, served.token);
    // The restored records have the first number of the other world.
    world.fresh_solve();
    let next = world.admit(world.turnstile("a")).await;
    assert!(matches!(next, Admission::Opened(_)), "the token went to a second claim: {next:?}");
    store_tests::check(world.records.as_ref()).await;
}

#[tokio::test]
async fn a_token_restored_after_its_solve_keeps_its_price() {
    let (store, known) = (Store::new(), memories().await);
    assert!(store.restore(known.challenge).await.unwrap());
    assert!(store.restore(known.submitted).await.unwrap());
    assert!(store.restore(Relic::Claim(Box::new(known.served.clone()))).await.unwrap());
    the_answer_is_priced_once_and_not_handed_out_again(&store, &known.served).await;
}

#[tokio::test]
async fn a_token_restored_before_its_solve_is_not_handed_out_again() {
    let (store, known) = (Store::new(), memories().await);
    assert!(store.restore(Relic::Claim(Box::new(known.served.clone()))).await.unwrap());
    assert!(store.restore(known.challenge).await.unwrap());
    assert!(store.restore(known.submitted).await.unwrap());
    the_answer_is_priced_once_and_not_handed_out_again(&store, &known.served).await;
}
