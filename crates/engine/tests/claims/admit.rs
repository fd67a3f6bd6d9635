//! Step 1: which claims come in, and under which key.

use domain::{ledger::Event, ports::Scope};
use engine::{ClaimRefusal, ClaimRequest, Slots};

use crate::gateway::{World, admit, challenge, open, request, seconds, token};

#[tokio::test(start_paused = true)]
async fn a_page_that_nobody_declared_is_refused_recorded_and_never_submitted() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let challenge = challenge("https://other.example.com/login");
    let refused = engine.claim(ClaimRequest { challenge, ..request("a") }).await;
    assert!(matches!(refused, Err(ClaimRefusal::Site(_))), "{refused:?}");
    let entries = world.backend.records.entries(0, 10).await.unwrap();
    assert!(matches!(&entries[..], [entry] if matches!(entry.event, Event::Refused { .. })));
    world.pass(seconds(60)).await;
    assert_eq!(world.provider.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_claim_and_is_paid_once() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let first = open(&engine, "order-17").await;
    let again = admit(&engine, "order-17").await;
    assert!(again.replayed);
    assert_eq!(again.outcome.claim().id, first);
    token(&engine, first).await;
    assert!(admit(&engine, "order-17").await.replayed);
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_keys_never_share_an_exclusive_token() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let (first, second) = (open(&engine, "a").await, open(&engine, "b").await);
    assert_ne!(token(&engine, first).await, token(&engine, second).await);
    assert_eq!(world.provider.submissions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_belongs_to_another_challenge_is_refused() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let first = open(&engine, "a").await;
    let challenge = challenge("https://shop.example.com/checkout");
    let refused = engine.claim(ClaimRequest { challenge, ..request("a") }).await;
    assert!(matches!(refused, Err(ClaimRefusal::KeyMismatch(id)) if id == first), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn claims_without_a_key_share_one_solve_unless_they_ask_for_their_own() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let keyless = || ClaimRequest { key: None, ..request("") };
    let first = engine.claim(keyless()).await.unwrap();
    let second = engine.claim(keyless()).await.unwrap();
    assert_eq!(first.outcome.claim().id, second.outcome.claim().id);
    let own = engine.claim(ClaimRequest { fresh: true, ..keyless() }).await.unwrap();
    assert_ne!(own.outcome.claim().id, first.outcome.claim().id);
    token(&engine, first.outcome.claim().id).await;
    token(&engine, own.outcome.claim().id).await;
    assert_eq!(world.provider.submissions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_new_claims() {
    let mut world = World::new();
    (world.config.slots, world.config.most_queued) = (Slots::Fixed(0), 2);
    let engine = world.gateway(1).await;
    let waiting = open(&engine, "a").await;
    open(&engine, "b").await;
    world.pass(seconds(2)).await;
    let refused = engine.claim(request("c")).await;
    assert!(matches!(refused, Err(ClaimRefusal::Busy(2))), "{refused:?}");
    assert!(engine.find_claim(&Scope::All, waiting).await.is_ok());
}
