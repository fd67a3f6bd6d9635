//! Several gateways on one Redis: a claim is paid for once whichever of them is asked, and what is wrong is said.

use domain::secret::Secret;
use serde_json::json;
use solvegate::client::{Call, Remote};
use stores::conformance::servers::{Persistence, RedisOptions, RedisServer};

use crate::support::{ADMIN, Gateway, Settings, Sim, run};

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
    let history = second.ask_as_admin(&Call::get("/v1/history")).await.body;
    assert_eq!(history["items"][0]["id"], a.body["id"]);
    for gateway in [&first, &second] {
        let said = gateway.process.stdout() + &gateway.process.stderr();
        assert!(said.contains("redis://…@127.0.0.1:") && !said.contains("canary"), "{said}");
    }
    assert!(!one.path().join("data").exists(), "what is configured needs no directory");
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
    let shown = gateway.line_after("admin key:");
    gateway.line_after("status page:");
    let key = Secret::new(shown.split_whitespace().next().unwrap());
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
    assert_eq!(names, ["admin.key.sha256", "worker.key.sha256"]);
}

#[test]
fn a_redis_that_is_away_or_unsafe_is_said_with_the_way_out_and_exit_code_three() {
    let dir = tempfile::tempdir().unwrap();
    let redis = redis();
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let wrong = format!("redis://:canary-wrong@127.0.0.1:{}", redis.port());
    let cases = [
        (redis.url(), "noeviction"),
        (wrong, "password"),
        ("redis://127.0.0.1:1".to_owned(), "started"),
    ];
    for (url, says) in cases {
        let environment = [("REDIS_URL", &*url)];
        let output = run(dir.path(), &["serve", "--listen", "127.0.0.1:0"], &environment);
        assert_eq!(output.code, Some(3), "{}", output.stderr);
        assert!(output.stderr.contains(says), "{}", output.stderr);
        assert!(!output.stderr.contains("canary"), "{}", output.stderr);
    }
}
