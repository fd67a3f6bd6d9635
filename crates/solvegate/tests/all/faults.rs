//! Failures of the provider over real HTTP: what is retried, what is not, and the costs.

use domain::secret::Secret;
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Settings, Sim, eventually};

fn on(host: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4AAA", "pageurl": format!("https://{host}/") })
}

fn has(story: &[Value], name: &str) -> bool {
    story.iter().any(|entry| entry["event"] == name)
}

fn count(story: &[Value], name: &str) -> usize {
    story.iter().filter(|entry| entry["event"] == name).count()
}

fn id(reply: &solvegate::client::Reply) -> String {
    reply.body["id"].as_str().unwrap_or_else(|| panic!("no id: {}", reply.body)).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_did_not_leave_is_repeated_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let nowhere = Sim::nowhere();
    let gateway = Gateway::start(dir.path(), &nowhere);
    let call = Call::post("/v1/solves", on("shop.example.com")).header("idempotency-key", "a");
    let claim = id(&gateway.send(&call).await);
    let story = eventually("the first attempt is recorded", async || {
        let story = gateway.story(&claim).await;
        has(&story, "not_accepted").then_some(story)
    })
    .await;
    assert!(!has(&story, "ambiguous"), "{story:?}");
    drop(gateway);
    // The provider is back: the same claim continues after a restart.
    let gateway = Gateway::start(dir.path(), &sim);
    let served = eventually("the token comes", async || {
        let reply = gateway.send(&Call::get(format!("/v1/solves/{claim}"))).await;
        (reply.status == StatusCode::OK).then_some(reply)
    })
    .await;
    assert_eq!((served.body["state"].as_str(), sim.charges().await), (Some("served"), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_leads_to_one_authorised_attempt_that_is_visible() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let days = gateway.days().await;
    let faults = [
        json!("drop"),
        json!({ "status": 502 }),
        json!("truncated"),
        json!("garbage"),
        json!("html"),
        json!("empty"),
    ];
    for (n, fault) in faults.iter().enumerate() {
        let before = sim.charges().await;
        sim.fault_submit(fault.clone(), true).await;
        let reply = gateway.solve(on("shop.example.com"), Some(&format!("fault-{n}"))).await;
        assert_eq!(reply.status, StatusCode::OK, "{fault}: {}", reply.body);
        let story = gateway.story(&id(&reply)).await;
        assert_eq!(
            (count(&story, "ambiguous"), count(&story, "authorised")),
            (1, 1),
            "{fault}: {story:?}"
        );
        assert_eq!(sim.charges().await - before, 2, "{fault}");
    }
    assert_eq!((days.sum("ambiguous").await, days.sum("authorised").await), (6, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_ambiguity_is_never_paid_for_twice_the_claim_fails_instead() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    sim.fault_submit(json!("drop"), true).await;
    let reply = gateway.solve(on("careful.example.com"), Some("careful")).await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.body);
    let story = gateway.story(&id(&reply)).await;
    assert!(has(&story, "written_off") && !has(&story, "authorised"), "{story:?}");
    assert_eq!(sim.charges().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poller_never_sees_a_fault_and_a_poll_fault_never_submits() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    for fault in [json!("drop"), json!({ "status": 502 }), json!("garbage"), json!("html")] {
        sim.fault(json!({ "on": "poll", "fault": fault })).await;
    }
    let key = crate::support::WORKER;
    let submit = format!(
        "/in.php?key={key}&method=turnstile&sitekey=0x4A&pageurl=https://shop.example.com/&json=1"
    );
    let claim = gateway.send(&Call::get(submit)).await.body["request"].as_str().unwrap().to_owned();
    let fetch = Call::get(format!("/res.php?key={key}&action=get&id={claim}&hold=0&json=1"));
    eventually("the token comes", async || {
        let reply = gateway.send(&fetch).await;
        assert_eq!(reply.status, StatusCode::OK);
        let said = reply.body["request"].as_str().unwrap().to_owned();
        assert!(!said.starts_with("ERROR"), "{said}");
        (said != "CAPCHA_NOT_READY").then_some(())
    })
    .await;
    assert_eq!(sim.ledger().await.received_submits, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_by_its_deadline_and_the_late_answer_is_banked() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "5s"]);
    let gateway =
        Gateway::with(dir.path(), &sim, &Settings { poll_ms: 500, ..Settings::default() });
    let mut body = on("shop.example.com");
    body["deadline_s"] = json!(2);
    let late = gateway.solve(body, Some("late")).await;
    assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT, "{}", late.body);
    let story = eventually("the answer is banked", async || {
        let story = gateway.story(&id(&late)).await;
        has(&story, "banked").then_some(story)
    })
    .await;
    assert!(has(&story, "overdue"), "{story:?}");
    let next = gateway.solve(on("shop.example.com"), Some("next")).await;
    assert_eq!((next.body["source"].as_str(), sim.charges().await), (Some("stock"), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_is_not_repeated_and_its_dead_letter_has_every_detail() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    sim.fault_submit(json!({ "code": "ERROR_WRONG_GOOGLEKEY" }), false).await;
    let reply = gateway.solve(on("shop.example.com"), Some("wrong")).await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.body);
    assert_eq!(sim.ledger().await.received_submits, 1);
    let dead_letters = gateway.send_as_admin(&Call::get("/v1/dead-letters")).await.body;
    let dead_letter = &dead_letters["items"][0];
    assert_eq!(dead_letter["code"], "ERROR_WRONG_GOOGLEKEY", "{dead_letters}");
    assert_eq!(dead_letter["cost"], "0", "{dead_letter}");
    assert_eq!(dead_letter["causes"][0]["code"], "ERROR_WRONG_GOOGLEKEY");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsolvable_challenge_opens_at_most_two_new_attempts_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "2s"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let mut body = on("shop.example.com");
    body["sitekey"] = json!("unsolvable-1");
    let claim = id(&gateway.send(&Call::post("/v1/solves", body)).await);
    // The gateway must have written down that the second attempt was accepted. Killed between the charge and that, it would
    // take the attempt for ambiguous and might pay for one more, as another test shows.
    eventually("the second attempt is written down as accepted", async || {
        let path = format!("/v1/solves/{claim}/explain");
        let story = gateway.send_as_admin(&Call::get(path)).await.body;
        let entries = story["entries"].as_array().expect("the claim's entries");
        let accepted = entries.iter().filter(|entry| entry["event"] == "accepted");
        (accepted.count() == 2).then_some(())
    })
    .await;
    drop(gateway);
    let gateway = Gateway::start(dir.path(), &sim);
    eventually("it is given up", async || {
        let reply = gateway.send(&Call::get(format!("/v1/solves/{claim}"))).await;
        (reply.status == StatusCode::BAD_GATEWAY).then_some(())
    })
    .await;
    assert_eq!(
        sim.charges().await,
        3,
        "the first and at most two new ones, counted across the restart"
    );
    let dead_letters = gateway.send_as_admin(&Call::get("/v1/dead-letters")).await.body;
    assert_eq!(dead_letters["items"][0]["attempts"], 3, "{dead_letters}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_in_trouble_kills_nothing_and_recovers_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    sim.fault_submit(json!({ "code": "ERROR_ZERO_BALANCE" }), false).await;
    let claim = id(&gateway.send(&Call::post("/v1/solves", on("shop.example.com"))).await);
    let open = Remote::new(&gateway.base, Secret::new("none"), None).unwrap();
    eventually("the breaker is open", async || {
        let ready = open.send(&Call::get("/readyz")).await.unwrap();
        assert_eq!(ready.status, StatusCode::OK, "claims are still admitted");
        (ready.body["state"] == "degraded").then_some(())
    })
    .await;
    let dead_letters = gateway.send_as_admin(&Call::get("/v1/dead-letters")).await.body;
    assert_eq!(dead_letters["items"], json!([]));
    // One probe per minute; the account is fine again, so the first probe succeeds.
    eventually("the claim is served", async || {
        let reply = gateway.send(&Call::get(format!("/v1/solves/{claim}"))).await;
        (reply.status == StatusCode::OK).then_some(())
    })
    .await;
    assert_eq!(sim.charges().await, 1);
}
