//! Batch polls: the reply for each task, and when tasks have to be polled one by one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    id::TaskId,
    ports::{BatchRefused, Poll, Polled, Provider as _, Submission},
    secret::Secret,
    site::PageUrl,
};
use simulator::{BehaviourConfig, Call, Fault, Planned, Sim, SimConfig, SimHandle};
use upstream::{Upstream, UpstreamConfig};

use crate::support::{
    HandClock, KEY, Server, attempt, challenge, config, ok, short_timeouts, task, upstream,
};

const PAGE: &str = "<html><body>be right back</body></html>";

struct World {
    sim: SimHandle,
    clock: Arc<HandClock>,
    upstream: Upstream,
}

impl World {
    async fn new(behaviour: BehaviourConfig) -> Self {
        let clock = Arc::new(HandClock::default());
        let behaviour = BehaviourConfig { key: Some(Secret::new(KEY)), ..behaviour };
        let behaviour = behaviour.solving_in(Duration::from_secs(10));
        let sim = SimConfig { clock: clock.clone(), ..SimConfig::new(behaviour) };
        let sim = Sim::start(sim).await.unwrap();
        let upstream = Upstream::new(short_timeouts(&sim.url()), clock.clone()).unwrap();
        Self { sim, clock, upstream }
    }

    async fn submit(&self, challenge: &Challenge) -> TaskId {
        let submission = self.upstream.submit(challenge, attempt()).await;
        let Submission::Accepted(task) = submission else { panic!("{submission:?}") };
        task
    }

    /// The number of poll requests and of polled tasks.
    fn poll_counts(&self) -> (u64, u64) {
        let ledger = self.sim.account().ledger();
        (ledger.poll_calls, ledger.polls)
    }
}

fn geetest() -> Challenge {
    let draft = ChallengeParts {
        sitekey: Some("g1".into()),
        pageurl: Some(PageUrl::parse("https://shop.example.com/login").unwrap()),
        params: [("challenge".to_owned(), "c1".to_owned())].into(),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Geetest, draft).unwrap()
}

fn tasks() -> [TaskId; 2] {
    [task("71"), task("72")]
}

async fn polled_with(body: &str) -> Result<Vec<Polled>, BatchRefused> {
    let server = Server::answering(ok(body)).await;
    let polled = upstream(config(&server.url)).poll_many(&tasks()).await;
    assert_eq!(server.requests().len(), 1, "asked once");
    let request = &server.requests()[0];
    assert!(request.contains("action=get&ids=71%2C72"), "{request}");
    polled
}

fn is_solved(polled: &Polled) -> bool {
    matches!(polled.poll, Poll::Solved(_))
}

#[tokio::test]
async fn several_tasks_are_polled_in_one_call_and_answered_in_order() {
    let world = World::new(BehaviourConfig::new(1)).await;
    let first = world.submit(&challenge()).await;
    world.clock.turn(Duration::from_secs(5));
    let second = world.submit(&challenge()).await;
    world.clock.turn(Duration::from_secs(6));
    let nobody = task("404");
    let polled = world.upstream.poll_many(&[second, first.clone(), nobody]).await.unwrap();
    assert_eq!(polled[0].poll, Poll::NotReady);
    let single = world.upstream.poll(&first).await;
    assert!(matches!((&polled[1].poll, &single.poll),
        (Poll::Solved(many), Poll::Solved(one)) if many.text == one.text));
    assert!(matches!(&polled[2].poll, Poll::Code(code) if code.as_str().starts_with("ERROR_")));
    assert!(polled.iter().all(|polled| polled.price.is_none()), "nobody tells prices here");
    assert_eq!(world.poll_counts(), (2, 4));
}

