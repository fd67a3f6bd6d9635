//! `in.php` and `res.php` as programs written for the provider use them.

use std::time::Duration;

use domain::claim::Allowance;
use simulator::{Call, Fault, Planned};
use tokio::time::Instant;

use crate::{
    client::{Answer, PATIENCE},
    world::{ADMIN, NARROW, OTHER, Setting, WORKER, World, request, until},
};

const PAGE: &str = "https%3A%2F%2Fshop.example.com%2F";

fn in_php(key: &str, sitekey: &str, more: &str) -> String {
    format!("/in.php?key={key}&method=turnstile&sitekey={sitekey}&pageurl={PAGE}{more}")
}

async fn submit(world: &World, sitekey: &str, more: &str) -> String {
    let answer = world.php(&in_php(WORKER, sitekey, more)).await;
    let id = answer.body.strip_prefix("OK|").unwrap_or_else(|| panic!("{answer:?}"));
    id.to_owned()
}

async fn poll(world: &World, id: &str, more: &str) -> Answer {
    world.php(&format!("/res.php?key={WORKER}&action=get&id={id}{more}")).await
}

#[tokio::test]
async fn the_first_poll_is_held_and_returns_when_the_solve_lands() {
    // The hold is longer than the client timeout, so a reply proves that the hold ended early.
    let (solving, hold) = (Duration::from_secs(2), 2 * PATIENCE);
    let world = World::with(Setting { solving, hold, ..Setting::default() }).await;
    let id = submit(&world, "0x4A", "").await;
    assert_eq!(id.len(), 15);
    let early = poll(&world, &id, "&hold=0").await.body;
    assert_eq!(early, "CAPCHA_NOT_READY", "neither in.php nor this poll waits");
    let answer = poll(&world, &id, "").await;
    assert!(answer.body.starts_with("OK|"), "{answer:?}");
    assert_eq!(poll(&world, &id, "").await.body, answer.body, "the same answer again");
}

#[tokio::test]
async fn a_hold_is_never_longer_than_configured() {
    let setting = Setting { hold: Duration::from_millis(100), ..Setting::default() };
    let world = World::with(setting).await;
    let id = submit(&world, "never-ready-1", "").await;
    let began = Instant::now();
    assert_eq!(poll(&world, &id, "&hold=60").await.body, "CAPCHA_NOT_READY");
    assert!(began.elapsed() < Duration::from_secs(50), "not for the minute it wanted");
}

#[tokio::test]
async fn every_submission_is_its_own_unless_it_carries_a_key() {
    let world = World::open().await;
    let (one, two) = (submit(&world, "0x4A", "").await, submit(&world, "0x4A", "").await);
    assert_ne!(one, two);
    let keyed = submit(&world, "0x4B", "&idempotency_key=job-1").await;
    assert_eq!(submit(&world, "0x4B", "&idempotency_key=job-1").await, keyed);
    let other = world.php(&in_php(WORKER, "0x4C", "&idempotency_key=job-1")).await;
    assert_eq!(other.body, "ERROR_IDEMPOTENCY_MISMATCH");
    for id in [&one, &two, &keyed] {
        assert!(poll(&world, id, "").await.body.starts_with("OK|"));
    }
    assert_eq!(world.paid(), 3);
}

