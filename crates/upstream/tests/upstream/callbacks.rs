//! The webhook sender against real receivers on this machine: what they are sent, and what their answers mean.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    callback::{ClaimNotice, Notice, NoticeData},
    challenge::Kind,
    claim::ClaimState,
    id::{ClaimId, Project},
    money::Money,
    ports::{Webhook, WebhookError, WebhookSender as _},
    retry::Code,
    secret::Secret,
    time::Timestamp,
    token::Answer,
};
use rustls::version::{TLS12, TLS13};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use upstream::{BadWebhookConfig, WebhookClient, WebhookConfig};

use crate::{
    support::{HandClock, PATIENCE, Server, ok},
    tls::{acceptor, certificate, secured},
};

/// The key of all signatures here: must turn up nowhere.
const KEY: &[u8] = b"c4n4ryc4n4ryc4n4ryc4n4ry";

pub(crate) fn secret() -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(KEY)))
}

fn config(trusted: &[&str]) -> WebhookConfig {
    let trusted = trusted.iter().map(ToString::to_string).collect();
    WebhookConfig { trusted, ..WebhookConfig::new(secret()) }
}

pub(crate) fn hooks(trusted: &[&str]) -> WebhookClient {
    WebhookClient::new(config(trusted), Arc::new(HandClock::default())).unwrap()
}

fn short_timeouts() -> WebhookClient {
    let config = WebhookConfig { timeout: Duration::from_millis(300), ..config(&["127.0.0.1"]) };
    WebhookClient::new(config, Arc::new(HandClock::default())).unwrap()
}

fn notice(state: ClaimState, token: Option<&str>) -> Notice {
    let answer = |text| Answer { text: Secret::new(text), is_json: false, extras: None };
    let ended = Timestamp::from_millis(1_790_000_000_123);
    let told = ClaimNotice {
        id: ClaimId::from_number(123_456_789_012_345),
        state,
        kind: Kind::Turnstile,
        project: Project::new("checkout").unwrap(),
        sitekey: Some("0x4AAA".into()),
        pageurl: Some("https://shop.example.com/login".into()),
        token: token.map(answer),
        expires_at: token.map(|_| ended.plus(Duration::from_secs(110))),
        code: token.is_none().then(|| Code::new("ERROR_CAPTCHA_UNSOLVABLE")),
        attempts: 2,
        polls: 7,
        elapsed_ms: 34_500,
        cost: Some(Money::from_micros(2990)),
    };
    let what = format!("solve.{}", state.name());
    Notice { what, timestamp: ended, data: NoticeData::Claim(Box::new(told)) }
}

pub(crate) fn webhook(url: &str) -> Webhook {
    let notice = notice(ClaimState::Served, Some("t0ken-canary"));
    Webhook { worker: None, id: "msg_123456789012345_served".into(), url: url.into(), notice }
}

/// HMAC as in RFC 2104, built on the hash alone.
fn signature(message: &str) -> String {
    let pad = |byte: u8| -> Vec<u8> {
        (0..64).map(|at| KEY.get(at).copied().unwrap_or(0) ^ byte).collect()
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    format!("v1,{}", STANDARD.encode(outer))
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut values = lines.filter(|(found, _)| *found == name).map(|(_, value)| value);
    let value = values.next().unwrap_or_else(|| panic!("{name} is missing in {head}"));
    assert_eq!(values.next(), None, "{name} is there twice");
    value
}

fn check_signed(request: &str, id: &str, seconds: &str) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!((header(head, "webhook-id"), header(head, "webhook-timestamp")), (id, seconds));
    assert_eq!(header(head, "webhook-signature"), signature(&format!("{id}.{seconds}.{body}")));
}

#[expect(clippy::disallowed_methods, reason = "the one switch of this test")]
fn is_update() -> bool {
    std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1")
}

fn check_golden(name: &str, seen: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if is_update() {
        fs::write(&path, seen).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), seen, "{name}");
}

#[tokio::test]
async fn a_notice_arrives_whole_and_signed() {
    let server = Server::answering(ok("thanks")).await;
    let clock = Arc::new(HandClock::default());
    clock.turn(Duration::from_millis(1_790_000_005_999));
    let hooks = WebhookClient::new(config(&["127.0.0.1"]), clock).unwrap();
    let url = format!("{}/hook/a%20b?x=1&y=%2F", server.url);
    hooks.check(None, &url).await.unwrap();
    let alert = Notice {
        what: "alert.dead_letters".into(),
        timestamp: Timestamp::from_millis(1_790_000_000_123),
        data: NoticeData::Alert {
            about: Some("ERROR_CAPTCHA_UNSOLVABLE".into()),
            message: "12 dead letters".into(),
            value: Some(12),
            threshold: Some(10),
        },
    };
    for (name, notice) in [
        ("callback_served.json", notice(ClaimState::Served, Some("0.t0ken"))),
        ("callback_failed.json", notice(ClaimState::Failed, None)),
        ("callback_alert.json", alert),
    ] {
        let webhook = Webhook { worker: None, id: format!("msg_{name}"), url: url.clone(), notice };
        hooks.send(&webhook).await.unwrap();
        let request = server.requests().pop().unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /hook/a%20b?x=1&y=%2F HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(head, "content-type"), "application/json");
        assert_eq!(format!("http://{}", header(head, "host")), server.url);
        assert!(header(head, "user-agent").starts_with("solvegate/"));
        check_signed(&request, &webhook.id, "1790000005");
        check_golden(name, &format!("{body}\n"));
    }
}

