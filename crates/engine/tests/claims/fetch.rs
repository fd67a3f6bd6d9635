//! Steps 5 and 6: the fact reaches the store, and the worker its answer.

use std::{sync::Arc, time::Duration};

use domain::{
    claim::{ClaimState, Source},
    id::{ClaimId, WorkerName},
    ports::{Feedback, Notifier, Poll, Scope, Subscription},
    retry::own,
};
use engine::{ClaimRequest, Engine, FetchRefusal, Outcome, Ports};
use tokio::task::JoinSet;

use crate::{
    gateway::{World, fetch, open, request, seconds, token},
    provider::{Call, task},
};

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_is_notified_at_the_moment_of_the_answer() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    assert_eq!(world.clock.now(), world.provider.polls()[0].0);
}

/// Drops every notification.
#[derive(Debug)]
struct DeafNotifier;

impl Notifier for DeafNotifier {
    fn notify(&self, _: ClaimId) {}

    fn subscribe(&self, _: ClaimId) -> Subscription {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn without_notifications_all_waiting_callers_learn_of_the_answer_within_a_second() {
    let world = World::new();
    let ports = Ports { notifier: Arc::new(DeafNotifier), ..world.ports(1) };
    let engine = Engine::start(ports, world.config.clone()).await.unwrap();
    let mut callers = JoinSet::new();
    for n in 0..20 {
        let id = open(&engine, &format!("job-{}", n % 5)).await;
        let (engine, clock) = (engine.clone(), Arc::clone(&world.clock));
        callers.spawn(async move {
            token(&engine, id).await;
            clock.now()
        });
        world.pass(Duration::from_millis(37)).await;
    }
    let told = callers.join_all().await.into_iter().max().unwrap();
    let answered = world.provider.polls().last().unwrap().0;
    assert!(told.since(answered) <= seconds(1), "{:?} later", told.since(answered));
    // Nobody waits for the time of the next reading.
    let id = open(&engine, "late").await;
    let began = world.clock.now();
    let outcome = engine.fetch(&Scope::All, id, Duration::from_millis(250)).await.unwrap();
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    assert!(world.clock.now().since(began) < Duration::from_millis(260));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_does_not_wait_learns_when_to_come_back() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let outcome = engine.fetch(&Scope::All, id, seconds(0)).await.unwrap();
    assert!(matches!(outcome, Outcome::Waiting { eta, .. } if eta >= seconds(1)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_new_at_the_first_fetch_and_a_replay_at_the_second() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let source = |outcome| match outcome {
        Outcome::Served { source, .. } => source,
        other => panic!("not served: {other:?}"),
    };
    assert_eq!(source(fetch(&engine, id).await), Source::Upstream);
    assert_eq!(source(fetch(&engine, id).await), Source::Replay);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_not_handed_out() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    world.pass(seconds(600)).await;
    assert!(matches!(fetch(&engine, id).await, Outcome::Expired(_)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_lapses_at_its_deadline_and_its_caller_is_notified() {
    let world = World::new();
    world.provider.on_poll(std::iter::repeat_n(Poll::NotReady, 100));
    let engine = world.gateway(1).await;
    let hasty = ClaimRequest { deadline: Some(seconds(12)), ..request("a") };
    let id = engine.claim(hasty).await.unwrap().outcome.claim().id;
    let began = world.clock.now();
    let Outcome::Lapsed(claim) = fetch(&engine, id).await else { panic!("not lapsed") };
    assert_eq!(claim.code.unwrap().as_str(), own::DEADLINE);
    assert!(world.clock.now().since(began) < seconds(14));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_worker_is_not_found() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    let ben = Scope::Worker(WorkerName::new("ben").unwrap());
    let refused = engine.fetch(&ben, id, seconds(0)).await;
    assert!(matches!(refused, Err(FetchRefusal::NotFound(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn polls_of_a_served_claim_write_nothing_but_a_count() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    let before = world.events(id).await;
    for _ in 0..1000 {
        token(&engine, id).await;
    }
    world.pass(seconds(2)).await;
    assert_eq!(world.events(id).await, before);
    let repeats = engine.explain(&Scope::All, id).await.unwrap().repeats;
    assert_eq!((repeats.fetched, repeats.replayed), (1000, 0));
    token(&engine, id).await;
    engine.drain().await;
    assert_eq!(world.backend.store.repeats(id).await.unwrap().fetched, 1001, "a drain loses none");
}

#[tokio::test(start_paused = true)]
async fn a_report_reaches_the_provider_once() {
    let world = World::new();
    let engine = world.gateway(1).await;
    let id = open(&engine, "a").await;
    token(&engine, id).await;
    for _ in 0..2 {
        engine.report(&Scope::All, id, Feedback::Bad, None).await.unwrap();
    }
    engine.drain().await;
    let report = Call::Report(task(1), Feedback::Bad);
    assert_eq!(world.provider.calls().iter().filter(|(_, call)| *call == report).count(), 1);
    let claim = engine.find_claim(&Scope::All, id).await.unwrap();
    assert_eq!(claim.state, ClaimState::Served);
}
