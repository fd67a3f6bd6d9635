//! A failure does not burn a key: after the failure window the same key opens the work again, on every door. Clients here do
//! what `Retry-After` says, and what is paid is read from the simulator's own ledger.

use std::{path::Path, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::{Call, Reply};

use crate::support::{Gateway, Settings, Sim, WORKER, eventually, pause, run};

fn on(host: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4AAA", "pageurl": format!("https://{host}/") })
}

fn settings() -> Settings {
    let more = r#"
            [[site]]
            host = "lasting.example.com"
            basis = "own shop, tests"
            after_failure = "replay"
    "#;
    Settings { top: "failure_window = \"2s\"".into(), more: more.into(), ..Settings::default() }
}

fn start(dir: &Path) -> (Sim, Gateway) {
    let sim = Sim::start(dir, &["--solve-time", "300ms"]);
    let gateway = Gateway::with(dir, &sim, &settings());
    (sim, gateway)
}

async fn refuse_next(sim: &Sim) {
    sim.fault_submit(json!({ "code": "ERROR_WRONG_GOOGLEKEY" }), false).await;
}

fn retry_after(reply: &Reply) -> Option<u64> {
    let header = reply.headers.get("retry-after")?;
    Some(header.to_str().unwrap().parse().unwrap())
}

/// Waits as long as the failure says, and not longer.
async fn obey(reply: &Reply) {
    let wait = retry_after(reply).unwrap_or_else(|| panic!("no Retry-After: {}", reply.body));
    assert!((1..=2).contains(&wait), "{wait} s are left of a window of 2 s");
    pause(Duration::from_secs(wait)).await;
}

fn generations(story: &[Value]) -> Vec<&Value> {
    let opened = story.iter().filter(|entry| entry["event"] == "reopened");
    opened.map(|entry| &entry["facts"]["generation"]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_key_is_replayed_for_its_window_and_then_served() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    refuse_next(&sim).await;
    let failed = gateway.solve(on("shop.example.com"), Some("u1")).await;
    assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.body);
    let replayed = gateway.solve(on("shop.example.com"), Some("u1")).await;
    assert_eq!(replayed.status, StatusCode::BAD_GATEWAY, "{}", replayed.body);
    assert_eq!(replayed.body["id"], failed.body["id"]);
    assert_eq!(replayed.body["reopens_at"], failed.body["reopens_at"]);
    let detail = replayed.body["detail"].as_str().unwrap();
    assert!(detail.contains("the same idempotency key opens it again in "), "{detail}");
    obey(&replayed).await;
    let served = gateway.solve(on("shop.example.com"), Some("u1")).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    assert_eq!((&served.body["id"], &served.body["generation"]), (&failed.body["id"], &json!(2)));
    assert_eq!(sim.charges().await, 1, "the refused submission cost nothing");
    let again = gateway.solve(on("shop.example.com"), Some("u1")).await;
    assert_eq!(
        (&again.body["token"], &again.body["source"]),
        (&served.body["token"], &json!("replay"))
    );
    assert_eq!(sim.charges().await, 1);
    let path = format!("/v1/solves/{}/explain", failed.body["id"].as_str().unwrap());
    let explained = gateway.send(&Call::get(path)).await.body;
    let story = explained["entries"].as_array().unwrap();
    assert_eq!(generations(story), [&json!(2)]);
    let count = |event: &str| story.iter().filter(|entry| entry["event"] == event).count();
    assert_eq!((count("intent"), count("dead_lettered"), count("revived")), (2, 1, 1), "{story:?}");
    assert_eq!(explained["claim"]["generation"], 2);
    let letters = gateway.send_as_admin(&Call::get("/v1/dead-letters")).await.body;
    assert_eq!(letters["items"], json!([]), "the letter is closed, so that nobody pays again");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_generation_that_fails_has_a_window_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    let mut ids = Vec::new();
    for generation in 1..=3 {
        refuse_next(&sim).await;
        let failed = gateway.solve(on("shop.example.com"), Some("u1")).await;
        assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.body);
        let shown = failed.body["generation"].as_u64().unwrap_or(1);
        assert_eq!(shown, generation, "{}", failed.body);
        ids.push(failed.body["id"].clone());
        obey(&failed).await;
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(sim.ledger().await.received_submits, 3);
    let letters = gateway.send_as_admin(&Call::get("/v1/dead-letters")).await.body;
    assert_eq!(letters["items"].as_array().unwrap().len(), 1, "{letters}");
    assert_eq!(letters["items"][0]["generation"], 3, "{letters}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_repeats_at_once_open_a_key_again_once() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    refuse_next(&sim).await;
    let failed = gateway.solve(on("shop.example.com"), Some("u1")).await;
    obey(&failed).await;
    let solves = (0..10).map(|_| gateway.solve(on("shop.example.com"), Some("u1")));
    let replies = futures_util::future::join_all(solves).await;
    for reply in &replies {
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        assert_eq!(reply.body["token"], replies[0].body["token"]);
        assert_eq!(reply.body["id"], failed.body["id"]);
    }
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_in_php_works_again_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    let submit = Call::get(format!(
        "/in.php?key={WORKER}&method=turnstile&sitekey=0x4A&pageurl=https://shop.example.com/&json=1&idempotency_key=u1"
    ));
    let end_of = async |id: &str| {
        let fetch = Call::get(format!("/res.php?key={WORKER}&action=get&id={id}&json=1"));
        eventually("the claim ends", async || {
            let reply = gateway.send(&fetch).await;
            (reply.body["request"] != "CAPCHA_NOT_READY").then_some(reply)
        })
        .await
    };
    refuse_next(&sim).await;
    let first = gateway.send(&submit).await;
    assert_eq!(retry_after(&first), None, "the claim waits");
    let id = first.body["request"].as_str().unwrap().to_owned();
    let failed = end_of(&id).await;
    assert_eq!(failed.body["request"], "ERROR_WRONG_GOOGLEKEY", "{}", failed.body);
    assert!(retry_after(&failed).is_some());
    let replayed = gateway.send(&submit).await;
    assert_eq!(replayed.body["request"].as_str(), Some(id.as_str()));
    obey(&replayed).await;
    let again = gateway.send(&submit).await;
    assert_eq!((again.status, again.body["request"].as_str()), (StatusCode::OK, Some(id.as_str())));
    let served = end_of(&id).await;
    assert_eq!(served.body["status"], 1, "{}", served.body);
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_says_when_its_key_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    let page = "https://shop.example.com/";
    let solve = || {
        let args = [
            ["solve", "--server"].as_slice(),
            &[&gateway.base, "--key", "env:KEY", "--idempotency-key", "u1"],
            &["--kind", "turnstile", "--sitekey", "0x4A", "--pageurl", page],
        ]
        .concat();
        run(dir.path(), &args, &[("KEY", WORKER)])
    };
    refuse_next(&sim).await;
    let failed = solve();
    assert_ne!(failed.code, Some(0));
    let said = "the same idempotency key opens it again in ";
    let (_, seconds) =
        failed.stderr.split_once(said).unwrap_or_else(|| panic!("{}", failed.stderr));
    let seconds: u64 = seconds.split(' ').next().unwrap().parse().unwrap();
    pause(Duration::from_secs(seconds)).await;
    let served = solve();
    assert_eq!(served.code, Some(0), "{}", served.stderr);
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lapsed_because_of_the_account_is_served_when_the_account_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    sim.fault_submit(json!({ "code": "ERROR_KEY_DOES_NOT_EXIST" }), false).await;
    let mut body = on("shop.example.com");
    body["deadline_s"] = json!(2);
    let lapsed = gateway.solve(body.clone(), Some("em-1")).await;
    assert_eq!(lapsed.status, StatusCode::SERVICE_UNAVAILABLE, "{}", lapsed.body);
    assert_eq!(lapsed.body["state"], "lapsed");
    // The account is well. A gateway that starts does not know of the trouble, so nothing waits for a probe.
    drop(gateway);
    let gateway = Gateway::with(dir.path(), &sim, &settings());
    obey(&lapsed).await;
    body["deadline_s"] = json!(60);
    let served = gateway.solve(body, Some("em-1")).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    assert_eq!(served.body["id"], lapsed.body["id"]);
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_answers_late_is_not_paid_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "6s"]);
    let gateway = Gateway::with(dir.path(), &sim, &settings());
    let mut body = on("shop.example.com");
    body["deadline_s"] = json!(2);
    let lapsed = gateway.solve(body.clone(), Some("late")).await;
    assert_eq!(lapsed.status, StatusCode::GATEWAY_TIMEOUT, "{}", lapsed.body);
    obey(&lapsed).await;
    body["deadline_s"] = json!(60);
    let served = gateway.solve(body, Some("late")).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    assert_eq!((&served.body["id"], sim.charges().await), (&lapsed.body["id"], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_site_says_replay_a_failure_stays_and_promises_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    refuse_next(&sim).await;
    let failed = gateway.solve(on("lasting.example.com"), Some("u1")).await;
    assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.body);
    assert_eq!((retry_after(&failed), failed.body.get("reopens_at")), (None, None));
    pause(Duration::from_millis(2_500)).await;
    let replayed = gateway.solve(on("lasting.example.com"), Some("u1")).await;
    assert_eq!(replayed.body, failed.body);
    assert_eq!((retry_after(&replayed), sim.charges().await), (None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_been_paid_is_not_paid_again_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, gateway) = start(dir.path());
    sim.fault_submit(json!("drop"), true).await;
    let failed = gateway.solve(on("careful.example.com"), Some("u1")).await;
    assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.body);
    assert_eq!(retry_after(&failed), None);
    let detail = failed.body["detail"].as_str().unwrap();
    assert!(detail.contains("use a new key, or revive its dead letter"), "{detail}");
    pause(Duration::from_millis(2_500)).await;
    let replayed = gateway.solve(on("careful.example.com"), Some("u1")).await;
    assert_eq!(replayed.body, failed.body);
    assert_eq!((retry_after(&replayed), sim.charges().await), (None, 1));
    let other = gateway.solve(on("careful.example.com"), Some("u2")).await;
    assert_eq!((other.status, sim.charges().await), (StatusCode::OK, 2), "{}", other.body);
}
