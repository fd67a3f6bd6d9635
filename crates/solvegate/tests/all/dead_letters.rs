//! What was given up on, by the real binary: found, understood, brought back once, deleted, and all of it in the ledger.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Gateway, Sim, WORKER, eventually, run};

/// Three equal letters of worker one (`ERROR_PAGEURL`) and one of worker two (`ERROR_CAPTCHA_UNSOLVABLE`, three times).
struct Letters {
    dir: tempfile::TempDir,
    sim: Sim,
    gateway: Gateway,
}

fn challenge(host: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4AAA", "pageurl": format!("https://{host}/") })
}

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn now() -> Instant {
    Instant::now()
}

// === impl Letters ===

impl Letters {
    async fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
        let gateway = Gateway::start(dir.path(), &sim);
        let refused = json!({ "code": "ERROR_PAGEURL" });
        sim.fault(json!({ "on": "submit", "fault": refused, "times": 3 })).await;
        let mut equal = challenge("shop.example.com");
        equal["fresh"] = json!(true);
        for _ in 0..3 {
            let reply = gateway.solve(equal.clone(), None).await;
            assert_eq!(reply.body["provider_code"], "ERROR_PAGEURL", "{}", reply.body);
        }
        sim.fault(json!({ "on": "submit", "fault": "unsolvable", "times": 3 })).await;
        let call = Call::post("/v1/solves", challenge("careful.example.com"))
            .header("prefer", "wait=30")
            .waiting(Duration::from_secs(30));
        let reply = gateway.ask_as_two(&call).await;
        assert_eq!(reply.body["provider_code"], "ERROR_CAPTCHA_UNSOLVABLE", "{}", reply.body);
        Self { dir, sim, gateway }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `dead-letters …` as the admin of the running gateway: exit code and what was printed.
    fn command(&self, command: &str) -> (i32, String) {
        let environment = [("SOLVEGATE_SERVER", &*self.gateway.base), ("SOLVEGATE_KEY", ADMIN)];
        dead_letters(self.dir(), command, &environment)
    }

    /// The same, as JSON.
    fn json(&self, command: &str) -> Value {
        let (code, text) = self.command(&format!("{command} --json"));
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{command}: exit {code}\n{text}"))
    }

    fn ids(&self, filters: &str) -> Vec<String> {
        let page = self.json(&format!("list {filters}"));
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }

    fn shown(&self, id: &str) -> Value {
        self.json(&format!("show {id}"))
    }
}

fn dead_letters(dir: &Path, command: &str, environment: &[(&str, &str)]) -> (i32, String) {
    let mut args = vec!["dead-letters"];
    args.extend(command.split_whitespace());
    let output = run(dir, &args, environment);
    (output.code.unwrap(), output.stdout + &output.stderr)
}

