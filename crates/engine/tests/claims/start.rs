//! Claims that are submitted by the decision that admits them, because a slot is free and nothing waits.

use std::sync::Arc;

use domain::{
    actor::{Actor, ActorRole},
    claim::ClaimState,
    id::WorkerName,
    ledger::Event,
    pause::PauseScope,
    ports::{Scope, Store},
    solve::Stage,
};
use engine::{ClaimRefusal, ClaimRequest, Engine, EngineConfig, ServerlessDriver, Slots};

use crate::{
    gateway::{World, admit, open, request, seconds, token},
    provider::Reply,
    store::{Fault, WatchedStore},
};

/// A world whose store is watched, and a gateway with this many slots whose driver knows what there is to lease.
async fn ready(slots: usize) -> (World, Arc<WatchedStore>, Engine) {
    ready_with(slots, EngineConfig::default().submits_per_second).await
}

async fn ready_with(slots: usize, per_second: u32) -> (World, Arc<WatchedStore>, Engine) {
    let mut world = World::new();
    (world.config.slots, world.config.submits_per_second) = (Slots::Fixed(slots), per_second);
    let store = Arc::clone(&world.backend.store);
    let store = Arc::new(WatchedStore::new(store, Arc::clone(&world.clock)));
    world.backend.store = Arc::clone(&store) as Arc<dyn Store>;
    let engine = world.gateway(1).await;
    world.pass(seconds(1)).await;
    (world, store, engine)
}

/// The steps of the solve that its first intent and its lease are part of.
fn commits(store: &WatchedStore) -> [usize; 4] {
    ["admit", "advance", "settle", "deliver"].map(|name| store.count(name))
}

fn intents(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Intent { .. })).count()
}

#[tokio::test(start_paused = true)]
async fn with_a_free_slot_a_solve_takes_four_commits() {
    let (world, store, engine) = ready(5).await;
    let id = open(&engine, "a").await;
    let attempt = world.provider.submitted(1).await;
    let solve = world.backend.store.find_solve(attempt.solve).await.unwrap().unwrap();
    assert_eq!((attempt.attempt, solve.nonce), (1, Some(attempt.nonce)));
    assert_eq!(token(&engine, id).await, "token of task-1");
    let solve = world.backend.store.find_solve(attempt.solve).await.unwrap().unwrap();
    assert_eq!(solve.fence.0, 1, "it was leased once, by its admission");
    // Opened with its intent; submitted; answered; delivered.
    assert_eq!(commits(&store), [1, 0, 2, 1]);
    let events = world.events(id).await;
    assert!(matches!(events[..2], [Event::Opened { .. }, Event::Intent { attempt: 1, .. }]));
}

