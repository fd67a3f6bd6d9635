//! A claim is paid once: the real binary, the simulator as a separate process, and its ledger as the judge.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{Gateway, Process, Sim, WORKER, command, eventually, run};

const SOLVE_TIME: [&str; 2] = ["--solve-time", "700ms"];

fn turnstile(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/login" })
}

fn image(bytes: &[u8]) -> Value {
    json!({ "kind": "image", "image": STANDARD.encode(bytes) })
}

fn token(reply: &solvegate::client::Reply) -> String {
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    reply.body["token"].as_str().unwrap().to_owned()
}

async fn savings(gateway: &Gateway) -> u64 {
    let report = gateway.send_as_admin(&Call::get("/v1/report")).await;
    report.body["all"]["savings"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_identical_solves_are_one_charge_one_token_and_199_savings() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let replies = join_all((0..200).map(|_| gateway.solve(turnstile("0x4AAA"), None))).await;
    let tokens: BTreeSet<_> = replies.iter().map(token).collect();
    assert_eq!((tokens.len(), sim.charges().await), (1, 1));
    assert_eq!(savings(&gateway).await, 199);
    let answered_as =
        |source: &str| replies.iter().filter(|reply| reply.body["source"] == source).count();
    assert_eq!(answered_as("upstream"), 1, "exactly one caller paid");
    assert_eq!(answered_as("join") + answered_as("replay"), 199, "the others share its token");
}

/// The same by the command line, as people try it.
#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_key_say_whose_token_they_got() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "3s"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let page = "https://shop.example.com/";
    let args = ["solve", "--kind", "turnstile", "--sitekey", "0x1", "--pageurl", page, "--json"];
    let solve = || {
        let mut solve = command(dir.path(), &args);
        solve.envs([("SOLVEGATE_KEY", WORKER), ("SOLVEGATE_SERVER", &gateway.base)]);
        solve
    };
    let mut first = Process::start(solve());
    eventually("it is paid", async || (sim.charges().await == 1).then_some(())).await;
    let second = solve().output().unwrap();
    assert_eq!(first.wait().code(), Some(0), "{}", first.stderr());
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    let first = first.whole_stdout();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&first["source"], &second["source"]), (&json!("upstream"), &json!("join")));
    assert_eq!((&first["token"], sim.charges().await), (&second["token"], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_keys_are_two_hundred_charges_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let keys: Vec<_> = (0..200).map(|n| format!("order-{n}")).collect();
    let solves = keys.iter().map(|key| gateway.solve(turnstile("0x4AAA"), Some(key)));
    let tokens: BTreeSet<_> = join_all(solves).await.iter().map(token).collect();
    assert_eq!((tokens.len(), sim.charges().await), (200, 200));
    assert_eq!(savings(&gateway).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_used_again_is_the_same_claim_and_for_another_challenge_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let first = gateway.solve(turnstile("0x4AAA"), Some("order-1")).await;
    let again = gateway.solve(turnstile("0x4AAA"), Some("order-1")).await;
    assert_eq!((token(&first), &first.body["id"]), (token(&again), &again.body["id"]));
    assert_eq!(again.body["source"], "replay");
    let before = gateway.send_as_admin(&Call::get("/v1/history")).await.body;
    let other = gateway.solve(turnstile("0x4BBB"), Some("order-1")).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", other.body);
    let after = gateway.send_as_admin(&Call::get("/v1/history")).await.body;
    assert_eq!((before, sim.charges().await), (after, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_identical_images_are_one_charge_and_equal_headers_are_not_equal_images() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe0];
    jpeg.extend([7; 4096]);
    let keys: Vec<_> = (0..200).map(|n| format!("form-{n}")).collect();
    let solves = keys.iter().map(|key| gateway.solve(image(&jpeg), Some(key)));
    let answers: BTreeSet<_> = join_all(solves).await.iter().map(token).collect();
    assert_eq!((answers.len(), sim.charges().await), (1, 1));
    *jpeg.last_mut().unwrap() = 8;
    token(&gateway.solve(image(&jpeg), None).await);
    assert_eq!(sim.charges().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_workers_claim_does_not_exist_and_keys_are_scoped_to_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let mine = gateway.solve(turnstile("0x4AAA"), Some("order-1")).await;
    let path = format!("/v1/solves/{}", mine.body["id"].as_str().unwrap());
    assert_eq!(gateway.send_as_two(&Call::get(&path)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(gateway.send(&Call::get(&path)).await.status, StatusCode::OK);
    let call = Call::post("/v1/solves", turnstile("0x4BBB"))
        .header("idempotency-key", "order-1")
        .header("prefer", "wait=30")
        .waiting(Duration::from_secs(30));
    token(&gateway.send_as_two(&call).await);
    assert_eq!(sim.charges().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_caller_went_away_is_banked_and_serves_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let call = Call::post("/v1/solves", turnstile("0x4AAA")).header("idempotency-key", "first");
    let first = gateway.send(&call).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    eventually("the task is accepted", async || (sim.charges().await == 1).then_some(())).await;
    let path = format!("/v1/solves/{}", first.body["id"].as_str().unwrap());
    gateway.send(&Call::delete(path)).await.good().unwrap();
    eventually("the token is banked", async || {
        let active = gateway.send_as_admin(&Call::get("/v1/active")).await.body;
        active["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let next = gateway.solve(turnstile("0x4AAA"), Some("second")).await;
    token(&next);
    assert_eq!((next.body["source"].as_str(), sim.charges().await), (Some("stock"), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_client_submits_and_fetches_over_the_compat_door() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let key = crate::support::WORKER;
    let submit = format!(
        "/in.php?key={key}&method=turnstile&sitekey=0x4A&pageurl=https://shop.example.com/&json=1"
    );
    let accepted = gateway.send(&Call::get(submit)).await.body;
    assert_eq!(accepted["status"], 1, "{accepted}");
    let id = accepted["request"].as_str().unwrap().to_owned();
    let fetch = Call::get(format!("/res.php?key={key}&action=get&id={id}&json=1"));
    let answer = eventually("the token comes", async || {
        let body = gateway.send(&fetch).await.body;
        (body["request"] != "CAPCHA_NOT_READY").then_some(body)
    })
    .await;
    assert_eq!((answer["status"].as_u64(), sim.charges().await), (Some(1), 1));
    let story = gateway.story(&id).await;
    assert!(story.iter().any(|entry| entry["event"] == "delivered"), "{story:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_and_expired_sites_cost_nothing_and_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &SOLVE_TIME);
    let gateway = Gateway::start(dir.path(), &sim);
    let days = gateway.days().await;
    // Of two kinds, because equal refusals of a minute are counted and written at its end.
    let pages = ["https://elsewhere.example.com/", "https://over.example.com/"];
    for (kind, page) in ["turnstile", "recaptcha_v2"].into_iter().zip(pages) {
        let body = json!({ "kind": kind, "sitekey": "0x4A", "pageurl": page });
        let refused = gateway.solve(body, None).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.body);
    }
    eventually("both are in the ledger", async || (days.sum("refused").await == 2).then_some(()))
        .await;
    assert_eq!(sim.ledger().await.received_submits, 0);
}

#[test]
fn in_an_empty_directory_one_command_prints_a_token_from_the_simulator() {
    let dir = tempfile::tempdir().unwrap();
    let page = "https://shop.example.com/login";
    let args = ["solve", "--kind", "turnstile", "--sitekey", "0x4AAA", "--pageurl", page];
    let solved = run(dir.path(), &args, &[]);
    assert_eq!(solved.code, Some(0), "{}", solved.stderr);
    assert!(solved.stdout.starts_with("SIM."), "{}", solved.stdout);
    let again = run(dir.path(), &args, &[]);
    assert_eq!(
        again.stdout, solved.stdout,
        "the same parameters within a minute are the same solve"
    );
}
