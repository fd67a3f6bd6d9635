//! Step 4: when a task is polled, and what the reply means.

use domain::{ports::Poll, retry::own};

use crate::{
    gateway::{World, failure, open, seconds, token},
    provider::{code, fault, solved},
};

#[tokio::test(start_paused = true)]
async fn polls_keep_the_fixed_schedule() {
    let world = World::new();
    world.provider.on_poll([Poll::NotReady, Poll::NotReady, solved("at last")]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "at last");
    let sent_at = world.provider.submissions()[0].0;
    let ages: Vec<u64> =
        world.provider.polls().iter().map(|(at, _)| at.since(sent_at).as_secs()).collect();
    assert_eq!(ages, [5, 10, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_poll_is_retried_and_never_leads_to_a_submission() {
    let world = World::new();
    world.provider.on_poll([fault(), fault(), code("ERROR_SERVER_ERROR"), fault()]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_use_up_the_polls_of_a_paid_task() {
    let mut world = World::new();
    world.config.deadline = seconds(590);
    world.provider.on_poll(std::iter::repeat_n(fault(), 15));
    world.provider.on_poll(std::iter::repeat_n(Poll::NotReady, 8));
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    assert_eq!(world.provider.polls().len(), 24, "twenty polls are allowed, and faults are none");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_never_ready_is_given_up_after_its_last_poll() {
    let mut world = World::new();
    world.config.deadline = seconds(3000);
    world.provider.on_poll(std::iter::repeat_n(Poll::NotReady, 100));
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(failure(&engine, id).await, own::NEVER_READY);
    assert_eq!(world.provider.polls().len(), 20);
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pingback_brings_the_poll_forward() {
    let mut world = World::new();
    world.config.pingback = true;
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let attempt = world.provider.submitted(1).await;
    world.pass(seconds(2)).await;
    engine.pingback(attempt, crate::provider::task(1)).await;
    token(&engine, id).await;
    let (sent_at, polled_at) = (world.provider.submissions()[0].0, world.provider.polls()[0].0);
    assert_eq!(polled_at.since(sent_at).as_secs(), 2);
}
