//! Step 2: which solve moves, and when.

use std::time::Duration;

use domain::{id::WorkerName, ledger::Event, time::Timestamp};
use engine::{ClaimRequest, ServerlessDriver, Slots};

use crate::{
    gateway::{World, open, request, seconds, token},
    provider::Reply,
};

/// Whether at most `count` submissions left within any `window`.
fn at_most(world: &World, count: usize, window: Duration) -> bool {
    let times: Vec<Timestamp> = world.provider.submissions().iter().map(|(at, _)| *at).collect();
    let apart = |pair: (&Timestamp, &Timestamp)| pair.1.since(*pair.0) >= window;
    times.iter().zip(times.iter().skip(count)).all(apart)
}

#[tokio::test(start_paused = true)]
async fn no_more_tasks_are_at_the_provider_than_there_are_slots() {
    let mut world = World::new();
    world.config.slots = Slots::Fixed(2);
    let engine = world.gateway(1).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(open(&engine, &format!("k{n}")).await);
    }
    for id in ids {
        token(&engine, id).await;
    }
    assert_eq!(world.provider.submissions().len(), 6);
    // A task is over at its first poll, five seconds after its submission.
    assert!(at_most(&world, 2, seconds(5)), "{:?}", world.provider.submissions());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_comes_late_does_not_wait_for_the_queue_of_another() {
    let mut world = World::new();
    world.config.slots = Slots::Fixed(1);
    world.config.deadline = seconds(600);
    let engine = world.gateway(1).await;
    for n in 0..20 {
        open(&engine, &format!("k{n}")).await;
    }
    world.provider.submitted(2).await;
    let worker = WorkerName::new("ben").unwrap();
    let late = engine.claim(ClaimRequest { worker, ..request("late") }).await.unwrap();
    token(&engine, late.outcome.claim().id).await;
    assert!(world.provider.submissions().len() <= 6, "{:?}", world.provider.submissions());
}

#[tokio::test(start_paused = true)]
async fn submissions_keep_the_rate_limit() {
    let mut world = World::new();
    world.config.submits_per_second = 3;
    let engine = world.gateway(1).await;
    let mut last = None;
    for n in 0..9 {
        last = Some(open(&engine, &format!("k{n}")).await);
    }
    token(&engine, last.unwrap()).await;
    assert!(at_most(&world, 3, seconds(1)), "{:?}", world.provider.submissions());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_polls_a_task_that_another_process_submitted() {
    let world = World::new();
    let mut other = ServerlessDriver::new(world.ports(1), world.config.clone());
    let id = open(other.engine(), "a").await;
    other.submit(id, world.clock.now().plus(seconds(30))).await.unwrap();
    let engine = world.gateway(2).await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_submission_cut_off_by_a_crash_is_ambiguous_and_repeated_once() {
    let world = World::new();
    world.provider.on_submit([Reply::AcceptWhenReleased]);
    let mut crashing = ServerlessDriver::new(world.ports(1), world.config.clone());
    let id = open(crashing.engine(), "a").await;
    tokio::select! {
        report = crashing.submit(id, world.clock.now().plus(seconds(30))) => panic!("{report:?}"),
        _ = world.provider.submitted(1) => {}
    }
    drop(crashing);
    let engine = world.gateway(2).await;
    assert_eq!(token(&engine, id).await, "token of task-2");
    let events = world.events(id).await;
    assert!(events.iter().any(|event| matches!(event, Event::Ambiguous { attempt: 1, .. })));
    assert_eq!(world.provider.submissions().len(), 2);
}
