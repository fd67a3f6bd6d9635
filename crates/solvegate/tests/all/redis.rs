//! Several gateways on one Redis: a claim is paid once whichever of them gets it, and problems are reported.

use std::time::Duration;

use domain::{
    claim::{Claim, ClaimState, Source},
    ports::{ClaimFilter, Records, Scope},
    secret::Secret,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};
use store_tests::servers::{FaultProxy, Persistence, RedisOptions, RedisServer};

use crate::support::{ADMIN, ClosedPort, Gateway, Settings, Sim, eventually, run, wall_clock};

fn redis() -> RedisServer {
    RedisServer::start(&RedisOptions {
        persistence: Persistence::EverySecond,
        password: Some("canary-redis".into()),
        ..RedisOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_on_one_redis_pay_once_and_share_their_records() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let redis = redis();
    let sim = Sim::start(one.path(), &["--solve-time", "200ms"]);
    let settings = Settings { store: redis.url() + "/0?prefix=canary-pair", ..Settings::default() };
    let first = Gateway::with(one.path(), &sim, &settings);
    let second = Gateway::with(two.path(), &sim, &settings);
    let body =
        json!({ "kind": "turnstile", "sitekey": "a", "pageurl": "https://shop.example.com/" });
    let (a, b) = tokio::join!(
        first.solve(body.clone(), Some("order-17")),
        second.solve(body, Some("order-17"))
    );
    assert_eq!((&a.body["state"], &a.body["token"]), (&json!("served"), &b.body["token"]));
    assert_eq!(a.body["id"], b.body["id"]);
    assert_eq!(sim.charges().await, 1);
    let history = second.send_as_admin(&Call::get("/v1/history")).await.body;
    assert_eq!(history["items"][0]["id"], a.body["id"]);
    for gateway in [&first, &second] {
        let said = gateway.process.stdout() + &gateway.process.stderr();
        assert!(said.contains("redis://…@127.0.0.1:") && !said.contains("canary"), "{said}");
    }
    assert!(!one.path().join("data").exists(), "what is configured needs no directory");
}

/// A claim withdrawn while its task is being solved leaves a token in stock: the `number`th paid task.
async fn leave_in_stock(gateway: &Gateway, sim: &Sim, records: &dyn Records, number: usize) {
    let key = format!("left-{number}");
    let call = Call::post("/v1/solves", challenge()).header("idempotency-key", key);
    let left = gateway.send(&call).await.body;
    eventually("it is paid", async || (sim.charges().await == number).then_some(())).await;
    gateway.send(&Call::delete(format!("/v1/solves/{}", left["id"].as_str().unwrap()))).await;
    eventually("its token is in stock", async || has_stock(records).await.then_some(())).await;
}

async fn has_stock(records: &dyn Records) -> bool {
    store_tests::tokens_in_stock(records, wall_clock()).await > 0
}

async fn served_from_stock(records: &dyn Records) -> Option<Claim> {
    let page = records.history(ClaimFilter::all(Scope::All, 100)).await.unwrap();
    page.items.into_iter().find(|claim| claim.source == Some(Source::Stock))
}

fn challenge() -> Value {
    json!({ "kind": "turnstile", "sitekey": "a", "pageurl": "https://shop.example.com/" })
}

fn claim_under(key: &str) -> Call {
    waiting_claim(key, 10)
}

fn waiting_claim(key: &str, seconds: u64) -> Call {
    Call::post("/v1/solves", challenge())
        .header("idempotency-key", key)
        .header("prefer", format!("wait={seconds}"))
        .waiting(Duration::from_secs(seconds))
}

/// Takes a token from stock for a claim and keeps the reply from the gateway; returns the claim, its key and the number
/// of tokens bought. Another request of the gateway may be in flight just then and delay the claim until it is refused.
/// Then the next attempt uses another key, and another token if the last one has expired.
async fn take_and_lose_the_answer(
    gateway: &Gateway,
    sim: &Sim,
    proxy: &FaultProxy,
    records: &dyn Records,
) -> (Claim, String, usize) {
    let mut bought = 0;
    for attempt in 0..30 {
        if !has_stock(records).await {
            bought += 1;
            leave_in_stock(gateway, sim, records, bought).await;
        }
        let key = format!("killed-{attempt}");
        let call = claim_under(&key);
        proxy.drop_answers();
        let served = eventually("the token is taken", async || served_from_stock(records).await);
        let taken = tokio::select! {
            biased;
            claim = served => Some(claim),
            refused = gateway.send(&call) => {
                assert_eq!(refused.status, 503, "{}", refused.body);
                // The token may have been taken in the moment of the refusal.
                served_from_stock(records).await
            }
        };
        if let Some(claim) = taken {
            return (claim, key, bought);
        }
        proxy.heal();
        eventually("the store is back", async || {
            let history = gateway.send(&Call::get("/v1/history")).await;
            history.status.is_success().then_some(())
        })
        .await;
    }
    panic!("no attempt took a token");
}

/// The token is taken from stock for a claim, and the gateway is killed before the reply arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_between_taking_a_token_and_answering_delivers_it_to_no_other_claim() {
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(&RedisOptions::default());
    let proxy = FaultProxy::start(redis.port());
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let store = format!("redis://127.0.0.1:{}", proxy.port());
    let settings = Settings { store, poll_ms: 100, ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let records = stores::connect(&redis.url()).await.unwrap().records;

    let (claim, key, bought) = take_and_lose_the_answer(&gateway, &sim, &proxy, &*records).await;
    gateway.process.signal(Signal::KILL);
    proxy.heal();

    let settings = Settings { store: redis.url(), ..settings };
    let next = Gateway::with(dir.path(), &sim, &settings);
    let again = next.send(&claim_under(&key)).await.body;
    let token = claim.token.map(|token| token.answer.text.expose().to_owned());
    assert_eq!(claim.state, ClaimState::Served);
    assert_eq!(
        (again["id"].as_str(), again["token"].as_str()),
        (Some(claim.id.to_string().as_str()), token.as_deref(),)
    );
    // It listens at another port, so the slots of the killed gateway are its own only when that one's lease has ended.
    let other = next.send(&waiting_claim("another", 60)).await.body;
    assert_eq!(other["state"], "served", "{other}");
    assert_ne!(other["token"], again["token"], "one token, one claim");
    assert_eq!(sim.charges().await, bought + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_on_a_shared_store_makes_keys_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let redis = redis();
    let args = ["serve", "--listen", "127.0.0.1:0"];
    let mut command = crate::support::command(dir.path(), &args);
    command.env("REDIS_URL", redis.url());
    let gateway = crate::support::Process::start(command);
    let base = gateway.line_after("is listening on ");
    let key = gateway.key_in_file(dir.path(), "admin key:");
    gateway.line_after("status page:");
    assert!(!gateway.stdout().contains(&key), "a key in the log");
    let key = Secret::new(key);
    let remote = Remote::new(&base, key, None).unwrap();
    assert!(remote.send(&Call::get("/v1/history")).await.unwrap().status.is_success());
    let stranger = Remote::new(&base, Secret::new(ADMIN), None).unwrap();
    assert!(!stranger.send(&Call::get("/v1/history")).await.unwrap().status.is_success());
    let kept = dir.path().join("solvegate-data");
    let mut names: Vec<_> = std::fs::read_dir(kept)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["admin.key", "admin.key.sha256", "worker.key", "worker.key.sha256"]);
}

#[test]
fn an_unreachable_or_unsafe_redis_is_reported_with_a_remedy_and_exit_code_three() {
    let dir = tempfile::tempdir().unwrap();
    let redis = redis();
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let wrong = format!("redis://:canary-wrong@127.0.0.1:{}", redis.port());
    let closed = ClosedPort::hold();
    let cases = [
        (redis.url(), "noeviction"),
        (wrong, "password"),
        (format!("redis://127.0.0.1:{}", closed.port()), "started"),
    ];
    for (url, says) in cases {
        let environment = [("REDIS_URL", &*url)];
        let output = run(dir.path(), &["serve", "--listen", "127.0.0.1:0"], &environment);
        assert_eq!(output.code, Some(3), "{}", output.stderr);
        assert!(output.stderr.contains(says), "{}", output.stderr);
        assert!(!output.stderr.contains("canary"), "{}", output.stderr);
    }
}
