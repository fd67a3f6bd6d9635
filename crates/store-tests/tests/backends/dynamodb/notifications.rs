//! A commit at one gateway notifies the others.

use std::time::Duration;

use domain::{
    account_share::{ASKED, AccountUse, LimitUse},
    id::HolderId,
    lease::Holder,
    ports::LeaseRequest,
};
use store_tests::{World, check};
use tokio::time::timeout;

use super::rarely_compacting;
use crate::{
    gateways::{PATIENCE, gateways},
    prefix,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_served_at_one_gateway_notifies_another() {
    let all = gateways(&rarely_compacting(), &prefix(), 2).await;
    let world = &all[0].world;
    let claim = world.open(world.turnstile("a")).await;
    let notified = all[1].backend.notifier.subscribe(claim.id);
    let lease = world.submit(&claim, "t1").await;
    world.settle(lease.solve.id, 1, world.solved("t1")).await;
    timeout(PATIENCE, notified).await.expect("the notification arrives");
    check(all[1].world.records.as_ref()).await;
}

async fn hold(world: &World, id: HolderId, wanted: u32) {
    let six = LimitUse { limit: 6, in_force: 0, wanted };
    let account = Some(AccountUse { slots: six, submits: six, used: 0 });
    let until = world.now().plus(LeaseRequest::TERM);
    world.store.hold(Holder { id, until, account }).await.expect("the server is up");
}

/// The row of a gateway that waits is the message, and another one reads it with the lease call that it makes every second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_waits_for_its_share_is_heard_by_another_that_leases() {
    let all = gateways(&rarely_compacting(), &prefix(), 2).await;
    let (first, second) = (HolderId::from_number(1), HolderId::from_number(2));
    hold(&all[0].world, first, 0).await;
    hold(&all[1].world, second, 0).await;
    all[0].world.lease(first).await;
    let mut asked = all[0].backend.notifier.subscribe(ASKED);
    hold(&all[1].world, second, 0).await;
    all[0].world.lease(first).await;
    let heard = timeout(Duration::from_millis(1), &mut asked).await;
    assert!(heard.is_err(), "a gateway that wants nothing says nothing");
    hold(&all[1].world, second, 9).await;
    all[0].world.lease(first).await;
    timeout(PATIENCE, asked).await.expect("the other one hears it");
}
