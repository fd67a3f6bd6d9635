//! Callers that send or read too slowly lose their connection in time, and no other caller notices.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use solvegate::client::Call;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{Gateway, Sim, WORKER, pause};

/// Heads may take 5 s and bodies 10 s; a connection that lasts this long is never closed.
const FOR_EVER: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
fn now() -> Instant {
    Instant::now()
}

/// Sends `start`, then one byte per second; returns whether the gateway closed the connection.
async fn is_ended(host: &str, start: &str) -> bool {
    let began = now();
    let (mut read, mut write) = TcpStream::connect(host).await.unwrap().into_split();
    let send = async {
        let mut sent = write.write_all(start.as_bytes()).await;
        while sent.is_ok() && began.elapsed() < FOR_EVER {
            pause(Duration::from_secs(1)).await;
            sent = write.write_all(b"x").await;
        }
        sent.is_err()
    };
    let wait = async {
        let mut answer = Vec::new();
        // A reset counts as a close.
        let _reset = read.read_to_end(&mut answer).await.is_err();
    };
    tokio::select! {
        is_ended = send => is_ended,
        () = wait => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_and_slow_bodies_are_closed_in_time_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path(), &[]);
    let gateway = Gateway::start(dir.path(), &sim);
    let host = gateway.base.strip_prefix("http://").unwrap();
    let head = "POST /v1/solves HTTP/1.1\r\nhost: localhost\r\nx-slow: ".to_owned();
    let body = format!(
        "POST /v1/solves HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {WORKER}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let heads = join_all((0..100).map(|_| is_ended(host, &head)));
    let bodies = join_all((0..100).map(|_| is_ended(host, &body)));
    let others = async {
        pause(Duration::from_secs(2)).await;
        gateway.send(&Call::get("/v1/history")).await.status
    };
    let (heads, bodies, other) = tokio::join!(heads, bodies, others);
    assert_eq!(other, StatusCode::OK);
    assert!(heads.iter().all(|is_ended| *is_ended), "a slow head lived {FOR_EVER:?}");
    assert!(bodies.iter().all(|is_ended| *is_ended), "a slow body lived {FOR_EVER:?}");
}
