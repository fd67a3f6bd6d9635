//! Gateways in different lanes count together what one gateway would count, and a limit sees all of them.

use std::sync::Arc;

use domain::{
    budget::{Allowance, BudgetScope},
    claim::{Admission, NewClaim},
    ledger::{Counts, Event, Total},
    ports::{Scope, TotalsFilter},
    time::Day,
};
use store_tests::World;

use super::*;
use crate::{
    adapter::StoreAdapter,
    decisions::RecoveryRecord,
    optimistic::{
        RawKey,
        in_process::{InProcessGateway, InProcessServer},
    },
    tx::Order,
};

/// Nine solves that end in different ways. Each is opened at one gateway, submitted at the next and settled at a third.
async fn work_at(all: &[World]) {
    for number in 0..9 {
        let [here, next, third] = [0, 1, 2].map(|by| &all[(number + by) % all.len()]);
        let claim = here.open(here.turnstile(&format!("site-{number}"))).await;
        match number % 3 {
            0 => drop(next.withdraw(&claim).await),
            1 => {
                let task = format!("task-{number}");
                let lease = next.submit(&claim, &task).await;
                third.settle(lease.solve.id, 1, third.solved(&task)).await;
                here.fetch(&claim).await;
            }
            _ => next.fail_solve(&claim, "ERROR_CAPTCHA_UNSOLVABLE").await,
        }
    }
}

async fn totals(world: &World) -> Vec<Total> {
    let (from, to) = (Day::from_number(0), Day::from_number(u32::MAX));
    world.records.totals(TotalsFilter { scope: Scope::All, from, to }).await.unwrap()
}

async fn used(world: &World) -> u64 {
    let spending = world.records.spending(world.now().day()).await.unwrap();
    let worker = BudgetScope::Worker(world.turnstile("a").worker);
    spending.books[&worker].day(world.now().day()).used().solves
}

/// All totals and books, as text.
async fn sums(world: &World) -> String {
    let spending = world.records.spending(world.now().day()).await.unwrap();
    format!("{:#?}\n{spending:#?}", totals(world).await)
}

/// What the same work leaves in a store of one process.
async fn sums_of_one_process() -> String {
    let store = Arc::new(StoreAdapter::in_memory());
    let world = World::on(store.clone(), store.clone(), store);
    work_at(&[world.clone(), world.clone(), world.clone()]).await;
    sums(&world).await
}

async fn totals_are_those_of_the_entries(world: &World) {
    let mut counted = Counts::default();
    totals(world).await.iter().for_each(|total| counted.add(&total.counts));
    let entries = world.entries().await;
    let count =
        |is: fn(&Event) -> bool| entries.iter().filter(|entry| is(&entry.event)).count() as u64;
    assert_eq!(counted.opened, count(|event| matches!(event, Event::Opened { .. })));
    assert_eq!(counted.attempts, count(|event| matches!(event, Event::Accepted { .. })));
    assert_eq!(counted.solved, count(|event| matches!(event, Event::Ready { .. })));
    assert_eq!((counted.claims, counted.opened, counted.solved), (9, 9, 3));
}

/// A claim of a worker whose budget has room for so many solves.
fn limited(world: &World, most: u64) -> NewClaim {
    let allowance = Allowance { solves_per_day: Some(most), ..Allowance::default() };
    NewClaim { allowance, ..world.turnstile("a") }
}

fn worlds(all: &[(Arc<InProcessGateway>, World)]) -> Vec<World> {
    all.iter().map(|(_, world)| world.clone()).collect()
}

#[tokio::test]
async fn the_sums_of_three_lanes_are_those_of_one_process() {
    let server = InProcessServer::default();
    let all = worlds(&server.gateways(&[1, 2, LAST_LANE]));
    work_at(&all).await;
    assert_eq!(server.lanes_of::<Totals>(), [1, 2, LAST_LANE].into());
    assert_eq!(server.lanes_of::<Spending>(), [1, 2, LAST_LANE].into());
    assert_eq!(sums(&all[0]).await, sums_of_one_process().await);
    totals_are_those_of_the_entries(&all[0]).await;
    store_tests::check(all[0].records.as_ref()).await;
}

