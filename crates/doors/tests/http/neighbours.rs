//! One worker's requests do not hurt the others: rates, places in the queue, projects, repeated fetches.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ledger::Event;
use doors::Limits;
use futures_util::future::select_all;
use serde_json::json;
use simulator::{Call, Fault, Planned};

use crate::{
    strangers::{URLENCODED, answered, begin, patient},
    world::{ADMIN, OTHER, Setting, WORKER, World, request, turnstile, until},
};

async fn served(world: &World) -> String {
    let answer = world.claim("0x4A", &["Prefer: wait=10"]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text("id")
}

#[tokio::test]
async fn a_poll_beyond_the_rate_is_not_ready_on_compat_and_429_on_v1() {
    let world = World::with(Setting { poll_rate: Some("3/h"), ..Setting::default() }).await;
    let id = served(&world).await;
    let res = format!("/res.php?key={WORKER}&action=get&id={id}");
    assert!(world.php(&res).await.body.starts_with("OK|"));
    let many = format!("/res.php?key={WORKER}&action=get&ids={id},{id},{id}");
    let answers = world.php(&many).await.body;
    assert_eq!(answers.matches("NOT_READY").count(), 0, "equal ids are one poll: {answers}");
    let v1 = format!("/v1/solves/{id}");
    assert_eq!(world.get(&v1, WORKER).await.status, 200);
    assert_eq!(world.php(&res).await.body, "CAPCHA_NOT_READY");
    assert_eq!(world.php(&many).await.body, "CAPCHA_NOT_READY|CAPCHA_NOT_READY|CAPCHA_NOT_READY");
    let refused = world.get(&v1, WORKER).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (429, "rate_exceeded"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&wait), "{wait}");
    assert_eq!(world.claim("0x4B", &[]).await.status, 202, "polls are not claims");
    assert_eq!(world.get("/v1/history", WORKER).await.status, 200, "nor reads");
}

#[tokio::test]
async fn reads_have_a_rate_of_their_own_for_each_worker() {
    let world = World::with(Setting { read_rate: Some("4/h"), ..Setting::default() }).await;
    let id = served(&world).await;
    for path in ["/v1/history", "/v1/active", "/v1/stats"] {
        assert_eq!(world.get(path, WORKER).await.status, 200, "{path}");
    }
    let report = format!("/res.php?key={WORKER}&action=reportgood&id={id}");
    assert_eq!(world.php(&report).await.body, "OK_REPORT_RECORDED");
    for path in ["/v1/history", "/v1/report", "/v1/balance", "/v1/dead-letters"] {
        let refused = world.get(path, WORKER).await;
        assert_eq!((refused.status, refused.text("code").as_str()), (429, "rate_exceeded"));
    }
    for action in [report, format!("/res.php?key={WORKER}&action=threadsinfo")] {
        assert_eq!(world.php(&action).await.body, "ERROR_TOO_MUCH_REQUESTS");
    }
    assert_eq!(world.get("/v1/history", OTHER).await.status, 200);
    assert_eq!(world.get(&format!("/v1/solves/{id}"), WORKER).await.status, 200);
}