#[tokio::test]
async fn a_hundred_answers_fit_into_one_reply() {
    let world = World::new(BehaviourConfig::new(1)).await;
    let mut tasks = Vec::new();
    for _ in 0..100 {
        tasks.push(world.submit(&challenge()).await);
    }
    world.clock.turn(Duration::from_secs(11));
    let polled = world.upstream.poll_many(&tasks).await.unwrap();
    assert_eq!(polled.iter().filter(|polled| is_solved(polled)).count(), 100);
    assert_eq!(world.poll_counts(), (1, 100));

    let long = format!("{}|{}", "a".repeat(130 * 1024), "b".repeat(130 * 1024));
    let polled = polled_with(&format!(r#"{{"status":1,"request":"{long}"}}"#)).await.unwrap();
    assert!(polled.iter().all(is_solved), "longer than any reply about one task may be");
}

#[tokio::test]
async fn one_task_is_polled_in_the_usual_way_and_none_not_at_all() {
    let server = Server::answering(ok(r#"{"status":1,"request":"a|b"}"#)).await;
    let upstream = upstream(UpstreamConfig { priced: true, ..config(&server.url) });
    let polled = upstream.poll_many(&[task("7")]).await.unwrap();
    assert!(matches!(&polled[0].poll, Poll::Solved(answer) if answer.text.expose() == "a|b"));
    assert!(server.requests()[0].contains("action=get2&id=7"));
    assert_eq!(upstream.poll_many(&[]).await, Ok(vec![]));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_answer_with_a_bar_makes_the_batch_garbled() {
    let world = World::new(BehaviourConfig::new(1)).await;
    let tasks = [world.submit(&challenge()).await, world.submit(&geetest()).await];
    let polled = world.upstream.poll_many(&tasks).await.unwrap();
    assert!(polled.iter().all(|polled| polled.poll == Poll::NotReady));
    world.clock.turn(Duration::from_secs(11));
    assert_eq!(world.upstream.poll_many(&tasks).await, Err(BatchRefused::Garbled));
    for task in &tasks {
        assert!(is_solved(&world.upstream.poll(task).await));
    }
}

#[tokio::test]
async fn a_provider_without_batch_polls_is_recognised() {
    for captchaai in [false, true] {
        let config = BehaviourConfig { batch: false, captchaai, ..BehaviourConfig::new(1) };
        let world = World::new(config).await;
        let tasks = [world.submit(&challenge()).await, world.submit(&challenge()).await];
        assert_eq!(world.upstream.poll_many(&tasks).await, Err(BatchRefused::Unsupported));
        assert_eq!(world.upstream.poll(&tasks[0]).await.poll, Poll::NotReady);
    }
    for body in [PAGE, "ERROR_EMPTY_ACTION", "ERROR_WRONG_CAPTCHA_ID"] {
        assert_eq!(polled_with(body).await, Err(BatchRefused::Unsupported), "{body}");
    }
}

/// The code for a forgotten task must not be mistaken for a provider without batch polls.
#[tokio::test]
async fn a_provider_that_has_answered_a_batch_keeps_its_support() {
    let number = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |mut visit| {
        let number = Arc::clone(&number);
        async move {
            while visit.request().await.is_some() {
                let body = match number.fetch_add(1, Ordering::SeqCst) {
                    0 => r#"{"status":1,"request":"CAPCHA_NOT_READY|x"}"#,
                    1 => PAGE,
                    _ => r#"{"status":0,"request":"ERROR_WRONG_CAPTCHA_ID"}"#,
                };
                visit.write(ok(body).as_bytes()).await;
            }
        }
    })
    .await;
    let upstream = upstream(config(&server.url));
    assert!(upstream.poll_many(&tasks()).await.is_ok());
    for _ in 0..2 {
        assert_eq!(upstream.poll_many(&tasks()).await, Err(BatchRefused::Garbled));
    }
    assert_eq!(server.connections(), 1, "over the same connection as polls");
}

#[tokio::test]
async fn a_transport_failure_is_a_fault_as_for_any_other_call() {
    let world = World::new(BehaviourConfig::new(1)).await;
    let tasks = [world.submit(&challenge()).await, world.submit(&challenge()).await];
    for fault in [
        Fault::Drop,
        Fault::Hang,
        Fault::Status(502),
        Fault::Truncated,
        Fault::TooManyRequests { retry_after: Some(3) },
        Fault::Code("ERROR: 1005".into()),
        Fault::Code("ERROR_KEY_DOES_NOT_EXIST".into()),
    ] {
        world.sim.account().plan(Planned::next(Call::Poll, fault.clone()));
        let polled = world.upstream.poll_many(&tasks).await;
        let Err(BatchRefused::Fault(seen)) = polled else { panic!("{fault:?}: {polled:?}") };
        let has_code = matches!(fault, Fault::Code(_) | Fault::TooManyRequests { .. });
        assert_eq!(seen.code.is_some(), has_code, "{fault:?}: {seen:?}");
        assert!(!seen.why.contains(KEY));
    }
    assert!(world.upstream.poll_many(&tasks).await.is_ok(), "and then it goes on");
}

#[tokio::test]
async fn an_unreadable_reply_is_garbled() {
    for body in ["", "???", "a|b|c", "CAPCHA_NOT_READY", "OK|token", r#"{"status":1}"#, "{"] {
        assert_eq!(polled_with(body).await, Err(BatchRefused::Garbled), "{body}");
    }
}
