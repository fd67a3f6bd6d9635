//! The simulated provider over real loopback sockets: every action in both styles, every fault as a client
//! sees it. The client here is a bare socket, so that what is on the wire is what is checked.

#[path = "server/fixture.rs"]
mod fixture;

use std::{sync::Arc, time::Duration};

use domain::id::TaskId;
use fixture::{KEY, PATIENCE, ServerFixture};
use serde_json::{Value, json};
use simulator::{BehaviourConfig, Call, Fault, Sim, SimConfig, task_of};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const V2: &str = "method=userrecaptcha&googlekey=6Le-abc&pageurl=https://shop.example.com/login";
const TURNSTILE: &str = "method=turnstile&sitekey=0x4AAA&pageurl=https://shop.example.com/login";

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

fn task_name(text: &str) -> Option<TaskId> {
    TaskId::new(text).ok()
}

#[tokio::test]
async fn a_task_is_submitted_polled_and_solved_in_plain_text() {
    let fixture = ServerFixture::new().await;
    let task = fixture.task(TURNSTILE).await;
    let ask = format!("action=get&id={task}");
    assert_eq!(fixture.fetch(&ask).await, "CAPCHA_NOT_READY");
    fixture.advance(10);
    let answer = fixture.fetch(&ask).await;
    assert_eq!(task_of(answer.strip_prefix("OK|").unwrap()), task_name(&task));
    let priced = fixture.fetch(&format!("action=get2&id={task}")).await;
    assert_eq!(priced, format!("{answer}|0.00145"));
    assert_eq!(fixture.fetch("action=get&id=1").await, "ERROR_WRONG_CAPTCHA_ID");
}

#[tokio::test]
async fn a_task_is_submitted_polled_and_solved_in_json() {
    let fixture = ServerFixture::new().await;
    let submitted = json_of(&fixture.submit(&format!("{TURNSTILE}&json=1")).await);
    let task = submitted["request"].as_str().unwrap();
    assert_eq!(submitted["status"], 1);
    let ask = format!("json=1&action=get&id={task}");
    let waiting = json_of(&fixture.fetch(&ask).await);
    assert_eq!(waiting, json!({"status": 0, "request": "CAPCHA_NOT_READY"}));
    fixture.advance(10);
    let solved = json_of(&fixture.fetch(&ask).await);
    assert_eq!(task_of(solved["request"].as_str().unwrap()), task_name(task));
    assert!(solved["useragent"].is_string());
    let priced = json_of(&fixture.fetch(&format!("json=1&action=get2&id={task}")).await);
    assert_eq!(priced["price"], "0.00145");
}

