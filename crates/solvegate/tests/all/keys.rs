//! Keys and certificates change while the gateway runs.

use std::{fs, time::Duration};

use domain::{key::KeyDigest, secret::Secret};
use doors::SelfSigned;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Settings, Sim, WORKER, eventually, wall_clock, write_private};

const NEW: &str = "c7e10b5d94a82f36d0b9e1f7483a6c52";

async fn status(gateway: &Gateway, key: &str, path: &str) -> StatusCode {
    let remote = Remote::new(&gateway.base, Secret::new(key), None).unwrap();
    remote.send(&Call::get(path)).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_key_is_replaced_with_overlap_and_the_old_one_ends() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let statuses = async || {
        let path = "/v1/history";
        (status(&gateway, WORKER, path).await, status(&gateway, NEW, path).await)
    };
    assert_eq!(statuses().await, (StatusCode::OK, StatusCode::UNAUTHORIZED));
    let new = KeyDigest::of(NEW).unwrap().to_hex();
    let line = format!("key = \"{WORKER}\"");
    let keys = |until: &str| {
        format!("keys = [{{ sha256 = \"{new}\" }}, {{ key = \"{WORKER}\", until = \"{until}\" }}]")
    };
    gateway.reload(dir.path(), |text| text.replace(&line, &keys("2099-12-31"))).await;
    assert_eq!(statuses().await, (StatusCode::OK, StatusCode::OK), "both, for a while");
    let ended = |text: String| text.replace("2099-12-31", "2020-12-31");
    gateway.reload(dir.path(), ended).await;
    assert_eq!(statuses().await, (StatusCode::UNAUTHORIZED, StatusCode::OK));
    let log = gateway.process.stderr();
    let refused = log.lines().find(|line| line.contains("login failed, key has expired")).unwrap();
    assert!(refused.contains("\"owner\":\"one\"") && refused.contains("127.0.0.1"), "{refused}");
    assert!(!log.contains(WORKER) && !log.contains(NEW), "keys are not logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_account_is_replaced_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    write_private(&dir.path().join("sim.key"), NEW);
    let sim = Sim::start(dir.path(), &["--key", "file:sim.key"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let balance = async || gateway.send(&Call::get("/v1/balance")).await.status;
    assert_ne!(balance().await, StatusCode::OK, "the service does not know the old key");
    let account = "canary-provider-8901234567890123";
    gateway.reload(dir.path(), |text| text.replace(account, "file:sim.key")).await;
    assert_eq!(balance().await, StatusCode::OK);
    let log = gateway.process.stderr();
    assert!(
        log.contains("\"provider_key_changed\":true") && log.contains("\"needs_restart\":\"\"")
    );
    // The key of another service is not sent to this one.
    let elsewhere = format!("{}/other", sim.url);
    let moved = |text: String| {
        text.replace(&format!("url = \"{}\"", sim.url), &format!("url = \"{elsewhere}\""))
            .replace("file:sim.key", account)
    };
    gateway.reload(dir.path(), moved).await;
    assert_eq!(balance().await, StatusCode::OK);
    assert!(gateway.process.stderr().contains("\"needs_restart\":\"[upstream]\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_shown_after_a_reload_and_a_wrong_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let [first, second, third] =
        [(); 3].map(|()| SelfSigned::create(["127.0.0.1".to_owned()], wall_clock().day()).unwrap());
    let show = |certificate: &SelfSigned, key: &SelfSigned| {
        fs::write(path("tls.pem"), &certificate.certificate).unwrap();
        write_private(&path("tls.key"), key.key.expose());
    };
    show(&first, &first);
    fs::write(path("first.pem"), &first.certificate).unwrap();
    fs::write(path("second.pem"), &second.certificate).unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "2s"]);
    let more = "[tls]\ncert = \"tls.pem\"\nkey = \"tls.key\"".to_owned();
    let gateway = Gateway::with(dir.path(), &sim, &Settings { more, ..Settings::default() });
    let trusting =
        |file: &str| Remote::new(&gateway.base, Secret::new(WORKER), Some(&path(file))).unwrap();
    let works = async |file: &str| trusting(file).send(&Call::get("/v1/history")).await.is_ok();
    assert_eq!((works("first.pem").await, works("second.pem").await), (true, false));
    // A request under way goes on over its connection.
    let body =
        json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/" });
    let call =
        Call::post("/v1/solves", body).header("prefer", "wait=60").waiting(Duration::from_secs(60));
    let remote = trusting("first.pem");
    #[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
    let under_way = tokio::spawn(async move { remote.send(&call).await.unwrap().status });
    eventually("the claim", async || (sim.charges().await == 1).then_some(())).await;
    show(&second, &second);
    gateway.reload(dir.path(), |text| text).await;
    assert_eq!((works("first.pem").await, works("second.pem").await), (false, true));
    assert_eq!(under_way.await.unwrap(), StatusCode::OK);
    show(&third, &second);
    gateway.process.signal(Signal::HUP);
    eventually("the refusal", async || {
        gateway.process.stderr().contains("cannot be used with this key").then_some(())
    })
    .await;
    assert!(works("second.pem").await, "the certificate in use stays");
}
