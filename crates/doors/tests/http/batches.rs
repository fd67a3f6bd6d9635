//! Batches on v1: lines in, answers out, in both directions at once.

use std::{convert::Infallible, time::Duration};

use domain::ports::{ClaimFilter, Scope};
use doors::Limits;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client::PATIENCE,
    tls::{connect, secure_world},
    world::{ADMIN, Setting, WORKER, World, request, until},
};

const NDJSON: &str = "Content-Type: application/x-ndjson";

/// A batch whose lines are sent one by one.
struct Batch {
    to: OwnedWriteHalf,
    from: BufReader<OwnedReadHalf>,
}

impl Batch {
    async fn open(world: &World) -> Self {
        let (from, mut to) = TcpStream::connect(world.address).await.unwrap().into_split();
        let headers = [NDJSON, "Transfer-Encoding: chunked"];
        let head = request("POST", "/v1/batches", WORKER, &headers, "");
        to.write_all(head.replace("Content-Length: 0\r\n", "").as_bytes()).await.unwrap();
        Self { to, from: BufReader::new(from) }
    }

    async fn send(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.to.write_all(chunk.as_bytes()).await.unwrap();
    }

    /// The end of the body.
    async fn end(&mut self) {
        self.to.write_all(b"0\r\n\r\n").await.unwrap();
    }

    /// The next answer; `None` at the end of all.
    async fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            let count = timeout(PATIENCE, self.from.read_line(&mut line)).await.expect("in time");
            if count.unwrap_or(0) == 0 || line == "0\r\n" {
                return None;
            }
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    async fn answers(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(answer) = self.answer().await {
            all.push(answer);
        }
        all.sort_by_key(|answer| answer["line"].as_u64());
        all
    }
}

fn line(id: &str, sitekey: &str) -> String {
    format!(
        "{{\"id\":\"{id}\",\"kind\":\"turnstile\",\"sitekey\":\"{sitekey}\",\"pageurl\":\"https://shop.example.com/\"}}\n"
    )
}

fn lines(count: usize) -> String {
    (1..=count).map(|n| line(&format!("order-{n}"), &format!("0x{n:03}"))).collect()
}

async fn run(world: &World, body: &str) -> Vec<Value> {
    let mut batch = Batch::open(world).await;
    batch.send(body).await;
    batch.end().await;
    batch.answers().await
}

fn text<'a>(answer: &'a Value, pointer: &str) -> &'a str {
    answer.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{answer}"))
}

async fn claims(world: &World) -> usize {
    let all = ClaimFilter::all(Scope::All, 1000);
    world.engine.records().history(all).await.unwrap().items.len()
}

#[tokio::test]
async fn a_batch_sent_again_is_answered_again_and_paid_once() {
    let world = World::open().await;
    let first = run(&world, &lines(20)).await;
    assert_eq!(first.len(), 20);
    for (n, answer) in (1..).zip(&first) {
        assert_eq!((&answer["line"], &answer["status"]), (&n.into(), &200.into()), "{answer}");
        assert_eq!(text(answer, "/id"), format!("order-{n}"));
        assert_eq!(text(answer, "/solve/source"), "upstream");
    }
    let again = run(&world, &lines(20)).await;
    let tokens = |answers: &[Value]| -> Vec<_> {
        answers.iter().map(|answer| text(answer, "/solve/token").to_owned()).collect()
    };
    assert_eq!(tokens(&again), tokens(&first));
    assert!(again.iter().all(|answer| text(answer, "/solve/source") == "replay"));
    assert_eq!(world.paid(), 20);
    let alone = world.claim("0x001", &["Idempotency-Key: order-1", "Prefer: wait=10"]).await;
    assert_eq!(alone.status, 422, "another page under the key of a line: {alone:?}");
}

