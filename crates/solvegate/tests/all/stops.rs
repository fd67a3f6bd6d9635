//! Work that waits is stopped when its declaration is withdrawn or an operator pauses it, by the real binary. The judge is
//! the simulator's ledger.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{Gateway, Settings, Sim, eventually, pause, run};

const CLAIMS: usize = 6;
const UNDECLARED: &str = "ERROR_SITE_NOT_DECLARED";

fn one_slot() -> Settings {
    Settings { slots: "1", ..Settings::default() }
}

/// The configuration without the site of the claims.
fn without_site(text: &str) -> String {
    assert!(text.contains("host = \"shop.example.com\""));
    text.replace("host = \"shop.example.com\"", "host = \"other.example.com\"")
}

/// The configuration without the worker two.
fn without_worker(text: &str) -> String {
    assert!(text.contains("name = \"two\""));
    text.replace("name = \"two\"", "name = \"three\"")
}

fn claim(number: usize) -> Call {
    let page = "https://shop.example.com/login";
    let body = json!({ "kind": "turnstile", "sitekey": format!("k{number}"), "pageurl": page });
    Call::post("/v1/solves", body)
}

/// Six claims of worker two.
async fn claim_all(gateway: &Gateway) {
    for number in 0..CLAIMS {
        let reply = gateway.send_as_two(&claim(number)).await;
        assert_eq!(reply.status.as_u16(), 202, "{}", reply.body);
    }
}

async fn ended(gateway: &Gateway) -> Vec<Value> {
    let history = gateway.send_as_admin(&Call::get("/v1/history?limit=100")).await;
    let all = history.body["items"].as_array().unwrap_or_else(|| panic!("{}", history.body));
    all.iter().filter(|claim| claim["state"] != "waiting").cloned().collect()
}

/// Waits until all claims have ended; returns how many of them failed as not declared.
async fn undeclared(gateway: &Gateway) -> usize {
    let claims = eventually("the end of all claims", async || {
        Some(ended(gateway).await).filter(|claims| claims.len() == CLAIMS)
    })
    .await;
    claims.iter().filter(|claim| claim["state"] == "failed" && claim["code"] == UNDECLARED).count()
}

async fn assert_no_dead_letters(gateway: &Gateway) {
    let letters = gateway.send_as_admin(&Call::get("/v1/dead-letters?closed=true")).await;
    assert_eq!(letters.body["items"], json!([]));
}

async fn until_charged(sim: &Sim) {
    eventually("a submission", async || (sim.charges().await > 0).then_some(())).await;
}

/// The reproduction of the review: one slot, six claims, and what they need is taken out of the file.
async fn withdrawn_by_a_reload(change: fn(&str) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "1s"]);
    let gateway = Gateway::with(dir.path(), &sim, &one_slot());
    claim_all(&gateway).await;
    until_charged(&sim).await;
    gateway.reload(dir.path(), |text| change(&text)).await;
    let failed = undeclared(&gateway).await;
    let charged = sim.charges().await;
    assert!(failed > 0, "the test withdrew too late");
    assert_eq!(failed + charged, CLAIMS, "each claim was paid for before, or failed");
    // The paid task is over, so its slot has been free since.
    pause(std::time::Duration::from_secs(2)).await;
    assert_eq!(sim.charges().await, charged, "nothing is submitted after the end of the claims");
    assert_no_dead_letters(&gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_taken_out_of_the_file_is_not_paid_for_after_a_reload() {
    withdrawn_by_a_reload(without_site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_taken_out_of_the_file_is_not_paid_for_after_a_reload() {
    withdrawn_by_a_reload(without_worker).await;
}

/// Killed with work in its queue and started again with the changed file.
async fn withdrawn_while_down(edit: fn(&str) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "1s"]);
    let mut gateway = Gateway::with(dir.path(), &sim, &one_slot());
    claim_all(&gateway).await;
    until_charged(&sim).await;
    gateway.process.signal(Signal::KILL);
    gateway.process.wait();
    let charged = sim.charges().await;
    let gateway = Gateway::with(dir.path(), &sim, &Settings { edit, ..one_slot() });
    let failed = undeclared(&gateway).await;
    assert_eq!(sim.charges().await, charged, "nothing was submitted after the restart");
    assert!(failed >= CLAIMS - charged, "{failed} failed, {charged} were paid");
    assert_no_dead_letters(&gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_taken_out_of_the_file_is_not_paid_for_after_a_restart() {
    withdrawn_while_down(without_site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_taken_out_of_the_file_is_not_paid_for_after_a_restart() {
    withdrawn_while_down(without_worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlasts_a_kill_and_ends_with_resume() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "1s"]);
    let mut gateway = Gateway::with(dir.path(), &sim, &one_slot());
    claim_all(&gateway).await;
    until_charged(&sim).await;
    let paused = gateway.send_as_admin(&Call::post("/-/pause", json!({ "worker": "two" }))).await;
    assert_eq!(paused.body["changed"], true, "{}", paused.body);
    gateway.process.signal(Signal::KILL);
    gateway.process.wait();
    let charged = sim.charges().await;
    let gateway = Gateway::with(dir.path(), &sim, &one_slot());
    eventually("an operator sees it in the log", async || {
        gateway.process.stderr().contains("submissions paused").then_some(())
    })
    .await;
    gateway.solve(json!({ "kind": "turnstile", "sitekey": "others", "pageurl": "https://shop.example.com/" }), None).await;
    assert_eq!(sim.charges().await, charged + 1, "only the other worker's");
    gateway.send_as_admin(&Call::post("/-/resume", json!({ "worker": "two" }))).await;
    eventually("all claims are paid for", async || (sim.charges().await > CLAIMS).then_some(()))
        .await;
}

fn cli(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args, &[]);
    assert_eq!(output.code, Some(0), "{args:?}: {}", output.stderr);
    output.stdout
}

#[test]
fn the_command_line_pauses_a_store_without_a_gateway() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(cli(dir.path(), &["pause", "--list"]), "nothing is paused\n");
    let paused = cli(dir.path(), &["pause", "--site", "*.example.com"]);
    assert!(paused.starts_with("paused: site *.example.com\n"), "{paused}");
    let again = cli(dir.path(), &["pause", "--site", "*.example.com"]);
    assert!(again.starts_with("already paused: site *.example.com\n"), "{again}");
    let list = cli(dir.path(), &["pause", "--list"]);
    assert!(list.contains("site *.example.com") && list.contains("admin"), "{list}");
    let json: Value =
        serde_json::from_str(&cli(dir.path(), &["pause", "--list", "--json"])).unwrap();
    assert_eq!(json["items"][0]["site"], "*.example.com");
    let resumed = cli(dir.path(), &["resume", "--site", "*.example.com"]);
    assert_eq!(resumed, "resumed: site *.example.com\nnothing is paused\n");
    let misspelt = cli(dir.path(), &["pause", "--worker", "nobody"]);
    assert!(misspelt.contains("check the spelling"), "{misspelt}");
    let both = run(dir.path(), &["pause", "--site", "a.example.com", "--worker", "b"], &[]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let url = run(dir.path(), &["pause", "--site", "https://example.com/"], &[]);
    assert!(url.code != Some(0) && url.stderr.contains("--site is not a host"), "{}", url.stderr);
}
