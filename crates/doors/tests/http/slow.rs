//! Clients that are slow, silent or too many.

use std::time::Duration;

use doors::Limits;
use futures_util::future::join_all;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    client::{PATIENCE, is_closed, read_answer},
    world::{Setting, WORKER, World, request, turnstile, until},
};

const SHORT: Duration = Duration::from_millis(300);

async fn world(limits: Limits) -> World {
    World::with(Setting { limits, ..Setting::default() }).await
}

#[tokio::test]
async fn a_slow_head_is_cut_off_and_others_are_served() {
    let world = world(Limits { head_timeout: SHORT, ..Limits::default() }).await;
    let slow = async |_| {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ").await.unwrap();
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            sleep(Duration::from_millis(50)).await;
            if stream.write_all(b"a").await.is_err() {
                return true;
            }
        }
        false
    };
    let all = join_all((0..50).map(slow));
    let (cut_off, answer) = tokio::join!(all, world.get("/healthz", ""));
    assert!(cut_off.into_iter().all(|cut_off| cut_off));
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let world = world(Limits { head_timeout: SHORT, ..Limits::default() }).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_a_while_and_a_held_one_for_as_long_as_it_is_held() {
    // Long enough for the next request to come in time, also on a busy machine.
    let idle = Duration::from_secs(2);
    let limits = Limits { idle_timeout: idle, head_timeout: idle, ..Limits::default() };
    let world = world(limits).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let wait = ["Content-Type: application/json", "Prefer: wait=5"];
    let held = request("POST", "/v1/solves", WORKER, &wait, &turnstile("never-ready-1"));
    stream.write_all(held.as_bytes()).await.unwrap();
    let began = Instant::now();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 202);
    assert!(began.elapsed() > idle * 2);
    stream.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 200, "still open");
    assert!(is_closed(&mut stream).await, "not open for ever");
}

#[tokio::test]
async fn a_missing_body_is_answered_and_the_connection_closed() {
    let world = world(Limits { body_timeout: SHORT, ..Limits::default() }).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST /v1/solves HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORKER}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 408);
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let world = world(Limits { write_timeout: SHORT, ..Limits::default() }).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let ask = request("GET", "/style.css", "", &[], "").repeat(100);
    let never_reads = async { while stream.write_all(ask.as_bytes()).await.is_ok() {} };
    timeout(PATIENCE, never_reads).await.expect("the connection is ended");
    assert_eq!(world.get("/healthz", "").await.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_limit_per_address_get_503() {
    let hour = Duration::from_secs(60 * 60);
    let limits = Limits { connections_per_address: 3, stranger_grace: hour, ..Limits::default() };
    let world = world(limits).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
        kept.push(stream);
    }
    let refused = world.get("/healthz", "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    kept.pop();
    until("a place becomes free", async || {
        (world.get("/healthz", "").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_gets_the_place_of_a_connection_without_a_key_but_not_of_one_with_a_key() {
    let limits =
        Limits { connections_per_address: 2, stranger_grace: Duration::ZERO, ..Limits::default() };
    let world = world(limits).await;
    let active = request("GET", "/v1/active", WORKER, &[], "");
    let mut kept = TcpStream::connect(world.address).await.unwrap();
    kept.write_all(active.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut kept).await.unwrap().status, 200);
    let mut strangers = Vec::new();
    for _ in 0..20 {
        strangers.push(TcpStream::connect(world.address).await.unwrap());
    }
    assert_eq!(world.get("/v1/active", WORKER).await.status, 200);
    for stranger in &mut strangers {
        assert!(is_closed(stranger).await);
    }
    kept.write_all(active.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut kept).await.unwrap().status, 200, "it kept its place");
}

#[tokio::test]
async fn a_client_that_disconnects_affects_no_other() {
    let world = World::open().await;
    for _ in 0..10 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let wait = ["Content-Type: application/json", "Prefer: wait=10", "Idempotency-Key: gone"];
        let held = request("POST", "/v1/solves", WORKER, &wait, &turnstile("0x4A"));
        stream.write_all(held.as_bytes()).await.unwrap();
        drop(stream);
    }
    let answer = world.claim("0x4A", &["Idempotency-Key: gone", "Prefer: wait=10"]).await;
    assert_eq!((answer.status, world.paid()), (200, 1));
}
