//! Tests with a scripted resolver. Everything else is tested from outside, in tests/upstream/callbacks.rs.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{
    callback::{Notice, NoticeData},
    ports::{Clock, Webhook, WebhookSender as _},
    secret::Secret,
    time::Timestamp,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};

use super::{UnlistedHosts, WebhookClient, WebhookConfig, resolver::Resolver};

const PUBLIC: &str = "93.184.215.14:443";

/// Resolves to one scripted answer after the other; after the last it never answers.
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
        self.0.lock().len()
    }
}

#[async_trait]
impl Resolver for Scripted {
    async fn resolve(&self, _: &str, _: u16) -> Vec<SocketAddr> {
        let next = self.0.lock().pop_front();
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

fn sender(resolver: Arc<Scripted>, trusted: &[&str]) -> WebhookClient {
    let secret = Secret::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let config = WebhookConfig {
        trusted: trusted.iter().map(ToString::to_string).collect(),
        timeout: Duration::from_millis(500),
        ..WebhookConfig::new(secret)
    };
    WebhookClient::with_resolver(config, Arc::new(Epoch), resolver).unwrap()
}

fn webhook(url: &str) -> Webhook {
    let alert =
        NoticeData::Alert { about: None, message: "test".into(), value: None, threshold: None };
    let notice = Notice { what: "alert.test".into(), timestamp: Timestamp::default(), data: alert };
    Webhook { worker: None, id: "msg_1".into(), url: url.into(), notice }
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
async fn one_address_that_is_not_public_refuses_a_name() {
    let (listener, ours) = listener().await;
    for answer in [vec![ours], vec![ours, public()], vec![public(), public(), ours]] {
        let sender = sender(Scripted::new([answer.clone(), answer]), &[]);
        let refused = sender.check(None, "https://hooks.example.com/canary").await.unwrap_err().0;
        assert_eq!(
            refused,
            "the address is refused: its host resolves to a loopback address; list the host under [callbacks] hosts to allow it"
        );
        let not_delivered =
            sender.send(&webhook("https://hooks.example.com/canary")).await.unwrap_err();
        assert_eq!(not_delivered.0, refused);
    }
    assert!(is_silent(&listener).await);
}

#[tokio::test]
async fn a_name_that_changes_after_its_check_is_refused_at_delivery() {
    let (listener, ours) = listener().await;
    let sender = sender(Scripted::new([vec![public()], vec![ours]]), &[]);
    sender.check(None, "https://rebind.example.com/").await.unwrap();
    let not_delivered = sender.send(&webhook("https://rebind.example.com/")).await.unwrap_err();
    assert!(not_delivered.0.contains("resolves to a loopback address"), "{not_delivered}");
    assert!(is_silent(&listener).await);
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let (first, answer) = listener().await;
    let (second, other) = listener().await;
    let resolver = Scripted::new([vec![answer], vec![other]]);
    let sender = sender(Arc::clone(&resolver), &["hooks.internal"]);
    let webhook = webhook("http://hooks.internal/");
    let receive = async {
        let (mut stream, _) = first.accept().await.unwrap();
        let mut read = [0; 4096];
        let length = stream.read(&mut read).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&read[..length]).into_owned()
    };
    let (delivered, request) = tokio::join!(sender.send(&webhook), receive);
    delivered.unwrap();
    assert!(request.contains("\r\nhost: hooks.internal\r\n"), "{request}");
    assert_eq!(resolver.left(), 1);
    assert!(is_silent(&second).await);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_now_is_accepted_and_not_delivered_to() {
    let sender = sender(Scripted::new([vec![], vec![]]), &[]);
    let url = "https://hooks.example.com/";
    assert_eq!(sender.check(None, url).await, Ok(()), "without an address");
    let nothing = sender.send(&webhook(url)).await.unwrap_err();
    assert_eq!(nothing.0, "the host of the address has no address now");
    assert_eq!(sender.check(None, url).await, Ok(()), "with a resolver that is slow");
    let slow = sender.send(&webhook(url)).await.unwrap_err();
    assert_eq!(slow.0, "no connection within the timeout");
}

#[tokio::test]
async fn a_literal_is_judged_without_a_resolver() {
    let resolver = Scripted::new([vec![public()]]);
    let sender = sender(Arc::clone(&resolver), &[]);
    assert!(sender.check(None, "https://10.0.0.1/").await.is_err());
    assert!(sender.check(None, "https://93.184.215.14/").await.is_ok());
    assert_eq!(resolver.left(), 1);
}

#[tokio::test]
async fn with_named_hosts_only_nothing_else_is_resolved_and_one_text_refuses_it() {
    let resolver = Scripted::new([vec![public()]]);
    let own = "https://alerts.example.com/";
    let config = WebhookConfig {
        trusted: vec!["hooks.internal:8080".into()],
        unlisted: UnlistedHosts::Only(Some(Secret::new(own))),
        ..WebhookConfig::new(Secret::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"))
    };
    let sender = WebhookClient::with_resolver(config, Arc::new(Epoch), resolver.clone()).unwrap();
    sender.check(None, "http://hooks.internal:8080/a").await.unwrap();
    for url in [
        "https://hooks.example.com/",
        "https://10.0.0.1/",
        "https://localhost/",
        "https://alerts.example.com/x",
    ] {
        let refused = sender.check(None, url).await.unwrap_err().0;
        assert!(refused.contains("its host is not listed"), "{url}: {refused}");
        assert_eq!(sender.send(&webhook(url)).await.unwrap_err().0, refused, "{url}");
    }
    assert_eq!(resolver.left(), 1, "nothing was resolved");
    sender.check(None, own).await.unwrap();
}
