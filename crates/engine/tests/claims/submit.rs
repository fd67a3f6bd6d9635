//! Step 3: intent, submission, lost reply.

use domain::{
    ledger::Event,
    ports::Poll,
    retry::own,
    solve::{AmbiguousPolicy, Stage},
};

use crate::{
    gateway::{World, declared, failure, open, seconds, token},
    provider::{Reply, task},
};

#[tokio::test(start_paused = true)]
async fn an_accepted_submission_is_polled_and_served() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    let events = world.events(id).await;
    let position = |wanted: fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let intent = position(|event| matches!(event, Event::Intent { attempt: 1, .. }));
    let accepted = position(|event| matches!(event, Event::Accepted { attempt: 1, .. }));
    let allotted = position(|event| matches!(event, Event::Allotted { .. }));
    assert!(intent < accepted && accepted < allotted, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_durable_before_the_submission_leaves() {
    let world = World::new();
    world.provider.on_submit([Reply::AcceptWhenReleased]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let attempt = world.provider.submitted(1).await;
    let solve = world.backend.store.find_solve(attempt.solve).await.unwrap().unwrap();
    assert_eq!((solve.stage, solve.nonce), (Stage::Intent, Some(attempt.nonce)));
    world.provider.release();
    token(&engine, id).await;
}

#[tokio::test(start_paused = true)]
async fn the_task_id_is_durable_before_the_first_poll() {
    let world = World::new();
    world.provider.on_poll([Poll::NotReady]);
    let engine = world.gateway(1).await;
    open(&engine, "a").await;
    let attempt = world.provider.submitted(1).await;
    world.pass(seconds(1)).await;
    let solve = world.backend.store.find_solve(attempt.solve).await.unwrap().unwrap();
    assert_eq!((solve.stage, solve.task), (Stage::Submitted, Some(task(1))));
    assert_eq!(world.provider.polls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_rejection_fails_the_claim_at_once() {
    let world = World::new();
    world.provider.on_submit([Reply::Reject("ERROR_GOOGLEKEY")]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(failure(&engine, id).await, "ERROR_GOOGLEKEY");
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_submission_that_was_not_sent_is_retried() {
    let world = World::new();
    world.provider.on_submit([Reply::NotSent, Reply::NotSent]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-3");
    let events = world.events(id).await;
    let ambiguous = events.iter().any(|event| matches!(event, Event::Ambiguous { .. }));
    assert!(!ambiguous, "nothing was sent, so nothing is ambiguous: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_submitted_once_more_and_never_a_third_time() {
    let world = World::new();
    world.provider.on_submit([Reply::Lost, Reply::Lost]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(failure(&engine, id).await, own::AMBIGUOUS);
    world.pass(seconds(600)).await;
    assert_eq!(world.provider.submissions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_site_that_never_resubmits_writes_a_lost_reply_off() {
    let mut world = World::new();
    world.config.declarations = declared(AmbiguousPolicy::Never);
    world.provider.on_submit([Reply::Lost]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(failure(&engine, id).await, own::AMBIGUOUS);
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pingback_settles_a_lost_reply_without_a_second_payment() {
    let world = World::new();
    world.provider.on_submit([Reply::Lost]);
    world.provider.on_poll([Poll::NotReady]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let attempt = world.provider.submitted(1).await;
    world.pass(seconds(1)).await;
    engine.pingback(attempt, task(1)).await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_account_error_opens_the_circuit_breaker_until_a_probe_succeeds() {
    let world = World::new();
    world.provider.on_submit([Reply::Reject("ERROR_KEY_DOES_NOT_EXIST")]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    world.provider.submitted(1).await;
    world.pass(seconds(30)).await;
    assert!(engine.account_trouble().unwrap().contains("ERROR_KEY_DOES_NOT_EXIST"));
    assert_eq!(world.provider.submissions().len(), 1, "submissions are paused");
    token(&engine, id).await;
    assert_eq!(engine.account_trouble(), None);
    let submissions = world.provider.submissions();
    assert_eq!(submissions.len(), 2);
    assert!(submissions[1].0.since(submissions[0].0) >= world.config.probe_every);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_panics_makes_the_attempt_ambiguous_and_the_driver_goes_on() {
    let world = World::new();
    world.provider.on_submit([Reply::Panic]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-2");
    let events = world.events(id).await;
    assert!(events.iter().any(|event| matches!(event, Event::Ambiguous { attempt: 1, .. })));
    assert!(engine.health().ready);
}