#[tokio::test]
async fn a_redelivered_notice_keeps_its_id_and_gets_a_new_signature() {
    let server = Server::answering(ok("")).await;
    let clock = Arc::new(HandClock::default());
    let hooks = WebhookClient::new(config(&["127.0.0.1"]), clock.clone()).unwrap();
    let webhook = webhook(&server.url);
    hooks.send(&webhook).await.unwrap();
    clock.turn(Duration::from_secs(30));
    hooks.send(&webhook).await.unwrap();
    let requests = server.requests();
    check_signed(&requests[0], &webhook.id, "0");
    check_signed(&requests[1], &webhook.id, "30");
}

#[tokio::test]
async fn a_receiver_is_known_by_its_certificate() {
    for version in [&TLS12, &TLS13] {
        let trusted = certificate("localhost");
        let server = secured(acceptor(&trusted, &[version]), ok(""), true).await;
        let url = server.url.replace("http://127.0.0.1", "https://localhost");
        let roots = Some(trusted.cert.pem().into_bytes());
        let config = WebhookConfig { extra_root_pem: roots, ..config(&["localhost"]) };
        let hooks = WebhookClient::new(config, Arc::new(HandClock::default())).unwrap();
        hooks.send(&webhook(&url)).await.unwrap();
        check_signed(&server.requests()[0], "msg_123456789012345_served", "0");
    }
}

#[tokio::test]
async fn a_receiver_without_a_valid_certificate_gets_no_byte() {
    for (host, vouched) in [("localhost", false), ("other.example.com", true)] {
        let shown = certificate(host);
        let server = secured(acceptor(&shown, &[&TLS12, &TLS13]), ok(""), true).await;
        let url = server.url.replace("http://127.0.0.1", "https://localhost");
        let roots = vouched.then(|| shown.cert.pem().into_bytes());
        let config = WebhookConfig { extra_root_pem: roots, ..config(&["localhost"]) };
        let hooks = WebhookClient::new(config, Arc::new(HandClock::default())).unwrap();
        let WebhookError(why) = hooks.send(&webhook(&url)).await.unwrap_err();
        assert!(why.contains("TLS") && why.len() <= 200, "{why}");
        assert_eq!((server.connections(), server.requests().len()), (1, 0));
    }
}

