//! The JSON API: claims, replays, refusals, records.

use std::time::Duration;

use domain::{claim::Allowance, time::Day};
use futures_util::future::join_all;
use serde_json::json;
use simulator::{Call, Fault, Planned};
use tokio::time::{Instant, sleep};

use crate::client::Answer;
use crate::world::{ADMIN, NARROW, OTHER, Setting, WORKER, World, request, turnstile};

const WAIT: &str = "Prefer: wait=10";

#[tokio::test]
async fn a_claim_that_waits_gets_its_token() {
    let world = World::open().await;
    let answer = world.claim("0x4A", &[WAIT]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    let members: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    let designed = [
        "id",
        "state",
        "kind",
        "token",
        "source",
        "expires_at",
        "attempts",
        "polls",
        "elapsed_ms",
        "cost",
    ];
    assert_eq!(members[..10], designed);
    assert_eq!((&body["state"], &body["source"]), (&json!("served"), &json!("upstream")));
    assert_eq!(answer.header("idempotent-replayed"), None);
}

#[tokio::test]
async fn a_claim_without_waiting_returns_its_location() {
    let world = World::open().await;
    let answer = world.claim("0x4A", &[]).await;
    assert_eq!(answer.status, 202);
    let retry: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(retry >= 1);
    assert_eq!(answer.json()["eta_s"], retry);
    let location = answer.header("location").unwrap().to_owned();
    assert_eq!(location, format!("/v1/solves/{}", answer.text("id")));
    let fetched = world.get(&format!("{location}?wait=10"), WORKER).await;
    assert_eq!((fetched.status, fetched.text("source").as_str()), (200, "upstream"));
}

#[tokio::test]
async fn the_same_key_is_the_same_claim_and_is_paid_once() {
    let world = World::open().await;
    let key = "Idempotency-Key: order-17";
    let first = world.claim("0x4A", &[WAIT, key]).await;
    let again = world.claim("0x4A", &[WAIT, key]).await;
    assert_eq!((first.status, again.status), (200, 200));
    assert_eq!(first.text("token"), again.text("token"));
    assert_eq!(again.text("source"), "replay");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = world.claim("0x4B", &[key]).await;
    assert_eq!((other.status, other.text("code").as_str()), (422, "idempotency_key_reused"));
    let cased = world.claim("0x4A", &["Idempotency-Key: ORDER-17", WAIT]).await;
    assert_ne!(cased.text("id"), first.text("id"));
    assert_eq!(world.paid(), 2);
}

#[tokio::test]
async fn of_callers_without_a_key_at_the_same_time_one_paid_and_the_others_joined() {
    let world =
        World::with(Setting { solving: Duration::from_millis(500), ..Setting::default() }).await;
    let answers = join_all((0..4).map(|_| world.claim("0x4A", &[WAIT]))).await;
    let mut sources: Vec<_> = answers.iter().map(|answer| answer.text("source")).collect();
    sources.sort();
    assert_eq!(sources, ["join", "join", "join", "upstream"]);
    let repeats = |answer: &&Answer| answer.header("idempotent-replayed") == Some("true");
    assert_eq!(answers.iter().filter(repeats).count(), 3);
    let after = world.claim("0x4A", &[WAIT]).await;
    assert_eq!(after.text("source"), "replay");
    assert_eq!(world.paid(), 1);
}

#[tokio::test]
async fn a_caller_that_does_not_wait_is_told_that_it_joined() {
    let world =
        World::with(Setting { solving: Duration::from_secs(5), ..Setting::default() }).await;
    let first = world.claim("0x4A", &[]).await;
    let second = world.claim("0x4A", &[]).await;
    assert_eq!((first.status, first.json().get("source")), (202, None));
    assert_eq!((second.status, second.text("source").as_str()), (202, "join"));
}

#[tokio::test]
async fn an_expired_token_is_not_delivered() {
    // A delivered token has at least ten seconds left; the other three are for a busy machine.
    let lifetime = Some(Duration::from_secs(13));
    let world = World::with(Setting { lifetime, ..Setting::default() }).await;
    let key = "Idempotency-Key: order-17";
    assert_eq!(world.claim("0x4A", &[WAIT, key]).await.status, 200);
    sleep(Duration::from_secs(3)).await;
    let dead = world.claim("0x4A", &[WAIT, key]).await;
    assert_eq!((dead.status, dead.text("code").as_str()), (410, "token_expired"));
    assert_eq!(dead.header("idempotent-replayed"), Some("true"));
    assert_eq!(world.paid(), 1);
}

#[tokio::test]
async fn equal_parameters_share_a_solve_unless_fresh() {
    let world = World::open().await;
    let first = world.claim("0x4A", &[]).await;
    // A replay is recognised by the claim's age in milliseconds.
    sleep(Duration::from_millis(5)).await;
    let second = world.claim("0x4A", &[]).await;
    assert_eq!(first.text("id"), second.text("id"));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    let fresh = turnstile("0x4A").replacen('{', r#"{"fresh":true,"#, 1);
    let fresh = world.post("/v1/solves", WORKER, &[], &fresh).await;
    assert_ne!(first.text("id"), fresh.text("id"));
}

#[tokio::test]
async fn a_budget_of_one_pays_once_however_many_ask_at_once() {
    let allowance = Allowance { solves_per_day: Some(1), ..Allowance::default() };
    let world = World::with(Setting { allowance, ..Setting::default() }).await;
    let keys: Vec<_> = (0..20).map(|n| format!("Idempotency-Key: {n}")).collect();
    let headers: Vec<_> = keys.iter().map(|key| [WAIT, key.as_str()]).collect();
    let answers = join_all(headers.iter().map(|headers| world.claim("0x4A", headers))).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!((served, refused.len(), world.paid()), (1, 19, 1));
    assert_eq!(refused[0].text("code"), "budget_exceeded");
    let wait: u64 = refused[0].header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait));
}

