//! Invocations, each in its own container, with a private table, the simulator as the provider, and a clock that can be
//! moved forward.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};
use serde_json::{Value, json};
use simulator::{BehaviourConfig, Call, Fault, Planned, Sim, SimConfig, SimHandle};
use solvegate::config::{Environment, Sources};
use solvegate_lambda::{Function, WallClock};
use store_tests::servers::DynamoDbServer;
use tempfile::TempDir;

const KEY: &str = "5e0c71b94fd83a26c7e1f09b48d2a635";
/// The key of the account at the service.
const SERVICE_KEY: &str = "c8f12a6d903be47551ad0e7fb86294c3";

/// Everything outside the containers.
struct Outside {
    clock: Arc<Ahead>,
    sim: SimHandle,
    table: String,
    directory: TempDir,
    _server: DynamoDbServer,
}

/// The wall clock, moved forward.
#[derive(Debug, Default)]
struct Ahead {
    wall: WallClock,
    by: AtomicU64,
}

#[async_trait]
impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.wall.now().plus(Duration::from_millis(self.by.load(Ordering::SeqCst)))
    }

    async fn sleep_until(&self, at: Timestamp) {
        let wait = at.since(self.now());
        self.wall.sleep_until(self.wall.now().plus(wait)).await;
    }
}

impl Outside {
    async fn new() -> Self {
        let server = DynamoDbServer::start();
        let table = server.url("solves");
        stores::migrate(&table).await.unwrap();
        let clock = Arc::new(Ahead::default());
        let behaviour = BehaviourConfig::new(7).solving_in(Duration::from_secs(20));
        let mut settings = SimConfig::new(behaviour);
        settings.clock = clock.clone();
        let sim = Sim::start(settings).await.unwrap();
        Self { clock, sim, table, directory: tempfile::tempdir().unwrap(), _server: server }
    }