#[tokio::test(start_paused = true)]
async fn without_a_free_slot_a_claim_waits_as_before() {
    let (world, store, engine) = ready(1).await;
    let (first, second) = (open(&engine, "a").await, open(&engine, "b").await);
    world.pass(seconds(1)).await;
    assert_eq!(world.provider.submissions().len(), 1);
    let claim = engine.find_claim(&Scope::All, second).await.unwrap();
    let solve = world.backend.store.find_solve(claim.solve.unwrap()).await.unwrap().unwrap();
    assert_eq!(solve.stage, Stage::Queued);
    token(&engine, first).await;
    token(&engine, second).await;
    assert_eq!(commits(&store), [2, 1, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn no_claim_goes_before_one_that_waits() {
    let (world, _, engine) = ready(1).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(open(&engine, &format!("k{n}")).await);
        // A slot becomes free while others arrive.
        world.pass(seconds(2)).await;
    }
    for id in &ids {
        token(&engine, *id).await;
    }
    let solve = async |id| engine.find_claim(&Scope::All, id).await.unwrap().solve.unwrap();
    let sent: Vec<_> = world.provider.submissions().into_iter().map(|(_, of)| of.solve).collect();
    let mut opened = Vec::new();
    for id in ids {
        opened.push(solve(id).await);
    }
    assert_eq!(sent, opened);
}

#[tokio::test(start_paused = true)]
async fn claims_that_open_nothing_give_their_slot_back() {
    let (world, store, engine) = ready(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    for _ in 0..50 {
        assert!(admit(&engine, "a").await.replayed);
    }
    assert_eq!(engine.threads().working, 0);
    let next = open(&engine, "b").await;
    token(&engine, next).await;
    assert_eq!(store.count("advance"), 0, "the second was started, too");
    let submissions = world.provider.submissions();
    assert_eq!(submissions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_gets_the_slot_that_another_gives_back() {
    let (world, store, engine) = ready(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    // The replay has the only slot for three seconds, and the new claim finds none.
    store.plan([("admit", Fault::Late(seconds(3)))]);
    let began = world.clock.now();
    let (replay, next) = tokio::join!(admit(&engine, "a"), async {
        world.pass(seconds(1)).await;
        open(&engine, "b").await
    });
    assert!(replay.replayed);
    world.provider.submitted(2).await;
    assert!(world.clock.now().since(began) < seconds(4), "it was sent when the slot was free");
    token(&engine, next).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_during_the_admission_abandons_nothing() {
    let (world, store, engine) = ready(5).await;
    store.plan([("admit", Fault::Late(seconds(2)))]);
    tokio::time::timeout(seconds(1), engine.claim(request("a"))).await.unwrap_err();
    world.provider.submitted(1).await;
    let again = admit(&engine, "a").await;
    assert!(again.replayed);
    let id = again.outcome.claim().id;
    assert_eq!(token(&engine, id).await, "token of task-1");
    assert_eq!((intents(&world.events(id).await), store.count("advance")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_admission_is_not_answered_is_found_and_paid_once() {
    let (world, store, engine) = ready(5).await;
    store.plan([("admit", Fault::ReplyLost)]);
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-1");
    let submissions = world.provider.submissions();
    assert_eq!(
        (submissions.len(), submissions[0].1.attempt),
        (1, 2),
        "nothing left under the first"
    );
    let events = world.events(id).await;
    assert_eq!(intents(&events), 2);
    assert!(events.iter().all(|event| !matches!(event, Event::Ambiguous { .. })), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_did_not_reach_the_store_is_refused_and_leaves_its_slot() {
    let (world, store, engine) = ready(1).await;
    store.plan([("admit", Fault::Unreached)]);
    let refused = engine.claim(request("a")).await;
    assert!(matches!(refused, Err(ClaimRefusal::Store(_))), "{refused:?}");
    assert_eq!((engine.threads().working, world.provider.submissions().len()), (0, 0));
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    assert_eq!(commits(&store), [1, 0, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_nothing_is_sent_and_afterwards_the_claim_goes_on() {
    let (world, store, engine) = ready(5).await;
    let away = [("withhold_start", Fault::Unreached); 3];
    store.plan([[("admit", Fault::ReplyLost)].as_slice(), &away].concat());
    let refused = engine.claim(request("a")).await;
    assert!(matches!(refused, Err(ClaimRefusal::Store(_))), "{refused:?}");
    world.pass(seconds(1)).await;
    assert_eq!(world.provider.submissions().len(), 0);
    let again = admit(&engine, "a").await;
    assert!(again.replayed);
    assert_eq!(token(&engine, again.outcome.claim().id).await, "token of task-1");
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_started_submission_is_authorised_once() {
    let (world, _, engine) = ready(5).await;
    world.provider.on_submit([Reply::Lost]);
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-2");
    let events = world.events(id).await;
    let authorised = events.iter().filter(|event| matches!(event, Event::Authorised { .. }));
    assert_eq!((intents(&events), authorised.count()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_started_submission_that_panics_is_ambiguous_and_its_slot_is_free() {
    let (world, _, engine) = ready(1).await;
    world.provider.on_submit([Reply::Panic]);
    let id = open(&engine, "a").await;
    assert_eq!(token(&engine, id).await, "token of task-2");
    let events = world.events(id).await;
    assert!(events.iter().any(|event| matches!(event, Event::Ambiguous { attempt: 1, .. })));
    assert_eq!(engine.threads().working, 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_claim_is_not_started_and_goes_on_when_it_is_resumed() {
    let (world, _, engine) = ready(5).await;
    let name = WorkerName::new("night-shift").unwrap();
    let operator = Actor { name, role: ActorRole::Operator, address: None };
    engine.set_pause(PauseScope::Everything, true, operator.clone()).await.unwrap();
    let id = open(&engine, "a").await;
    world.pass(seconds(5)).await;
    assert_eq!(world.provider.submissions().len(), 0);
    engine.set_pause(PauseScope::Everything, false, operator).await.unwrap();
    token(&engine, id).await;
    assert_eq!(intents(&world.events(id).await), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_sends_what_is_being_started() {
    let (world, store, engine) = ready(5).await;
    store.plan([("admit", Fault::Late(seconds(2)))]);
    let (id, ()) = tokio::join!(open(&engine, "a"), async {
        world.pass(seconds(1)).await;
        engine.drain().await;
    });
    assert_eq!(world.provider.submissions().len(), 1);
    let next = world.gateway(2).await;
    assert_eq!(token(&next, id).await, "token of task-1");
    assert_eq!(intents(&world.events(id).await), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_stay_starts_nothing() {
    let world = World::new();
    let mut driver = ServerlessDriver::new(world.ports(1), world.config.clone());
    let until = || world.clock.now().plus(seconds(30));
    driver.run_all(until()).await.unwrap();
    // The lease of the last round would still be valid.
    let id = open(driver.engine(), "a").await;
    let claim = driver.engine().find_claim(&Scope::All, id).await.unwrap();
    assert_eq!((claim.state, intents(&world.events(id).await)), (ClaimState::Waiting, 0));
    driver.submit(id, until()).await.unwrap();
    assert_eq!(world.provider.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_keeps_to_the_slots_and_the_rate() {
    let (world, store, engine) = ready_with(4, 3).await;
    let claims = (0..20).map(|n| {
        let worker = WorkerName::new(["ann", "ben"][n % 2]).unwrap();
        engine.claim(ClaimRequest { worker, ..request(&format!("k{n}")) })
    });
    let claims = futures_util::future::join_all(claims).await;
    for claim in claims {
        token(&engine, claim.unwrap().outcome.claim().id).await;
    }
    let times: Vec<_> = world.provider.submissions().into_iter().map(|(at, _)| at).collect();
    assert_eq!(times.len(), 20);
    assert!(
        times
            .iter()
            .zip(times.iter().skip(3))
            .all(|(one, later)| { later.since(*one) >= seconds(1) })
    );
    // A task is over at its first poll, five seconds after its submission.
    assert!(
        times
            .iter()
            .zip(times.iter().skip(4))
            .all(|(one, later)| { later.since(*one) >= seconds(5) })
    );
    assert!(store.count("advance") < 20, "some were started");
}
