//! `solvegate reconcile` on the real binary, against a simulator in a process of its own, whose ledger is the judge.

use std::{collections::BTreeSet, path::Path, time::Duration};

use domain::{
    id::TaskId,
    ledger::{Entry, Event},
    money::Money,
    time::Day,
};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::Ledger;
use solvegate::client::Call;

use crate::support::{Gateway, Settings, Sim, all_entries, eventually, pause, run, wall_clock};

const POOL: &str = "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4A-pool\"\n\
                    pageurl = \"https://shop.example.com/login\"\nlevel = 3\n";
const CLAIMS: usize = 40;

/// What the provider charges, and the same in the gateway's configuration.
struct Prices {
    provider: Value,
    configured: &'static str,
}

fn before() -> Prices {
    let provider = json!({ "turnstile": "0.00145", "recaptcha_v2": "0.001", "recaptcha_v2_enterprise": "0.003" });
    let configured =
        "price_per_1000 = { turnstile = 1.45, recaptcha_v2 = 1, recaptcha_v2_enterprise = 3 }";
    Prices { provider, configured }
}

fn after() -> Prices {
    let provider = json!({ "turnstile": "0.002", "recaptcha_v2": "0.0012", "recaptcha_v2_enterprise": "0.0025" });
    let configured =
        "price_per_1000 = { turnstile = 2, recaptcha_v2 = 1.2, recaptcha_v2_enterprise = 2.5 }";
    Prices { provider, configured }
}

fn settings(prices: &Prices, more: &str) -> Settings {
    Settings {
        top: "ambiguity_budget = 100000".into(),
        upstream: prices.configured.into(),
        more: more.into(),
        log: "error",
        ..Settings::default()
    }
}

fn claim(name: &str) -> Call {
    let number: usize = name.rsplit('-').next().unwrap().parse().unwrap();
    let (kind, params) = match number % 3 {
        0 => ("turnstile", json!({})),
        1 => ("recaptcha_v2", json!({})),
        _ => ("recaptcha_v2", json!({ "enterprise": "1" })),
    };
    let body = json!({ "kind": kind, "sitekey": name, "params": params, "deadline_s": 120,
                       "pageurl": "https://shop.example.com/" });
    Call::post("/v1/solves", body).header("idempotency-key", name)
}

/// Sends all claims and returns those without an answer.
async fn claim_all(gateway: &Gateway, names: Vec<String>) -> Vec<String> {
    let claims = names.into_iter().map(async |name| {
        let reply = gateway.try_send(&claim(&name)).await;
        reply.is_none_or(|reply| reply.status.is_server_error()).then_some(name)
    });
    join_all(claims).await.into_iter().flatten().collect()
}

async fn plan_chaos(sim: &Sim) {
    let rates = [
        json!({ "on": "submit", "fault": "drop", "accepted": true, "rate": 0.05 }),
        json!({ "on": "submit", "fault": "drop", "rate": 0.05 }),
        json!({ "on": "submit", "fault": "unsolvable", "rate": 0.08 }),
        json!({ "on": "submit", "fault": { "code": "ERROR_NO_SLOT_AVAILABLE" }, "rate": 0.05 }),
        json!({ "on": "poll", "fault": { "status": 502 }, "rate": 0.1 }),
        json!({ "on": "poll", "fault": "drop", "accepted": true, "rate": 0.05 }),
    ];
    for rate in rates {
        sim.fault(rate).await;
    }
}

