//! Keys and certificates change while the gateway runs.

use std::{fs, path::Path};

use domain::{key::KeyDigest, secret::Secret};
use http::StatusCode;
use rustix::process::Signal;
use solvegate::client::{Call, Remote};

use crate::support::{Gateway, Sim, WORKER, eventually};

const NEW: &str = "c7e10b5d94a82f36d0b9e1f7483a6c52";

/// Rewrites the configuration and waits for the reload.
async fn reload(gateway: &Gateway, dir: &Path, change: impl Fn(String) -> String) {
    let file = dir.join("solvegate.toml");
    fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
    let reloads = || gateway.process.stderr().matches("configuration reloaded").count();
    let before = reloads();
    gateway.process.signal(Signal::HUP);
    eventually("the reload", async || (reloads() > before).then_some(())).await;
}

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
    reload(&gateway, dir.path(), |text| text.replace(&line, &keys("2099-12-31"))).await;
    assert_eq!(statuses().await, (StatusCode::OK, StatusCode::OK), "both, for a while");
    let ended = |text: String| text.replace("2099-12-31", "2020-12-31");
    reload(&gateway, dir.path(), ended).await;
    assert_eq!(statuses().await, (StatusCode::UNAUTHORIZED, StatusCode::OK));
    let log = gateway.process.stderr();
    let refused = log.lines().find(|line| line.contains("expired key refused")).unwrap();
    assert!(refused.contains("\"worker\":\"one\"") && refused.contains("127.0.0.1"), "{refused}");
    assert!(!log.contains(WORKER) && !log.contains(NEW), "keys are not logged");
}