    fn pass(&self, seconds: u64) {
        self.clock.by.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// A container that has served nothing yet.
    async fn container(&self) -> Function {
        let file = self.directory.path().join("solvegate.toml");
        let service = self.sim.url();
        let text = format!(
            r#"
            [upstream]
            url = "{service}"
            key = "env:SERVICE_KEY"
            [store]
            url = "{}"
            [[worker]]
            name = "tests"
            key = "env:WORKER_KEY"
            [[site]]
            host = "shop.example.com"
            basis = "simulated shop"
            [[site]]
            host = "careful.example.com"
            basis = "simulated shop that is never tried twice"
            ambiguous = "never"
            "#,
            self.table
        );
        fs::write(&file, text).unwrap();
        let environment =
            Environment::from_iter([("WORKER_KEY", KEY), ("SERVICE_KEY", SERVICE_KEY)]);
        let sources = Sources { file: Some(file), environment, ..Sources::default() };
        Function::open(&sources.load().unwrap(), self.clock.clone()).await.unwrap()
    }

    /// One invocation in a new container.
    async fn invoke(&self, event: Value) -> Value {
        let deadline = self.clock.now().plus(Duration::from_secs(60));
        self.container().await.handle(event, deadline).await.unwrap()
    }

    async fn claim(&self, host: &str, key: &str) -> Value {
        self.invoke(claim(host, key)).await
    }

    async fn round(&self) -> Value {
        self.invoke(json!({ "source": "aws.events", "detail-type": "Scheduled Event" })).await
    }

    async fn fetch(&self, id: &str) -> Value {
        self.invoke(request("GET", &format!("/v1/solves/{id}"), None, &[])).await
    }

    fn paid(&self) -> usize {
        self.sim.account().ledger().accepted.len()
    }

    /// Waits until the provider has accepted a task.
    async fn is_paid(&self) {
        let moment = Duration::from_millis(10);
        while self.paid() == 0 {
            self.clock.sleep_until(self.clock.now().plus(moment)).await;
        }
    }

    fn submits(&self) -> u64 {
        self.sim.account().ledger().received_submits
    }
}

fn request(method: &str, path: &str, body: Option<Value>, more: &[(&str, &str)]) -> Value {
    let mut headers = json!({
        "host": "function.example.com",
        "authorization": format!("Bearer {KEY}"),
        "content-type": "application/json",
    });
    for (name, value) in more {
        headers[*name] = Value::from(*value);
    }
    json!({
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": { "http": { "method": method, "path": path } },
        "body": body.map(|body| body.to_string()),
        "isBase64Encoded": false,
    })
}

fn claim(host: &str, key: &str) -> Value {
    let page = format!("https://{host}/login");
    let body = json!({ "kind": "turnstile", "sitekey": "0x4AAA", "pageurl": page });
    // It prefers to wait; no invocation does.
    let headers = [("idempotency-key", key), ("prefer", "wait=60")];
    request("POST", "/v1/solves", Some(body), &headers)
}

fn body(answer: &Value) -> Value {
    serde_json::from_str(answer["body"].as_str().unwrap()).unwrap()
}

fn id(answer: &Value) -> String {
    assert_eq!(answer["statusCode"], 202, "{answer}");
    body(answer)["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_bundled_configuration_is_valid_and_names_its_table_by_the_environment() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("solvegate.toml");
    let secrets =
        [("UPSTREAM_KEY", SERVICE_KEY), ("CHECKOUT_KEY", KEY), ("DYNAMODB_TABLE", "solves")];
    let environment = Environment::from_iter(secrets);
    let sources = Sources { file: Some(file), environment, ..Sources::default() };
    assert_eq!(sources.load().unwrap().store.expose(), "dynamodb:solves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_submitted_resumed_and_fetched_by_different_containers_and_paid_once() {
    let outside = Outside::new().await;
    let id = id(&outside.claim("shop.example.com", "a").await);
    assert_eq!(outside.paid(), 1, "submitted before the answer left");
    let round = outside.round().await;
    assert_eq!(
        (&round["leased"], &round["polled"], &round["over"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!(outside.fetch(&id).await["statusCode"], 202);
    outside.pass(60);
    let round = outside.round().await;
    assert_eq!(
        (&round["polled"], &round["over"], &round["unsure"]),
        (&1.into(), &1.into(), &false.into())
    );
    let answer = outside.fetch(&id).await;
    assert_eq!(answer["statusCode"], 200, "{answer}");
    assert!(body(&answer)["token"].is_string(), "{answer}");
    let idle = outside.round().await;
    assert_eq!((&idle["leased"], &idle["polled"]), (&0.into(), &0.into()));
    assert_eq!((outside.paid(), outside.submits()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_in_two_invocations_is_one_claim_and_one_charge() {
    let outside = Outside::new().await;
    let (one, two) = tokio::join!(
        outside.claim("shop.example.com", "a"),
        outside.claim("shop.example.com", "a"),
    );
    let third = outside.claim("shop.example.com", "a").await;
    assert_eq!(id(&one), id(&two));
    assert_eq!(id(&one), id(&third));
    assert_eq!(third["headers"]["idempotent-replayed"], "true");
    assert_eq!((outside.paid(), outside.submits()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invocation_killed_between_intent_and_reply_is_not_repeated_blindly() {
    let outside = Outside::new().await;
    // The task is accepted and paid; the reply with its id is slow.
    outside.sim.account().plan(Planned::next(Call::Submit, Fault::Trickle(60_000)));
    let mut killed = outside.container().await;
    let deadline = outside.clock.now().plus(Duration::from_secs(60));
    tokio::select! {
        answer = killed.handle(claim("careful.example.com", "a"), deadline) => panic!("{answer:?}"),
        () = outside.is_paid() => {}
    }
    drop(killed);
    assert_eq!((outside.paid(), outside.submits()), (1, 1));
    // Its lease still runs, so no other invocation touches it, even when the worker repeats the claim.
    let id = id(&outside.claim("careful.example.com", "a").await);
    assert_eq!(outside.round().await["leased"], 0);
    outside.pass(16);
    assert_eq!(outside.round().await["submitted"], 0);
    // The container may only have been frozen, so its reply is waited for before anything is decided.
    assert_eq!(outside.fetch(&id).await["statusCode"], 202);
    outside.pass(16);
    assert_eq!(outside.round().await["submitted"], 0);
    let answer = outside.fetch(&id).await;
    assert_eq!(answer["statusCode"], 502, "{answer}");
    assert_eq!((outside.paid(), outside.submits()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeclared_sites_and_unserved_paths_are_refused_and_nothing_is_sent() {
    let outside = Outside::new().await;
    assert_eq!(outside.claim("other.example.com", "a").await["statusCode"], 403);
    let page = outside.invoke(request("GET", "/", None, &[])).await;
    assert_eq!(page["statusCode"], 404);
    let wrong = [("authorization", "Bearer ffffffffffffffffffffffffffffffff")];
    let stranger = outside.invoke(request("GET", "/v1/solves/1", None, &wrong)).await;
    assert_eq!(stranger["statusCode"], 401);
    let mut container = outside.container().await;
    let soon = outside.clock.now().plus(Duration::from_secs(3));
    container.handle(claim("shop.example.com", "a"), soon).await.unwrap_err();
    let late = outside.clock.now().plus(Duration::from_secs(60));
    container.handle(json!({ "hello": "world" }), late).await.unwrap_err();
    assert_eq!(outside.submits(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_withdrawn_before_its_answer_has_ended() {
    let outside = Outside::new().await;
    let id = id(&outside.claim("shop.example.com", "a").await);
    let path = format!("/v1/solves/{id}");
    let answer = outside.invoke(request("DELETE", &path, None, &[])).await;
    assert_eq!(
        (&answer["statusCode"], &body(&answer)["state"]),
        (&200.into(), &"withdrawn".into())
    );
    outside.pass(60);
    assert_eq!(outside.round().await["over"], 1, "it is paid for, and harvested");
}
