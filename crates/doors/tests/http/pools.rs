//! Pools on v1: open, fill, use, announce demand, close; and refusals.

use serde_json::{Value, json};

use crate::world::{ADMIN, WORKER, World, turnstile, until};

fn body(more: &Value) -> String {
    let mut body: Value = serde_json::from_str(&turnstile("0x4A")).unwrap();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

async fn pools(world: &World) -> Value {
    let answer = world.get("/v1/pools", ADMIN).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until the only pool meets a condition.
async fn until_pool(world: &World, wanted: impl Fn(&Value) -> bool) -> Value {
    until("the pool is as wanted", async || {
        let pool = pools(world).await["items"][0].clone();
        wanted(&pool).then_some(pool)
    })
    .await
}

#[tokio::test]
async fn a_fixed_pool_fills_up_and_serves_at_once() {
    let world = World::open().await;
    let made = world.put("/v1/pools", ADMIN, &body(&json!({ "level": 3, "project": "qa" }))).await;
    assert_eq!(made.status, 200, "{made:?}");
    let pool = until_pool(&world, |pool| pool["stock"] == 3).await;
    let left = pool["stock_by_age"].as_array().unwrap();
    assert!(left.len() == 3 && left.iter().all(|left| left.as_u64().unwrap() > 200), "{pool}");
    assert_eq!((&pool["level"], &pool["target"], &pool["max"]), (&json!(3), &json!(3), &json!(20)));
    assert_eq!((&pool["ordered"], world.paid()), (&json!(3), 3));
    assert_eq!((&pool["hit_rate"], &pool["cost_per_served"]), (&Value::Null, &Value::Null));
    assert_eq!((&pool["project"], &pool["declared"]), (&json!("qa"), &json!(false)));
    let served = world.claim("0x4A", &["Idempotency-Key: a"]).await;
    assert_eq!((served.status, served.text("source").as_str()), (200, "stock"), "{served:?}");
    let pool = until_pool(&world, |pool| pool["ordered"] == 4 && pool["stock"] == 3).await;
    assert_eq!(
        (&pool["arrived"], &pool["hits"], &pool["served"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!((&pool["hit_rate"], &pool["waste_rate"]), (&json!(1.0), &json!(0.0)));
    assert_eq!((pool["controller"].is_string(), world.paid()), (true, 4));
    assert_ne!(pool["cost_per_served"], Value::Null);
}

#[tokio::test]
async fn announced_demand_is_ready_in_time_and_listed() {
    let world = World::open().await;
    let id = world.put("/v1/pools", ADMIN, &body(&json!({}))).await.text("id");
    let expect = format!("/v1/pools/{id}/expect");
    let answer = world.post(&expect, ADMIN, &[], r#"{"count":5,"in_s":1}"#).await;
    assert_eq!(
        (answer.status, &answer.json()["expected"][0]["count"]),
        (200, &json!(5)),
        "{answer:?}"
    );
    let pool = until_pool(&world, |pool| pool["stock"] == 5).await;
    assert_eq!((&pool["target"], &pool["why"]), (&json!(5), &json!("demand was announced")));
    for bad in [
        "{}",
        r#"{"count":5}"#,
        r#"{"count":0,"in_s":1}"#,
        r#"{"count":1001,"in_s":1}"#,
        r#"{"count":5,"in_s":1,"at":"2026-11-15T20:00:00Z"}"#,
        r#"{"count":5,"at":"2020-01-01T00:00:00Z"}"#,
        r#"{"count":5,"in_s":99999999}"#,
        r#"{"count":5,"in_s":-1}"#,
        r#"{"count":5,"at":"soon"}"#,
        r#"{"count":5,"in_s":1,"more":1}"#,
        "[5]",
    ] {
        assert_eq!(world.post(&expect, ADMIN, &[], bad).await.status, 400, "{bad}");
    }
    for id in ["000000000000", "x", "%2e%2e"] {
        let path = format!("/v1/pools/{id}/expect");
        let answer = world.post(&path, ADMIN, &[], r#"{"count":5,"in_s":1}"#).await;
        assert_eq!(answer.status, 404, "{id}");
    }
}

#[tokio::test]
async fn the_same_challenge_is_the_same_pool_and_a_closed_one_is_gone() {
    let world = World::open().await;
    let first = world.put("/v1/pools", ADMIN, &body(&json!({}))).await;
    let again = world.put("/v1/pools", ADMIN, &body(&json!({ "max": 7, "waste": 0.25 }))).await;
    assert_eq!(first.text("id"), again.text("id"));
    let list = pools(&world).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!((&list["items"][0]["max"], &list["items"][0]["waste"]), (&json!(7), &json!(0.25)));
    assert_eq!((&list["items"][0]["level"], &list["margins"]), (&json!("auto"), &json!([])));
    let path = format!("/v1/pools/{}", first.text("id"));
    assert_eq!(world.delete(&path, ADMIN).await.status, 204);
    assert_eq!(world.delete(&path, ADMIN).await.status, 404);
    assert_eq!(pools(&world).await["items"], json!([]));
}

#[tokio::test]
async fn an_invalid_pool_is_refused_by_field() {
    let world = World::open().await;
    for (more, status, code) in [
        (json!({ "level": 21 }), 400, "bad_field"),
        (json!({ "level": 0 }), 400, "bad_field"),
        (json!({ "level": "many" }), 400, "bad_json"),
        (json!({ "level": null }), 400, "bad_json"),
        (json!({ "level": -1 }), 400, "bad_json"),
        (json!({ "max": 0 }), 400, "bad_field"),
        (json!({ "max": 1001 }), 400, "bad_field"),
        (json!({ "waste": 1.5 }), 400, "bad_field"),
        (json!({ "project": "a b" }), 400, "bad_field"),
        (
            json!({ "kind": "cloudflare_challenge",
                "params": { "proxy": "u:p@10.0.0.1:1", "proxytype": "HTTP" } }),
            400,
            "not_pooled",
        ),
        (json!({ "kind": "image" }), 400, "not_pooled"),
        (json!({ "pageurl": "https://other.example/" }), 403, "site_not_declared"),
        (json!({ "pageurl": "ftp://shop.example.com/" }), 400, "invalid_pageurl"),
        (json!({ "sitekey": null }), 400, "invalid_challenge"),
        (json!({ "params": { "pingback": "https://evil.example/" } }), 400, "invalid_challenge"),
        (json!({ "deadline_s": 5 }), 400, "bad_json"),
    ] {
        let answer = world.put("/v1/pools", ADMIN, &body(&more)).await;
        assert_eq!(
            (answer.status, answer.text("code").as_str()),
            (status, code),
            "{more}: {answer:?}"
        );
    }
    assert_eq!(pools(&world).await["items"], json!([]));
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn an_unavailable_store_is_reported_without_details() {
    let world = World::open().await;
    world.store.set_away(true);
    let answer = world.put("/v1/pools", ADMIN, &body(&json!({}))).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (503, "store_unavailable"));
    assert!(!answer.body.contains("canary"), "{answer:?}");
}

#[tokio::test]
async fn a_proxys_password_is_never_shown() {
    let world = World::open().await;
    let params =
        json!({ "params": { "proxy": "u:canary-password@10.0.0.1:3128", "proxytype": "HTTP" } });
    let made = world.put("/v1/pools", ADMIN, &body(&params)).await;
    assert_eq!(made.status, 200, "{made:?}");
    let list = world.get("/v1/pools", ADMIN).await;
    assert!(!made.body.contains("canary") && !list.body.contains("canary"), "{list:?}");
    assert_eq!(world.get("/v1/pools", WORKER).await.status, 403);
}
