//! One worker cannot hurt the others, by the real binary.

use std::{fmt::Write as _, time::Duration};

use domain::{ledger::Event, secret::Secret, time::Timestamp};
use futures_util::future::join_all;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};

use store_tests::servers::{PostgresOptions, PostgresServer, RedisOptions, RedisServer};

use crate::support::{Gateway, Settings, Sim, WORKER, all_entries, eventually, pause};

const NOISY: &str = "noisy-3b1c09d5e7a4826b0d19e6c7a5";

/// A gateway with a third worker.
fn with_noisy(
    sim: &Sim,
    dir: &std::path::Path,
    limits: &str,
    slots: &'static str,
) -> (Gateway, Remote) {
    let more = format!("[[worker]]\nname = \"noisy\"\nkey = \"{NOISY}\"\n{limits}\n");
    let settings = Settings { slots, more, poll_ms: 100, ..Settings::default() };
    let gateway = Gateway::with(dir, sim, &settings);
    let noisy = Remote::new(&gateway.base, Secret::new(NOISY), None).unwrap();
    (gateway, noisy)
}

fn body(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_floods_gets_429_while_another_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "500ms"]);
    let (gateway, noisy) = with_noisy(&sim, dir.path(), "queue = 30", "1");
    assert_eq!(served_after(&gateway, &sim, "0x49").await, 0, "the same without a flood");
    let before = sim.charges().await;
    let calls: Vec<_> =
        (0..200).map(|n| Call::post("/v1/solves", body(&format!("0x{n}")))).collect();
    let flood = join_all(calls.iter().map(|call| noisy.send(call))).await;
    let flood: Vec<_> = flood.into_iter().map(Result::unwrap).collect();
    let count = |status| flood.iter().filter(|reply| reply.status == status).count();
    // Those that were submitted meanwhile left the queue, and there is one slot.
    let (accepted, charged) = (count(StatusCode::ACCEPTED), sim.charges().await - before);
    assert!((30..=30 + charged + 1).contains(&accepted), "{accepted} accepted, {charged} charged");
    assert_eq!(count(StatusCode::ACCEPTED) + count(StatusCode::TOO_MANY_REQUESTS), 200);
    let refused = flood.iter().find(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS).unwrap();
    assert_eq!(refused.body["code"], "busy", "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    // A place that has become free meanwhile is taken first.
    let mut more = 0x100..;
    eventually("compat refuses, too", async || {
        let sitekey = more.next().unwrap();
        let page = "https://shop.example.com/";
        let form =
            format!("/in.php?key={NOISY}&method=turnstile&sitekey={sitekey}&json=1&pageurl={page}");
        let compat = noisy.send(&Call::get(form)).await.unwrap();
        (compat.body["request"] == "ERROR_NO_SLOT_AVAILABLE").then_some(())
    })
    .await;
    // What opens nothing is answered.
    let known = noisy.send(
        calls
            .iter()
            .zip(&flood)
            .find_map(|(call, reply)| (reply.status == StatusCode::ACCEPTED).then_some(call))
            .unwrap(),
    );
    assert_ne!(
        known.await.unwrap().status,
        StatusCode::TOO_MANY_REQUESTS,
        "a replay opens nothing"
    );
    // Each claim of the other worker takes its turn as if there were no flood.
    for n in 0..3 {
        let overtaken = served_after(&gateway, &sim, &format!("0x4A{n}")).await;
        assert!(overtaken <= MOST_TURNS, "{overtaken} solves of the flood went before claim {n}");
    }
    let active = noisy.send(&Call::get("/v1/active?limit=200")).await.unwrap();
    let waiting = active.body["items"].as_array().unwrap().len();
    assert!(waiting > 0, "the flood was over before the other worker's claims");
}

/// How many solves of others may be submitted between the admission of a claim and its own submission, with one slot: the one
/// whose turn had just begun, and one more where both workers have used the same slot time.
const MOST_TURNS: usize = 2;

/// Has one claim served; returns how many solves of others went before it.
async fn served_after(gateway: &Gateway, sim: &Sim, sitekey: &str) -> usize {
    let served = gateway.solve(body(sitekey), None).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    went_first(gateway, sim, served.body["id"].as_str().unwrap()).await
}