fn results(answer: &Value) -> Vec<&str> {
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    results.iter().map(|result| result["result"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_found_by_every_filter_and_page_by_page() {
    let letters = Letters::make().await;
    let cases = [
        ("", 4),
        ("--code ERROR_PAGEURL", 3),
        ("--code ERROR_CAPTCHA_UNSOLVABLE", 1),
        ("--kind turnstile", 4),
        ("--kind image", 0),
        ("--site shop.example.com", 3),
        ("--site careful.example.com --worker two", 1),
        ("--worker one", 3),
        ("--project checkout", 3),
        ("--newer-than 1h", 4),
        ("--older-than 1h", 0),
        ("--newer-than 7d --worker two --code ERROR_PAGEURL", 0),
        ("--closed", 4),
    ];
    for (filters, count) in cases {
        assert_eq!(letters.ids(filters).len(), count, "{filters}");
    }
    let mut seen = Vec::new();
    let mut page = letters.json("list --limit 3");
    seen.extend(page["items"].as_array().unwrap().clone());
    page = letters.json(&format!("list --limit 3 --cursor {}", page["next"].as_str().unwrap()));
    seen.extend(page["items"].as_array().unwrap().clone());
    assert_eq!((seen.len(), &page["next"]), (4, &Value::Null));
    let (code, text) = letters.command("list --limit 1");
    assert!(code == 0 && text.contains("more: --cursor "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_shown_with_every_attempt() {
    let letters = Letters::make().await;
    let id = &letters.ids("--worker two")[0];
    let shown = letters.shown(id);
    let causes = shown["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 3, "{shown}");
    for (n, cause) in causes.iter().enumerate() {
        assert_eq!(cause["attempt"], n + 1);
        assert_eq!(cause["code"], "ERROR_CAPTCHA_UNSOLVABLE");
        assert!(cause["at"].is_string() && cause.get("cost").is_some(), "{cause}");
    }
    assert_eq!((&shown["generation"], &shown["closed"]), (&json!(1), &Value::Null));
    let (code, text) = letters.command(&format!("show {id}"));
    assert_eq!((code, text.matches("ERROR_CAPTCHA_UNSOLVABLE").count()), (0, 4), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_letters_are_revived_at_the_wanted_rate_and_paid_for_once() {
    let letters = Letters::make().await;
    let ids = letters.ids("--code ERROR_PAGEURL");
    let charges = letters.sim.charges().await;
    let dry = letters.json("revive --code ERROR_PAGEURL --dry-run");
    assert_eq!((results(&dry), dry["dry_run"].as_bool()), (vec!["would_revive"; 3], Some(true)));
    assert_eq!(letters.ids("--code ERROR_PAGEURL"), ids, "a dry run changes nothing");
    let start = now();
    let revived = letters.json("revive --code ERROR_PAGEURL --rate 1/s");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1800), "three at one a second took {took:?}");
    assert_eq!(results(&revived).iter().filter(|result| **result == "opened").count(), 1);
    assert_eq!(letters.ids("--code ERROR_PAGEURL"), Vec::<String>::new(), "{revived}");
    let again = letters.json(&format!("revive {}", ids.join(" ")));
    assert_eq!(results(&again), ["closed"; 3], "a second revival does nothing");
    let claim = revived["results"][0]["claim"].as_str().unwrap().to_owned();
    let ended = eventually("the revived claim ends", async || {
        let reply = letters.gateway.ask(&Call::get(format!("/v1/solves/{claim}?wait=5"))).await;
        (reply.status != StatusCode::ACCEPTED).then_some(reply)
    });
    assert_eq!(ended.await.body["state"], "withdrawn", "nobody can come for it");
    let next = letters.gateway.solve(challenge("shop.example.com"), None).await;
    assert_eq!(next.body["source"], "stock", "{}", next.body);
    assert_eq!(letters.sim.charges().await, charges + 1, "equal letters make one attempt");
    let shown = letters.shown(&ids[0]);
    assert_eq!(shown["closed"]["how"], "revived", "{shown}");
    assert!(shown["closed"]["claim"].is_string(), "{shown}");
    let story = letters.gateway.story(shown["claims"][0].as_str().unwrap()).await;
    let revival = story.iter().find(|entry| entry["event"] == "revived").expect("the audit trail");
    assert_eq!(revival["facts"]["by"], "admin", "{revival}");
    assert_eq!(revival["facts"]["claim"], shown["closed"]["claim"], "{revival}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revived_letter_that_fails_again_keeps_its_history() {
    let letters = Letters::make().await;
    let first = letters.ids("--worker two").remove(0);
    letters.sim.fault(json!({ "on": "submit", "fault": { "code": "ERROR_PAGEURL" } })).await;
    assert_eq!(results(&letters.json(&format!("revive {first}"))), ["opened"]);
    let second = eventually("it failed again", async || {
        letters.ids("--worker two --code ERROR_PAGEURL").pop()
    });
    let shown = letters.shown(&second.await);
    assert_eq!((&shown["generation"], &shown["revives"]), (&json!(2), &json!(first)), "{shown}");
    let codes = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|cause| cause["code"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(codes(&shown["earlier"]), ["ERROR_CAPTCHA_UNSOLVABLE"; 3]);
    assert_eq!(codes(&shown["causes"]), ["ERROR_PAGEURL"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_purged_by_name_or_filter_and_only_by_the_admin() {
    let letters = Letters::make().await;
    let ids = letters.ids("--code ERROR_PAGEURL");
    let (code, text) = letters.command("purge --code ERROR_PAGEURL --dry-run");
    assert!(code == 0 && text.contains("would be purged: 3 dead letters"), "{text}");
    let environment = [("SOLVEGATE_SERVER", &*letters.gateway.base), ("SOLVEGATE_KEY", WORKER)];
    for command in ["purge --all", "revive --all"] {
        let (code, text) = dead_letters(letters.dir(), command, &environment);
        assert_eq!(code, 4, "a worker: {text}");
    }
    assert_eq!(letters.ids("").len(), 4);
    let (code, text) = letters.command(&format!("purge {}", ids[0]));
    assert!(code == 0 && text.contains("purged: 1 dead letter"), "{text}");
    let (code, text) = letters.command(&format!("purge {} {}", ids[0], ids[1]));
    assert!(code == 1 && text.contains(&format!("{} is not there", ids[0])), "{text}");
    let (code, text) = letters.command("purge --worker one");
    assert!(code == 0 && text.contains("purged: 1 dead letter"), "{text}");
    assert_eq!(letters.json("purge --all")["purged"], 1);
    assert_eq!(letters.ids("--closed"), Vec::<String>::new());
    let (code, text) = letters.command(&format!("show {}", ids[0]));
    assert_eq!(code, 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_revived_without_a_gateway_and_worked_on_by_the_next_one() {
    let mut letters = Letters::make().await;
    letters.gateway.process.signal(Signal::TERM);
    assert_eq!(letters.gateway.process.wait().code(), Some(0));
    let charges = letters.sim.charges().await;
    let (code, text) = dead_letters(letters.dir(), "revive --site shop.example.com", &[]);
    assert!(code == 0 && text.contains("they wait for a running gateway"), "{text}");
    assert_eq!(letters.sim.charges().await, charges, "nothing is submitted without a gateway");
    let gateway = Gateway::start(letters.dir(), &letters.sim);
    eventually("what was revived is solved", async || {
        let path = "/v1/history?state=waiting&limit=10";
        let waiting = gateway.ask_as_admin(&Call::get(path)).await;
        (waiting.body["items"] == json!([])).then_some(())
    })
    .await;
    let next = gateway.solve(challenge("shop.example.com"), None).await;
    assert_eq!(next.body["source"], "stock", "{}", next.body);
    assert_eq!(letters.sim.charges().await, charges + 1);
}