#[tokio::test]
async fn a_line_that_cannot_be_used_gets_its_error_and_the_rest_goes_on() {
    let world = World::open().await;
    let long = "x".repeat(2 * 1024 * 1024);
    let kind = line("typo", "0x1").replace("turnstile", "turnstyle");
    let page = line("page", "0x1").replace("shop.example.com", "evil.test");
    let nameless = line("x", "0x1").replace("\"id\":\"x\",", "");
    let numbered = line("x", "0x2").replace("\"x\"", "17");
    let (used, twice) = (line("used", "0x3"), line("used", "0x4"));
    let body = format!("{{\n\n{kind}{page}{nameless}{long}\n[]\n{numbered}{used}");
    let answers = run(&world, &body).await;
    let brief: Vec<_> = answers
        .iter()
        .map(|answer| {
            let code = answer.pointer("/error/code").and_then(Value::as_str).unwrap_or("served");
            format!("{} {} {} {code}", answer["line"], answer["id"], answer["status"])
        })
        .collect();
    let expected = [
        "1 null 400 bad_json",
        "3 \"typo\" 400 unknown_kind",
        "4 \"page\" 403 site_not_declared",
        "5 null 400 missing_id",
        "6 null 413 body_too_large",
        "7 null 400 bad_json",
        "8 \"17\" 200 served",
        "9 \"used\" 200 served",
    ];
    assert_eq!(brief, expected);
    assert!(text(&answers[1], "/error/detail").contains("turnstile"), "{}", answers[1]);
    let mismatch = run(&world, &twice).await;
    assert_eq!(text(&mismatch[0], "/error/code"), "idempotency_key_reused");
    assert_eq!(world.paid(), 2);
}

#[tokio::test]
async fn answers_come_while_lines_are_still_sent() {
    let world = World::open().await;
    let mut batch = Batch::open(&world).await;
    for n in 1..=3 {
        let (begin, end) =
            (&line(&format!("order-{n}"), "0x1")[..20], &line(&format!("order-{n}"), "0x1")[20..]);
        batch.send(begin).await;
        batch.send(end).await;
        let answer = batch.answer().await.unwrap();
        assert_eq!((&answer["line"], &answer["status"]), (&n.into(), &200.into()), "{answer}");
    }
    batch.end().await;
    assert!(batch.answer().await.is_none());
}

#[tokio::test]
async fn a_full_window_stops_the_reading_until_an_answer_is_there() {
    let world = World::with(Setting { slots: 3, ..Setting::default() }).await;
    let mut batch = Batch::open(&world).await;
    let never: String =
        (0..50).map(|n| line(&format!("n{n}"), &format!("never-ready-{n}"))).collect();
    batch.send(&never).await;
    until("the window is full", async || (claims(&world).await == 6).then_some(())).await;
    // Nothing may follow, so there is nothing to wait for but a while.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(claims(&world).await, 6, "twice the slots");
    let id = {
        let page = world.engine.records().history(ClaimFilter::all(Scope::All, 1)).await.unwrap();
        page.items[0].id
    };
    world.delete(&format!("/v1/solves/{id}"), WORKER).await;
    assert_eq!(text(&batch.answer().await.unwrap(), "/error/code"), "withdrawn");
    until("the next line is read", async || (claims(&world).await == 7).then_some(())).await;
}

