//! HTTP/2 connections that mean harm, frame by frame.

use std::time::Duration;

use doors::Limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{
    client::PATIENCE,
    tls::{connect, secure_world},
    world::{World, request},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET /` for `localhost`, from the static table of HPACK.
fn get() -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x84, 0x41, 9];
    block.extend(b"localhost");
    block
}

/// Whether the server ends the connection: with a GOAWAY, or by closing it.
async fn is_ended(stream: &mut TlsStream<TcpStream>) -> bool {
    let ended = async {
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            if head[3] == GOAWAY || stream.read_exact(&mut payload).await.is_err() {
                return;
            }
        }
    };
    timeout(PATIENCE, ended).await.is_ok()
}

async fn others_are_served(world: &World, made: &doors::SelfSigned) {
    let mut stream = connect(world, made, b"http/1.1").await;
    stream.write_all(request("GET", "/healthz", "", &[], "").as_bytes()).await.unwrap();
    assert_eq!(crate::client::read_answer(&mut stream).await.unwrap().status, 200);
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let (world, made) = secure_world(Limits::default()).await;
    let mut stream = connect(&world, &made, b"h2").await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    for n in 0..10_000 {
        let id = 2 * n + 1;
        let open = frame(HEADERS, END_STREAM | END_HEADERS, id, &get());
        let reset = frame(RST_STREAM, 0, id, &8u32.to_be_bytes());
        if stream.write_all(&[open, reset].concat()).await.is_err() {
            break;
        }
    }
    assert!(is_ended(&mut stream).await);
    others_are_served(&world, &made).await;
}

#[tokio::test]
async fn a_flood_of_empty_frames_ends_the_stream() {
    let limits = Limits { idle_timeout: Duration::from_millis(500), ..Limits::default() };
    let (world, made) = secure_world(limits).await;
    let mut stream = connect(&world, &made, b"h2").await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &get())).await.unwrap();
    let empty = frame(DATA, 0, 1, &[]).repeat(100);
    for _ in 0..1000 {
        if stream.write_all(&empty).await.is_err() {
            break;
        }
    }
    assert!(is_ended(&mut stream).await);
    others_are_served(&world, &made).await;
}

#[tokio::test]
async fn a_window_that_never_opens_is_not_waited_for() {
    let limits = Limits { idle_timeout: Duration::from_millis(500), ..Limits::default() };
    let (world, made) = secure_world(limits).await;
    let mut stream = connect(&world, &made, b"h2").await;
    let closed_window = [0, 4, 0, 0, 0, 0];
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &closed_window)].concat();
    stream.write_all(&hello).await.unwrap();
    let open = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get());
    stream.write_all(&open).await.unwrap();
    assert!(is_ended(&mut stream).await);
    others_are_served(&world, &made).await;
}

/// Sends the pieces one by one, over and over, until the server ends the connection.
async fn is_cut_off(limits: Limits, start: &[u8], pieces: &[u8]) -> bool {
    let (world, made) = secure_world(limits).await;
    let mut stream = connect(&world, &made, b"h2").await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), start].concat()).await.unwrap();
    let mut pieces = pieces.iter().cycle();
    let drip = async {
        let mut scrap = [0; 1024];
        loop {
            let wait = timeout(SHORT / 10, stream.read(&mut scrap)).await;
            if matches!(wait, Ok(Ok(0) | Err(_))) {
                return;
            }
            if wait.is_err() && stream.write_all(&[*pieces.next().unwrap()]).await.is_err() {
                return;
            }
        }
    };
    let cut_off = timeout(PATIENCE, drip).await.is_ok();
    others_are_served(&world, &made).await;
    cut_off
}

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_cut_off() {
    let limits = Limits { head_timeout: SHORT, ..patient() };
    let headers = &frame(HEADERS, END_HEADERS, 1, &[0; 200])[..HEADER + 5];
    assert!(is_cut_off(limits, headers, &[0]).await);
    let continuations = frame(CONTINUATION, 0, 1, &[]);
    assert!(is_cut_off(limits, &frame(HEADERS, 0, 1, &[]), &continuations).await);
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_whatever_it_sends() {
    let limits = Limits { first_request_timeout: SHORT, ..patient() };
    assert!(is_cut_off(limits, &[], &frame(PING, 0, 0, &[0; 8])).await);
}

const HEADER: usize = 9;

/// Every other timeout is longer than the test.
fn patient() -> Limits {
    let long = Duration::from_secs(600);
    Limits {
        head_timeout: long,
        idle_timeout: long,
        first_request_timeout: long,
        body_timeout: long,
        ..Limits::default()
    }
}
