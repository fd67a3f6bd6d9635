//! Names that resolve to what a test says. Everything else is tested from outside, in tests/upstream/callbacks.rs.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    callback::{Notice, Told},
    ports::{Clock, Courier as _, Parcel},
    secret::Secret,
    time::Timestamp,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};

use super::{Hooks, HooksConfig, resolver::Resolver};

const PUBLIC: &str = "93.184.215.14:443";

/// Gives one answer after the other; when they are used up, it never answers.
#[derive(Default)]
struct Scripted(Mutex<VecDeque<Vec<SocketAddr>>>);

#[derive(Debug)]
struct Epoch;

// === impl Scripted ===

impl Scripted {
    fn new<const N: usize>(answers: [Vec<SocketAddr>; N]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(answers.into())))
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait]
impl Resolver for Scripted {
    async fn resolve(&self, _: &str, _: u16) -> Vec<SocketAddr> {
        let next = self.0.lock().unwrap().pop_front();
        match next {
            Some(addresses) => addresses,
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Clock for Epoch {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep_until(&self, _: Timestamp) {}
}

fn hooks(resolver: Arc<Scripted>, trusted: &[&str]) -> Hooks {
    let secret = Secret::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let config = HooksConfig {
        trusted: trusted.iter().map(ToString::to_string).collect(),
        timeout: Duration::from_millis(500),
        ..HooksConfig::new(secret)
    };
    Hooks::with_resolver(config, Arc::new(Epoch), resolver).unwrap()
}

fn parcel(url: &str) -> Parcel {
    let alert = Told::Alert { about: None, message: "test".into(), value: None, threshold: None };
    let notice = Notice { what: "alert.test".into(), timestamp: Timestamp::default(), data: alert };
    Parcel { id: "msg_1".into(), url: url.into(), notice }
}

/// A listener, and its address.
async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn is_silent(listener: &TcpListener) -> bool {
    timeout(Duration::from_millis(100), listener.accept()).await.is_err()
}

fn public() -> SocketAddr {
    PUBLIC.parse().unwrap()
}

#[tokio::test]
async fn one_address_that_is_not_public_spoils_a_name() {
    let (listener, ours) = listener().await;
    for answer in [vec![ours], vec![ours, public()], vec![public(), public(), ours]] {
        let hooks = hooks(Scripted::new([answer.clone(), answer]), &[]);
        let refused = hooks.check("https://hooks.example.com/canary").await.unwrap_err().0;
        assert_eq!(
            refused,
            "the address is refused: its host resolves to a loopback address; name the host under [callbacks] hosts to allow it"
        );
        let not_told = hooks.tell(&parcel("https://hooks.example.com/canary")).await.unwrap_err();
        assert_eq!(not_told.0, refused);
    }
    assert!(is_silent(&listener).await);
}

#[tokio::test]
async fn a_name_that_changes_after_it_was_checked_is_refused_when_told() {
    let (listener, ours) = listener().await;
    let hooks = hooks(Scripted::new([vec![public()], vec![ours]]), &[]);
    hooks.check("https://rebind.example.com/").await.unwrap();
    let not_told = hooks.tell(&parcel("https://rebind.example.com/")).await.unwrap_err();
    assert!(not_told.0.contains("resolves to a loopback address"), "{not_told}");
    assert!(is_silent(&listener).await);
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let (first, answer) = listener().await;
    let (second, other) = listener().await;
    let resolver = Scripted::new([vec![answer], vec![other]]);
    let hooks = hooks(Arc::clone(&resolver), &["hooks.internal"]);
    let parcel = parcel("http://hooks.internal/");
    let receive = async {
        let (mut stream, _) = first.accept().await.unwrap();
        let mut read = [0; 4096];
        let length = stream.read(&mut read).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&read[..length]).into_owned()
    };
    let (told, request) = tokio::join!(hooks.tell(&parcel), receive);
    told.unwrap();
    assert!(request.contains("\r\nhost: hooks.internal\r\n"), "{request}");
    assert_eq!(resolver.left(), 1);
    assert!(is_silent(&second).await);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_now_is_accepted_and_not_told() {
    let hooks = hooks(Scripted::new([vec![], vec![]]), &[]);
    let url = "https://hooks.example.com/";
    assert_eq!(hooks.check(url).await, Ok(()), "without an address");
    let nothing = hooks.tell(&parcel(url)).await.unwrap_err();
    assert_eq!(nothing.0, "the host of the address has no address now");
    assert_eq!(hooks.check(url).await, Ok(()), "with a resolver that is slow");
    let slow = hooks.tell(&parcel(url)).await.unwrap_err();
    assert_eq!(slow.0, "no connection within the timeout");
}

#[tokio::test]
async fn a_literal_is_judged_without_a_resolver() {
    let resolver = Scripted::new([vec![public()]]);
    let hooks = hooks(Arc::clone(&resolver), &[]);
    assert!(hooks.check("https://10.0.0.1/").await.is_err());
    assert!(hooks.check("https://93.184.215.14/").await.is_ok());
    assert_eq!(resolver.left(), 1);
}
