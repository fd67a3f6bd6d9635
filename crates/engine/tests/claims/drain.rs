//! A gateway that stops.

use engine::{ClaimRefusal, Slots};

use crate::{
    gateway::{World, open, request, seconds, token},
    provider::Reply,
};

#[tokio::test(start_paused = true)]
async fn a_draining_gateway_refuses_claims_and_waits_for_paid_tasks() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    world.provider.submitted(1).await;
    let (served, refused, ()) = tokio::join!(
        token(&engine, id),
        async {
            world.pass(seconds(1)).await;
            engine.claim(request("b")).await
        },
        engine.drain(),
    );
    assert_eq!(served, "token of task-1");
    assert!(matches!(refused, Err(ClaimRefusal::Draining)), "{refused:?}");
    assert!(!engine.health().ready);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_reply_to_a_submission_under_way() {
    let world = World::new();
    world.provider.on_submit([Reply::AcceptWhenReleased]);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    world.provider.submitted(1).await;
    tokio::join!(engine.drain(), async {
        world.pass(seconds(60)).await;
        world.provider.release();
    });
    let next = world.gateway(2).await;
    assert_eq!(token(&next, id).await, "token of task-1");
    assert_eq!(world.provider.submissions().len(), 1, "the task id was not lost");
}

#[tokio::test(start_paused = true)]
async fn a_queued_claim_survives_a_drain_and_the_next_gateway_serves_it() {
    let mut world = World::new();
    world.config.slots = Slots::Fixed(0);
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    world.pass(seconds(2)).await;
    engine.drain().await;
    assert_eq!(world.provider.calls(), []);
    world.config.slots = Slots::Fixed(5);
    let next = world.gateway(2).await;
    token(&next, id).await;
}
