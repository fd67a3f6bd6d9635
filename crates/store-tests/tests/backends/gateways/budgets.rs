//! One budget of the account, and buyers at several gateways at once: claims of five workers, and a pool that orders.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    budget::{Allowance, BudgetScope, BudgetUse},
    claim::{Admission, Claim},
    id::{SolveId, WorkerName},
    lease::Lease,
    pool::{Level, StandingOrder, Target, Why},
    ports::RefillRequest,
};
use store_tests::{PRICE, World, accepted, check};

use super::{Gateway, all_at_once};

const MOST: u64 = 12;
const WORKERS: [&str; 5] = ["ann", "bob", "cat", "dan", "eve"];
const HOLDER: u64 = 7;

/// What a caller got.
enum Bought {
    Claim(Box<Claim>),
    Refill,
    Nothing,
}

/// Twice as many buyers as there is room for; then solves end, with and without a charge, while others buy.
pub(crate) async fn one_budget_for_all(all: &[Gateway]) {
    let world = &all[0].world;
    world.holder(HOLDER).await;
    order(world).await;
    let bought = all_at_once(all, 60, |number, at| async move { buy(&at.world, number).await });
    let (mut claims, mut refills) = (Vec::new(), 0);
    for one in bought.await {
        match one {
            Bought::Claim(claim) => claims.push(claim),
            Bought::Refill => refills += 1,
            Bought::Nothing => {}
        }
    }
    assert_eq!(claims.len() as u64 + refills, MOST, "{refills} are of the pool");
    assert_eq!(the_account_is_the_sum_of_its_parts(world).await.outstanding().solves, MOST);

    let leases = world.lease(world.holder(HOLDER).await).await;
    let leases: BTreeMap<SolveId, Lease> =
        leases.into_iter().map(|lease| (lease.solve.id, lease)).collect();
    let ends = claims.len();
    all_at_once(all, ends + 30, |number, at| {
        let claim = claims.get(number).cloned();
        let lease = claim.as_ref().and_then(|claim| leases.get(&claim.solve?).cloned());
        async move {
            match (claim, lease) {
                (Some(claim), Some(lease)) => end(&at.world, number, &claim, lease).await,
                (Some(_) | None, _) => drop(buy(&at.world, number).await),
            }
        }
    })
    .await;
    let sums = the_account_is_the_sum_of_its_parts(world).await;
    assert_eq!((sums.released.solves, sums.settled.solves), parts(ends));
    assert!(sums.used().solves <= MOST, "{sums:?}");
    all_at_once(all, 30, |number, at| async move { buy(&at.world, number).await }).await;
    assert_eq!(the_account_is_the_sum_of_its_parts(world).await.used().solves, MOST);
    check(world.records.as_ref()).await;
}

/// A worker buys at all gateways without a limit, each of which books apart from the others, and then under one.
pub(crate) async fn a_limit_that_comes_later(all: &[Gateway]) {
    const BEFORE: usize = 30;
    const MOST: u64 = 40;
    let world = &all[0].world;
    let open = |number, at: Gateway| async move {
        at.world.open(at.world.turnstile(&format!("before-{number}"))).await
    };
    let before = all_at_once(all, BEFORE, open).await;
    // While they buy, two solves of before end: one gives its price back, and the other is paid.
    let paid = world.lease_of(&before[1]).await;
    let ends = before.clone();
    let opened = all_at_once(all, 60, move |number, at| {
        let (ends, paid) = (ends.clone(), paid.clone());
        async move {
            if number < 2 {
                end(&at.world, number, &ends[number], paid).await;
            }
            let mut new = at.world.turnstile(&format!("after-{number}"));
            new.allowance = Allowance { solves_per_day: Some(MOST), ..Allowance::default() };
            matches!(at.world.admit(new).await, Admission::Opened(_))
        }
    })
    .await;
    let opened = opened.into_iter().filter(|opened| *opened).count() as u64;
    assert_eq!(opened, MOST + 1 - BEFORE as u64, "one was withdrawn");
    let spending = world.records.spending(world.now().day()).await.expect("the server is up");
    let books = &spending.books[&BudgetScope::Worker(before[0].worker.clone())];
    assert_eq!((books.month.used().solves, books.month.released.solves), (MOST, 1));
    assert_eq!(books.day(world.now().day()), books.month);
    check(world.records.as_ref()).await;
}

/// A pool that wants more than the account has room for.
async fn order(world: &World) {
    let new = world.turnstile("pool");
    let order = StandingOrder {
        challenge: new.challenge,
        worker: new.worker,
        project: new.project,
        basis: new.basis,
        level: Level::Fixed(100),
        most: 100,
        waste: 100,
        is_declared: true,
    };
    let set = world.store.set_pool(new.fingerprint, Some(order), None, world.now()).await;
    set.expect("the server is up");
}

/// Every fourth caller orders for the pool, the others claim.
async fn buy(world: &World, number: usize) -> Bought {
    let account = Allowance { solves_per_day: Some(MOST), ..Allowance::default() };
    if number % 4 == 3 {
        let refill = RefillRequest {
            pool: world.turnstile("pool").fingerprint,
            holder: domain::id::HolderId::from_number(HOLDER),
            target: Target { level: 100, why: Why::Fixed },
            solves: vec![world.fresh_solve()],
            wanted_until: world.now().plus(Duration::from_secs(60)),
            price: Some(PRICE),
            budget: Allowance::default(),
            account,
        };
        let refilled = world.store.refill(refill, world.now()).await.expect("the server is up");
        return if refilled.opened.is_empty() { Bought::Nothing } else { Bought::Refill };
    }
    let mut new = world.turnstile("a");
    (new.account, new.worker) = (account, worker(WORKERS[number % WORKERS.len()]));
    match world.admit(new).await {
        Admission::Opened(claim) => Bought::Claim(Box::new(claim)),
        Admission::OverBudget(_) => Bought::Nothing,
        other @ (Admission::Replayed(_)
        | Admission::Stocked(_)
        | Admission::Joined(_)
        | Admission::Started(..)
        | Admission::Mismatch(_)
        | Admission::TooLate
        | Admission::NameTaken) => panic!("{other:?}"),
    }
}

/// Withdraws every second claim, and pays for the others.
async fn end(world: &World, number: usize, claim: &Claim, lease: Lease) {
    if number.is_multiple_of(2) {
        world.withdraw(claim).await;
        return;
    }
    let solve = world.intend(&lease).await.expect("its lease is good");
    let task = format!("t{}", solve.id);
    world.settle(solve.id, solve.attempt, accepted(&task)).await;
    world.settle(solve.id, solve.attempt, world.solved(&task)).await;
}

/// How many of so many claims `end` withdraws, and how many it pays for.
fn parts(claims: usize) -> (u64, u64) {
    let paid = claims / 2;
    ((claims - paid) as u64, paid as u64)
}

async fn the_account_is_the_sum_of_its_parts(world: &World) -> BudgetUse {
    let spending = world.records.spending(world.now().day()).await.expect("the server is up");
    let mut sum = BudgetUse::default();
    for (scope, book) in &spending.books {
        if *scope != BudgetScope::Account {
            sum.add_bought(&book.month);
        }
    }
    let account = spending.books.get(&BudgetScope::Account).map(|book| book.month);
    assert_eq!(account, Some(sum));
    sum
}

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).expect("a name")
}