#[tokio::test]
async fn the_limit_on_waiting_solves_and_the_rate_make_a_batch_wait_and_refuse_none_of_it() {
    let slow = Setting { queue: Some(1), slots: 2, rate: Some("20/s"), ..Setting::default() };
    let world = World::with(slow).await;
    let answers = run(&world, &lines(30)).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer["status"] != 200).collect();
    assert!(answers.len() == 30 && refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn a_client_that_disappears_abandons_nothing_paid_for() {
    let world = World::open().await;
    let mut batch = Batch::open(&world).await;
    batch.send(&lines(20)).await;
    world.until_paid(1).await;
    drop(batch);
    let answers = run(&world, &lines(20)).await;
    assert_eq!(answers.len(), 20);
    assert!(answers.iter().all(|answer| answer["status"] == 200), "{answers:?}");
    assert_eq!(world.paid(), 20);
}

#[tokio::test]
async fn a_gateway_that_stops_answers_what_is_in_flight_and_reads_no_more() {
    let mut world = World::open().await;
    let mut batch = Batch::open(&world).await;
    batch.send(&line("never", "never-ready-1")).await;
    world.until_paid(1).await;
    let engine = world.engine.clone();
    world.begin_stop();
    engine.drain().await;
    batch.send(&line("late", "0x1")).await;
    let answers = batch.answers().await;
    let codes: Vec<_> = answers.iter().map(|answer| text(answer, "/error/code")).collect();
    assert_eq!(codes, ["draining", "draining"]);
    world.stopped().await;
}

#[tokio::test]
async fn only_a_worker_may_send_a_batch_and_only_lines_of_json() {
    let world = World::open().await;
    let send = async |key, content_type| {
        let request = request("POST", "/v1/batches", key, &[content_type], &lines(1));
        let answer = world.send(&request).await;
        (answer.status, answer.text("code"))
    };
    assert_eq!(send(ADMIN, NDJSON).await, (403, "workers_only".into()));
    assert_eq!(send("", NDJSON).await, (401, "unauthorized".into()));
    let json = "Content-Type: application/json";
    assert_eq!(send(WORKER, json).await, (415, "not_ndjson".into()));
    let id = world.post("/v1/solves", WORKER, &[], &lines(1)).await;
    assert_eq!((id.status, id.text("code")), (400, "bad_field".into()));
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn a_worker_whose_key_is_withdrawn_gets_nothing_more() {
    let world = World::open().await;
    let mut batch = Batch::open(&world).await;
    batch.send(&line("first", "0x1")).await;
    assert_eq!(batch.answer().await.unwrap()["status"], 200);
    world.doors.workers().replace(Vec::new(), || ()).unwrap();
    batch.send(&line("second", "0x2")).await;
    let refused = batch.answers().await;
    assert_eq!(text(&refused[0], "/error/code"), "unauthorized");
    assert_eq!(world.paid(), 1);
    let mut rest = Vec::new();
    batch.from.read_to_end(&mut rest).await.ok();
}

#[tokio::test]
async fn answers_may_take_longer_than_a_connection_may_rest() {
    let limits = Limits { idle_timeout: Duration::from_millis(200), ..Limits::default() };
    let slow = Setting { limits, solving: Duration::from_secs(2), ..Setting::default() };
    let world = World::with(slow).await;
    // The whole body is here at once, and then the connection is silent.
    let whole = request("POST", "/v1/batches", WORKER, &[NDJSON], &lines(3));
    let (from, mut to) = TcpStream::connect(world.address).await.unwrap().into_split();
    to.write_all(whole.as_bytes()).await.unwrap();
    let mut batch = Batch { to, from: BufReader::new(from) };
    let answers = batch.answers().await;
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer["status"] == 200), "{answers:?}");
}

#[tokio::test]
async fn a_batch_over_http_2_streams_in_both_directions() {
    let (world, made) = secure_world(Limits::default()).await;
    let io = TokioIo::new(connect(&world, &made, b"h2").await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let (to_body, of_body) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(of_body, |mut of_body| async {
        let text = of_body.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(text)), of_body))
    });
    let request = http::Request::post("https://localhost/v1/batches")
        .header("authorization", format!("Bearer {WORKER}"))
        .header("content-type", "application/x-ndjson")
        .body(StreamBody::new(Box::pin(body)))
        .unwrap();
    let mut answers = sender.send_request(request).await.unwrap().into_body();
    for n in 1..=3 {
        to_body.send(line(&format!("order-{n}"), "0x1").into()).await.unwrap();
        let frame = timeout(PATIENCE, answers.frame()).await.unwrap().unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&frame.into_data().unwrap()).unwrap();
        assert_eq!((&answer["line"], &answer["status"]), (&n.into(), &200.into()), "{answer}");
    }
    drop(to_body);
    while let Some(frame) = timeout(PATIENCE, answers.frame()).await.unwrap() {
        assert!(frame.unwrap().into_data().unwrap().is_empty(), "only the end is left");
    }
}
