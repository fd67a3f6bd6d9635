//! The emergency stop over HTTP: pause, see it, resume.

use std::time::Duration;

use crate::world::{ADMIN, OPERATOR, READER, Setting, WORKER, World, turnstile, until};

impl World {
    async fn pause(&self, body: &str) -> serde_json::Value {
        let answer = self.post("/-/pause", OPERATOR, &[], body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    async fn resume(&self, body: &str) -> serde_json::Value {
        let answer = self.post("/-/resume", OPERATOR, &[], body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

#[tokio::test]
async fn a_claim_made_while_paused_waits_and_is_served_after_the_resume() {
    let world = World::open().await;
    let paused = world.pause("").await;
    assert_eq!(
        (&paused["changed"], &paused["scope"]["scope"]),
        (&true.into(), &"everything".into())
    );
    let claim = world.claim("0x4A", &["Prefer: wait=1"]).await;
    assert_eq!((claim.status, &claim.json()["paused"]), (202, &"everything".into()), "{claim:?}");
    assert_eq!(world.paid(), 0);
    world.resume("{}").await;
    world.until_paid(1).await;
    let path = format!("/v1/solves/{}?wait=10", claim.json()["id"].as_str().unwrap());
    assert_eq!(world.get(&path, WORKER).await.json()["state"], "served");
}

#[tokio::test]
async fn everybody_with_a_key_of_an_admin_sees_what_is_paused_since_when_and_by_whom() {
    let world = World::open().await;
    world.pause(r#"{"site":"shop.example.com"}"#).await;
    let list = world.get("/v1/pauses", READER).await.json();
    let item = &list["items"][0];
    assert_eq!((&item["scope"], &item["site"]), (&"site".into(), &"shop.example.com".into()));
    assert_eq!((&item["by"], &item["role"]), (&"olga".into(), &"operator".into()));
    assert_eq!(item["address"], "127.0.0.1");
    assert!(item["since"].is_string());
    let ready = world.get("/readyz", ADMIN).await;
    assert_eq!((ready.status, &ready.json()["state"]), (200, &"degraded".into()));
    for page in [ready.body, world.get("/", ADMIN).await.body] {
        assert!(page.contains("site shop.example.com") && page.contains("olga"), "{page}");
    }
    let strangers = world.get("/readyz", "").await;
    assert_eq!(strangers.json()["troubles"], serde_json::json!(["paused"]));
    assert!(!strangers.body.contains("shop"), "{strangers:?}");
}

#[tokio::test]
async fn a_pause_of_one_worker_leaves_the_others_alone() {
    let world = World::open().await;
    world.pause(r#"{"worker":"two"}"#).await;
    world.claim("0x4A", &[]).await;
    world.until_paid(1).await;
    world.pause(r#"{"worker":"one"}"#).await;
    assert_eq!(world.claim("0x4B", &["Prefer: wait=1"]).await.status, 202);
    assert_eq!(world.paid(), 1);
    let left = world.resume(r#"{"worker":"one"}"#).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "{left}");
    world.until_paid(2).await;
}

#[tokio::test]
async fn a_pause_is_repeated_without_effect_and_a_misspelt_one_is_noted() {
    let world = World::open().await;
    assert_eq!(world.pause(r#"{"site":"shop.example.com"}"#).await["changed"], true);
    let again = world.pause(r#"{"site":"shop.example.com"}"#).await;
    assert_eq!((&again["changed"], &again["declared"]), (&false.into(), &true.into()));
    let misspelt = world.pause(r#"{"site":"shopp.example.com"}"#).await;
    assert_eq!((&misspelt["changed"], &misspelt["declared"]), (&true.into(), &false.into()));
    assert_eq!(world.resume("").await["changed"], false, "everything is not what was paused");
}

#[tokio::test]
async fn a_scope_that_is_none_is_refused() {
    let world = World::open().await;
    for body in [
        r#"{"site":"https://shop.example.com/"}"#,
        r#"{"site":"*.com"}"#,
        r#"{"worker":"no such name!"}"#,
        r#"{"site":"shop.example.com","worker":"one"}"#,
        r#"{"host":"shop.example.com"}"#,
        "[]",
    ] {
        let answer = world.post("/-/pause", ADMIN, &[], body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert_eq!(world.get("/v1/pauses", ADMIN).await.json()["items"], serde_json::json!([]));
}

#[tokio::test]
async fn a_claim_that_lapses_unsent_says_that_submissions_were_paused() {
    let setting = Setting { deadline: Duration::from_secs(1), ..Setting::default() };
    let world = World::with(setting).await;
    world.pause("").await;
    let claim = world.post("/v1/solves", WORKER, &[], &turnstile("0x4A")).await;
    let path = format!("/v1/solves/{}", claim.json()["id"].as_str().unwrap());
    let lapsed = until("the claim lapses", async || {
        Some(world.get(&path, WORKER).await).filter(|answer| answer.status != 202)
    })
    .await;
    let problem = lapsed.json();
    assert_eq!((lapsed.status, &problem["code"]), (504, &"deadline_passed".into()));
    assert!(problem["detail"].as_str().unwrap().contains("paused (everything)"), "{problem}");
    assert_eq!(world.paid(), 0);
}
