//! Dead letters of the real binary: listed, shown, revived once, purged, and all of it in the ledger.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Gateway, Sim, WORKER, eventually, run};

/// Three equal dead letters of worker one (`ERROR_PAGEURL`) and one of worker two (`ERROR_CAPTCHA_UNSOLVABLE`, three
/// times).
struct DeadLetters {
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

// === impl DeadLetters ===

impl DeadLetters {
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
        let reply = gateway.send_as_two(&call).await;
        assert_eq!(reply.body["provider_code"], "ERROR_CAPTCHA_UNSOLVABLE", "{}", reply.body);
        Self { dir, sim, gateway }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `dead-letters …` as the admin of the running gateway, and returns the exit code and the output.
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

    fn show(&self, id: &str) -> Value {
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
async fn dead_letters_are_found_by_every_filter_and_page_by_page() {
    let fixture = DeadLetters::make().await;
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
        assert_eq!(fixture.ids(filters).len(), count, "{filters}");
    }
    let mut seen = Vec::new();
    let mut page = fixture.json("list --limit 3");
    seen.extend(page["items"].as_array().unwrap().clone());
    page = fixture.json(&format!("list --limit 3 --cursor {}", page["next"].as_str().unwrap()));
    seen.extend(page["items"].as_array().unwrap().clone());
    assert_eq!((seen.len(), &page["next"]), (4, &Value::Null));
    let (code, text) = fixture.command("list --limit 1");
    assert!(code == 0 && text.contains("more: --cursor "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_shown_with_every_attempt() {
    let fixture = DeadLetters::make().await;
    let id = &fixture.ids("--worker two")[0];
    let shown = fixture.show(id);
    let causes = shown["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 3, "{shown}");
    for (n, cause) in causes.iter().enumerate() {
        assert_eq!(cause["attempt"], n + 1);
        assert_eq!(cause["code"], "ERROR_CAPTCHA_UNSOLVABLE");
        assert!(cause["at"].is_string() && cause.get("cost").is_some(), "{cause}");
    }
    assert_eq!((&shown["generation"], &shown["closed"]), (&json!(1), &Value::Null));
    let (code, text) = fixture.command(&format!("show {id}"));
    assert_eq!((code, text.matches("ERROR_CAPTCHA_UNSOLVABLE").count()), (0, 4), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_dead_letters_are_revived_at_the_wanted_rate_and_paid_for_once() {
    let fixture = DeadLetters::make().await;
    let ids = fixture.ids("--code ERROR_PAGEURL");
    let charges = fixture.sim.charges().await;
    let dry = fixture.json("revive --code ERROR_PAGEURL --dry-run");
    assert_eq!((results(&dry), dry["dry_run"].as_bool()), (vec!["would_revive"; 3], Some(true)));
    assert_eq!(fixture.ids("--code ERROR_PAGEURL"), ids, "a dry run changes nothing");
    let start = now();
    let revived = fixture.json("revive --code ERROR_PAGEURL --rate 1/s");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1800), "three at one a second took {took:?}");
    assert_eq!(results(&revived).iter().filter(|result| **result == "opened").count(), 1);
    assert_eq!(fixture.ids("--code ERROR_PAGEURL"), Vec::<String>::new(), "{revived}");
    let again = fixture.json(&format!("revive {}", ids.join(" ")));
    assert_eq!(results(&again), ["closed"; 3], "a second revival does nothing");
    let claim = revived["results"][0]["claim"].as_str().unwrap().to_owned();
    let ended = eventually("the revived claim ends", async || {
        let reply = fixture.gateway.send(&Call::get(format!("/v1/solves/{claim}?wait=5"))).await;
        (reply.status != StatusCode::ACCEPTED).then_some(reply)
    });
    assert_eq!(ended.await.body["state"], "withdrawn", "no worker can fetch it");
    let next = fixture.gateway.solve(challenge("shop.example.com"), None).await;
    assert_eq!(next.body["source"], "stock", "{}", next.body);
    assert_eq!(fixture.sim.charges().await, charges + 1, "equal dead letters make one attempt");
    let shown = fixture.show(&ids[0]);
    assert_eq!(shown["closed"]["how"], "revived", "{shown}");
    assert!(shown["closed"]["claim"].is_string(), "{shown}");
    let story = fixture.gateway.story(shown["claims"][0].as_str().unwrap()).await;
    let revival = story.iter().find(|entry| entry["event"] == "revived").expect("the audit trail");
    assert_eq!(revival["facts"]["by"], "admin", "{revival}");
    assert_eq!(revival["facts"]["claim"], shown["closed"]["claim"], "{revival}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revived_dead_letter_that_fails_again_keeps_its_history() {
    let fixture = DeadLetters::make().await;
    let first = fixture.ids("--worker two").remove(0);
    fixture.sim.fault(json!({ "on": "submit", "fault": { "code": "ERROR_PAGEURL" } })).await;
    assert_eq!(results(&fixture.json(&format!("revive {first}"))), ["opened"]);
    let second = eventually("it failed again", async || {
        fixture.ids("--worker two --code ERROR_PAGEURL").pop()
    });
    let shown = fixture.show(&second.await);
    assert_eq!((&shown["generation"], &shown["revives"]), (&json!(2), &json!(first)), "{shown}");
    let codes = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|cause| cause["code"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(codes(&shown["earlier"]), ["ERROR_CAPTCHA_UNSOLVABLE"; 3]);
    assert_eq!(codes(&shown["causes"]), ["ERROR_PAGEURL"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_purged_by_name_or_filter_and_only_by_the_admin() {
    let fixture = DeadLetters::make().await;
    let ids = fixture.ids("--code ERROR_PAGEURL");
    let (code, text) = fixture.command("purge --code ERROR_PAGEURL --dry-run");
    assert!(code == 0 && text.contains("would be purged: 3 dead letters"), "{text}");
    let environment = [("SOLVEGATE_SERVER", &*fixture.gateway.base), ("SOLVEGATE_KEY", WORKER)];
    for command in ["purge --all", "revive --all"] {
        let (code, text) = dead_letters(fixture.dir(), command, &environment);
        assert_eq!(code, 4, "a worker: {text}");
    }
    assert_eq!(fixture.ids("").len(), 4);
    let (code, text) = fixture.command(&format!("purge {}", ids[0]));
    assert!(code == 0 && text.contains("purged: 1 dead letter"), "{text}");
    let (code, text) = fixture.command(&format!("purge {} {}", ids[0], ids[1]));
    assert!(code == 1 && text.contains(&format!("{} not found", ids[0])), "{text}");
    let (code, text) = fixture.command("purge --worker one");
    assert!(code == 0 && text.contains("purged: 1 dead letter"), "{text}");
    assert_eq!(fixture.json("purge --all")["purged"], 1);
    assert_eq!(fixture.ids("--closed"), Vec::<String>::new());
    let (code, text) = fixture.command(&format!("show {}", ids[0]));
    assert_eq!(code, 1, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_dead_letters_are_marked_and_can_be_purged_by_filter() {
    let fixture = DeadLetters::make().await;
    let ids = fixture.ids("--code ERROR_PAGEURL");
    assert_eq!(results(&fixture.json(&format!("revive {}", ids[0]))), ["opened"]);
    let (_, text) = fixture.command("list --closed");
    let row = |id: &str| text.lines().find(|line| line.contains(id)).unwrap().to_owned();
    assert!(text.lines().next().unwrap().contains(" closed "), "{text}");
    assert!(row(&ids[0]).contains(" revived ") && !row(&ids[1]).contains(" revived "), "{text}");
    let (_, text) = fixture.command("list");
    assert!(!text.contains(" closed "), "all of them are open: {text}");
    assert_eq!(fixture.json("purge --code ERROR_PAGEURL --dry-run")["purged"], 2, "open ones only");
    assert_eq!(fixture.json("purge --code ERROR_PAGEURL --closed")["purged"], 3);
    assert_eq!(fixture.ids("--code ERROR_PAGEURL --closed"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_revived_without_a_gateway_and_worked_on_by_the_next_one() {
    let mut fixture = DeadLetters::make().await;
    fixture.gateway.process.signal(Signal::TERM);
    assert_eq!(fixture.gateway.process.wait().code(), Some(0));
    let charges = fixture.sim.charges().await;
    let (code, text) = dead_letters(fixture.dir(), "revive --site shop.example.com", &[]);
    assert!(code == 0 && text.contains("a running gateway will solve them"), "{text}");
    assert_eq!(fixture.sim.charges().await, charges, "nothing is submitted without a gateway");
    let gateway = Gateway::start(fixture.dir(), &fixture.sim);
    eventually("what was revived is solved", async || {
        let path = "/v1/history?state=waiting&limit=10";
        let waiting = gateway.send_as_admin(&Call::get(path)).await;
        (waiting.body["items"] == json!([])).then_some(())
    })
    .await;
    let next = gateway.solve(challenge("shop.example.com"), None).await;
    assert_eq!(next.body["source"], "stock", "{}", next.body);
    assert_eq!(fixture.sim.charges().await, charges + 1);
}
