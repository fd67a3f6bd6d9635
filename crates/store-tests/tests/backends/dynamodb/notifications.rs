//! A commit at one gateway notifies the others.

use store_tests::check;
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