/// How many tasks the provider accepted between the admission of a claim and its own task.
async fn went_first(gateway: &Gateway, sim: &Sim, id: &str) -> usize {
    let story = gateway.story(id).await;
    let fact = |event: &str| story.iter().find(|entry| entry["event"] == event).unwrap();
    let opened: Timestamp = serde_json::from_value(fact("opened")["at"].clone()).unwrap();
    let own = fact("accepted")["facts"]["task"].as_str().unwrap();
    let accepted = sim.ledger().await.accepted;
    let before = accepted.iter().take_while(|task| task.task.as_str() != own);
    before.filter(|task| task.at > opened).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_polls_of_a_served_claim_add_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let (mut gateway, noisy) = with_noisy(&sim, dir.path(), "poll_rate = \"1000000/s\"", "5");
    let call = Call::post("/v1/solves", body("0x4A")).header("prefer", "wait=30");
    let served = noisy.send(&call).await.unwrap().good().unwrap();
    let id = served["id"].as_str().unwrap();
    let poll = Call::get(format!("/res.php?key={NOISY}&action=get&json=1&id={id}"));
    for _ in 0..100 {
        let replies = join_all((0..100).map(|_| noisy.send(&poll))).await;
        for reply in replies {
            assert_eq!(reply.unwrap().body["request"], served["token"]);
        }
    }
    let explain = Call::get(format!("/v1/solves/{id}/explain"));
    eventually("the polls are counted", async || {
        let story = noisy.send(&explain).await.unwrap().body;
        (story["repeats"] == json!({ "fetched": 10_000, "replayed": 0 })).then_some(())
    })
    .await;
    gateway.process.signal(Signal::TERM);
    gateway.process.wait();
    let url = format!("embedded:{}", dir.path().join("data").display());
    let store = stores::connect(&url).await.unwrap();
    let entries = all_entries(&*store.records).await;
    assert!(entries.len() < 20, "{entries:#?}");
    let delivered = entries.iter().filter(|entry| matches!(entry.event, Event::Delivered { .. }));
    assert_eq!(delivered.count(), 1);
}

