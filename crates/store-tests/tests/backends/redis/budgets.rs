//! The books of the budgets after a server lost writes: no gateway buys before all have restored their sums, and what was
//! settled before is not settled again.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test outside the server under test, which fails by panicking"
)]

use std::time::{Duration, Instant};

use domain::{
    budget::{Allowance, BudgetScope, BudgetUse},
    claim::{Admission, Claim, NewClaim},
    ports::StoreError,
};
use store_tests::{
    World,
    servers::{RedisOptions, RedisServer},
};

use crate::gateways::losses::until_back;
use crate::gateways::{Gateway, gateways};

const BUDGET: Allowance = Allowance {
    solves_per_day: Some(5),
    cost_per_day: None,
    solves_per_month: None,
    cost_per_month: None,
};
/// Longer than the store is in doubt.
const PATIENCE: Duration = Duration::from_secs(40);

fn limited(world: &World) -> NewClaim {
    NewClaim { allowance: BUDGET, account: BUDGET, ..world.turnstile("a") }
}

async fn books(world: &World, scope: &BudgetScope) -> BudgetUse {
    let spending = world.records.spending(world.now().day()).await.unwrap();
    spending.books.get(scope).map(|book| book.month).unwrap_or_default()
}

/// The sums of the only worker, which are those of the account.
async fn sums(world: &World) -> BudgetUse {
    let account = books(world, &BudgetScope::Account).await;
    let worker = BudgetScope::Worker(world.turnstile("a").worker);
    assert_eq!(books(world, &worker).await, account);
    account
}

/// Retries until the rows are no longer in doubt.
async fn admit(world: &World) -> Admission {
    let start = Instant::now();
    loop {
        match world.store.admit(limited(world), world.now()).await {
            Ok(admission) => return admission,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The gateways whose sums are the latest and the older ones each restore first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_gateway_restores_first_a_budget_is_not_spent_twice() {
    tokio::join!(restored_in_order([0, 1]), restored_in_order([1, 0]));
}

async fn restored_in_order(order: [usize; 2]) {
    let server = RedisServer::start(&RedisOptions::default());
    let all = gateways(&server.url(), "budgets", 2).await;
    let [one, other] = [&all[0].world, &all[1].world];
    let settled = one.open(limited(one)).await;
    one.submit(&settled, "t1").await;
    one.open(limited(one)).await;
    // The other gateway knows more: two claims of its own, and the end of the first one.
    other.settle(settled.solve.unwrap(), 1, other.solved("t1")).await;
    let last = [other.open(limited(other)).await, other.open(limited(other)).await];
    let before = sums(other).await;
    server.cli(&["FLUSHALL"]);

    let [first, second] = order.map(|number| &all[number]);
    until_back(&first.backend, &first.world).await;
    let early = first.world.store.admit(limited(&first.world), first.world.now()).await;
    assert!(matches!(early, Err(StoreError::Unavailable { .. })), "{early:?}");
    until_back(&second.backend, &second.world).await;
    assert_eq!(sums(&second.world).await, before, "restored in the order {order:?}");
    nothing_is_settled_again(first, &settled, before).await;
    assert!(matches!(admit(&first.world).await, Admission::Opened(_)), "four of five are used");
    let refused = admit(&second.world).await;
    assert!(matches!(refused, Admission::OverBudget(_)), "{last:?} count: {refused:?}");
}

/// The gateway that submitted reports the answer once more.
async fn nothing_is_settled_again(at: &Gateway, settled: &Claim, before: BudgetUse) {
    let world = &at.world;
    world.settle(settled.solve.unwrap(), 1, world.solved("t1")).await;
    let sums = sums(world).await;
    assert_eq!(sums, before);
    let parts = sums.settled.solves + sums.released.solves + sums.outstanding().solves;
    assert_eq!(sums.reserved.solves, parts);
}
