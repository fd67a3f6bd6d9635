//! Request smuggling, unknown hosts, and size limits.

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    client::{is_closed, read_answer, send},
    world::{WORKER, World, request, turnstile},
};

const SMUGGLED: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn closes_after_refusing(world: &World, head: &str, status: u16) {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(format!("{head}{SMUGGLED}").as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await.unwrap();
    assert_eq!(answer.status, status, "{head}: {answer:?}");
    assert!(read_answer(&mut stream).await.is_none(), "a second answer: {head}");
}

#[tokio::test]
async fn ambiguous_framing_is_refused_and_nothing_after_it_is_served() {
    let world = World::open().await;
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding : chunked",
        "Content-Length: +5",
    ] {
        let head = format!(
            "POST /v1/solves HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORKER}\r\n\
             Content-Type: application/json\r\n{lines}\r\n\r\n0\r\n\r\n"
        );
        closes_after_refusing(&world, &head, 400).await;
    }
    assert_eq!(world.paid(), 0);
}

#[tokio::test]
async fn the_second_request_of_a_connection_is_scanned_too() {
    let world = World::open().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(SMUGGLED.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
    let second = "POST /v1/solves HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
                  Content-Length: 2\r\n\r\n{}";
    stream.write_all(second.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 400);
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn other_protocols_and_tunnels_are_refused() {
    let world = World::open().await;
    let upgrade = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\n\r\n";
    closes_after_refusing(&world, upgrade, 400).await;
    closes_after_refusing(
        &world,
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        405,
    )
    .await;
    let h2c = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n\
               Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n";
    closes_after_refusing(&world, h2c, 200).await;
    let hello = send(world.address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    assert_eq!(hello.status, 400);
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    assert!(read_answer(&mut stream).await.is_none(), "HTTP/2 is for TLS only");
}

#[tokio::test]
async fn only_allowed_hosts_are_served() {
    let world = World::open().await;
    let with = |hosts: &str| format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n");
    for good in
        ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8402", "gate.example", "gate.example.:80"]
    {
        assert_eq!(world.send(&with(&format!("Host: {good}\r\n"))).await.status, 200, "{good}");
    }
    for rebound in
        ["evil.example", "gate.example.evil.example", "localhost.evil.example", "127.0.0.1.nip.io"]
    {
        assert_eq!(
            world.send(&with(&format!("Host: {rebound}\r\n"))).await.status,
            421,
            "{rebound}"
        );
    }
    for bad in ["", "Host: \r\n", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n"] {
        assert_eq!(world.send(&with(bad)).await.status, 400, "{bad:?}");
    }
    let absolute = "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(world.send(absolute).await.status, 400);
    let fine = "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(world.send(fine).await.status, 200);
    let user = "GET /healthz HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n";
    assert_ne!(world.send(user).await.status, 200);
}

#[tokio::test]
async fn sizes_are_bounded_and_the_error_arrives() {
    let world = World::open().await;
    let long =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: {}\r\n\r\n", "a".repeat(500_000));
    assert_eq!(world.send(&long).await.status, 431);
    let longer =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: {}\r\n\r\n", "a".repeat(20_000));
    assert_eq!(world.send(&longer).await.status, 431);
    let many =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X-A: b\r\n".repeat(70));
    assert_eq!(world.send(&many).await.status, 431);
    let target = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(70_000));
    assert_eq!(world.send(&target).await.status, 414);
    let announced = format!(
        "POST /v1/solves HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORKER}\r\n\
         Content-Type: application/json\r\nContent-Length: 9223372036854775807\r\n\r\nabcd"
    );
    let answer = world.send(&announced).await;
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    let sent = format!("{:?}", "a".repeat(3_000_000));
    assert_eq!(world.post("/v1/solves", WORKER, &[], &sent).await.status, 413);
}

#[tokio::test]
async fn chunked_bodies_have_the_same_limits() {
    let world = World::open().await;
    let head = format!(
        "POST /v1/solves HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORKER}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let body = turnstile("0x4A");
    let good = world.send(&format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
    assert_eq!((good.status, good.header("connection")), (202, Some("close")));
    let overflow = world.send(&format!("{head}fffffffffffffffff\r\nx\r\n0\r\n\r\n")).await;
    assert_eq!(overflow.status, 400);
    let large = format!("{head}200000\r\n{}\r\n0\r\n\r\n", "a".repeat(0x20_0000));
    assert_eq!(world.send(&large).await.status, 413);
}

#[tokio::test]
async fn a_kept_connection_serves_one_request_after_the_other() {
    let world = World::open().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    for n in 0..5 {
        let body = turnstile(&format!("0x4{n}"));
        let claim =
            request("POST", "/v1/solves", WORKER, &["Content-Type: application/json"], &body);
        stream.write_all(claim.as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut stream).await.unwrap().status, 202, "{n}");
    }
}
