//! What a caller without a key can make the compat door read and keep.

use doors::Limits;
use futures_util::future::select_all;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    client::{Answer, is_closed, read_answer},
    world::{Setting, WORKER, World, request, turnstile, until},
};

const WRONG: &str = "00000000000000000000000000000000";
const MULTIPART: &str = "multipart/form-data; boundary=xYz";
pub(crate) const URLENCODED: &str = "application/x-www-form-urlencoded";

/// A head that announces a body of this length, which the caller sends by itself.
fn head(target: &str, content_type: &str, length: usize) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Sends a head and the beginning of a body; the rest never comes.
pub(crate) async fn begin(
    world: &World,
    target: &str,
    content_type: &str,
    beginning: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = head(target, content_type, 1024 * 1024);
    stream.write_all([head.as_bytes(), beginning.as_bytes()].concat().as_slice()).await.unwrap();
    stream
}

async fn answer_of(mut stream: TcpStream) -> Answer {
    read_answer(&mut stream).await.unwrap()
}

fn part(name: &str, file: bool, value: &str) -> String {
    let file = if file { "; filename=\"a.png\"" } else { "" };
    format!("--xYz\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
}

async fn world(limits: Limits) -> World {
    World::with(Setting { limits, ..Setting::default() }).await
}

/// In these tests an answer is the proof: a gateway that waited for the body would time out.
pub(crate) fn patient() -> Limits {
    Limits { body_timeout: std::time::Duration::from_secs(600), ..Limits::default() }
}

#[tokio::test]
async fn a_wrong_key_in_the_query_is_refused_before_the_body() {
    let world = world(patient()).await;
    for door in ["in.php", "res.php"] {
        for (key, code) in [(WRONG, "ERROR_KEY_DOES_NOT_EXIST"), ("short", "ERROR_WRONG_USER_KEY")]
        {
            let target = format!("/{door}?key={key}");
            let mut stream = TcpStream::connect(world.address).await.unwrap();
            stream.write_all(head(&target, URLENCODED, 60_000).as_bytes()).await.unwrap();
            assert_eq!(answer_of(stream).await.body, code, "{target}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_at_the_beginning_is_refused_before_the_rest() {
    let world = world(patient()).await;
    for (content_type, beginning) in [
        (URLENCODED, format!("key={WRONG}&method=base64&body=iVBO")),
        ("application/json", format!(r#"{{"key":"{WRONG}","body":"iVBO"#)),
        ("text/plain", format!(r#"{{"json":1,"key":"{WRONG}","body":"iVBO"#)),
        (MULTIPART, format!("{}--xYz\r\n", part("key", false, WRONG))),
    ] {
        let stream = begin(&world, "/in.php", content_type, &beginning).await;
        assert_eq!(answer_of(stream).await.body, "ERROR_KEY_DOES_NOT_EXIST", "{content_type}");
    }
}

/// 2captcha-python and the Go client send the key after the picture.
#[tokio::test]
async fn a_key_after_a_large_picture_is_found_in_every_encoding() {
    let world = World::open().await;
    let picture = "iVBORw0KGgoAAAANSUhEUgAA".repeat(20_000);
    let file = part("file", true, &picture);
    let key = part("key", false, WORKER);
    for (content_type, body) in [
        (URLENCODED, format!("method=base64&body={picture}&key={WORKER}")),
        (
            "application/json",
            format!(r#"{{"method":"base64","body":"{picture}","key":"{WORKER}"}}"#),
        ),
        ("text/plain", format!(r#"{{"method":"base64","body":"{picture}","key":"{WORKER}"}}"#)),
        (MULTIPART, format!("{file}{key}--xYz--\r\n")),
    ] {
        let kind = format!("Content-Type: {content_type}");
        let answer = world.send(&request("POST", "/in.php", "", &[&kind], &body)).await;
        assert!(answer.body.starts_with("OK|"), "{content_type}: {answer:?}");
        let other = body.replace(WORKER, WRONG);
        let answer = world.send(&request("POST", "/in.php", "", &[&kind], &other)).await;
        assert_eq!(answer.body, "ERROR_KEY_DOES_NOT_EXIST", "{content_type}");
    }
}

#[tokio::test]
async fn forms_without_a_key_hold_a_bounded_number_of_bytes_and_others_are_served() {
    let bytes = 300_000;
    let limits = Limits { stranger_bytes: bytes, stranger_bytes_per_address: bytes, ..patient() };
    let world = world(limits).await;
    let beginning = format!("method=base64&body={}", "iVBO".repeat(25_000));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(begin(&world, "/in.php", URLENCODED, &beginning).await);
    }
    // The third one does not fit, whichever of them is read last.
    held.push(begin(&world, "/in.php", URLENCODED, &beginning).await);
    let refused = select_all(held.into_iter().map(|stream| Box::pin(answered(stream))));
    let ((answer, mut stream), _, others) = refused.await;
    assert_eq!(answer.body, "ERROR_SERVER_ERROR");
    assert!(is_closed(&mut stream).await);
    // Meanwhile a key within the first bytes is enough.
    let body = format!("key={WORKER}&method=base64&body={}", "iVBO".repeat(25_000));
    let answer = world.send(&request("POST", "/in.php", "", &[], &body)).await;
    assert!(answer.body.starts_with("OK|"), "{answer:?}");
    assert_eq!(world.claim("0x4A", &[]).await.status, 202);
    drop(others);
    let late = format!("method=base64&body={}&key={WORKER}", "iVBO".repeat(25_000));
    until("the bytes come back", async || {
        let answer = world.send(&request("POST", "/in.php", "", &[], &late)).await;
        answer.body.starts_with("OK|").then_some(())
    })
    .await;
}

/// Waits for the answer with the connection open.
pub(crate) async fn answered(mut stream: TcpStream) -> (Answer, TcpStream) {
    (read_answer(&mut stream).await.unwrap(), stream)
}

#[tokio::test]
async fn a_body_on_res_php_is_small() {
    let world = world(patient()).await;
    let target = format!("/res.php?key={WORKER}&action=getbalance");
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(head(&target, URLENCODED, 64 * 1024 + 1).as_bytes()).await.unwrap();
    assert_eq!(answer_of(stream).await.body, "ERROR_TOO_BIG_CAPTCHA_FILESIZE");
    let answer = world.send(&request("POST", &target, "", &[], "json=1")).await;
    assert_eq!(answer.json()["status"], 1, "{answer:?}");
    assert_eq!(world.post("/v1/solves", "", &[], &turnstile("0x4A")).await.status, 401);
}