#[tokio::test]
async fn a_worker_that_fills_its_queue_gets_429_and_another_is_served() {
    let setting = Setting { slots: 1, queue: Some(3), ..Setting::default() };
    let world = World::with(setting).await;
    world.claim("never-ready-1", &[]).await;
    world.until_paid(1).await;
    for n in 0..3 {
        assert_eq!(world.claim(&format!("0x{n}"), &[]).await.status, 202);
    }
    let refused = world.claim("0x9", &[]).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (429, "busy"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(refused.text("detail").contains("its `queue` allows 3"), "{refused:?}");
    let page = "https%3A%2F%2Fshop.example.com%2F";
    let form = format!("/in.php?key={WORKER}&method=turnstile&sitekey=0x9&pageurl={page}");
    assert_eq!(world.php(&form).await.body, "ERROR_NO_SLOT_AVAILABLE");
    let other = world.post("/v1/solves", OTHER, &[], &turnstile("0x9")).await;
    assert_eq!(other.status, 202, "{other:?}");
    world.engine.crash();
}

#[tokio::test]
async fn the_bodies_of_one_worker_hold_a_bounded_number_of_bytes_and_another_is_served() {
    let limits = Limits { worker_bytes: 300_000, ..patient() };
    let world = World::with(Setting { limits, ..Setting::default() }).await;
    let target = format!("/in.php?key={WORKER}");
    let beginning = format!("method=base64&body={}", "iVBO".repeat(5_000));
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(begin(&world, &target, URLENCODED, &beginning).await);
    }
    // They do not all fit, and those that do leave no room for a large one.
    let refused = select_all(held.into_iter().map(|stream| Box::pin(answered(stream))));
    let ((answer, _), _, others) = refused.await;
    assert_eq!(answer.body, "ERROR_NO_SLOT_AVAILABLE");
    let picture = STANDARD.encode(vec![7; 75_000]);
    let claim = json!({ "kind": "image", "image": picture }).to_string();
    let refused = world.post("/v1/solves", WORKER, &[], &claim).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (429, "busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(world.post("/v1/solves", OTHER, &[], &claim).await.status, 202);
    drop(others);
    until("the bytes come back", async || {
        let answer = world.post("/v1/solves", WORKER, &[], &claim).await;
        [200, 202].contains(&answer.status).then_some(())
    })
    .await;
    let form = format!("key={WORKER}&{beginning}");
    for _ in 0..20 {
        let answer = world.send(&request("POST", "/in.php", "", &[], &form)).await;
        assert!(answer.body.starts_with("OK|"), "a parsed body is given back: {answer:?}");
    }
}

#[tokio::test]
async fn a_worker_charges_its_own_projects_only() {
    let world = World::open().await;
    let with =
        |project: &str| turnstile("0x4A").replacen('{', &format!(r#"{{"project":"{project}","#), 1);
    for project in ["tests", "checkout", "other"] {
        let answer = world.post("/v1/solves", WORKER, &[], &with(project)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let refused = world.post("/v1/solves", WORKER, &[], &with("marketing")).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (403, "project_not_allowed"));
    let detail = refused.text("detail");
    assert!(detail.contains("it may charge: tests, checkout, other"), "{detail}");
    let stats = world.get("/v1/stats", WORKER).await;
    assert!(!stats.body.contains("marketing"), "{stats:?}");
}

#[tokio::test]
async fn polls_of_a_served_claim_add_no_entry_and_are_counted() {
    let world = World::open().await;
    let id = served(&world).await;
    let entries = async || world.engine.records().entries(0, 10_000).await.unwrap();
    let before = entries().await;
    let ids = vec![id.as_str(); 100].join(",");
    for _ in 0..20 {
        let many = world.php(&format!("/res.php?key={WORKER}&action=get&ids={ids}")).await;
        assert_eq!(many.body.split('|').count(), 100, "{many:?}");
        world.php(&format!("/res.php?key={WORKER}&action=get2&id={id}")).await;
        assert_eq!(world.get(&format!("/v1/solves/{id}"), WORKER).await.status, 200);
    }
    assert_eq!(entries().await, before);
    let delivered = |event: &Event| matches!(event, Event::Delivered { .. });
    assert_eq!(before.iter().filter(|entry| delivered(&entry.event)).count(), 1);
    crate::world::until("the fetches are counted", async || {
        let story = world.get(&format!("/v1/solves/{id}/explain"), WORKER).await.json();
        (story["repeats"] == json!({ "fetched": 60, "replayed": 0 })).then_some(())
    })
    .await;
}

#[tokio::test]
async fn five_claims_of_one_picture_make_one_report() {
    let world = World::open().await;
    let image = r#"{"kind":"image","image":"aGVsbG8gd29ybGQ=","fresh":true}"#;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let answer = world.post("/v1/solves", WORKER, &["Prefer: wait=10"], image).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        ids.push(answer.text("id"));
    }
    for id in ids.iter().chain(&ids) {
        let target = format!("/res.php?key={WORKER}&action=reportbad&id={id}");
        assert_eq!(world.php(&target).await.body, "OK_REPORT_RECORDED");
    }
    world.engine.drain().await;
    let reports = world.account.ledger().reports;
    assert_eq!(reports.len(), 1, "{reports:?}");
}

/// Two workers wait for one picture. Neither learns the id of the other's claim, from any list.
#[tokio::test]
async fn a_worker_sees_no_claim_of_another_that_waits_for_the_same_picture() {
    let world = World::open().await;
    world.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_BAD_TOKEN_OR_PAGEURL")));
    assert_eq!(world.post("/-/pause", ADMIN, &[], "").await.status, 200);
    let picture = r#"{"kind":"image","image":"aGVsbG8gd29ybGQ="}"#;
    let first = world.post("/v1/solves", WORKER, &[], picture).await.text("id");
    let second = world.post("/v1/solves", OTHER, &[], picture).await.text("id");
    assert!(!first.is_empty() && !second.is_empty() && first != second);
    let seen = async |key: &str, path: &str| world.get(path, key).await.body;
    let active = seen(WORKER, "/v1/active").await;
    assert!(active.contains(&first) && !active.contains(&second), "{active}");
    assert!(seen(ADMIN, "/v1/active").await.contains(&second), "they wait for one solve");
    assert_eq!(world.post("/-/resume", ADMIN, &[], "").await.status, 200);
    let letter = until("the dead letter", async || {
        let letters = world.get("/v1/dead-letters", ADMIN).await.json();
        Some(letters["items"].as_array()?.first()?["id"].as_str()?.to_owned())
    })
    .await;
    let letter = format!("/v1/dead-letters/{letter}");
    for path in ["/v1/dead-letters", &letter, "/v1/history?limit=1", "/v1/active"] {
        let told = seen(WORKER, path).await;
        assert!(!told.contains(&second), "{path}: {told}");
        assert!(path == "/v1/active" || told.contains(&first), "{path}: {told}");
    }
    let story = seen(WORKER, &format!("/v1/solves/{first}/explain")).await;
    assert!(story.contains(&first) && !story.contains(&second), "{story}");
    // The one that joined sees the solve that it waited for, and not for whom it was opened.
    let story = seen(OTHER, &format!("/v1/solves/{second}/explain")).await;
    assert!(story.contains("\"joined\"") && !story.contains(&first), "{story}");
}
