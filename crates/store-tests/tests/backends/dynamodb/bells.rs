//! What one gateway commits rings in the others.

use store_tests::check;
use tokio::time::timeout;

use super::seldom;
use crate::{
    gateways::{PATIENCE, gateways},
    prefix,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_served_at_one_gateway_rings_at_another() {
    let all = gateways(&seldom(), &prefix(), 2).await;
    let world = &all[0].world;
    let claim = world.open(world.turnstile("a")).await;
    let ear = all[1].backend.doorbell.listen(claim.id);
    let lease = world.submit(&claim, "t1").await;
    world.tell(lease.solve.id, 1, world.solved("t1")).await;
    timeout(PATIENCE, ear).await.expect("the bell is heard");
    check(all[1].world.records.as_ref()).await;
}