/// All rows of all tables.
fn rows(postgres: &PostgresServer) -> usize {
    let tables = postgres.psql(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables \
         WHERE schemaname = 'solvegate' AND tablename <> 'pages'",
    );
    assert!(tables.lines().count() > 20, "{tables}");
    let counts: Vec<_> =
        tables.lines().map(|table| format!("(SELECT count(*) FROM {table})")).collect();
    postgres.psql(&format!("SELECT {}", counts.join(" + "))).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_polls_add_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let postgres = PostgresServer::start(&PostgresOptions::default());
    let sim = Sim::start(dir.path(), &["--solve-time", "100ms"]);
    let settings = Settings { store: postgres.url(), poll_ms: 100, ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let served = gateway.solve(body("0x4A"), None).await.body;
    let id = served["id"].as_str().unwrap();
    let poll = Call::get(format!("/res.php?key={WORKER}&action=get&json=1&id={id}"));
    let counted = async |count: usize| {
        let explain = Call::get(format!("/v1/solves/{id}/explain"));
        eventually("the polls are counted", async || {
            let story = gateway.send(&explain).await.body;
            (story["repeats"]["fetched"] == count).then_some(())
        })
        .await;
    };
    gateway.send(&poll).await;
    counted(1).await;
    let before = rows(&postgres);
    for _ in 0..100 {
        let replies = join_all((0..100).map(|_| gateway.send(&poll))).await;
        assert!(replies.iter().all(|reply| reply.body["request"] == served["token"]));
    }
    counted(10_001).await;
    // The gateway's own services may write a row meanwhile, such as its memory of solve times.
    let added = rows(&postgres).saturating_sub(before);
    assert!(added < 10, "{added} rows for 10,000 polls");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_picture_of_several_claims_is_reported_to_the_provider_once() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let picture = json!({ "kind": "image", "image": "aGVsbG8gd29ybGQ=", "fresh": true });
    let claims = join_all((0..5).map(|_| gateway.solve(picture.clone(), None))).await;
    assert_eq!(sim.charges().await, 1, "they joined");
    for claim in claims.iter().chain(&claims) {
        let id = claim.body["id"].as_str().unwrap();
        let call = Call::post(format!("/v1/solves/{id}/report"), json!({ "verdict": "bad" }));
        let reported = gateway.send(&call).await;
        assert!(reported.status.is_success(), "{}", reported.body);
    }
    let reports = eventually("the report is passed on", async || {
        Some(sim.ledger().await.reports).filter(|reports| !reports.is_empty())
    });
    assert_eq!(reports.await.len(), 1);
    // A drain sends what is left.
    gateway.process.signal(Signal::TERM);
    let mut gateway = gateway;
    gateway.process.wait();
    assert_eq!(sim.ledger().await.reports.len(), 1);
}

/// How many of so many equal requests are answered with this status.
async fn granted(gateway: &Gateway, key: &str, calls: &[Call], status: StatusCode) -> usize {
    let worker = Remote::new(&gateway.base, Secret::new(key), None).unwrap();
    let replies = join_all(calls.iter().map(|call| worker.send(call))).await;
    replies.into_iter().filter(|reply| reply.as_ref().unwrap().status == status).count()
}

/// Gateways learn of each other when they renew their leases, which shows in the shares they grant: each probe is a worker with
/// one reading an hour for each of three gateways.
async fn until_all_are_known(gateways: &[Gateway], probes: &[String]) {
    let reading = vec![Call::get("/v1/history"); 3];
    for gateway in gateways {
        let mut probes = probes.iter();
        eventually("the gateways know each other", async || {
            let probe = probes.next().expect("a probe for every second of a renewal");
            pause(Duration::from_secs(1)).await;
            (granted(gateway, probe, &reading, StatusCode::OK).await == 1).then_some(())
        })
        .await;
    }
}

/// Workers that show when the gateways know each other, and their keys.
fn probes() -> (Vec<String>, String) {
    let keys: Vec<_> = (0..40).map(|n| format!("probe-{n:02}-3b1c09d5e7a4826b0d19e6c")).collect();
    let mut workers = String::new();
    for (n, key) in keys.iter().enumerate() {
        writeln!(workers, "[[worker]]\nname = \"probe{n}\"\nkey = \"{key}\"\nread_rate = \"3/h\"")
            .unwrap();
    }
    (keys, workers)
}

/// Three gateways on one store that know each other, with the worker `noisy` and its limits.
async fn three_gateways(
    dirs: &[tempfile::TempDir; 3],
    store: String,
    sim: &Sim,
    limits: &str,
) -> Vec<Gateway> {
    let (probes, workers) = probes();
    let more = format!("[[worker]]\nname = \"noisy\"\nkey = \"{NOISY}\"\n{limits}\n{workers}");
    let settings = Settings { store, more, ..Settings::default() };
    let gateways: Vec<_> =
        dirs.iter().map(|dir| Gateway::with(dir.path(), sim, &settings)).collect();
    until_all_are_known(&gateways, &probes).await;
    gateways
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_together_give_a_worker_its_queue_once() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let redis = RedisServer::start(&RedisOptions::default());
    let sim = Sim::start(dirs[0].path(), &["--solve-time", "100ms"]);
    let gateways = three_gateways(&dirs, redis.url(), &sim, "queue = 12").await;
    // Nothing leaves the queue meanwhile.
    let pause = json!({ "worker": "noisy" });
    let paused = gateways[0].send_as_admin(&Call::post("/-/pause", pause.clone())).await;
    assert_eq!(paused.body["changed"], true, "{}", paused.body);
    let mut accepted = Vec::new();
    for (at, gateway) in gateways.iter().enumerate() {
        let claim = |n| Call::post("/v1/solves", body(&format!("0x{at}-{n}")));
        let claims: Vec<_> = (0..20).map(claim).collect();
        accepted.push(granted(gateway, NOISY, &claims, StatusCode::ACCEPTED).await);
        let other = gateway.solve(body(&format!("0x4A{at}")), None).await;
        assert_eq!(other.status, StatusCode::OK, "{}", other.body);
    }
    // Nearly twelve: a gateway may lease a solve that another admitted, and counts it from then on.
    let all = accepted.iter().sum::<usize>();
    assert!((9..=15).contains(&all), "{accepted:?}");
    gateways[0].send_as_admin(&Call::post("/-/resume", pause)).await;
    eventually("all are served", async || (sim.charges().await == all + 3).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_together_grant_each_rate_once() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let redis = RedisServer::start(&RedisOptions::default());
    let sim = Sim::start(dirs[0].path(), &["--solve-time", "100ms"]);
    let limits = "rate = \"12/h\"\npoll_rate = \"9/h\"\nread_rate = \"6/h\"";
    let gateways = three_gateways(&dirs, redis.url(), &sim, limits).await;
    let reads = vec![Call::get("/v1/stats"); 20];
    let mut all = [0; 3];
    for (at, gateway) in gateways.iter().enumerate() {
        // None is a replay of another, which would be answered at once.
        let claim = |n| Call::post("/v1/solves", body(&format!("0x{at}-{n}")));
        let claims: Vec<_> = (0..20).map(claim).collect();
        let served = gateway.solve(body("0x4A"), Some("of another worker")).await.body;
        let poll = Call::get(format!("/v1/solves/{}", served["id"].as_str().unwrap()));
        all[0] += granted(gateway, NOISY, &claims, StatusCode::ACCEPTED).await;
        // Of a claim that is not its own, so that nothing else can refuse it.
        all[1] += granted(gateway, NOISY, &vec![poll; 20], StatusCode::NOT_FOUND).await;
        all[2] += granted(gateway, NOISY, &reads, StatusCode::OK).await;
    }
    assert_eq!(all, [12, 9, 6], "claims, polls, reads");
}
