//! Dead letters on v1: read by their worker; revived and purged by the admin. The simulator's ledger shows
//! what was paid.

use std::time::Duration;

use domain::claim::Allowance;
use doors::Limits;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use simulator::{Call, Fault, Planned};
use tokio::time::Instant;

use crate::world::{ADMIN, OTHER, Setting, WORKER, World, turnstile};

const WAIT: &str = "Prefer: wait=10";
const REFUSED: &str = "ERROR_BAD_TOKEN_OR_PAGEURL";
const REVIVE: &str = "/v1/dead-letters/revive";

/// Makes a claim that the provider refuses permanently; returns its id.
async fn dies(world: &World, key: &str, headers: &[&str], body: &str) -> String {
    world.account.plan(Planned::next(Call::Submit, Fault::code(REFUSED)));
    let headers = [&[WAIT], headers].concat();
    let answer = world.post("/v1/solves", key, &headers, body).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (502, "solve_failed"), "{answer:?}");
    answer.text("id")
}

async fn some_die(world: &World, count: usize) -> Vec<String> {
    for n in 0..count {
        dies(world, WORKER, &[], &turnstile(&format!("0x{n:02}"))).await;
    }
    names(world, "").await
}

/// The ids of the open dead letters that match.
async fn names(world: &World, query: &str) -> Vec<String> {
    names_for(world, ADMIN, query).await
}

