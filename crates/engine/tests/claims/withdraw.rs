//! A claim that its worker takes back.

use domain::{claim::Source, ports::Scope};
use engine::{Outcome, Slots};

use crate::{
    gateway::{World, admit, fetch, open, seconds, text, token},
    provider::Reply,
};

#[tokio::test(start_paused = true)]
async fn the_paid_token_of_a_withdrawn_claim_serves_the_next_claim() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    world.provider.submitted(1).await;
    engine.withdraw(&Scope::All, id, None).await.unwrap();
    assert!(matches!(fetch(&engine, id).await, Outcome::Withdrawn(_)));
    world.pass(seconds(10)).await;
    let Outcome::Served { claim, source } = admit(&engine, "b").await.outcome else {
        panic!("not served")
    };
    assert_eq!((text(&claim).as_str(), source), ("token of task-1", Source::Stock));
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_withdrawn_while_it_waits_for_a_slot_is_never_submitted() {
    let mut world = World::new();
    world.config.slots = Slots::Fixed(1);
    world.provider.on_submit([Reply::AcceptWhenReleased]);
    let engine = world.gateway(1).await;
    let first = open(&engine, "a").await;
    world.provider.submitted(1).await;
    let second = open(&engine, "b").await;
    world.pass(seconds(2)).await;
    engine.withdraw(&Scope::All, second, None).await.unwrap();
    world.provider.release();
    token(&engine, first).await;
    world.pass(seconds(60)).await;
    assert_eq!(world.provider.submissions().len(), 1);
}
