//! The engine where no process stays.

use engine::{Outcome, RoundReport, ServerlessDriver};

use crate::gateway::{World, fetch, open, seconds};

#[tokio::test(start_paused = true)]
async fn one_round_submits_and_a_later_one_serves() {
    let world = World::new();
    let mut driver = ServerlessDriver::new(world.ports(1), world.config.clone());
    let id = open(driver.engine(), "a").await;
    let until = || world.clock.now().plus(seconds(30));
    let report = driver.submit(id, until()).await.unwrap();
    assert_eq!(report, RoundReport { leased: 1, submitted: 1, ..RoundReport::default() });
    world.pass(seconds(20)).await;
    let mut next = ServerlessDriver::new(world.ports(2), world.config.clone());
    let report = next.run_all(until()).await.unwrap();
    assert_eq!(report, RoundReport { leased: 1, polled: 1, over: 1, ..RoundReport::default() });
    assert!(matches!(fetch(next.engine(), id).await, Outcome::Served { .. }));
}
