//! Callbacks: the end of a claim is announced to its worker's URL.

use std::time::Duration;

use domain::{
    callback::Callback,
    claim::{Claim, ClaimState, Delivery, NewClaim},
    ledger::Event,
    secret::Secret,
};

use crate::{World, admin, token_of};

fn with_callback(mut new: NewClaim) -> NewClaim {
    new.callback_url = Some(Secret::new("https://hooks.example.com/solved"));
    new
}

async fn due(world: &World) -> Vec<Callback> {
    world.store.callbacks(100, world.now()).await.unwrap()
}

async fn mark_delivered(world: &World, callback: &Callback) {
    world.store.called_back(callback, world.now()).await.unwrap();
}

fn contains_end(callbacks: &[Callback], claim: &Claim, state: ClaimState) -> bool {
    callbacks.iter().any(|callback| callback.claim == claim.id && callback.state == state)
}

pub(super) async fn the_end_of_a_claim_is_announced_once(world: World) {
    let claim = world.open(with_callback(world.turnstile("a"))).await;
    let silent = world.open(world.turnstile("b")).await;
    assert!(due(&world).await.is_empty(), "nothing has ended");
    world.fail_solve(&claim, "ERROR_PAGEURL").await;
    world.fail_solve(&silent, "ERROR_PAGEURL").await;
    let callbacks = due(&world).await;
    assert_eq!(callbacks.len(), 1);
    assert!(contains_end(&callbacks, &claim, ClaimState::Failed));
    assert_eq!(
        (callbacks[0].tries, callbacks[0].url.expose()),
        (1, "https://hooks.example.com/solved")
    );
    assert!(due(&world).await.is_empty(), "it is being tried");
    mark_delivered(&world, &callbacks[0]).await;
    mark_delivered(&world, &callbacks[0]).await;
    world.pass_days(1);
    assert!(due(&world).await.is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::CalledBack { tries: 1 })).await, 1);
}

pub(super) async fn a_callback_is_tried_again_until_it_is_taken(world: World) {
    let claim = world.serve(with_callback(world.turnstile("a")), "t1").await;
    let mut id = None;
    for tries in 1..=5 {
        let callbacks = due(&world).await;
        assert_eq!((callbacks.len(), callbacks[0].tries), (1, tries));
        assert!(contains_end(&callbacks, &claim, ClaimState::Served));
        let first = id.get_or_insert_with(|| callbacks[0].message_id());
        assert_eq!(*first, callbacks[0].message_id());
        world.pass(30 * 60);
    }
    let callbacks = due(&world).await;
    mark_delivered(&world, &callbacks[0]).await;
    world.pass(3600);
    assert!(due(&world).await.is_empty());
}

pub(super) async fn a_callback_is_dropped_after_a_day(world: World) {
    world.fail(with_callback(world.turnstile("a")), "ERROR_PAGEURL").await;
    assert_eq!(due(&world).await.len(), 1);
    world.pass_days(1);
    assert!(due(&world).await.is_empty());
    assert_eq!(world.count(|event| matches!(event, Event::CallbackDropped { tries: 1 })).await, 1);
    world.pass_days(1);
    assert!(due(&world).await.is_empty());
}

pub(super) async fn a_later_end_replaces_one_not_yet_announced(world: World) {
    let claim = world.serve(with_callback(world.turnstile("a")), "t1").await;
    let served = due(&world).await.remove(0);
    world.withdraw(&claim).await;
    mark_delivered(&world, &served).await;
    let callbacks = due(&world).await;
    assert!(contains_end(&callbacks, &claim, ClaimState::Withdrawn));
    assert_eq!(callbacks.len(), 1);
    assert_ne!(callbacks[0].message_id(), served.message_id());
}

pub(super) async fn a_stocked_claim_is_announced_too(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    world.admit(with_callback(world.turnstile("a"))).await;
    assert_eq!(due(&world).await.len(), 1);
}

pub(super) async fn the_outbox_is_limited_and_in_order(world: World) {
    let mut claims = Vec::new();
    for n in 0..5 {
        claims.push(world.fail(with_callback(world.turnstile(&n.to_string())), "ERROR").await.id);
        world.tick();
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let lot = world.store.callbacks(2, world.now()).await.unwrap();
        seen.extend(lot.into_iter().map(|callback| callback.claim));
    }
    assert_eq!(seen, claims);
}

// === secrets are dropped when they are useless ===

pub(super) async fn the_text_of_a_token_is_dropped_when_it_expires(world: World) {
    let fetched = world.serve(world.turnstile("fetched"), "t1").await;
    assert!(matches!(world.fetch(&fetched).await, Delivery::Token(_)));
    let image = world.serve(world.image(b"shared"), "t2").await;
    let mut patient = world.turnstile("unfetched");
    patient.deadline = world.now().plus(Duration::from_secs(1000));
    let unfetched = world.serve(patient, "t3").await;
    world.pass(240);
    world.sweep().await;
    for claim in [&fetched, &image, &unfetched] {
        assert_ne!(token_of(&world.find(claim).await), Some(""), "it is usable");
    }
    world.pass(1);
    assert_eq!(world.sweep().await.wasted, 1, "only what nobody fetched");
    for claim in [&fetched, &image, &unfetched] {
        let claim = world.find(claim).await;
        assert_eq!((token_of(&claim), claim.holds_secret()), (Some(""), false));
        let delivery = world.fetch(&claim).await;
        assert!(matches!(delivery, Delivery::Expired(_) | Delivery::Nothing(_)), "{delivery:?}");
    }
    assert_eq!(world.sweep().await.wasted, 0);
}

pub(super) async fn a_callback_address_is_dropped_once_nobody_needs_it(world: World) {
    let served = world.serve(with_callback(world.turnstile("a")), "t1").await;
    let failed = world.fail(with_callback(world.turnstile("b")), "ERROR_PAGEURL").await;
    let withdrawn = world.open(with_callback(world.turnstile("c"))).await;
    world.withdraw(&withdrawn).await;
    let has_url = async |claim: &Claim| world.find(claim).await.callback_url.is_some();
    for callback in due(&world).await {
        mark_delivered(&world, &callback).await;
    }
    assert!(!has_url(&withdrawn).await, "it was announced");
    assert!(has_url(&served).await, "its token may go to another claim, which is announced too");
    assert!(has_url(&failed).await, "its dead letter can be revived");
    world.pass(1000);
    world.sweep().await;
    world.sweep().await;
    for callback in due(&world).await {
        mark_delivered(&world, &callback).await;
    }
    assert!(!has_url(&served).await, "nothing can happen to it any longer");
    assert!(world.store.purge(failed.solve.unwrap(), admin(), world.now()).await.unwrap());
    assert!(!has_url(&failed).await, "nobody can revive it");
}

pub(super) async fn an_archive_gets_no_secrets(world: World) {
    let archive = World::new(&stores::open("memory:").unwrap());
    let claim = world.serve(with_callback(world.turnstile("a")), "t1").await;
    assert!(claim.holds_secret());
    world.copy_to_archive(archive.archive.as_ref(), 100).await;
    let archived = archive.archive.archived_claim(claim.id).await.unwrap().unwrap();
    assert!(!archived.holds_secret() && archived.token.is_some(), "{archived:?}");
}
