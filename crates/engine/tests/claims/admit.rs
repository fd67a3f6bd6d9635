//! Step 1: which claims come in, and under which key.

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    declarations::{Declarations, Images},
    id::WorkerName,
    ledger::{Entry, Event},
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
    world.pass(seconds(1)).await;
    let entries = world.backend.records.entries(0, 10).await.unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    let Event::Refusals { code, pageurl, count: 1, .. } = &entry.event else { panic!("{entry:?}") };
    assert_eq!(code.as_str(), "ERROR_SITE_NOT_DECLARED");
    assert_eq!(pageurl.as_deref(), Some("https://other.example.com/login"));
    world.pass(seconds(60)).await;
    assert_eq!(world.provider.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_refusals_a_minute_are_two_entries_that_count_them_all() {
    let world = World::new();
    let engine = world.gateway(1).await;
    for _ in 0..1000 {
        let challenge = challenge("https://other.example.com/login");
        engine.claim(ClaimRequest { challenge, ..request("a") }).await.unwrap_err();
    }
    world.pass(seconds(61)).await;
    let counts = async || {
        let entries = world.backend.records.entries(0, 10).await.unwrap().into_iter();
        let count = |entry: Entry| match entry.event {
            Event::Refusals { count, .. } => count,
            other => panic!("{other:?}"),
        };
        entries.map(count).collect::<Vec<_>>()
    };
    assert_eq!(counts().await, [1, 999]);
    let challenge = challenge("https://other.example.com/login");
    for _ in 0..2 {
        engine
            .claim(ClaimRequest { challenge: challenge.clone(), ..request("a") })
            .await
            .unwrap_err();
    }
    engine.drain().await;
    assert_eq!(counts().await, [1, 999, 1, 1], "a gateway that stops writes what it counted");
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

#[tokio::test(start_paused = true)]
async fn a_full_queue_still_answers_what_opens_nothing() {
    let mut world = World::new();
    (world.config.slots, world.config.most_queued) = (Slots::Fixed(0), 4);
    let images = Some(Images::new("our own pictures"));
    let declared = Declarations::clone(&world.config.declarations);
    world.config.declarations = Declarations { images, ..declared }.into();
    let engine = world.gateway(1).await;
    let picture = |byte: u8| {
        let files = [("body".to_owned(), vec![byte; 30])].into();
        let parts = ChallengeParts { files, ..ChallengeParts::default() };
        let challenge = Challenge::new(Kind::Image, parts).unwrap();
        engine.claim(ClaimRequest { challenge, key: None, fresh: true, ..request("") })
    };
    let first = open(&engine, "order-17").await;
    let waiting = picture(1).await.unwrap();
    world.pass(seconds(2)).await;
    let full = QueueFull::Share { waiting: 2, free: 2 };
    assert_eq!(why_busy(engine.claim(request("order-18")).await), full);
    let again = admit(&engine, "order-17").await;
    assert!(again.replayed);
    assert_eq!(again.outcome.claim().id, first);
    let joined = picture(1).await.unwrap();
    assert_eq!(joined.outcome.claim().solve, waiting.outcome.claim().solve);
    assert_eq!(why_busy(picture(2).await), full, "an unknown picture needs a place");
    let own = ClaimRequest { key: None, fresh: true, ..request("") };
    assert_eq!(why_busy(engine.claim(own).await), full);
    let undeclared = challenge("https://other.example.com/login");
    let refused = engine.claim(ClaimRequest { challenge: undeclared, ..request("x") }).await;
    assert!(matches!(refused, Err(ClaimRefusal::Site(_))), "it says what no wait would mend");
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