/// Also when two gateways know different versions of one lane, and when records are restored twice.
#[tokio::test]
async fn lanes_are_restored_as_they_were() {
    let server = InProcessServer::default();
    let all = server.gateways(&[4, 7, 7]);
    work_at(&worlds(&all)).await;
    let before = sums(&all[0].1).await;
    for order in [[0, 1, 2], [2, 1, 0]] {
        let empty = InProcessServer::default();
        let again = empty.gateways(&[1, 2, 3]);
        let records = |number: &usize| all[*number].0.records();
        let all_records: Vec<_> = order.iter().flat_map(records).collect();
        again[0].0.restore(all_records.clone(), &all[0].1).await;
        // A gateway restores its pages once.
        let is_page = |record: &RecoveryRecord| matches!(record, RecoveryRecord::Page(..));
        let but_pages = all_records.into_iter().filter(|record| !is_page(record)).collect();
        again[0].0.restore(but_pages, &all[0].1).await;
        assert_eq!(sums(&again[0].1).await, before, "restored in the order {order:?}");
        totals_are_those_of_the_entries(&again[0].1).await;
    }
}

#[tokio::test]
async fn a_limit_counts_what_was_bought_in_all_lanes_before() {
    let server = InProcessServer::default();
    let all = worlds(&server.gateways(&[3, 7, 9]));
    for world in &all {
        world.open(world.turnstile("a")).await;
        world.open(world.turnstile("a")).await;
    }
    all[0].open(limited(&all[0], 8)).await;
    all[1].open(limited(&all[1], 8)).await;
    for world in &all {
        let refused = world.admit(limited(world, 8)).await;
        assert!(matches!(refused, Admission::OverBudget(_)), "{refused:?}");
        assert_eq!(used(world).await, 8);
    }
    // Without a limit, too, all book in the one row from now on.
    let rows_of = |lane: u8| {
        let rows = server.0.lock();
        let all = RawKey::from([Spending::TAG])..=[Spending::TAG + 1].into();
        let rows = rows.range(&all, Order::Rising);
        rows.filter(|(key, _)| is_of(lane, key)).map(|(_, row)| row.version).collect::<Vec<_>>()
    };
    let before = rows_of(9);
    all[2].open(all[2].turnstile("a")).await;
    assert_eq!((rows_of(9), used(&all[2]).await), (before, 9));
}

#[tokio::test]
async fn a_limit_holds_after_a_loss_although_a_gateway_is_gone() {
    let server = InProcessServer::default();
    let all = server.gateways(&[3, 7, 9]);
    for (_, world) in &all {
        world.open(world.turnstile("a")).await;
    }
    all[0].1.open(limited(&all[0].1, 4)).await;
    // The gateway of lane 9 takes what it wrote with it, but another one has read its book.
    let empty = InProcessServer::default();
    let again = empty.gateways(&[1]);
    let records = [all[0].0.records(), all[1].0.records()].concat();
    let (gateway, world) = &again[0];
    gateway.restore(records, &all[0].1).await;
    for _ in 0..9 {
        // This world draws the ids of the other one again.
        world.fresh_solve();
    }
    let refused = world.admit(limited(world, 4)).await;
    assert!(matches!(refused, Admission::OverBudget(_)), "{refused:?}");
}

/// An earlier release, whose books are one row, reads it.
#[tokio::test]
async fn a_book_that_is_one_row_stays_one() {
    let server = InProcessServer::default();
    let all = worlds(&server.gateways(&[0, 3]));
    all[0].open(all[0].turnstile("a")).await;
    all[1].open(all[1].turnstile("a")).await;
    assert!(server.lanes_of::<Spending>().is_empty());
    assert_eq!(used(&all[0]).await, 2);
}

#[test]
fn the_book_of_a_worker_whose_name_is_a_number_is_not_a_lane_of_nobody() {
    assert_eq!(without_lane("3"), "3");
    assert_eq!(without_lane("3/15"), "3");
    assert_eq!(without_lane("ann/x"), "ann/x");
    assert_eq!(name_in(0, "worker/3").as_str(), "worker/3");
    assert!(above_zero("worker/3").contains(&name_in(LAST_LANE, "worker/3")));
    assert!(!above_zero("worker/3").contains(&name_in(LAST_LANE, "worker/3.")));
}
