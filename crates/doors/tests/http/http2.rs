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