#[tokio::test]
async fn a_rate_refuses_with_the_time_to_wait() {
    let world = World::with(Setting { rate: Some("1/h"), ..Setting::default() }).await;
    assert_eq!(world.claim("0x4A", &[]).await.status, 202);
    let refused = world.claim("0x4B", &[]).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (429, "rate_exceeded"));
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn refusals_are_problems_with_a_code() {
    let world = World::open().await;
    let page = |url: &str| turnstile("a").replace("https://shop.example.com/login", url);
    let with = |member: &str| turnstile("a").replacen('{', &format!("{{{member},"), 1);
    let cases = [
        (page("https://evil.example/"), 403, "site_not_declared"),
        (page("https://shop.example.com@evil.example/"), 400, "invalid_pageurl"),
        (
            r#"{"kind":"turnstile","pageurl":"https://shop.example.com/"}"#.into(),
            400,
            "invalid_challenge",
        ),
        (with(r#""deadline_s":0"#), 400, "bad_field"),
        (with(r#""deadline_s":3601"#), 400, "bad_field"),
        (with(r#""project":"a b""#), 400, "bad_field"),
        (with(r#""callback_url":"https://hooks.example.com/""#), 400, "callback_refused"),
        (
            with(&format!(r#""callback_url":"https://a.example/{}""#, "a".repeat(2048))),
            400,
            "bad_field",
        ),
        (with(r#""params":{"pingback":"https://evil.example/"}"#), 400, "invalid_challenge"),
        (with(r#""image":"***""#), 400, "bad_field"),
        (with(r#""api_base":"http://evil.example""#), 400, "bad_json"),
        ("{".into(), 400, "bad_json"),
    ];
    for (body, status, code) in cases {
        let answer = world.post("/v1/solves", WORKER, &[], &body).await;
        assert_eq!((answer.status, answer.text("code").as_str()), (status, code), "{body}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let members: Vec<_> = answer.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["type", "title", "status", "detail", "code"]);
    }
    let narrowed = world.post("/v1/solves", NARROW, &[], &turnstile("a")).await;
    assert_eq!(narrowed.status, 403);
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn a_missing_and_a_wrong_key_look_the_same() {
    let world = World::open().await;
    let wrong = "00000000000000000000000000000000";
    let answers = [
        world.get("/v1/active", "").await,
        world.get("/v1/active", wrong).await,
        world.get("/v1/active", &WORKER[..31]).await,
        world.send(&request("GET", "/v1/active", "", &["Authorization: Basic YTpi"], "")).await,
        world.get("/nothing/here", "").await,
    ];
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (401, &answers[0].body));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"solvegate\""));
    }
    let in_url = world.get("/v1/active?key=other", WORKER).await;
    assert_eq!((in_url.status, in_url.text("code").as_str()), (400, "key_in_url"));
    let header = format!("Authorization: Bearer {WORKER}");
    let twice = world.send(&request("GET", "/v1/active", WORKER, &[&header], "")).await;
    assert_eq!(twice.status, 401);
}

#[tokio::test]
async fn a_worker_sees_its_own_and_the_admin_everything() {
    let world = World::open().await;
    let id = world.claim("0x4A", &[WAIT]).await.text("id");
    let path = format!("/v1/solves/{id}");
    for call in [path.clone(), format!("{path}/explain")] {
        assert_eq!(world.get(&call, OTHER).await.status, 404, "{call}");
        assert_eq!(world.get(&call, ADMIN).await.status, 200, "{call}");
    }
    let history = |key| world.get("/v1/history?limit=5", key);
    assert_eq!(history(WORKER).await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(history(OTHER).await.json()["items"].as_array().unwrap().len(), 0);
    assert_eq!(history(ADMIN).await.json()["items"].as_array().unwrap().len(), 1);
    let gone = world.send(&request("DELETE", &path, OTHER, &[], "")).await;
    assert_eq!(gone.status, 404);
    for odd in ["/v1/solves/abc", "/v1/solves/-1", "/v1/solves/%00", "/v1/dead-letters/7"] {
        assert_eq!(world.get(odd, WORKER).await.status, 404, "{odd}");
    }
}

#[tokio::test]
async fn a_withdrawn_claim_is_gone() {
    let world = World::open().await;
    let id = world.claim("never-ready-1", &[]).await.text("id");
    let path = format!("/v1/solves/{id}");
    let withdrawn = world.send(&request("DELETE", &path, WORKER, &[], "")).await;
    assert_eq!((withdrawn.status, withdrawn.text("state").as_str()), (200, "withdrawn"));
    let fetched = world.get(&path, WORKER).await;
    assert_eq!((fetched.status, fetched.text("code").as_str()), (410, "withdrawn"));
    assert_eq!(fetched.text("id"), id);
}

#[tokio::test]
async fn a_passed_deadline_is_504_and_a_failure_names_the_provider_code() {
    let world = World::open().await;
    let hurried = turnstile("never-ready-1").replacen('{', r#"{"deadline_s":1,"#, 1);
    let lapsed = world.post("/v1/solves", WORKER, &[WAIT], &hurried).await;
    assert_eq!((lapsed.status, lapsed.text("code").as_str()), (504, "deadline_passed"));
    world.account.plan(Planned::next(Call::Submit, Fault::code("ERROR_BAD_TOKEN_OR_PAGEURL")));
    let failed = world.claim("0x4B", &[WAIT]).await;
    assert_eq!((failed.status, failed.text("code").as_str()), (502, "solve_failed"));
    assert_eq!(failed.text("provider_code"), "ERROR_BAD_TOKEN_OR_PAGEURL");
}

#[tokio::test]
async fn account_trouble_is_reported_when_the_deadline_passes() {
    let world = World::open().await;
    world.account.plan(Planned::next(Call::Submit, Fault::wrong_key()).times(1000));
    let hurried = turnstile("0x4A").replacen('{', r#"{"deadline_s":1,"#, 1);
    let answer = world.post("/v1/solves", WORKER, &[WAIT], &hurried).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (503, "account_trouble"));
    assert!(answer.header("retry-after").is_some());
    let ready = world.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("state").as_str()), (200, "degraded"));
}

#[tokio::test]
async fn an_unavailable_store_is_reported_without_its_address() {
    let world = World::open().await;
    world.store.set_away(true);
    for answer in
        [world.claim("0x4A", &[]).await, world.get("/v1/solves/123456789012345", WORKER).await]
    {
        assert_eq!((answer.status, answer.text("code").as_str()), (503, "store_unavailable"));
        assert!(answer.header("retry-after").is_some());
        assert!(!answer.body.contains("canary"), "{answer:?}");
    }
    assert_eq!(world.paid(), 0);
    world.engine.crash();
}

#[tokio::test]
async fn a_panic_is_answered_and_counted() {
    let world = World::open().await;
    world.store.set_panics();
    let answer = world.get("/v1/solves/123456789012345", WORKER).await;
    assert_eq!((answer.status, answer.text("code").as_str()), (500, "internal_error"));
    assert_eq!(world.doors.panics(), 1);
    assert_eq!(world.get("/healthz", "").await.body, "ok");
}

#[tokio::test]
async fn a_wait_ends_after_the_requested_time() {
    let world = World::open().await;
    let id = world.claim("never-ready-1", &[]).await.text("id");
    let began = Instant::now();
    let answer = world.get(&format!("/v1/solves/{id}?wait=1"), WORKER).await;
    assert_eq!(answer.status, 202);
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    for odd in ["wait=x", "wait=-1", "wait=1&wait=1", "hold=1"] {
        let answer = world.get(&format!("/v1/solves/{id}?{odd}"), WORKER).await;
        assert_eq!((answer.status, answer.text("code").as_str()), (400, "bad_query"), "{odd}");
    }
}

#[tokio::test]
async fn history_is_paged_and_filtered() {
    let world = World::open().await;
    for n in 0..5 {
        world.claim(&format!("0x4{n}"), &[WAIT]).await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/history?limit=2".to_owned();
    loop {
        let page = world.get(&path, WORKER).await.json();
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2 && items.iter().all(|item| item.get("token").is_none()));
        seen.extend(items.iter().map(|item| item["sitekey"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/history?limit=2&cursor={next}");
    }
    assert_eq!(seen, ["0x44", "0x43", "0x42", "0x41", "0x40"]);
    let one =
        world.get("/v1/history?sitekey=0x42&kind=turnstile&state=served&project=tests", WORKER);
    assert_eq!(one.await.json()["items"].as_array().unwrap().len(), 1);
    let count = async |key, filter: &str| {
        let page = world.get(&format!("/v1/history?{filter}"), key).await.json();
        page["items"].as_array().unwrap_or_else(|| panic!("{filter}: {page}")).len()
    };
    let day = world.engine.clock().now().day();
    assert_eq!(count(WORKER, &format!("from={day}&to={day}&worker=one")).await, 5);
    let (before, after) = (Day::from_number(day.number() - 1), Day::from_number(day.number() + 1));
    assert_eq!(count(WORKER, &format!("to={before}")).await, 0);
    assert_eq!(count(WORKER, &format!("from={after}")).await, 0);
    assert_eq!(count(ADMIN, "worker=two").await, 0);
    assert_eq!(count(WORKER, "code=ERROR_CAPTCHA_UNSOLVABLE").await, 0);
    world.claim("unsolvable-1", &[WAIT]).await;
    assert_eq!(count(ADMIN, "code=ERROR_CAPTCHA_UNSOLVABLE&worker=one").await, 1);
    assert_eq!(world.get("/v1/history?worker=two", WORKER).await.status, 403);
    let typo = world.get("/v1/history?limt=2", WORKER).await;
    assert!(typo.text("detail").contains("\"limt\", did you mean `limit`?"), "{typo:?}");
    for odd in [
        "limit=201",
        "from=today",
        "worker=a%20b",
        "cursor=x",
        "state=lost",
        "kind=A",
        "project=a%20b",
        "offset=-1",
    ] {
        assert_eq!(world.get(&format!("/v1/history?{odd}"), WORKER).await.status, 400, "{odd}");
    }
}

#[tokio::test]
async fn stats_and_report_return_sums_and_savings() {
    let world = World::open().await;
    let key = "Idempotency-Key: a";
    for _ in 0..3 {
        world.claim("0x4A", &[WAIT, key]).await;
    }
    let stats = world.get("/v1/stats", WORKER).await.json();
    let counts = &stats["counts"];
    assert_eq!((&counts["claims"], &counts["served"]), (&json!(1), &json!(1)));
    assert_eq!((&counts["replayed"], &counts["savings"]), (&json!(2), &json!(2)));
    assert_eq!(counts["hit_rate"], json!(0.667));
    assert!(counts["solve_mean_ms"].is_u64() && counts["solve_p95_ms"].is_u64(), "{stats}");
    assert_eq!((&stats["by_kind"]["turnstile"], &stats["currency"]), (counts, &json!("USD")));
    assert!(stats["counts"]["cost"].is_string());
    let report = world.get("/v1/report", WORKER).await.json();
    assert_eq!(
        (&report["all"]["attempts"], &report["by_kind"]["turnstile"]["replayed"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(report["by_worker"]["one"], report["all"]);
    assert!(report["compare"].is_null(), "{report}");
    let compare = world.get("/v1/report?compare=true", WORKER).await.json()["compare"].clone();
    assert_eq!((&compare["requests"], &compare["direct_left_out"]), (&json!(3), &json!(0)));
    assert!(compare["direct"].is_string() && compare["less"].is_string(), "{compare}");
    assert!(world.get("/v1/balance", WORKER).await.json()["balance"].is_string());
    for odd in [
        "/v1/stats?date=yesterday",
        "/v1/report?from=2026-02-02&to=2026-02-01",
        "/v1/report?from=1990-01-01",
    ] {
        assert_eq!(world.get(odd, WORKER).await.status, 400, "{odd}");
    }
}

#[tokio::test]
async fn only_json_is_accepted() {
    let world = World::open().await;
    let form =
        request("POST", "/v1/solves", WORKER, &["Content-Type: text/plain"], &turnstile("a"));
    assert_eq!(world.send(&form).await.status, 415);
    let gzip = world.post("/v1/solves", WORKER, &["Content-Encoding: gzip"], "x").await;
    assert_eq!((gzip.status, gzip.text("code").as_str()), (415, "content_encoding"));
    let large = format!(r#"{{"kind":"turnstile","sitekey":"{}"}}"#, "a".repeat(300 * 1024));
    assert_eq!(world.post("/v1/solves", WORKER, &[], &large).await.status, 413);
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn an_image_is_a_claim_without_a_page() {
    let world = World::open().await;
    let image = "iVBORw0KGgoAAAANSUhEUgAA".repeat(12);
    let plain = format!(r#"{{"kind":"image","image":"{image}"}}"#);
    let uri = format!(r#"{{"kind":"image","image":"data:image/png;base64,{image}"}}"#);
    let first = world.post("/v1/solves", WORKER, &[WAIT], &plain).await;
    let second = world.post("/v1/solves", OTHER, &[WAIT], &uri).await;
    assert_eq!((first.status, second.status), (200, 200), "{first:?} {second:?}");
    assert_eq!(first.text("token"), second.text("token"));
    assert_ne!(second.text("source"), "upstream");
    assert_eq!(world.paid(), 1);
}

#[tokio::test]
async fn replaced_workers_are_refused_at_once() {
    let world = World::open().await;
    assert_eq!(world.get("/v1/active", WORKER).await.status, 200);
    world.doors.workers().replace(Vec::new(), || ()).unwrap();
    assert_eq!(world.get("/v1/active", WORKER).await.status, 401);
}

#[tokio::test]
async fn a_held_claim_wakes_up_when_its_token_lands() {
    let setting = Setting { solving: Duration::from_millis(400), ..Setting::default() };
    let world = World::with(setting).await;
    // Longer than the client timeout, so a reply proves that the wait ended early.
    let answers = join_all((0..20).map(|_| world.claim("0x4A", &["Prefer: wait=120"]))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(world.paid(), 1, "one worker, one set of parameters, one solve");
}
