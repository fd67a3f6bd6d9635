//! Pools and pingbacks of the real binary, with the simulator as a separate process.

use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use solvegate::client::Call;

use crate::support::{ADMIN, Forward, Gateway, Settings, Sim, WORKER, eventually, run};

fn body() -> Value {
    json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/login" })
}

/// The `[[pool]]` section for it.
const POOL: &str = "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4A\"\n\
                    pageurl = \"https://shop.example.com/login\"\nlevel = 3\nproject = \"qa\"\n";

async fn the_pool(gateway: &Gateway) -> Value {
    let reply = gateway.send_as_admin(&Call::get("/v1/pools")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    reply.body["items"][0].clone()
}

fn kill(gateway: &mut Gateway) {
    gateway.process.signal(Signal::KILL);
    gateway.process.wait();
}

async fn until_stock(gateway: &Gateway, stock: u64, ordered: u64) -> Value {
    eventually("the pool is full", async || {
        let pool = the_pool(gateway).await;
        (pool["stock"] == stock && pool["ordered"] == ordered).then_some(pool)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn refills_under_way_are_called_that_and_pools_list_is_pools() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    // They are never answered, so they stay under way.
    sim.fault(json!({ "on": "submit", "fault": "never_ready", "times": 100 })).await;
    let settings = Settings { more: POOL.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let stages = eventually("three refills are paid", async || {
        let active = gateway.send_as_admin(&Call::get("/v1/active")).await.body;
        let items = active["items"].as_array().unwrap();
        let stages: Vec<_> = items.iter().map(|item| item["stage"].clone()).collect();
        let is_paid = items
            .iter()
            .all(|item| !["queued", "intent"].map(Value::from).contains(&item["stage"]));
        (items.len() == 3 && is_paid).then_some(stages)
    })
    .await;
    assert_eq!(stages, vec![json!("refill"); 3]);
    let environment = [("SOLVEGATE_SERVER", &*gateway.base), ("SOLVEGATE_KEY", ADMIN)];
    let [short, long] =
        [&["pools"][..], &["pools", "list"]].map(|args| run(dir.path(), args, &environment));
    assert!(short.stdout.contains("https://shop.example.com/login"), "{}", short.stderr);
    assert_eq!((long.code, long.stdout), (Some(0), short.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_pool_fills_up_serves_at_once_and_ends_with_its_declaration() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let settings = Settings { more: POOL.into(), ..Settings::default() };
    let mut gateway = Gateway::with(dir.path(), &sim, &settings);
    let pool = until_stock(&gateway, 3, 3).await;
    assert_eq!((&pool["why"], &pool["declared"]), (&json!("the level is fixed"), &json!(true)));
    assert_eq!(sim.charges().await, 3, "as many as were ordered");

    // The token is in the answer to a claim that does not wait.
    let at_once = Call::post("/v1/solves", body()).header("idempotency-key", "first");
    let served = gateway.send(&at_once).await;
    assert_eq!((served.status, &served.body["source"]), (StatusCode::OK, &json!("stock")));
    let pool = until_stock(&gateway, 3, 4).await;
    assert_eq!((&pool["hits"], &pool["served"]), (&json!(1), &json!(1)));
    assert_eq!(sim.charges().await, 4, "as many as were ordered");

    kill(&mut gateway);
    gateway = Gateway::with(dir.path(), &sim, &settings);
    let again = gateway.solve(body(), Some("first")).await;
    assert_eq!(again.body["token"], served.body["token"], "the retry gets the same token");
    let second = gateway.solve(body(), Some("second")).await;
    assert_eq!(second.body["source"], "stock", "stock and pool outlive the process");
    assert_ne!(second.body["token"], served.body["token"]);
    until_stock(&gateway, 3, 5).await;

    kill(&mut gateway);
    gateway = Gateway::with(dir.path(), &sim, &Settings::default());
    eventually("the pool is closed", async || the_pool(&gateway).await.is_null().then_some(()))
        .await;
    assert_eq!(sim.charges().await, 5);
}

/// A process for a single claim neither orders for a pool nor discards what it has learned.
#[tokio::test(flavor = "multi_thread")]
async fn a_solve_without_a_gateway_leaves_pools_alone() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "2500ms"]);
    let settings = Settings { more: POOL.into(), ..Settings::default() };
    let mut gateway = Gateway::with(dir.path(), &sim, &settings);
    until_stock(&gateway, 3, 3).await;
    kill(&mut gateway);
    let page = "https://shop.example.com/login";
    for sitekey in ["0x4A", "other"] {
        let args = ["solve", "--kind", "turnstile", "--sitekey", sitekey, "--pageurl", page];
        let output = run(dir.path(), &args, &[]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }
    assert_eq!(sim.charges().await, 4, "the pool is short of one; only the other claim was paid");
    gateway = Gateway::with(dir.path(), &sim, &settings);
    let pool = until_stock(&gateway, 3, 4).await;
    assert_eq!((&pool["hits"], &pool["served"]), (&json!(1), &json!(1)));
}

/// A reload reports what needs a restart, and nothing is ordered for a page that is no longer declared.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_says_that_pools_need_a_restart_and_an_undeclared_page_is_not_bought_for() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let settings = Settings { more: POOL.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    until_stock(&gateway, 3, 3).await;
    let file = dir.path().join("solvegate.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace(POOL, "");
    std::fs::write(&file, text.replace("shop.example.com", "other.example.com")).unwrap();
    gateway.process.signal(Signal::HUP);
    eventually("the reload is logged", async || {
        gateway.process.stderr().contains("\"needs_restart\":\"[[pool]]\"").then_some(())
    })
    .await;
    let pool = eventually("the pool is reported", async || {
        let pool = the_pool(&gateway).await;
        (pool["target"] == 0).then_some(pool)
    })
    .await;
    assert_eq!((&pool["why"], &pool["ordered"]), (&json!("the page is not declared"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_opened_shown_announced_to_and_closed_from_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    let pools = |args: &str| {
        let whom = format!("--server {} --key env:ADMIN", gateway.base);
        let all = format!("pools {args} {whom}");
        let args: Vec<_> = all.split_whitespace().collect();
        let output = run(dir.path(), &args, &[("ADMIN", ADMIN)]);
        (output.code, output.stdout + &output.stderr)
    };
    assert_eq!(pools(""), (Some(0), "none\n".into()));
    let challenge = "--kind turnstile --sitekey 0x4A --pageurl https://shop.example.com/login";
    let (code, shown) = pools(&format!("set {challenge} --level auto --max 8"));
    assert!(code == Some(0) && shown.contains("nothing is asked for"), "{shown}");
    let id = the_pool(&gateway).await["id"].as_str().unwrap().to_owned();
    let (code, shown) = pools(&format!("expect {id} --count 4 --in 1s --json"));
    let report: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{shown}"));
    assert_eq!((code, &report["expected"][0]["count"]), (Some(0), &json!(4)));
    until_stock(&gateway, 4, 4).await;
    let (_, shown) = pools("");
    assert!(shown.contains(&id) && shown.contains("4 (demand was announced)"), "{shown}");
    assert_eq!(pools(&format!("close {id}")), (Some(0), format!("closed: {id}\n")));
    assert_eq!(pools(&format!("close {id}")).0, Some(1));
    assert_eq!(pools(&format!("expect {id} --count 4")).0, Some(2), "when?");
    assert_eq!(pools(&format!("set {challenge} --level 9 --max 8")).0, Some(2));
    assert_eq!(
        pools("set --kind turnstile --sitekey x --pageurl https://evil.example/").0,
        Some(4)
    );
    let args = ["pools", "--server", &gateway.base];
    let worker = run(dir.path(), &args, &[("SOLVEGATE_KEY", WORKER)]);
    assert_eq!(worker.code, Some(4), "{}", worker.stderr);
    let stocked = gateway.solve(body(), None).await;
    assert_eq!(stocked.body["source"], "stock", "the tokens of a closed pool serve any claim");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pingback_makes_polls_unnecessary() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "500ms"]);
    let called = Forward::open().await;
    let settings = Settings {
        upstream: format!("pingback_url = \"{}\"", called.url()),
        // The first poll is due after the client's timeout, so an answer proves that the pingback triggered it.
        poll_ms: 120_000,
        ..Settings::default()
    };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let _passing = called.to(gateway.base.strip_prefix("http://").unwrap());
    let served = gateway.solve(body(), None).await;
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    let ledger = sim.ledger().await;
    assert_eq!((ledger.accepted.len(), ledger.polls), (1, 1), "one poll, to confirm");
    eventually("the call was taken", async || {
        (sim.ledger().await.pingbacks.len() == 1).then_some(())
    })
    .await;
    assert!(dir.path().join("data/pingback.secret").exists());
    assert!(!gateway.process.stderr().contains("/-/pingback/s"), "addresses are not logged");
}