#[tokio::test]
async fn only_2xx_counts_as_delivered() {
    for (status, delivered) in [
        (200, true),
        (201, true),
        (202, true),
        (204, true),
        (299, true),
        (304, false),
        (400, false),
        (404, false),
        (410, false),
        (429, false),
        (500, false),
        (503, false),
    ] {
        let answer = format!("HTTP/1.1 {status} c4n4ry\r\nx: c4n4ry\r\nconnection: close\r\n\r\n");
        let server = Server::answering(answer).await;
        let answered = hooks(&["127.0.0.1"]).send(&webhook(&server.url)).await;
        assert_eq!(answered.is_ok(), delivered, "{status}: {answered:?}");
        if let Err(WebhookError(why)) = answered {
            assert!(why.contains(&format!("HTTP {status}")) && !why.contains("c4n4ry"), "{why}");
        }
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::answering(ok("")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{}/inside", other.url);
        let answer =
            format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let server = Server::answering(answer).await;
        let delivered = hooks(&["127.0.0.1"]).send(&webhook(&server.url)).await;
        let why = format!(
            "the receiver answered HTTP {status}; redirects are not followed: give the final address"
        );
        assert_eq!(delivered, Err(WebhookError(why)));
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_slow_receiver_is_abandoned_within_the_timeout() {
    let silent = Server::start(|visit| async move {
        let _held = visit;
        std::future::pending::<()>().await;
    })
    .await;
    let dripping = Server::start(|mut visit| async move {
        visit.request().await;
        for byte in b"HTTP/1.1 200 OK\r\n".iter().cycle() {
            visit.write(&[*byte]).await;
            timeout(Duration::from_millis(50), std::future::pending::<()>()).await.ok();
        }
    })
    .await;
    let handshake = silent.url.replace("http://", "https://");
    for (url, why) in [
        (&silent.url, "no answer within the timeout"),
        (&dripping.url, "no answer within the timeout"),
        (&handshake, "no connection within the timeout"),
    ] {
        assert_eq!(
            short_timeouts().send(&webhook(url)).await,
            Err(WebhookError(why.to_owned())),
            "{url}"
        );
    }
}

/// Only the status counts: a receiver that answers 200 and keeps writing has received the notice.
#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let (done, mut written) = tokio::sync::mpsc::unbounded_channel();
    let endless = Server::start(move |mut visit| {
        let done = done.clone();
        async move {
            visit.request().await;
            visit.write(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let mut bytes = 0usize;
            let block = [b'x'; 16 * 1024];
            while tokio::io::AsyncWriteExt::write_all(&mut visit.stream, &block).await.is_ok() {
                bytes += block.len();
            }
            done.send(bytes).unwrap();
        }
    })
    .await;
    hooks(&["127.0.0.1"]).send(&webhook(&endless.url)).await.unwrap();
    let written = timeout(PATIENCE, written.recv()).await.unwrap().unwrap();
    // The operating system buffers an unknown amount in between.
    assert!(written < 32 * 1024 * 1024, "{written}");

    let stuck = Server::start(|mut visit| async move {
        visit.request().await;
        visit.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
        std::future::pending::<()>().await;
    })
    .await;
    let delivered = timeout(PATIENCE, short_timeouts().send(&webhook(&stuck.url))).await;
    assert_eq!(delivered, Ok(Ok(())));
}

#[tokio::test]
async fn an_unreadable_answer_does_not_count_as_delivered() {
    for answer in ["", "c4n4ry\r\n\r\n", "HTTP/1.1 200", "HTTP/1.1 20x OK\r\n\r\n"] {
        let server = Server::answering(answer).await;
        let WebhookError(why) =
            hooks(&["127.0.0.1"]).send(&webhook(&server.url)).await.unwrap_err();
        assert!(why.starts_with("the exchange failed: ") && !why.contains("c4n4ry"), "{why}");
    }
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "c4n4ry".repeat(20_000));
    let server = Server::answering(huge).await;
    let WebhookError(why) = hooks(&["127.0.0.1"]).send(&webhook(&server.url)).await.unwrap_err();
    assert!(why.len() <= 200 && !why.contains("c4n4ry"), "{why}");
}

#[tokio::test]
async fn a_refused_connection_shows_neither_path_nor_token() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/c4n4ry?c4n4ry", listener.local_addr().unwrap());
    drop(listener);
    let WebhookError(why) = hooks(&["127.0.0.1"]).send(&webhook(&url)).await.unwrap_err();
    assert!(why.starts_with("cannot connect: "), "{why}");
    assert!(!why.contains("c4n4ry") && !why.contains("canary"), "{why}");
}

#[tokio::test]
async fn an_id_that_would_break_the_head_is_not_sent() {
    let server = Server::answering(ok("")).await;
    let webhook = Webhook { id: "msg\r\nx: y".into(), ..webhook(&server.url) };
    let not_delivered = hooks(&["127.0.0.1"]).send(&webhook).await.unwrap_err();
    assert!(not_delivered.0.contains("its id"), "{not_delivered}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn debug_output_shows_no_secret() {
    let config = WebhookConfig {
        extra_root_pem: Some(certificate("localhost").cert.pem().into_bytes()),
        ..config(&["hooks.internal:8080"])
    };
    let shown = format!("{config:?}");
    assert!(shown.contains("hooks.internal:8080"), "{shown}");
    let hooks = WebhookClient::new(config, Arc::new(HandClock::default())).unwrap();
    let webhook = webhook("https://x/c4n4ry");
    let shown = format!("{shown} {hooks:?} {webhook:?} {:?}", webhook.notice);
    for hidden in ["whsec_", &STANDARD.encode(KEY), "c4n4ry", "canary", "BEGIN"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused_at_start() {
    let refused = |config| WebhookClient::new(config, Arc::new(HandClock::default())).unwrap_err();
    let roots = WebhookConfig { extra_root_pem: Some(b"none".to_vec()), ..config(&[]) };
    assert!(matches!(refused(roots), BadWebhookConfig::Roots(_)));
    let agent = WebhookConfig { user_agent: "a\nb".into(), ..config(&[]) };
    assert_eq!(refused(agent), BadWebhookConfig::UserAgent);
    let secret = refused(WebhookConfig::new(Secret::new("c4n4ry")));
    assert!(!format!("{secret} {secret:?}").contains("c4n4ry"));
    assert_eq!(
        secret.to_string(),
        "secret: it does not start with whsec_; expected whsec_ and the base64 of 24 to 64 random bytes, best as env:NAME or file:PATH"
    );
}