/// Kills the gateway in the middle of its work, twice, and lets it finish.
async fn chaos(dir: &Path, sim: &Sim, prices: &Prices, part: usize) {
    sim.set_prices(prices.provider.clone()).await;
    plan_chaos(sim).await;
    let settings = settings(prices, POOL);
    let mut chance = fastrand::Rng::with_seed(part as u64);
    let mut unanswered = Vec::new();
    for round in 0..2 {
        let mut gateway = Gateway::with(dir, sim, &settings);
        let mut names: Vec<_> = (0..CLAIMS).map(|n| format!("c-{part}-{round}-{n}")).collect();
        names.append(&mut unanswered);
        let moment = Duration::from_millis(chance.u64(300..1_500));
        let kill = async {
            pause(moment).await;
            gateway.process.signal(Signal::KILL);
        };
        (unanswered, ()) = tokio::join!(claim_all(&gateway, names), kill);
        gateway.process.wait();
    }
    sim.heal().await;
    let mut gateway = Gateway::with(dir, sim, &settings);
    eventually("every claim is known", async || {
        unanswered = claim_all(&gateway, std::mem::take(&mut unanswered)).await;
        unanswered.is_empty().then_some(())
    })
    .await;
    eventually("every solve ends", async || {
        let active = gateway.send_as_admin(&Call::get("/v1/active?limit=1")).await.body;
        active["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().code(), Some(0));
}

/// The reconciliations of all days of the test, with the store that no gateway uses now, and the worst exit code.
fn reconcile(dir: &Path, first: Day) -> (Vec<Value>, i32) {
    let last = wall_clock().day();
    let days = (first.number()..=last.number()).map(Day::from_number);
    let runs = days.map(|day| {
        let output = run(dir, &["reconcile", "--json", "--day", &day.to_string()], &[]);
        let found = serde_json::from_str(&output.stdout);
        (found.unwrap_or_else(|_| panic!("{output:?}")), output.code.unwrap())
    });
    let (found, codes): (Vec<Value>, Vec<i32>) = runs.unzip();
    (found, codes.into_iter().max().unwrap())
}

fn money(value: &Value) -> Money {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{value} is no money"))
}

fn sum(found: &[Value], amount: impl Fn(&Value) -> Value) -> Money {
    found.iter().map(|day| money(&amount(day))).sum()
}

fn items(found: &[Value]) -> Vec<&Value> {
    found.iter().flat_map(|day| day["items"].as_array().unwrap()).collect()
}

/// A reading that is a few seconds old is not repeated, so this waits for another one.
async fn reconcile_anew(dir: &Path, first: Day, readings: u64) -> (Vec<Value>, i32) {
    eventually("a new reading", async || {
        let (found, code) = reconcile(dir, first);
        let count: u64 = found.iter().map(|day| day["readings"].as_u64().unwrap()).sum();
        (count > readings).then_some((found, code))
    })
    .await
}

async fn entries(dir: &Path) -> Vec<Entry> {
    let store = stores::open(&format!("embedded:{}", dir.join("data").display())).unwrap();
    all_entries(&*store.records).await
}

/// What the provider charged for tasks that the gateway's ledger does not have.
fn charged_unknown(entries: &[Entry], paid: &Ledger) -> (usize, Money) {
    let task = |entry: &Entry| {
        let (Event::Accepted { task, .. } | Event::Orphaned { task, .. }) = &entry.event else {
            return None;
        };
        Some(task.clone())
    };
    let known: BTreeSet<TaskId> = entries.iter().filter_map(task).collect();
    let unknown: Vec<_> = paid.accepted.iter().filter(|one| !known.contains(&one.task)).collect();
    (unknown.len(), unknown.iter().map(|one| one.cost).sum())
}

/// The first reading, of an account that nobody has used yet.
async fn first_reading(dir: &Path, sim: &Sim) {
    let mut gateway = Gateway::with(dir, sim, &settings(&before(), ""));
    eventually("the balance is read", async || {
        let found = gateway.send_as_admin(&Call::get("/v1/reconcile")).await.body;
        assert_eq!(found["verdict"], "cannot_be_judged", "{found}");
        (found["readings"] == 1).then_some(())
    })
    .await;
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_close_after_a_day_of_chaos_and_a_charge_behind_the_gateways_back_is_named() {
    let (dir, first) = (tempfile::tempdir().unwrap(), wall_clock().day());
    let dir = dir.path();
    let sim = Sim::start(dir, &["--solve-time", "400ms"]);
    first_reading(dir, &sim).await;
    chaos(dir, &sim, &before(), 1).await;
    chaos(dir, &sim, &after(), 2).await;

    let (found, code) = reconcile_anew(dir, first, 1).await;
    let (paid, entries) = (sim.ledger().await, entries(dir).await);
    assert_eq!(code, 0, "{found:#?}");
    let charged = sum(&found, |day| day["provider"]["charged"].clone());
    let settled = sum(&found, |day| day["ledger"]["cost"].clone());
    let (unknown, cost) = charged_unknown(&entries, &paid);
    assert_eq!(charged, paid.charged, "to the cent");
    assert_eq!(settled + cost, charged, "what the ledger lacks is {unknown} tasks for {cost}");
    let lost = |entry: &Entry| {
        let (Event::Authorised { attempt, .. } | Event::WrittenOff { attempt }) = entry.event
        else {
            return None;
        };
        Some((entry.solve?, attempt))
    };
    let lost = entries.iter().filter_map(lost);
    let listed: BTreeSet<_> = items(&found)
        .iter()
        .map(|one| (one["solve"].to_string(), one["attempt"].as_u64()))
        .collect();
    let orphaned = |entry: &Entry, lost: (domain::id::SolveId, u32)| matches!(entry.event, Event::Orphaned { attempt, .. } if (entry.solve, attempt) == (Some(lost.0), lost.1));
    for (solve, attempt) in lost.filter(|lost| !entries.iter().any(|entry| orphaned(entry, *lost)))
    {
        let name = (format!("\"{solve}\""), Some(u64::from(attempt)));
        assert!(listed.contains(&name), "{name:?} is not listed: {listed:?}");
    }
    assert!(unknown <= listed.len());
    eprintln!(
        "{} tasks, {charged} charged, {settled} settled, {unknown} unknown tasks for {cost}, {} uncertain attempts, {} refunded",
        paid.accepted.len(),
        listed.len(),
        paid.refunded
    );

    // 0.00299 is no sum of the prices of uncertain attempts.
    sim.buy("method=hcaptcha&sitekey=behind&pageurl=https://shop.example.com/").await;
    let readings = found.iter().map(|day| day["readings"].as_u64().unwrap()).sum();
    let (found, code) = reconcile_anew(dir, first, readings).await;
    assert_eq!(code, 1, "{found:#?}");
    let parts = found.iter().flat_map(|day| day["segments"].as_array().unwrap());
    let wrong: Vec<_> = parts.filter(|part| part["verdict"] == "does_not_add_up").collect();
    assert_eq!(wrong.len(), 1, "{found:#?}");
    let output = run(dir, &["reconcile"], &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("do not add up"), "{output:?}");
    let charged = sum(&found, |day| day["provider"]["charged"].clone());
    assert_eq!(charged, paid.charged + Money::from_micros(2_990));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_at_a_quiet_time_is_named_to_the_cent() {
    let (dir, first) = (tempfile::tempdir().unwrap(), wall_clock().day());
    let dir = dir.path();
    let sim = Sim::start(dir, &["--solve-time", "200ms"]);
    first_reading(dir, &sim).await;
    sim.buy("method=turnstile&sitekey=behind&pageurl=https://shop.example.com/").await;
    let (found, code) = reconcile_anew(dir, first, 1).await;
    assert_eq!(code, 1, "{found:#?}");
    assert_eq!(sum(&found, |day| day["unexplained"].clone()), Money::from_micros(1_450));
    let output = run(dir, &["reconcile"], &[]);
    assert!(output.stderr.contains("0.00145 is unexplained"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_if_shows_what_repeats_would_have_cost() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "200ms"]);
    let mut gateway = Gateway::with(dir.path(), &sim, &settings(&before(), ""));
    let body =
        json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/" });
    for _ in 0..4 {
        let reply = gateway.solve(body.clone(), Some("order-17")).await;
        assert!(reply.status.is_success(), "{}", reply.body);
    }
    // Two days, because midnight may pass.
    let path = "/v1/what-if?days=2&no_keys=true";
    let found = gateway.send_as_admin(&Call::get(path)).await.good().unwrap();
    let costs = ["actual", "estimate"]
        .map(|side| ["attempts", "repeats", "cost"].map(|name| found[side][name].clone()));
    assert_eq!(costs[0], [json!(1), json!(3), json!("0.00145")], "{found}");
    assert_eq!(costs[1], [json!(4), json!(3), json!("0.0058")], "{found}");
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().code(), Some(0));

    let output = run(dir.path(), &["what-if", "--days", "2", "--json"], &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let mut found: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(found["actual"]["polls"].take().as_u64().unwrap() > 0);
    assert_eq!(found["actual"], found["estimate"], "nothing changed");
    let output = run(dir.path(), &["what-if", "--days", "2", "--no-keys"], &[]);
    assert!(output.stdout.contains("3 solves more, 0 fewer"), "{output:?}");
    assert!(output.stdout.contains("assumptions:"), "{output:?}");
    // Nothing came from a pool or was reused, so these change nothing; a negative one is refused.
    let output = run(dir.path(), &["what-if", "--days", "2", "--no-pools"], &[]);
    assert!(output.stdout.contains("0 solves more, 0 fewer"), "{output:?}");
    let never = ["what-if", "--days", "2", "--reuse-window", "0s", "--json"];
    let output = run(dir.path(), &never, &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(found["settings"]["reuse_window_ms"], 0, "{found}");
}

/// What attempts cost under a plan is the time of a thread, and no charge.
#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_an_account_that_pays_for_threads_are_not_called_wrong() {
    let (dir, first) = (tempfile::tempdir().unwrap(), wall_clock().day());
    let dir = dir.path();
    let sim = Sim::start(dir, &["--captchaai", "--solve-time", "200ms"]);
    let upstream = "plan = { monthly = 50000, threads = 1 }".into();
    let settings = Settings { upstream, log: "error", ..Settings::default() };
    let mut gateway = Gateway::with(dir, &sim, &settings);
    eventually("the balance is read", async || {
        let found = gateway.send_as_admin(&Call::get("/v1/reconcile")).await.body;
        (found["readings"] == 1).then_some(())
    })
    .await;
    let body =
        json!({ "kind": "turnstile", "sitekey": "0x4A", "pageurl": "https://shop.example.com/" });
    let reply = gateway.solve(body, None).await;
    assert!(reply.status.is_success(), "{}", reply.body);
    gateway.process.signal(Signal::TERM);
    assert_eq!(gateway.process.wait().code(), Some(0));

    let (found, code) = reconcile_anew(dir, first, 1).await;
    assert_eq!(code, 6, "{found:#?}");
    let compared = found.iter().find(|day| !day["segments"].as_array().unwrap().is_empty());
    let day = compared.expect("two readings are compared");
    assert_eq!(day["verdict"], "cannot_be_judged", "{day:#}");
    assert!(money(&day["ledger"]["cost"]) > Money::ZERO, "{day:#}");
    assert_eq!(money(&day["provider"]["charged"]), Money::ZERO);
    assert_eq!(day["unexplained"], Value::Null);
    let output = run(dir, &["reconcile"], &[]);
    let why = "cannot be judged: the account pays for threads (`plan`)";
    assert!(output.stderr.contains(why), "{output:?}");
}

#[test]
fn without_the_providers_balance_nothing_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Sim::nowhere();
    crate::support::write_private(
        &dir.path().join("solvegate.toml"),
        &Settings::default().file(&nowhere),
    );
    let output = run(dir.path(), &["reconcile"], &[]);
    assert_eq!(output.code, Some(6), "{output:?}");
    assert!(output.stdout.contains("cannot be judged"), "{output:?}");
    assert!(output.stderr.contains("could not be read now"), "{output:?}");
}
