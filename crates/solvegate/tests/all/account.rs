//! Trouble with the account loses nothing: paid tasks are fetched while submissions are paused, and what lapses unpaid is
//! revived afterwards. A token that nobody fetched is no served claim.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Gateway, Settings, Sim, eventually, run};

const KEY_REFUSED: &str = "ERROR_KEY_DOES_NOT_EXIST";

fn body(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/" })
}

fn refusing(on: &str, code: &str) -> Value {
    json!({ "on": on, "fault": { "code": code }, "rate": 1.0 })
}

async fn history(gateway: &Gateway, state: &str) -> Vec<Value> {
    let page =
        gateway.send_as_admin(&Call::get(format!("/v1/history?limit=200&state={state}"))).await;
    page.body["items"].as_array().unwrap_or_else(|| panic!("{}", page.body)).clone()
}

/// Claims with a deadline of four seconds that the gateway cannot submit.
async fn lapse(gateway: &Gateway, keys: &[String]) {
    let claim = |key: &String| {
        let mut body = body("0x4A");
        body["deadline_s"] = json!(4);
        Call::post("/v1/solves", body).header("idempotency-key", key)
    };
    for call in keys.iter().map(claim) {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.body);
    }
    eventually("all have lapsed", async || {
        (history(gateway, "lapsed").await.len() == keys.len()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_empty_for_longer_than_the_deadline_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    sim.fault(refusing("submit", "ERROR_ZERO_BALANCE")).await;
    sim.fault(refusing("account", "ERROR_ZERO_BALANCE")).await;
    let keys: Vec<String> = (0..12).map(|n| format!("order-{n}")).collect();
    lapse(&gateway, &keys).await;
    for claim in history(&gateway, "lapsed").await {
        assert_eq!((&claim["code"], &claim["cost"]), (&json!("ERROR_ZERO_BALANCE"), &json!("0")));
    }
    let command = |args: &str| {
        let environment = [("SOLVEGATE_SERVER", &*gateway.base), ("SOLVEGATE_KEY", ADMIN)];
        let mut all = vec!["dead-letters"];
        all.extend(args.split_whitespace());
        let output = run(dir.path(), &all, &environment);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let open = |filters: &str| -> usize {
        let page: Value =
            serde_json::from_str(&command(&format!("list --json {filters}"))).unwrap();
        page["items"].as_array().unwrap().len()
    };
    assert_eq!((open("--class lapsed"), open("--class failed")), (12, 0));
    assert!(command("list").contains("lapsed"), "the table has the class");
    let page = gateway.send_as_admin(&Call::get("/readyz")).await;
    let troubles = page.body["troubles"].to_string();
    assert!(troubles.contains("ERROR_ZERO_BALANCE: submissions paused"), "{troubles}");
    assert!(!troubles.contains("polling"), "{troubles}");
    assert_eq!(sim.charges().await, 0);

    sim.clear_faults().await;
    let revived = command("revive --class lapsed --rate 1000/s");
    assert!(revived.contains("12 opened"), "{revived}");
    let served = join_all(keys.iter().map(|key| async {
        eventually("it is served", async || {
            let reply = gateway.solve(body("0x4A"), Some(key)).await;
            (reply.status == StatusCode::OK).then_some(reply.body["token"].to_string())
        })
        .await
    }))
    .await;
    let tokens: std::collections::BTreeSet<_> = served.iter().collect();
    assert_eq!((tokens.len(), sim.charges().await), (12, 12), "each is served, and paid for once");
    assert_eq!(open(""), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paid_task_is_fetched_while_a_refused_key_pauses_submissions() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "3s"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let paid = gateway.send(&Call::post("/v1/solves", body("0xpaid"))).await;
    assert_eq!(paid.status, StatusCode::ACCEPTED);
    eventually("it is paid for", async || (sim.charges().await == 1).then_some(())).await;
    sim.fault(refusing("submit", KEY_REFUSED)).await;
    gateway.send(&Call::post("/v1/solves", body("0xrefused"))).await;
    eventually("submissions are paused", async || {
        gateway
            .process
            .stderr()
            .contains("circuit breaker opened, submissions paused")
            .then_some(())
    })
    .await;
    let path = format!("/v1/solves/{}?wait=30", paid.body["id"].as_str().unwrap());
    let got = gateway.send(&Call::get(path).waiting(Duration::from_secs(30))).await;
    assert_eq!((got.status, &got.body["state"]), (StatusCode::OK, &json!("served")));
    let ready = gateway.send_as_admin(&Call::get("/readyz")).await;
    let troubles = ready.body["troubles"].to_string();
    let expected = format!("account trouble {KEY_REFUSED}: submissions paused");
    assert!(troubles.contains(&expected), "still: {troubles}");
    let doctor =
        run(dir.path(), &["doctor", "--listen", &gateway.base["http://".len()..]], &[]).stdout;
    let expected = "submissions are paused because of the account; paid tasks are polled on";
    assert!(doctor.contains(expected), "{doctor}");
    let log = gateway.process.stderr();
    assert!(log.contains(KEY_REFUSED) && !log.contains("polling paused"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_claim_that_nobody_fetched_is_lapsed_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let lifetime = "[tokens.turnstile]\nlifetime = \"15s\"\nmargin = \"1s\"".to_owned();
    let gateway =
        Gateway::with(dir.path(), &sim, &Settings { more: lifetime, ..Settings::default() });
    let mut ids = Vec::new();
    for n in 0..3 {
        let reply = gateway.send(&Call::post("/v1/solves", body(&format!("0x{n}")))).await;
        ids.push(reply.body["id"].as_str().unwrap().to_owned());
    }
    eventually("one is served", async || {
        let path = format!("/v1/solves/{}?wait=5", ids[0]);
        let reply = gateway.send(&Call::get(path).waiting(Duration::from_secs(5))).await;
        (reply.status == StatusCode::OK).then_some(())
    })
    .await;
    eventually("the others have lapsed", async || {
        (history(&gateway, "lapsed").await.len() == 2).then_some(())
    })
    .await;
    let served = history(&gateway, "served").await;
    assert!(served.len() == 1 && served[0]["delivered_at"].is_string(), "{served:?}");
    for (n, id) in ids.iter().enumerate() {
        let reply = gateway.send(&Call::get(format!("/v1/solves/{id}"))).await;
        assert_eq!(
            (reply.status, &reply.body["code"]),
            (StatusCode::GONE, &json!("token_expired"))
        );
        let state = if n == 0 { "served" } else { "lapsed" };
        assert_eq!(reply.body["state"], state, "{}", reply.body);
    }
    for claim in history(&gateway, "lapsed").await {
        assert_eq!(
            (&claim["code"], &claim["delivered_at"]),
            (&json!("TOKEN_EXPIRED"), &Value::Null)
        );
    }
    let letters = gateway.send_as_admin(&Call::get("/v1/dead-letters?closed=true")).await;
    assert_eq!(letters.body["items"], json!([]), "they were paid for");
}
