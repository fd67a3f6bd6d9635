//! The gateway as a first-time user starts it: with the built-in simulator and without a configuration.

use std::{fs, path::Path};

use domain::{money::Money, secret::Secret};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;
use solvegate::client::{Call, Remote, Reply};

use crate::support::{Process, command, eventually};

const CLAIMS: usize = 8;
/// The simulator's balance at its first start, and its price of a Turnstile token, in millionths.
const START_BALANCE: i64 = 1_000_000_000;
const TURNSTILE: i64 = 1_450;

struct Demo {
    process: Process,
    base: String,
}

impl Demo {
    fn start(dir: &Path) -> Self {
        let process = Process::start(command(dir, &["serve", "--listen", "127.0.0.1:0"]));
        let base = process.line_after("is listening on ");
        Self { process, base }
    }

    fn remote(&self, key: &str) -> Remote {
        Remote::new(&self.base, Secret::new(key), None).unwrap()
    }
}

async fn claim(worker: &Remote, name: &str, wait: &str) -> Reply {
    let page = "https://shop.example.com/login";
    let body = json!({ "kind": "turnstile", "sitekey": "0x4AAA", "pageurl": page });
    let call = Call::post("/v1/solves", body).header("idempotency-key", name);
    worker.send(&call.header("prefer", wait)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_with_tasks_in_flight_the_demo_serves_all_of_them_and_pays_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(dir.path());
    let key = |role: &str| {
        let file = dir.path().join(format!("solvegate-data/{role}.key"));
        fs::read_to_string(file).unwrap().trim().to_owned()
    };
    let (worker_key, admin_key) = (key("worker"), key("admin"));
    let mut names = Vec::new();
    let worker = demo.remote(&worker_key);
    let admin = demo.remote(&admin_key);
    eventually("a task is with the provider", async || {
        // A task takes a second or two, so that on a slow machine the first ones may be over.
        let more: Vec<_> = (0..CLAIMS).map(|n| format!("order-{}-{n}", names.len())).collect();
        join_all(more.iter().map(|name| claim(&worker, name, "wait=0"))).await;
        names.extend(more);
        let active = admin.send(&Call::get("/v1/active")).await.ok()?;
        active.body.to_string().contains("submitted").then_some(())
    })
    .await;
    demo.process.signal(Signal::KILL);
    demo.process.wait();

    let demo = Demo::start(dir.path());
    let (worker, admin) = (demo.remote(&worker_key), demo.remote(&admin_key));
    let replies = join_all(names.iter().map(|name| claim(&worker, name, "wait=60"))).await;
    for reply in &replies {
        assert_eq!(reply.body["state"], "served", "{}", reply.body);
    }
    // The kill may hit a submission before its reply is written; that one is authorised again, and visible.
    let mut authorised = 0;
    for reply in &replies {
        let id = reply.body["id"].as_str().unwrap();
        let story = admin.send(&Call::get(format!("/v1/solves/{id}/explain"))).await.unwrap();
        authorised += story.body.to_string().matches("authorised").count();
    }
    let balance = admin.send(&Call::get("/v1/balance")).await.unwrap().body;
    let balance: Money = balance["balance"].as_str().unwrap().parse().unwrap();
    let charges = (START_BALANCE - balance.micros()) / TURNSTILE;
    let claims = i64::try_from(names.len()).unwrap();
    let most = claims + i64::try_from(authorised).unwrap();
    assert!((claims..=most).contains(&charges), "{charges} charges, {authorised} authorised");
}