#[tokio::test]
async fn the_account_answers_in_both_styles() {
    let fixture =
        ServerFixture::with(BehaviourConfig { threads: Some(5), ..BehaviourConfig::new(1) }).await;
    let (one, two) = (fixture.task(TURNSTILE).await, fixture.task(V2).await);
    assert_eq!(fixture.fetch("action=getbalance").await, "999.99755");
    let balance = json_of(&fixture.fetch("action=getbalance&json=1").await);
    assert_eq!(balance, json!({"status": 1, "request": "999.99755"}));
    fixture.advance(10);
    let many = fixture.fetch(&format!("action=get&ids={one},{two}")).await;
    let tasks: Vec<_> = many.trim_start_matches("OK|").split('|').map(task_of).collect();
    assert_eq!(tasks, [task_name(&one), task_name(&two)]);
    assert_eq!(fixture.fetch(&format!("action=reportgood&id={one}")).await, "OK_REPORT_RECORDED");
    let bad = json_of(&fixture.fetch(&format!("action=reportbad&json=1&id={two}")).await);
    assert_eq!(bad["request"], "OK_REPORT_RECORDED");
    let again = fixture.fetch(&format!("action=reportbad&id={two}")).await;
    assert_eq!(again, "ERROR_DUPLICATE_REPORT");
    assert_eq!(fixture.fetch("action=threadsinfo").await, "ERROR_EMPTY_ACTION");
    let reports = fixture.sim.account().ledger().reports;
    assert_eq!(reports.iter().map(|report| report.good).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn several_ids_are_one_question_where_they_are_known() {
    let fixture = ServerFixture::new().await;
    let (one, two) = (fixture.task(TURNSTILE).await, fixture.task(V2).await);
    let asked = format!("action=get&ids={one},{two}");
    assert_eq!(fixture.fetch(&asked).await, "CAPCHA_NOT_READY|CAPCHA_NOT_READY");
    let ledger = fixture.sim.account().ledger();
    assert_eq!((ledger.poll_calls, ledger.polls), (1, 2));
    let fixture =
        ServerFixture::with(BehaviourConfig { batch: false, ..BehaviourConfig::new(1) }).await;
    assert_eq!(fixture.fetch(&asked).await, "ERROR_WRONG_ID_FORMAT");
    let json = json_of(&fixture.fetch(&format!("{asked}&json=1")).await);
    assert_eq!(json, json!({"status": 0, "request": "ERROR_WRONG_ID_FORMAT"}));
}

#[tokio::test]
async fn captchaais_ways_are_spoken_when_asked_for() {
    let config = BehaviourConfig { captchaai: true, threads: Some(1), ..BehaviourConfig::new(1) };
    let fixture = ServerFixture::with(config).await;
    let enterprise = format!("{V2}&enterprise=1&json=1");
    let submitted = json_of(&fixture.submit(&enterprise).await);
    let task = submitted["request"].as_u64().expect("a number for reCAPTCHA");
    assert_eq!(fixture.submit(TURNSTILE).await, "ERROR_ZERO_BALANCE");
    let threads = json_of(&fixture.fetch("action=threadsinfo&json=1").await);
    assert_eq!((&threads["threads"], &threads["working_threads"]), (&json!("1"), &json!("1")));
    fixture.advance(10);
    let solved = json_of(&fixture.fetch(&format!("json=1&action=get&id={task}")).await);
    assert_eq!(task_of(solved["result"].as_str().unwrap()), task_name(&task.to_string()));
    assert!(solved["user_agent"].is_string());
    let turnstile = json_of(&fixture.submit(&format!("{TURNSTILE}&json=1")).await);
    assert!(turnstile["request"].is_string());
}

#[tokio::test]
async fn every_wire_form_is_read() {
    let fixture = ServerFixture::new().await;
    let form = format!("key={KEY}&{TURNSTILE}");
    let urlencoded = "POST /in.php HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    assert!(fixture.send(urlencoded, form.as_bytes()).await.text().starts_with("OK|"));
    let body = json!({"key": KEY, "method": "turnstile", "sitekey": "0x4AAA",
        "pageurl": "https://shop.example.com/login", "json": 1});
    let typed = "POST /in.php HTTP/1.1\r\nContent-Type: application/json";
    assert_eq!(fixture.send(typed, body.to_string().as_bytes()).await.json()["status"], 1);
    let picture = json!({"body": "cGljdHVyZSBieXRlcw=="}).to_string();
    let untyped =
        format!("POST /in.php?key={KEY}&method=base64 HTTP/1.1\r\nContent-Type: text/plain");
    assert!(fixture.send(&untyped, picture.as_bytes()).await.text().starts_with("OK|"));
    let part = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n\
                picture bytes\r\n--b--\r\n";
    let multipart = format!("{}{}{file}", part("key", KEY), part("method", "post"));
    let typed = "POST /in.php HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b";
    assert!(fixture.send(typed, multipart.as_bytes()).await.text().starts_with("OK|"));
    let ledger = fixture.sim.account().ledger();
    assert_eq!(ledger.accepted[0].fingerprint, ledger.accepted[1].fingerprint);
    assert_eq!(ledger.accepted[2].fingerprint, ledger.accepted[3].fingerprint);
    let balance = "POST /res.php HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let asked = fixture.send(balance, format!("key={KEY}&action=getbalance").as_bytes()).await;
    assert!(asked.text().starts_with("999."));
}

#[tokio::test]
async fn keys_and_ill_formed_submissions_are_refused_and_cost_nothing() {
    let config =
        BehaviourConfig { key: Some(domain::secret::Secret::new(KEY)), ..BehaviourConfig::new(1) };
    let fixture = ServerFixture::with(config).await;
    let other = "f".repeat(32);
    for (query, code) in [
        (format!("key=short&{V2}"), "ERROR_WRONG_USER_KEY"),
        (V2.to_owned(), "ERROR_WRONG_USER_KEY"),
        (format!("key={other}&{V2}"), "ERROR_KEY_DOES_NOT_EXIST"),
        (format!("key={KEY}&method=userrecaptcha&googlekey=6Le-abc"), "ERROR_PAGEURL"),
    ] {
        assert_eq!(fixture.get(&format!("/in.php?{query}")).await.text(), code);
    }
    let poll = fixture.get(&format!("/res.php?key={other}&action=get&id=1&json=1")).await;
    assert_eq!(poll.json(), json!({"status": 0, "request": "ERROR_KEY_DOES_NOT_EXIST"}));
    assert_eq!(fixture.paid(), 0);
    assert_eq!(fixture.get("/ledger/count").await.text(), "4");
}

#[tokio::test]
async fn other_sites_pages_may_read_a_reply_that_asks_for_it() {
    let fixture = ServerFixture::new().await;
    let open = fixture.get(&format!("/in.php?key={KEY}&{V2}&header_acao=1")).await;
    assert!(open.head.contains("access-control-allow-origin: *"), "{}", open.head);
    let closed = fixture.get(&format!("/res.php?key={KEY}&action=getbalance")).await;
    assert!(!closed.head.contains("access-control-allow-origin"));
}

#[tokio::test]
async fn a_dropped_submission_gets_no_byte_whether_accepted_or_not() {
    let fixture = ServerFixture::new().await;
    let path = format!("/in.php?key={KEY}&{V2}");
    for (fault, accepted, paid, received) in
        [(Fault::Unreachable, false, 0, 0), (Fault::Drop, false, 0, 1), (Fault::Drop, true, 1, 2)]
    {
        fixture.plan(Call::Submit, fault, accepted);
        assert!(fixture.get(&path).await.is_nothing());
        assert_eq!((fixture.paid(), fixture.sim.account().received_submits()), (paid, received));
    }
    assert_eq!(fixture.get(&path).await.status(), 200);
}

#[tokio::test]
async fn a_hanging_submission_is_not_answered() {
    let fixture = ServerFixture::new().await;
    for accepted in [false, true] {
        fixture.plan(Call::Submit, Fault::Hang, accepted);
        let path = format!("/in.php?key={KEY}&{V2}");
        let waited = timeout(Duration::from_millis(300), fixture.get(&path)).await;
        assert!(waited.is_err());
        assert_eq!(fixture.paid(), usize::from(accepted));
    }
    assert!(fixture.submit(V2).await.starts_with("OK|"));
}

#[tokio::test]
async fn statuses_and_pages_come_before_or_after_accepting() {
    let fixture = ServerFixture::new().await;
    let path = format!("/in.php?key={KEY}&{V2}");
    let mut paid = 0;
    for (fault, status) in
        [(Fault::Status(500), 500), (Fault::Status(502), 502), (Fault::Html, 200)]
    {
        for accepted in [false, true] {
            fixture.plan(Call::Submit, fault.clone(), accepted);
            let seen = fixture.get(&path).await;
            paid += usize::from(accepted);
            assert_eq!((seen.status(), fixture.paid()), (status, paid));
            assert!(seen.body.starts_with(b"<html>"));
        }
    }
    fixture.plan(Call::Submit, Fault::TooManyRequests { retry_after: Some(7) }, true);
    let seen = fixture.get(&path).await;
    assert_eq!((seen.status(), fixture.paid()), (429, paid));
    assert!(seen.head.contains("retry-after: 7"));
}

#[tokio::test]
async fn bodies_gone_wrong_are_wrong_in_the_way_asked_for() {
    let fixture = ServerFixture::new().await;
    let path = format!("/in.php?key={KEY}&{V2}");
    let planned = async |fault| {
        fixture.plan(Call::Submit, fault, true);
        fixture.get(&path).await
    };
    assert!(String::from_utf8(planned(Fault::Garbage).await.body).is_err());
    assert_eq!(planned(Fault::Empty).await.text(), "");
    assert_eq!(planned(Fault::NoId).await.text(), "OK|");
    assert_eq!(
        planned(Fault::code("ERROR_NO_SLOT_AVAILABLE")).await.text(),
        "ERROR_NO_SLOT_AVAILABLE"
    );
    let cut = planned(Fault::Truncated).await;
    let announced: usize = cut
        .head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .unwrap()
        .parse()
        .unwrap();
    assert!(cut.body.starts_with(b"OK|") && cut.body.len() < announced, "{cut:?}");
    assert_eq!(fixture.paid(), 4, "all but the refused one were accepted");
}

#[tokio::test]
async fn a_huge_reply_goes_on_for_megabytes() {
    let fixture = ServerFixture::new().await;
    fixture.plan(Call::Submit, Fault::Huge, true);
    let seen = fixture.get(&format!("/in.php?key={KEY}&{V2}")).await;
    assert!(seen.body.len() > 64 * 1024 * 1024);
}

#[tokio::test]
async fn a_trickled_reply_is_right_and_slow() {
    let fixture = ServerFixture::new().await;
    fixture.plan(Call::Submit, Fault::Trickle(400), true);
    let path = format!("/in.php?key={KEY}&{V2}");
    assert!(timeout(Duration::from_millis(200), fixture.get(&path)).await.is_err());
    fixture.plan(Call::Submit, Fault::Trickle(400), true);
    let seen = fixture.get(&path).await;
    let task = seen.text().strip_prefix("OK|").and_then(task_name);
    assert_eq!(task, fixture.sim.account().ledger().accepted.last().map(|last| last.task.clone()));
    assert_eq!(fixture.paid(), 2);
}

#[tokio::test]
async fn polls_go_wrong_too_and_the_answer_stays() {
    let fixture = ServerFixture::new().await;
    let task = fixture.task(V2).await;
    fixture.advance(10);
    let path = format!("/res.php?key={KEY}&action=get&id={task}");
    fixture.plan(Call::Poll, Fault::Drop, false);
    assert!(fixture.get(&path).await.is_nothing());
    fixture.plan(Call::Poll, Fault::Status(502), false);
    assert_eq!(fixture.get(&path).await.status(), 502);
    fixture.plan(Call::Poll, Fault::Html, false);
    assert!(fixture.get(&path).await.body.starts_with(b"<html>"));
    fixture.plan(Call::Poll, Fault::NeverReady, false);
    assert_eq!(fixture.get(&path).await.text(), "CAPCHA_NOT_READY");
    fixture.plan(Call::Poll, Fault::code("ERROR_INTERNAL_SERVER_ERROR"), false);
    assert_eq!(fixture.get(&path).await.text(), "ERROR_INTERNAL_SERVER_ERROR");
    fixture.plan(Call::Account, Fault::Status(500), false);
    assert!(fixture.get(&path).await.text().starts_with("OK|SIM."));
    assert_eq!(fixture.get(&format!("/res.php?key={KEY}&action=getbalance")).await.status(), 500);
}

#[tokio::test]
async fn unsolvable_and_never_ready_tasks_can_be_had_by_sitekey_or_fault() {
    let fixture = ServerFixture::new().await;
    let by_name = fixture.task(&TURNSTILE.replace("0x4", "unsolvable-0x4")).await;
    fixture.plan(Call::Submit, Fault::Unsolvable, false);
    let by_fault = fixture.task(TURNSTILE).await;
    let never = fixture.task(&TURNSTILE.replace("0x4", "never-ready-0x4")).await;
    fixture.advance(400);
    for task in [by_name, by_fault] {
        let told = fixture.fetch(&format!("action=get&id={task}")).await;
        assert_eq!(told, "ERROR_CAPTCHA_UNSOLVABLE");
    }
    assert_eq!(fixture.fetch(&format!("action=get&id={never}")).await, "CAPCHA_NOT_READY");
}

#[tokio::test]
async fn faults_are_planned_listed_and_cleared_over_http() {
    let fixture = ServerFixture::new().await;
    let plan = json!([
        {"on": "submit", "fault": "drop", "accepted": true},
        {"on": "poll", "fault": {"status": 502}, "rate": 1.0},
    ]);
    let listed = fixture.send("POST /faults HTTP/1.1", plan.to_string().as_bytes()).await;
    assert_eq!(listed.json().as_array().map(Vec::len), Some(2));
    assert!(fixture.get(&format!("/in.php?key={KEY}&{V2}")).await.is_nothing());
    let poll = format!("/res.php?key={KEY}&action=get&id=1");
    assert_eq!(fixture.get(&poll).await.status(), 502);
    assert_eq!(fixture.get("/faults").await.json()[0]["rate"], 1.0);
    assert_eq!(fixture.send("DELETE /faults HTTP/1.1", b"").await.json(), json!([]));
    assert_eq!(fixture.get(&poll).await.status(), 200);
    let refused = fixture.send("POST /faults HTTP/1.1", br#"{"on":"submit","fault":"dorp"}"#).await;
    assert_eq!(refused.status(), 400);
    assert!(String::from_utf8_lossy(&refused.body).contains("dorp"));
}

#[tokio::test]
async fn the_ledger_is_readable_and_survives_in_its_file() {
    let file = std::env::temp_dir().join(format!("simulator-ledger-{}.jsonl", std::process::id()));
    let behaviour = BehaviourConfig::new(1);
    let config = SimConfig { ledger_file: Some(file.clone()), ..SimConfig::new(behaviour) };
    let sim = Sim::start(config).await.unwrap();
    let fixture = ServerFixture { sim, clock: Arc::default() };
    let task = fixture.task(V2).await;
    fixture.plan(Call::Submit, Fault::Drop, true);
    fixture.get(&format!("/in.php?key={KEY}&{TURNSTILE}")).await;
    let ledger = fixture.get("/ledger").await.json();
    assert_eq!(ledger["received_submits"], 2);
    assert_eq!(ledger["charged"], "0.00245");
    assert_eq!(ledger["accepted"][0]["task"], json!(task));
    fixture.sim.stop().await;
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let kinds: Vec<Value> = lines.lines().map(|line| json_of(line)["kind"].clone()).collect();
    assert_eq!(kinds, ["recaptcha_v2", "turnstile"]);
}

#[tokio::test]
async fn nothing_is_left_running_when_the_handle_is_dropped() {
    let fixture = ServerFixture::new().await;
    let addr = fixture.sim.addr();
    fixture.plan(Call::Submit, Fault::Hang, true);
    let mut open = TcpStream::connect(addr).await.unwrap();
    open.write_all(format!("GET /in.php?key={KEY}&{V2} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let is_paid = async {
        while fixture.paid() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, is_paid).await.expect("the task is accepted");
    drop(fixture);
    let mut rest = Vec::new();
    drop(timeout(PATIENCE, open.read_to_end(&mut rest)).await.expect("the connection is closed"));
    assert!(rest.is_empty());
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn anything_else_is_not_found() {
    let fixture = ServerFixture::new().await;
    assert_eq!(fixture.get("/nothing").await.status(), 404);
    assert_eq!(fixture.send("PUT /faults HTTP/1.1", b"").await.status(), 404);
}
