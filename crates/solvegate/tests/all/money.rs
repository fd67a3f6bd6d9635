//! The money of the real binary: the books of a small day against the simulator's own ledger, the same in every view.

use domain::{challenge::Kind, money::Money};
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use solvegate::client::Call;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{ADMIN, Gateway, Settings, Sim, WORKER, eventually, run};

const PRICED: &str = "price_per_1000 = { turnstile = 1.45 }\ncurrency = \"USD\"\n";
const POOL: &str = "[[pool]]\nkind = \"turnstile\"\nsitekey = \"0x4POOL\"\n\
                    pageurl = \"https://shop.example.com/login\"\nlevel = 2\nproject = \"qa\"\n";
const FIGURES: [&str; 13] = [
    "claims",
    "served",
    "failed",
    "lapsed",
    "withdrawn",
    "waiting",
    "replayed",
    "joined",
    "stocked",
    "attempts",
    "savings",
    "wasted",
    "ambiguous",
];

fn turnstile(sitekey: &str) -> Value {
    json!({ "kind": "turnstile", "sitekey": sitekey, "pageurl": "https://shop.example.com/login" })
}

async fn read(gateway: &Gateway, path: &str) -> Value {
    let reply = gateway.send_as_admin(&Call::get(path)).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    reply.body
}

