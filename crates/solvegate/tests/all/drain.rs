//! SIGTERM under load loses nothing: callers get their answers, and queued claims wait on disk for the next start.

use std::time::Duration;

use domain::secret::Secret;
use futures_util::future::join_all;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Settings, Sim, eventually};

fn body() -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/" })
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_in_flight_get_their_tokens_and_new_claims_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Long enough to send further requests while they wait, also on a busy machine.
    let sim = Sim::start(dir.path(), &["--solve-time", "8s"]);
    let mut gateway = Gateway::start(dir.path(), &sim);
    let keys: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
    let callers = join_all(keys.iter().map(|key| gateway.solve(body(), Some(key))));
    let stop = async {
        eventually("all are submitted", async || (sim.charges().await == 100).then_some(())).await;
        gateway.process.signal(Signal::TERM);
        let anybody = Remote::new(&gateway.base, Secret::new("none"), None).unwrap();
        eventually("it is not ready", async || {
            let ready = anybody.send(&Call::get("/readyz")).await.unwrap().status;
            (ready == StatusCode::SERVICE_UNAVAILABLE).then_some(())
        })
        .await;
        // A reload is no second signal to stop.
        gateway.process.signal(Signal::HUP);
        gateway.solve(body(), Some("too late")).await
    };
    let (answers, late) = tokio::join!(callers, stop);
    assert!(
        answers.iter().all(|answer| answer.status == StatusCode::OK),
        "a caller lost its answer"
    );
    assert_eq!(
        (late.status, late.body["code"].as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, Some("draining"))
    );
    assert_eq!(gateway.process.wait().code(), Some(0));
    assert!(gateway.process.stderr().contains("ignoring a reload while draining"));
    assert_eq!(sim.charges().await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_solve_not_submitted_waits_for_the_next_start_and_is_paid_once() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "1s"]);
    let few = Settings { slots: "5", ..Settings::default() };
    let mut ids = Vec::new();
    for n in 0..3 {
        let mut gateway = Gateway::with(dir.path(), &sim, &few);
        let claims = (0..20).map(|m| {
            Call::post("/v1/solves", body()).header("idempotency-key", format!("{n}-{m}"))
        });
        for call in claims {
            ids.push(gateway.send(&call).await.body["id"].as_str().unwrap().to_owned());
        }
        gateway.process.signal(Signal::TERM);
        assert_eq!(gateway.process.wait().code(), Some(0));
    }
    let gateway = Gateway::start(dir.path(), &sim);
    for id in &ids {
        let call = Call::get(format!("/v1/solves/{id}?wait=30")).waiting(Duration::from_secs(30));
        assert_eq!(gateway.send(&call).await.status, StatusCode::OK);
    }
    assert_eq!(sim.charges().await, ids.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_swaps_sites_and_a_bad_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let page =
        json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://new.example.com/" });
    assert_eq!(gateway.solve(page.clone(), None).await.status, StatusCode::FORBIDDEN);
    let file = dir.path().join("solvegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n[[site]]\nhost = \"new.example.com\"\n")).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the refusal is logged", async || {
        gateway.process.stderr().contains("reload failed").then_some(())
    })
    .await;
    assert_eq!(gateway.solve(page.clone(), None).await.status, StatusCode::FORBIDDEN);
    let declared = format!(
        "deadline = \"99s\"\n{text}\n[[site]]\nhost = \"new.example.com\"\nbasis = \"own\"\n"
    );
    std::fs::write(&file, declared).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the reload is logged", async || {
        gateway.process.stderr().contains("\"message\":\"configuration reloaded\"").then_some(())
    })
    .await;
    assert!(
        gateway.process.stderr().contains("\"needs_restart\":\"deadline\""),
        "restart needed for deadline"
    );
    assert_eq!(gateway.solve(page, None).await.status, StatusCode::OK);
}
