//! Step 1: which claims come in, and under which key.

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    declarations::{Declarations, Images},
    id::WorkerName,
    ledger::Event,
    ports::Scope,
};
use engine::{Admitted, ClaimRefusal, ClaimRequest, Engine, QueueFull, Slots};

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
    world.pass(seconds(2)).await;
    let full = QueueFull::Share { waiting: 1, free: 1 };
    assert_eq!(why_busy(engine.claim(request("b")).await), full);
    assert!(engine.find_claim(&Scope::All, waiting).await.is_ok());
    open_as(&engine, "ben", "a").await.unwrap();
    assert_eq!(why_busy(open_as(&engine, "cid", "a").await), QueueFull::All(2));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_floods_is_refused_and_another_is_admitted() {
    let mut world = World::new();
    world.config.slots = Slots::Fixed(0);
    world.config.queue_limits = [(WorkerName::new("ann").unwrap(), 3)].into();
    let engine = world.gateway(1).await;
    // Claims count from their admission on, also before the driver has leased them.
    let flood = (0..10).map(|n| open_as(&engine, "ann", n.to_string()));
    let flood = futures_util::future::join_all(flood).await;
    assert_eq!(flood.iter().filter(|claimed| claimed.is_ok()).count(), 3);
    world.pass(seconds(2)).await;
    let full = QueueFull::Worker { waiting: 3, limit: 3 };
    assert_eq!(why_busy(open_as(&engine, "ann", "next").await), full);
    open_as(&engine, "ben", "a").await.unwrap();
    engine.set_queue_limits([(WorkerName::new("ann").unwrap(), 4)].into());
    open_as(&engine, "ann", "next").await.unwrap();
    // A second gateway halves the limit of each.
    world.gateway(2).await;
    world.pass(seconds(6)).await;
    let full = QueueFull::Worker { waiting: 4, limit: 2 };
    assert_eq!(why_busy(open_as(&engine, "ann", "more").await), full);
}

#[tokio::test(start_paused = true)]
async fn waiting_pictures_are_bounded_in_bytes() {
    let mut world = World::new();
    (world.config.slots, world.config.most_queued_bytes) = (Slots::Fixed(0), 100);
    let images = Some(Images::new("our own pictures"));
    world.config.declarations = Declarations { images, ..Declarations::default() }.into();
    let engine = world.gateway(1).await;
    let picture = |worker: &str, byte| {
        let files = [("body".to_owned(), vec![byte; 30])].into();
        let parts = ChallengeParts { files, ..ChallengeParts::default() };
        let challenge = Challenge::new(Kind::Image, parts).unwrap();
        engine.claim(ClaimRequest { challenge, key: None, ..as_worker(worker, "") })
    };
    picture("ann", 1).await.unwrap();
    world.pass(seconds(2)).await;
    picture("ann", 2).await.unwrap();
    let full = QueueFull::Bytes { waiting: 60, more: 30, free: 40 };
    assert_eq!(why_busy(picture("ann", 3).await), full);
    picture("ben", 4).await.unwrap();
}

fn as_worker(worker: &str, key: impl AsRef<str>) -> ClaimRequest {
    ClaimRequest { worker: WorkerName::new(worker).unwrap(), ..request(key.as_ref()) }
}

async fn open_as(
    engine: &Engine,
    worker: &str,
    key: impl AsRef<str>,
) -> Result<Admitted, ClaimRefusal> {
    engine.claim(as_worker(worker, key)).await
}

fn why_busy(refused: Result<Admitted, ClaimRefusal>) -> QueueFull {
    match refused {
        Err(ClaimRefusal::Busy { full, retry_after }) if retry_after >= seconds(1) => full,
        other => panic!("not busy: {other:?}"),
    }
}