/// The page at `/`, as an admin sees it.
async fn status_page(gateway: &Gateway) -> String {
    let address = gateway.base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

fn micros(amount: &Value) -> i64 {
    let text = amount.as_str().unwrap_or_else(|| panic!("{amount} is not an amount"));
    Money::parse(text).unwrap().micros()
}

/// A day with all that can happen to money: a pool, savings, failures, unknown costs. Returns the claims it made.
async fn live_a_day(gateway: &Gateway) -> u64 {
    eventually("the pool is full", async || {
        let pools = read(gateway, "/v1/pools").await;
        (pools["items"][0]["stock"] == 2).then_some(())
    })
    .await;
    for key in ["stock-1", "stock-2"] {
        let served = gateway.solve(turnstile("0x4POOL"), Some(key)).await;
        assert_eq!(
            (&served.body["source"], &served.body["cost"]),
            (&json!("stock"), &json!("0.00145"))
        );
    }
    let keys = ["own-1", "own-2", "own-3"];
    join_all(keys.iter().map(|key| gateway.solve(turnstile("0x4A"), Some(key)))).await;
    // Two repeated requests, a failure of unknown cost, and an image without a price.
    for _ in 0..2 {
        assert_eq!(gateway.solve(turnstile("0x4A"), Some("own-1")).await.body["source"], "replay");
    }
    let failed = gateway.solve(turnstile("unsolvable-1"), Some("bad")).await;
    assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.body);
    let image = json!({ "kind": "image", "image": "iVBORw0KGgo=" });
    let solved = gateway.solve(image, Some("picture")).await;
    assert_eq!(solved.body["cost"], Value::Null, "nobody knows it");
    // Taken back after it is served and before it is fetched, and left to the next claim for nothing.
    let call = Call::post("/v1/solves", turnstile("0x4B")).header("idempotency-key", "left");
    let id = gateway.send(&call).await.body["id"].as_str().unwrap().to_owned();
    eventually("it is served", async || {
        let history = read(gateway, "/v1/history?sitekey=0x4B").await;
        (history["items"][0]["state"] == "served").then_some(())
    })
    .await;
    gateway.send(&Call::delete(format!("/v1/solves/{id}"))).await;
    let next = gateway.solve(turnstile("0x4B"), Some("found")).await;
    assert_eq!((&next.body["source"], &next.body["cost"]), (&json!("stock"), &json!("0")));
    9
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_a_day_agree_with_the_simulators_ledger_in_every_view() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let settings = Settings { upstream: PRICED.into(), more: POOL.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let claims = live_a_day(&gateway).await;
    // All tasks end: those of the pool's last refills, too.
    eventually("nothing is under way", async || {
        let active = read(&gateway, "/v1/active").await;
        active["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let report = read(&gateway, "/v1/report?compare=true").await;
    let all = &report["all"];
    let ended = ["served", "failed", "lapsed", "withdrawn"].map(|name| all[name].as_u64().unwrap());
    assert_eq!((all["claims"].as_u64().unwrap(), ended.iter().sum::<u64>()), (claims, claims));
    assert_eq!(all["savings"], 3, "two repeated requests and a token that was left over");
    assert_eq!(
        (&all["failed"], &all["replayed"], &all["waiting"]),
        (&json!(1), &json!(2), &json!(0))
    );

    // The provider's own ledger: what it was paid for answers of a known price, and how many others it charged for.
    let ledger = sim.ledger().await;
    let priced = ledger
        .accepted
        .iter()
        .filter(|task| task.kind == Kind::Turnstile && task.ready_at.is_some());
    let charged: i64 = priced.clone().map(|task| task.cost.micros()).sum();
    let unknown = ledger.accepted.len() - priced.count();
    assert_eq!(
        (micros(&all["paid"]), all["paid_unknown"].as_u64()),
        (charged, Some(unknown as u64))
    );
    assert_eq!(all["attempts"].as_u64(), Some(ledger.accepted.len() as u64));
    assert_eq!(report["compare"]["requests"].as_u64(), Some(claims + 2));
    assert_eq!(report["compare"]["direct_left_out"], 1, "the image");
    assert_eq!(report["compare"]["less"], Value::Null, "both sides leave something out");
    every_view_agrees(&gateway, &report).await;
    the_claims_cost_what_was_paid(&gateway, charged).await;
}

/// The groups of the report, the statistics and the status page say the same.
async fn every_view_agrees(gateway: &Gateway, report: &Value) {
    let all = &report["all"];
    for group in ["by_project", "by_kind", "by_worker"] {
        let rows = || report[group].as_object().unwrap().values();
        for name in FIGURES {
            let sum: u64 = rows().map(|row| row[name].as_u64().unwrap()).sum();
            assert_eq!(Some(sum), all[name].as_u64(), "{name} {group}");
        }
        let known = |row: &&Value| !row["paid"].is_null();
        let paid: i64 = rows().filter(known).map(|row| micros(&row["paid"])).sum();
        assert_eq!(paid, micros(&all["paid"]), "{group}");
    }
    let stats = read(gateway, "/v1/stats").await;
    if stats["date"] != report["to"] {
        // Midnight passed: the statistics are of another day.
        return;
    }
    for name in FIGURES {
        assert_eq!(stats["counts"][name], all[name], "{name}");
        let rows = stats["totals"].as_array().unwrap().iter();
        let sum: u64 = rows.map(|row| row["counts"][name].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), all[name].as_u64(), "{name}");
    }
    assert_eq!((&stats["counts"]["cost"], &stats["currency"]), (&all["paid"], &json!("USD")));
    assert!(stats["counts"]["solve_median_ms"].is_u64(), "{stats}");
    let page = status_page(gateway).await;
    let (paid, unknown) = (all["paid"].as_str().unwrap(), &all["paid_unknown"]);
    assert!(page.contains(&format!("{paid} USD, without {unknown} of ")), "{page}");
    assert!(page.contains(&format!("<dt>Served</dt><dd>{}</dd>", all["served"])), "{page}");
}

/// What the claims cost, and what the pool has in stock or wasted, is what was paid.
async fn the_claims_cost_what_was_paid(gateway: &Gateway, charged: i64) {
    let history = read(gateway, "/v1/history?limit=200").await;
    let claims = history["items"].as_array().unwrap().iter();
    let cost: i64 =
        claims.filter(|claim| !claim["cost"].is_null()).map(|claim| micros(&claim["cost"])).sum();
    let report = read(gateway, "/v1/report").await;
    let of_pool = micros(&report["by_worker"]["pool"]["paid"]);
    assert_eq!(cost + of_pool, charged, "{history}");
    let pools = read(gateway, "/v1/pools").await;
    let stock = pools["items"][0]["stock"].as_i64().unwrap();
    assert_eq!(of_pool, stock * 1_450, "the tokens that nobody has had yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_with_amounts_names_their_currency() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--solve-time", "300ms"]);
    let settings = Settings { upstream: PRICED.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let served = gateway.solve(turnstile("0x4A"), Some("good")).await;
    assert_eq!(served.body["currency"], "USD", "{}", served.body);
    let id = served.body["id"].as_str().unwrap();
    gateway.solve(turnstile("unsolvable-1"), Some("bad")).await;
    let letters = read(&gateway, "/v1/dead-letters").await;
    assert_eq!(letters["currency"], "USD", "{letters}");
    let letter = letters["items"][0]["id"].as_str().unwrap();
    let paths = [
        format!("/v1/solves/{id}"),
        format!("/v1/solves/{id}/explain"),
        format!("/v1/dead-letters/{letter}"),
        "/v1/history".into(),
        "/v1/workers".into(),
        "/v1/balance".into(),
        "/v1/pools".into(),
        "/v1/stats".into(),
        "/v1/report".into(),
        "/v1/reconcile".into(),
        "/v1/what-if".into(),
    ];
    for path in paths {
        assert_eq!(read(&gateway, &path).await["currency"], "USD", "{path}");
    }
    let environment = [("SOLVEGATE_SERVER", &*gateway.base), ("SOLVEGATE_KEY", ADMIN)];
    let commands = [
        "history",
        "dead-letters list",
        "dead-letters list --closed",
        &format!("dead-letters show {letter}"),
        &format!("explain {id}"),
        "reconcile",
        "what-if",
    ];
    for command in commands {
        let args: Vec<_> = command.split(' ').collect();
        let printed = run(dir.path(), &args, &environment).stdout;
        assert!(printed.contains("amounts in USD\n"), "{command}: {printed}");
    }
    let line = "{\"id\":\"b-1\",\"kind\":\"turnstile\",\"sitekey\":\"0x4A\",\
                \"pageurl\":\"https://shop.example.com/\"}\n";
    std::fs::write(dir.path().join("in.ndjson"), line).unwrap();
    let environment = [("SOLVEGATE_SERVER", &*gateway.base), ("SOLVEGATE_KEY", WORKER)];
    let batch = run(dir.path(), &["batch", "in.ndjson"], &environment);
    assert_eq!(batch.stderr, "1 served, 0 failed; cost 0.00145 USD\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unknown_is_a_dash_and_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    // Threads instead of prices, and a configuration without a plan.
    let sim = Sim::start(dir.path(), &["--captchaai", "--solve-time", "300ms"]);
    let gateway = Gateway::start(dir.path(), &sim);
    gateway.solve(turnstile("0x4A"), Some("k")).await;
    gateway.solve(turnstile("0x4A"), Some("k")).await;
    let report = read(&gateway, "/v1/report").await;
    let all = &report["all"];
    assert_eq!(
        (&all["paid"], &all["saved"], &all["saved_percent"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!((&all["paid_unknown"], &all["saved_unknown"]), (&json!(1), &json!(1)));
    assert_eq!(report["currency"], Value::Null);
    for command in ["stats", "report"] {
        let args = [command, "--server", &gateway.base, "--key", "env:ADMIN"];
        let printed = run(dir.path(), &args, &[("ADMIN", ADMIN)]).stdout;
        assert!(printed.contains("leaves out 1 of 1 attempts of unknown cost"), "{printed}");
        assert!(printed.contains('\u{2013}'), "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_plan_an_attempt_costs_the_time_of_its_thread() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &["--captchaai", "--solve-time", "300ms"]);
    // One unit of the currency for a second of a thread.
    let plan = "plan = { monthly = 2629800, threads = 1 }\nbudget = { cost_per_day = 1000 }\n";
    let settings = Settings { upstream: plan.into(), ..Settings::default() };
    let gateway = Gateway::with(dir.path(), &sim, &settings);
    let served = gateway.solve(turnstile("0x4A"), Some("k")).await;
    let cost = micros(&served.body["cost"]);
    assert!(cost >= 300_000, "{cost}");
    let balance = read(&gateway, "/v1/balance").await;
    let used = micros(&balance["budget"][0]["used"]);
    assert_eq!(used, cost, "the estimate was settled with the real time: {balance}");
    let report = read(&gateway, "/v1/report").await;
    assert_eq!((micros(&report["all"]["paid"]), &report["all"]["paid_unknown"]), (cost, &json!(0)));
}
