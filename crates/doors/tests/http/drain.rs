//! Draining: no new connections, and requests under way are finished.

use std::time::Duration;

use doors::Limits;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{
    client::{PATIENCE, is_closed, read_answer},
    world::{Setting, WORKER, World, request, turnstile},
};

async fn held(world: &World, sitekey: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let wait = ["Content-Type: application/json", "Prefer: wait=100"];
    let claim = request("POST", "/v1/solves", WORKER, &wait, &turnstile(sitekey));
    stream.write_all(claim.as_bytes()).await.unwrap();
    world.until_paid(1).await;
    stream
}

#[tokio::test]
async fn a_drain_finishes_requests_and_closes_idle_connections() {
    let setting = Setting { solving: Duration::from_millis(600), ..Setting::default() };
    let mut world = World::with(setting).await;
    let mut idle = TcpStream::connect(world.address).await.unwrap();
    idle.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
    read_answer(&mut idle).await.unwrap();
    let mut waiting = held(&world, "0x4A").await;
    world.begin_stop();
    assert!(is_closed(&mut idle).await);
    assert_eq!(read_answer(&mut waiting).await.unwrap().status, 200);
    timeout(PATIENCE, world.stopped()).await.expect("all have left");
    assert!(TcpStream::connect(world.address).await.is_err(), "nobody comes in");
}

#[tokio::test]
async fn a_long_poll_past_the_drain_answers_with_the_current_state() {
    let limits = Limits { drain: Duration::from_secs(4), ..Limits::default() };
    let mut world = World::with(Setting { limits, ..Setting::default() }).await;
    let mut waiting = held(&world, "never-ready-1").await;
    world.begin_stop();
    // At the end of the drain it would be cut off without an answer.
    assert_eq!(read_answer(&mut waiting).await.unwrap().status, 202);
    timeout(PATIENCE, world.stopped()).await.expect("all have left");
}

#[tokio::test]
async fn a_draining_engine_is_not_ready_and_refuses_claims() {
    let world = World::open().await;
    assert_eq!(world.get("/readyz", "").await.text("state"), "ready");
    world.engine.drain().await;
    let ready = world.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("state").as_str()), (503, "not ready"));
    assert!(ready.body.contains("draining"));
    let refused = world.claim("0x4A", &[]).await;
    assert_eq!((refused.status, refused.text("code").as_str()), (503, "draining"));
    assert_eq!(world.get("/healthz", "").await.status, 200);
}