async fn names_for(world: &World, key: &str, query: &str) -> Vec<String> {
    let list = world.get(&format!("/v1/dead-letters?{query}"), key).await;
    let items = list.json()["items"].as_array().unwrap_or_else(|| panic!("{list:?}")).clone();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

async fn revive(world: &World, body: Value) -> Value {
    let answer = world.post(REVIVE, ADMIN, &[], &body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// The results of a revival, in order.
fn words(revived: &Value) -> Vec<&str> {
    let results = revived["results"].as_array().unwrap();
    results.iter().map(|result| result["result"].as_str().unwrap()).collect()
}

fn count(revived: &Value, word: &str) -> usize {
    words(revived).iter().filter(|found| **found == word).count()
}

async fn wait_for(world: &World, claim: &Value) -> Value {
    let claim = claim.as_str().unwrap();
    let answer = world.get(&format!("/v1/solves/{claim}?wait=10"), WORKER).await;
    answer.json()
}

/// The events of a claim's story.
async fn story(world: &World, claim: &str) -> Vec<Value> {
    let story = world.get(&format!("/v1/solves/{claim}/explain"), ADMIN).await.json();
    story["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dead_letters_are_filtered_by_every_field() {
    let world = World::open().await;
    dies(&world, WORKER, &[], &turnstile("0x4A")).await;
    let elsewhere = turnstile("0x4B").replace("shop.example.com", "a.corp.example.org").replacen(
        '{',
        r#"{"project":"other","#,
        1,
    );
    dies(&world, OTHER, &[], &elsewhere).await;
    let all = names(&world, "").await;
    assert_eq!(all.len(), 2);
    let (second, first) = (vec![all[0].clone()], vec![all[1].clone()]);
    for (query, expected) in [
        ("site=Shop.example.com", &first),
        ("site=a.corp.example.org", &second),
        ("worker=one", &first),
        ("worker=two&kind=turnstile", &second),
        ("project=other", &second),
        (&format!("code={REFUSED}&newer_than_s=60&limit=5"), &all),
        ("code=ERROR_PAGEURL", &vec![]),
        ("kind=hcaptcha", &vec![]),
        ("older_than_s=60", &vec![]),
        ("site=corp.example.org", &vec![]),
    ] {
        assert_eq!(names(&world, query).await, *expected, "{query}");
    }
    let page = world.get("/v1/dead-letters?limit=1", ADMIN).await;
    assert_eq!(names(&world, &format!("cursor={}", page.text("next"))).await, first);
    for odd in ["site=https://a.example", "older_than_s=-1", "worker=a%20b", "age=1", "cursor=x"] {
        let answer = world.get(&format!("/v1/dead-letters?{odd}"), ADMIN).await;
        assert_eq!(answer.status, 400, "{odd}");
    }
}

#[tokio::test]
async fn a_worker_reads_only_its_own_dead_letters() {
    let world = World::open().await;
    let letter = some_die(&world, 1).await.remove(0);
    let path = format!("/v1/dead-letters/{letter}");
    assert_eq!(names_for(&world, WORKER, "worker=one").await, [letter.as_str()]);
    assert_eq!(names_for(&world, OTHER, "").await, Vec::<String>::new());
    let others = world.get("/v1/dead-letters?worker=one", OTHER).await;
    assert_eq!((others.status, others.text("code").as_str()), (403, "admin_only"));
    assert!(others.text("detail").contains("leave `worker` out"), "{others:?}");
    assert_eq!(world.get(&path, OTHER).await.status, 404);
    let found = world.get(&path, WORKER).await.json();
    assert_eq!((&found["generation"], &found["earlier"]), (&json!(1), &json!([])));
    assert_eq!((&found["revives"], &found["closed"]), (&Value::Null, &Value::Null));
    let cause = found["causes"][0].as_object().unwrap();
    let members: Vec<_> = cause.keys().map(String::as_str).collect();
    assert_eq!(members, ["attempt", "at", "code", "cost"]);
    assert_eq!(cause["code"], REFUSED);
}

#[tokio::test]
async fn the_key_of_a_revived_dead_letter_returns_the_token() {
    let world = World::open().await;
    let key = ["Idempotency-Key: order-17"];
    let died = dies(&world, WORKER, &key, &turnstile("0x4A")).await;
    let letter = names(&world, "").await.remove(0);
    let revived = revive(&world, json!({ "ids": [letter] })).await;
    assert_eq!(words(&revived), ["opened"], "{revived}");
    let claim = revived["results"][0]["claim"].as_str().unwrap();
    assert_ne!(claim, died);
    let again = world.claim("0x4A", &[WAIT, key[0]]).await;
    assert_eq!((again.status, again.text("id").as_str()), (200, claim), "{again:?}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let token = again.text("token");
    let paid = world.account.ledger().accepted;
    assert_eq!(simulator::task_of(&token).as_ref(), Some(&paid[0].task));
    assert_eq!(paid.len(), 1);
    assert_eq!(names(&world, "").await, Vec::<String>::new());
    let found = world.get(&format!("/v1/dead-letters/{letter}"), ADMIN).await.json();
    assert_eq!(found["closed"]["how"], "revived");
    assert_eq!(found["closed"]["claim"], claim);
    let fetched = world.get(&format!("/v1/solves/{claim}"), ADMIN).await;
    assert_eq!(fetched.text("revives"), letter);
}

#[tokio::test]
async fn two_concurrent_revivals_revive_once() {
    let world = World::open().await;
    let letters = some_die(&world, 6).await;
    let by_name = revive(&world, json!({ "ids": letters, "rate": 1000 }));
    let by_filter =
        revive(&world, json!({ "filter": { "site": "shop.example.com" }, "rate": 1000 }));
    let (one, two) = join(by_name, by_filter).await;
    assert_eq!(count(&one, "opened") + count(&two, "opened"), 6, "{one} {two}");
    let others =
        |revived| words(revived).len() - count(revived, "opened") - count(revived, "closed");
    assert_eq!(others(&one) + others(&two), 0, "{one} {two}");
    for result in
        one["results"].as_array().unwrap().iter().chain(two["results"].as_array().unwrap())
    {
        if result["result"] == "opened" {
            assert_eq!(wait_for(&world, &result["claim"]).await["state"], "withdrawn");
        }
    }
    assert_eq!(world.paid(), 6);
    let third = revive(&world, json!({ "ids": letters, "rate": 1000 })).await;
    assert_eq!(count(&third, "closed"), 6, "{third}");
    assert_eq!(third["results"][0]["why"], "it was revived before");
}

#[tokio::test]
async fn ten_equal_dead_letters_make_one_attempt() {
    let world = World::open().await;
    let fresh = turnstile("0x4A").replacen('{', r#"{"fresh":true,"#, 1);
    for _ in 0..10 {
        dies(&world, WORKER, &[], &fresh).await;
    }
    assert_eq!((names(&world, "").await.len(), world.paid()), (10, 0));
    let revived = revive(&world, json!({ "filter": {}, "rate": 1000 })).await;
    assert_eq!((words(&revived).len(), count(&revived, "opened")), (10, 1), "{revived}");
    let results = revived["results"].as_array().unwrap();
    for result in results {
        assert_eq!(wait_for(&world, &result["claim"]).await["state"], "withdrawn", "{result}");
    }
    // The claims have ended, so the token serves the next one.
    let next = world.claim("0x4A", &[]).await;
    assert_eq!((next.status, next.text("source").as_str()), (200, "stock"), "{next:?}");
    assert_eq!(world.paid(), 1);
    assert_eq!(names(&world, "").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_revival_keeps_its_rate_and_its_connection() {
    // The response takes longer than the idle timeout, but a connection with a request under way is not idle.
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..Limits::default() };
    let world = World::with(Setting { limits, ..Setting::default() }).await;
    let letters = some_die(&world, 5).await;
    let began = Instant::now();
    let revived = revive(&world, json!({ "ids": letters, "rate": 5 })).await;
    assert_eq!(count(&revived, "opened"), 5, "{revived}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(800), "{took:?}");
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = World::open().await;
    let letters = some_die(&world, 3).await;
    let unknown = "s100000000000001";
    let named = [letters.clone(), vec![unknown.to_owned()]].concat();
    let tried = revive(&world, json!({ "ids": named, "rate": 1, "dry_run": true })).await;
    assert_eq!(words(&tried), ["would_revive", "would_revive", "would_revive", "unknown"]);
    assert_eq!((&tried["dry_run"], &tried["next"]), (&json!(true), &Value::Null));
    let all = revive(&world, json!({ "filter": { "worker": "one" }, "dry_run": true })).await;
    assert_eq!(count(&all, "would_revive"), 3);
    let none = revive(&world, json!({ "filter": { "worker": "two" }, "dry_run": true })).await;
    assert_eq!(words(&none), Vec::<&str>::new());
    let purged = world.delete("/v1/dead-letters?all=true&dry_run=true", ADMIN).await;
    assert_eq!(purged.json(), json!({ "dry_run": true, "purged": 3, "next": null }));
    assert_eq!((names(&world, "").await, world.paid()), (letters, 0));
}

#[tokio::test]
async fn a_revived_dead_letter_that_fails_again_keeps_its_history() {
    let world = World::open().await;
    let first = some_die(&world, 1).await.remove(0);
    world.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_PAGEURL")));
    let revived = revive(&world, json!({ "filter": { "code": REFUSED } })).await;
    assert_eq!(wait_for(&world, &revived["results"][0]["claim"]).await["code"], "solve_failed");
    let second = names(&world, "").await.remove(0);
    let found = world.get(&format!("/v1/dead-letters/{second}"), WORKER).await.json();
    assert_eq!((&found["generation"], &found["revives"]), (&json!(2), &json!(first)));
    assert_eq!(found["earlier"][0]["code"], REFUSED);
    assert_eq!(found["causes"][0]["code"], "ERROR_PAGEURL");
    let listed = world.get("/v1/dead-letters", WORKER).await.json();
    assert_eq!(listed["items"][0]["generation"], 2);
    assert!(listed["items"][0].get("earlier").is_none(), "lists stay short");
}

#[tokio::test]
async fn a_refused_revival_says_why() {
    let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
    let world = World::with(Setting { allowance, ..Setting::default() }).await;
    some_die(&world, 1).await;
    // What the provider refused is not charged, so it leaves the budget to another claim.
    assert_eq!(world.claim("0x4B", &["Prefer: wait=30"]).await.status, 200);
    let revived = revive(&world, json!({ "filter": {} })).await;
    assert_eq!(words(&revived), ["refused"], "{revived}");
    let why = revived["results"][0]["why"].as_str().unwrap();
    assert!(why.contains("solves_per_day"), "{why}");
    world.engine.set_declarations(std::sync::Arc::default());
    let revived = revive(&world, json!({ "filter": {} })).await;
    let why = revived["results"][0]["why"].as_str().unwrap();
    assert!(why.contains("is not declared"), "{why}");
    assert_eq!((names(&world, "").await.len(), world.paid()), (1, 1));
}

#[tokio::test]
async fn revivals_and_purges_are_in_the_ledger() {
    let world = World::open().await;
    let died = dies(&world, WORKER, &[], &turnstile("0x4A")).await;
    let letter = names(&world, "").await.remove(0);
    let revived = revive(&world, json!({ "ids": [letter] })).await;
    let claim = &revived["results"][0]["claim"];
    wait_for(&world, claim).await;
    let gone = world.delete(&format!("/v1/dead-letters/{letter}"), ADMIN).await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    let story = story(&world, &died).await;
    let find = |name: &str| {
        let found = story.iter().find(|entry| entry["event"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {story:?}"))["facts"].clone()
    };
    assert_eq!(find("revived"), json!({ "by": "admin", "claim": claim }));
    assert_eq!(find("purged"), json!({ "by": "admin" }));
}

#[tokio::test]
async fn a_purged_dead_letter_cannot_be_revived() {
    let world = World::open().await;
    let mut letters = some_die(&world, 4).await;
    let one = letters.remove(0);
    let path = format!("/v1/dead-letters/{one}");
    assert_eq!(world.delete(&path, WORKER).await.status, 403);
    assert_eq!(world.delete(&path, ADMIN).await.status, 204);
    assert_eq!(world.delete(&path, ADMIN).await.status, 404);
    assert_eq!(world.get(&path, ADMIN).await.status, 404);
    assert_eq!(words(&revive(&world, json!({ "ids": [one] })).await), ["unknown"]);
    let purge = |query: &'static str| world.delete(query, ADMIN);
    let nothing_said = purge("/v1/dead-letters").await;
    assert_eq!((nothing_said.status, nothing_said.text("code").as_str()), (400, "bad_query"));
    assert!(nothing_said.text("detail").contains("all=true"), "{nothing_said:?}");
    for odd in ["/v1/dead-letters?all=false", "/v1/dead-letters?all=true&worker=one"] {
        assert_eq!(purge(odd).await.status, 400, "{odd}");
    }
    let of_two = purge("/v1/dead-letters?worker=two").await;
    assert_eq!(of_two.json()["purged"], 0);
    assert_eq!(names(&world, "").await, letters);
    let all = purge("/v1/dead-letters?all=true").await;
    assert_eq!(all.json(), json!({ "dry_run": false, "purged": 3, "next": null }));
    assert_eq!((names(&world, "closed=true").await.len(), world.paid()), (0, 0));
}

#[tokio::test]
async fn ambiguous_bulk_requests_are_refused() {
    let world = World::open().await;
    let letter = some_die(&world, 1).await.remove(0);
    let many = vec![letter.clone(); 21];
    let cases = [
        (json!({}), "bad_field"),
        (json!({ "ids": [letter], "filter": {} }), "bad_field"),
        (json!({ "ids": [letter], "cursor": "1-1" }), "bad_field"),
        (json!({ "ids": ["482915037264815"] }), "bad_field"),
        (json!({ "ids": many, "rate": 1 }), "too_many_ids"),
        (json!({ "ids": vec![letter.clone(); 1001], "rate": 1000 }), "too_many_ids"),
        (json!({ "filter": {}, "rate": 0 }), "bad_field"),
        (json!({ "filter": {}, "rate": 1001 }), "bad_field"),
        (json!({ "filter": {}, "cursor": "x" }), "bad_field"),
        (json!({ "filter": { "site": "a/b" } }), "bad_field"),
        (json!({ "filter": { "code": null } }), "bad_json"),
        (json!({ "filter": { "closed": true } }), "bad_json"),
        (json!({ "filter": {}, "all": true }), "bad_json"),
        (json!({ "filter": [] }), "bad_json"),
        (json!([null, {}, 10, false, null]), "bad_json"),
    ];
    for (body, code) in cases {
        let answer = world.post(REVIVE, ADMIN, &[], &body.to_string()).await;
        assert_eq!((answer.status, answer.text("code").as_str()), (400, code), "{body}");
    }
    let too_many = json!({ "ids": vec![letter.clone(); 21], "rate": 1 }).to_string();
    let detail = world.post(REVIVE, ADMIN, &[], &too_many).await.text("detail");
    assert!(detail.contains("at most 20") && detail.contains("20 seconds"), "{detail}");
    let worker = world.post(REVIVE, WORKER, &[], r#"{"filter":{}}"#).await;
    assert_eq!((worker.status, worker.text("code").as_str()), (403, "admin_only"));
    assert_eq!((names(&world, "").await, world.paid()), (vec![letter], 0));
}

#[tokio::test]
async fn a_bulk_revival_continues_at_its_cursor() {
    let world = World::open().await;
    some_die(&world, 5).await;
    let page = world.get("/v1/dead-letters?limit=2", ADMIN).await;
    let body = json!({ "filter": {}, "cursor": page.text("next"), "rate": 1000 });
    assert_eq!(count(&revive(&world, body).await, "opened"), 3);
    assert_eq!(names(&world, "").await.len(), 2, "those before the cursor are left alone");
    let purged = join_all([
        world.delete("/v1/dead-letters?worker=one", ADMIN),
        world.delete("/v1/dead-letters?worker=one", ADMIN),
    ])
    .await;
    let purged: u64 = purged.iter().map(|answer| answer.json()["purged"].as_u64().unwrap()).sum();
    assert_eq!(purged, 2, "purged twice at once is purged once");
}
