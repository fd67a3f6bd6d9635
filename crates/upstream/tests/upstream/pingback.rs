//! Pingbacks: the address given to the provider, and real pingbacks of the simulated provider.

use std::{sync::Arc, time::Duration};

use domain::{
    challenge::Challenge,
    id::TaskId,
    ports::{Poll, Provider as _, Submission},
    secret::Secret,
};
use simulator::{BehaviourConfig, Call, Fault, Planned, Sim, SimConfig, SimHandle};
use tokio::time::timeout;
use upstream::{BadUpstream, Pingback, Upstream, UpstreamConfig};
use wire::fetch::FetchReply;

use crate::support::{HandClock, PATIENCE, Server, attempt, challenge, config, ok, upstream};

const SECRET: &str = "a-secret-for-pingbacks";

/// A receiver of pingbacks.
struct Subscription {
    server: Server,
    clock: Arc<HandClock>,
    sim: SimHandle,
    upstream: Upstream,
}

impl Subscription {
    /// Closes the first `deaf` connections without a reply.
    async fn new(deaf: usize) -> Self {
        let server = Server::start(move |mut visit| async move {
            if visit.request().await.is_some() && visit.number > deaf {
                visit.write(ok("thanks").as_bytes()).await;
            }
        })
        .await;
        let clock = Arc::new(HandClock::default());
        let behaviour = BehaviourConfig::new(1).solving_in(Duration::from_secs(10));
        let sim = SimConfig { clock: clock.clone(), ..SimConfig::new(behaviour) };
        let sim = Sim::start(sim).await.unwrap();
        let pingback = Some(pingback(&format!("{}/-/pingback/", server.url)));
        let config = UpstreamConfig { pingback, ..config(&sim.url()) };
        let upstream = Upstream::new(config, clock.clone()).unwrap();
        Self { server, clock, sim, upstream }
    }

    async fn submit(&self, challenge: &Challenge) -> Submission {
        self.upstream.submit(challenge, attempt()).await
    }

    /// Waits for this many pingbacks.
    async fn received(&self, calls: usize) -> Vec<String> {
        let heard = async {
            while self.server.requests().len() < calls {
                timeout(Duration::from_millis(5), std::future::pending::<()>()).await.unwrap_err();
            }
        };
        timeout(PATIENCE, heard).await.expect("the provider calls");
        self.server.requests()
    }

    fn only_task(&self) -> TaskId {
        let ledger = self.sim.account().ledger();
        assert_eq!(ledger.accepted.len(), 1);
        ledger.accepted[0].task.clone()
    }
}

fn pingback(base: &str) -> Pingback {
    Pingback { base: base.into(), secret: Secret::new(SECRET) }
}

/// The task and the reply in a pingback.
fn parse_call(request: &str) -> (TaskId, Option<FetchReply>) {
    let path = request.strip_prefix("POST /-/pingback/").unwrap().split(' ').next().unwrap();
    assert_eq!(wire::pingback::read(path, &Secret::new(SECRET)), Some(attempt()));
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    wire::pingback::read_body(body.as_bytes()).unwrap()
}

#[tokio::test]
async fn the_address_names_the_attempt_and_is_signed() {
    let server = Server::answering(ok("OK|7")).await;
    let pingback = Some(pingback("https://gateway.example.com/-/pingback/"));
    let config = UpstreamConfig { pingback, ..config(&server.url) };
    assert!(!format!("{config:?}").contains(SECRET));
    upstream(config).submit(&challenge(), attempt()).await;
    let request = &server.requests()[0];
    let sent = request.split("pingback=").nth(1).unwrap().split('&').next().unwrap();
    let path = sent.strip_prefix("https%3A%2F%2Fgateway.example.com%2F-%2Fpingback%2F").unwrap();
    assert_eq!(wire::pingback::read(path, &Secret::new(SECRET)), Some(attempt()));
    assert!(path.starts_with("s123456789012345-2-n77-"), "{path}");
    assert!(!request.contains(SECRET));
}

#[tokio::test]
async fn an_unusable_pingback_address_is_refused() {
    let clock = Arc::new(HandClock::default());
    let refused = |pingback| {
        let config = UpstreamConfig { pingback: Some(pingback), ..config("http://127.0.0.1:1") };
        let made = Upstream::new(config, clock.clone());
        matches!(made, Err(BadUpstream::Pingback(_)))
    };
    for base in [
        "",
        "gateway.example.com/",
        "ftp://gateway.example.com/",
        "https://gateway.example.com/x",
        "https://gateway.example.com/x/?a=",
        "https://me@gateway.example.com/",
        "https://gateway.example.com/#",
    ] {
        assert!(refused(pingback(base)), "{base}");
    }
    assert!(refused(Pingback { secret: Secret::new("short"), ..pingback("https://a.example/") }));
    assert!(!refused(pingback("https://gateway.example.com/")));
}

#[tokio::test]
async fn the_provider_calls_when_a_task_is_solved_and_not_before() {
    let ear = Subscription::new(0).await;
    let Submission::Accepted(task) = ear.submit(&challenge()).await else { panic!("refused") };
    ear.clock.turn(Duration::from_secs(9));
    assert_eq!(ear.upstream.poll(&task).await.poll, Poll::NotReady);
    assert!(ear.server.requests().is_empty());
    ear.clock.turn(Duration::from_secs(1));
    let (named, said) = parse_call(&ear.received(1).await[0]);
    assert_eq!(named, task);
    let polled = ear.upstream.poll(&task).await.poll;
    assert!(matches!((said, polled),
        (Some(FetchReply::Answer { answer: told, .. }), Poll::Solved(polled)) if told.text == polled.text));
}

#[tokio::test]
async fn a_pingback_makes_up_for_a_lost_reply() {
    let ear = Subscription::new(0).await;
    ear.sim.account().plan(Planned::next(Call::Submit, Fault::Drop).accepted());
    let submission = ear.submit(&challenge()).await;
    assert!(matches!(submission, Submission::Ambiguous { .. }), "{submission:?}");
    ear.clock.turn(Duration::from_secs(10));
    let (named, _) = parse_call(&ear.received(1).await[0]);
    assert_eq!(named, ear.only_task());
}

#[tokio::test]
async fn a_failed_pingback_is_retried_once() {
    for (deaf, taken) in [(1, 1), (2, 0)] {
        let ear = Subscription::new(deaf).await;
        ear.submit(&challenge()).await;
        ear.clock.turn(Duration::from_secs(10));
        let calls = ear.received(2).await;
        assert_eq!(parse_call(&calls[0]), parse_call(&calls[1]));
        timeout(Duration::from_secs(1), std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(ear.server.requests().len(), 2, "and then no more");
        assert_eq!(ear.sim.account().ledger().pingbacks.len(), taken);
    }
}

#[tokio::test]
async fn the_pingback_of_an_unsolvable_task_has_its_code() {
    let ear = Subscription::new(0).await;
    ear.sim.account().plan(Planned::next(Call::Submit, Fault::Unsolvable));
    ear.submit(&challenge()).await;
    ear.clock.turn(Duration::from_secs(10));
    let (named, said) = parse_call(&ear.received(1).await[0]);
    assert_eq!(named, ear.only_task());
    assert_eq!(said, Some(FetchReply::Refused("ERROR_CAPTCHA_UNSOLVABLE".into())));
}