#[tokio::test]
async fn invalid_keys_get_the_same_codes_as_at_the_provider() {
    let world = World::open().await;
    for (key, code) in [
        ("", "ERROR_WRONG_USER_KEY"),
        ("short", "ERROR_WRONG_USER_KEY"),
        ("00000000000000000000000000000000", "ERROR_KEY_DOES_NOT_EXIST"),
        (ADMIN, "ERROR_KEY_DOES_NOT_EXIST"),
    ] {
        let answer = world.php(&in_php(key, "0x4A", "")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, code), "{key}");
        let json = world.php(&format!("/res.php?key={key}&action=getbalance&json=1")).await;
        assert_eq!(json.json()["request"], code);
    }
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn pages_nobody_declared_are_refused_with_a_code() {
    let world = World::open().await;
    let evil =
        format!("/in.php?key={WORKER}&method=turnstile&sitekey=a&pageurl=https://evil.example/");
    assert_eq!(world.php(&evil).await.body, "ERROR_SITE_NOT_DECLARED");
    assert_eq!(world.php(&in_php(NARROW, "0x4A", "")).await.body, "ERROR_SITE_NOT_DECLARED");
    let broken = format!("/in.php?key={WORKER}&method=turnstile&sitekey=a&pageurl=javascript:1");
    assert_eq!(world.php(&broken).await.body, "ERROR_PAGEURL");
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn budgets_and_rates_answer_with_codes() {
    let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
    let world = World::with(Setting { allowance, ..Setting::default() }).await;
    submit(&world, "0x4A", "").await;
    assert_eq!(world.php(&in_php(WORKER, "0x4B", "")).await.body, "ERROR_BUDGET_EXCEEDED");
    let world = World::with(Setting { rate: Some("1/h"), ..Setting::default() }).await;
    submit(&world, "0x4A", "").await;
    assert_eq!(world.php(&in_php(WORKER, "0x4B", "")).await.body, "ERROR_TOO_MUCH_REQUESTS");
    let polled = world.php(&format!("/res.php?key={WORKER}&action=getbalance")).await;
    assert!(polled.body.parse::<f64>().is_ok(), "polls are not claims: {polled:?}");
}

#[tokio::test]
async fn another_workers_claim_is_unknown() {
    let world = World::open().await;
    let id = submit(&world, "0x4A", "").await;
    poll(&world, &id, "").await;
    for action in ["get", "get2", "reportbad"] {
        let answer = world.php(&format!("/res.php?key={OTHER}&action={action}&id={id}")).await;
        assert_eq!(answer.body, "ERROR_WRONG_CAPTCHA_ID", "{action}");
    }
    for odd in ["-1", "abc", "0123", "1.5", "%31%00"] {
        assert_eq!(poll(&world, odd, "").await.body, "ERROR_WRONG_ID_FORMAT", "{odd}");
    }
}

#[tokio::test]
async fn a_store_failure_is_not_ready_to_a_poller() {
    let world = World::open().await;
    let id = submit(&world, "never-ready-1", "").await;
    world.store.set_away(true);
    let answer = poll(&world, &id, "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "CAPCHA_NOT_READY"));
    assert_eq!(world.php(&in_php(WORKER, "0x4B", "")).await.body, "ERROR_SERVER_ERROR");
    world.store.set_away(false);
    world.engine.crash();
}

#[tokio::test]
async fn every_claim_ends_and_permanent_codes_are_passed_on() {
    let world = World::open().await;
    world.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_BAD_TOKEN_OR_PAGEURL")));
    let refused = submit(&world, "0x4A", "").await;
    assert_eq!(poll(&world, &refused, "").await.body, "ERROR_BAD_TOKEN_OR_PAGEURL");
    let unsolvable = submit(&world, "unsolvable-1", "").await;
    let code = loop {
        let answer = poll(&world, &unsolvable, "").await;
        if answer.body != "CAPCHA_NOT_READY" {
            break answer.body;
        }
    };
    assert_eq!(code, "ERROR_CAPTCHA_UNSOLVABLE");
}

#[tokio::test]
async fn a_known_price_is_returned_and_an_unknown_one_left_out() {
    let world = World::open().await;
    let id = submit(&world, "0x4A", "").await;
    let priced = format!("/res.php?key={WORKER}&action=get2&id={id}");
    let json = world.php(&format!("{priced}&json=1")).await;
    let price = json.text("price");
    assert!(price.parse::<f64>().unwrap() > 0.0, "{json:?}");
    assert!(world.php(&priced).await.body.ends_with(&format!("|{price}")));
    let world = World::with(Setting { priced: false, ..Setting::default() }).await;
    let id = submit(&world, "0x4A", "").await;
    let json = world.php(&format!("/res.php?key={WORKER}&action=get2&id={id}&json=1")).await;
    assert_eq!((json.json()["status"].as_u64(), json.json().get("price")), (Some(1), None));
}

#[tokio::test]
async fn several_ids_are_answered_in_order() {
    let world = World::open().await;
    let done = submit(&world, "0x4A", "").await;
    let token = poll(&world, &done, "").await.body.replacen("OK|", "", 1);
    let waiting = submit(&world, "never-ready-1", "").await;
    let many = format!("/res.php?key={WORKER}&action=get&ids={waiting},{done},1");
    let answer = world.php(&many).await;
    assert_eq!(answer.body, format!("CAPCHA_NOT_READY|{token}|ERROR_WRONG_CAPTCHA_ID"));
    let ids = vec!["1"; 101].join(",");
    let too_many = world.php(&format!("/res.php?key={WORKER}&action=get&ids={ids}")).await;
    assert_eq!(too_many.body, "ERROR_BAD_PARAMETERS");
}

#[tokio::test]
async fn a_repeated_report_is_accepted_and_forwarded_once() {
    let world = World::open().await;
    // The second claim is reported last, so a duplicate of the first would be forwarded before it.
    for (sitekey, times) in [("0x4A", 2), ("0x4B", 1)] {
        let id = submit(&world, sitekey, "").await;
        poll(&world, &id, "").await;
        for _ in 0..times {
            let report = format!("/res.php?key={WORKER}&action=reportbad&id={id}");
            assert_eq!(world.php(&report).await.body, "OK_REPORT_RECORDED");
        }
    }
    let reports = || world.account.ledger().reports.len();
    until("both are passed on", async || (reports() >= 2).then_some(())).await;
    assert_eq!(reports(), 2);
}

#[tokio::test]
async fn account_calls_and_odd_actions_are_answered() {
    let world = World::open().await;
    let act = |action: &str| format!("/res.php?key={WORKER}&action={action}");
    assert!(world.php(&act("getbalance")).await.body.parse::<f64>().is_ok());
    let threads = world.send(&request("POST", &act("threadsinfo"), "", &[], "json=1")).await;
    assert!(threads.text("threads").parse::<u32>().is_ok());
    assert_eq!(world.php(&act("setbalance")).await.body, "ERROR_BAD_PARAMETERS");
    assert_eq!(world.php(&act("")).await.body, "ERROR_EMPTY_ACTION");
}

#[tokio::test]
async fn cross_origin_replies_are_allowed_on_request() {
    let world = World::open().await;
    let answer = world.php(&in_php(WORKER, "0x4A", "&header_acao=1&json=1")).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let answer = world.php(&in_php(WORKER, "0x4A", "")).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
}

#[tokio::test]
async fn every_way_to_send_an_image_is_the_same_claim() {
    let world = World::open().await;
    let image = "iVBORw0KGgoAAAANSUhEUgAA".repeat(8);
    let forms = [
        (
            "Content-Type: application/x-www-form-urlencoded",
            format!("key={WORKER}&method=base64&body={image}"),
        ),
        (
            "Content-Type: application/json",
            format!(r#"{{"key":"{WORKER}","method":"base64","body":"{image}"}}"#),
        ),
        (
            "Content-Type: text/plain",
            format!(r#"{{"key":"{WORKER}","method":"base64","body":"{image}"}}"#),
        ),
    ];
    for (kind, body) in &forms {
        let answer = world.send(&request("POST", "/in.php", "", &[kind], body)).await;
        let id = answer.body.strip_prefix("OK|").unwrap_or_else(|| panic!("{kind}: {answer:?}"));
        assert!(poll(&world, id, "").await.body.starts_with("OK|"));
    }
    assert_eq!(world.paid(), 1, "the same picture has the same text");
    let last = image.replacen("iVBO", "iVBP", 1);
    let body = format!("key={WORKER}&method=base64&body={last}");
    let answer = world.send(&request("POST", "/in.php", "", &[], &body)).await;
    poll(&world, answer.body.strip_prefix("OK|").unwrap(), "").await;
    assert_eq!(world.paid(), 2, "another picture");
}

#[tokio::test]
async fn a_body_too_large_is_a_code_too() {
    let world = World::open().await;
    let head =
        "POST /in.php?json=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n";
    let answer = world.send(head).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text("request"), "ERROR_TOO_BIG_CAPTCHA_FILESIZE");
}

#[tokio::test]
async fn too_many_wrong_keys_ban_an_address() {
    let world = World::open().await;
    let wrong = "00000000000000000000000000000000";
    let target = format!("/res.php?key={wrong}&action=getbalance");
    let ask = || world.php(&target);
    for _ in 0..10 {
        assert_eq!(ask().await.body, "ERROR_KEY_DOES_NOT_EXIST");
    }
    assert_eq!(ask().await.body, "ERROR_IP_BANNED");
    let v1 = world.get("/v1/active", wrong).await;
    assert_eq!((v1.status, v1.text("code").as_str()), (429, "too_many_wrong_keys"));
    assert!(v1.header("retry-after").is_some());
    let right = world.get("/v1/active", WORKER).await;
    assert_eq!(right.status, 429, "a right key is not checked either: somebody may be guessing");
}

#[tokio::test]
async fn an_address_with_a_valid_key_is_not_slowed_by_the_wrong_keys_of_others() {
    let world = World::open().await;
    assert_eq!(world.get("/v1/active", WORKER).await.status, 200);
    let wrong = "00000000000000000000000000000000";
    for _ in 0..10 {
        assert_eq!(world.get("/v1/active", wrong).await.status, 401);
    }
    assert_eq!(world.get("/v1/active", wrong).await.status, 429);
    assert_eq!(world.get("/v1/active", WORKER).await.status, 200);
    let php = world.php(&format!("/res.php?key={OTHER}&action=getbalance")).await;
    assert_ne!(php.body, "ERROR_IP_BANNED", "nor is another worker behind the same address");
}
