//! The courier against real receivers on this machine: what they are sent, and what their answers mean.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    callback::{ClaimTold, Notice, Told},
    challenge::Kind,
    claim::ClaimState,
    id::{ClaimId, Project},
    money::Money,
    ports::{Courier as _, NotTold, Parcel},
    retry::Code,
    secret::Secret,
    time::Timestamp,
    token::Answer,
};
use rustls::version::{TLS12, TLS13};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use upstream::{BadHooks, BadUpstream, Hooks, HooksConfig};

use crate::{
    support::{HandClock, PATIENCE, Server, ok},
    tls::{acceptor, certificate, secured},
};

/// The key of all signatures here: must turn up nowhere.
const KEY: &[u8] = b"c4n4ryc4n4ryc4n4ryc4n4ry";

pub(crate) fn secret() -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(KEY)))
}

fn config(trusted: &[&str]) -> HooksConfig {
    let trusted = trusted.iter().map(ToString::to_string).collect();
    HooksConfig { trusted, ..HooksConfig::new(secret()) }
}

pub(crate) fn hooks(trusted: &[&str]) -> Hooks {
    Hooks::new(config(trusted), Arc::new(HandClock::default())).unwrap()
}

fn impatient() -> Hooks {
    let config = HooksConfig { timeout: Duration::from_millis(300), ..config(&["127.0.0.1"]) };
    Hooks::new(config, Arc::new(HandClock::default())).unwrap()
}

fn notice(state: ClaimState, token: Option<&str>) -> Notice {
    let answer = |text| Answer { text: Secret::new(text), is_json: false, extras: None };
    let ended = Timestamp::from_millis(1_790_000_000_123);
    let told = ClaimTold {
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
    Notice { what, timestamp: ended, data: Told::Claim(Box::new(told)) }
}

pub(crate) fn parcel(url: &str) -> Parcel {
    let notice = notice(ClaimState::Served, Some("t0ken-canary"));
    Parcel { id: "msg_123456789012345_served".into(), url: url.into(), notice }
}

/// HMAC as RFC 2104 writes it, on nothing but the hash.
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
    let hooks = Hooks::new(config(&["127.0.0.1"]), clock).unwrap();
    let url = format!("{}/hook/a%20b?x=1&y=%2F", server.url);
    hooks.check(&url).await.unwrap();
    let alert = Notice {
        what: "alert.dead_letters".into(),
        timestamp: Timestamp::from_millis(1_790_000_000_123),
        data: Told::Alert {
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
        let parcel = Parcel { id: format!("msg_{name}"), url: url.clone(), notice };
        hooks.tell(&parcel).await.unwrap();
        let request = server.requests().pop().unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /hook/a%20b?x=1&y=%2F HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(head, "content-type"), "application/json");
        assert_eq!(format!("http://{}", header(head, "host")), server.url);
        assert!(header(head, "user-agent").starts_with("solvegate/"));
        check_signed(&request, &parcel.id, "1790000005");
        check_golden(name, &format!("{body}\n"));
    }
}

#[tokio::test]
async fn a_notice_told_again_keeps_its_id_and_is_signed_anew() {
    let server = Server::answering(ok("")).await;
    let clock = Arc::new(HandClock::default());
    let hooks = Hooks::new(config(&["127.0.0.1"]), clock.clone()).unwrap();
    let parcel = parcel(&server.url);
    hooks.tell(&parcel).await.unwrap();
    clock.turn(Duration::from_secs(30));
    hooks.tell(&parcel).await.unwrap();
    let requests = server.requests();
    check_signed(&requests[0], &parcel.id, "0");
    check_signed(&requests[1], &parcel.id, "30");
}

#[tokio::test]
async fn a_receiver_is_known_by_its_certificate() {
    for version in [&TLS12, &TLS13] {
        let trusted = certificate("localhost");
        let server = secured(acceptor(&trusted, &[version]), ok(""), true).await;
        let url = server.url.replace("http://127.0.0.1", "https://localhost");
        let roots = Some(trusted.cert.pem().into_bytes());
        let config = HooksConfig { extra_root_pem: roots, ..config(&["localhost"]) };
        let hooks = Hooks::new(config, Arc::new(HandClock::default())).unwrap();
        hooks.tell(&parcel(&url)).await.unwrap();
        check_signed(&server.requests()[0], "msg_123456789012345_served", "0");
    }
}

#[tokio::test]
async fn a_receiver_that_cannot_prove_who_it_is_gets_no_byte() {
    for (host, vouched) in [("localhost", false), ("other.example.com", true)] {
        let shown = certificate(host);
        let server = secured(acceptor(&shown, &[&TLS12, &TLS13]), ok(""), true).await;
        let url = server.url.replace("http://127.0.0.1", "https://localhost");
        let roots = vouched.then(|| shown.cert.pem().into_bytes());
        let config = HooksConfig { extra_root_pem: roots, ..config(&["localhost"]) };
        let hooks = Hooks::new(config, Arc::new(HandClock::default())).unwrap();
        let NotTold(why) = hooks.tell(&parcel(&url)).await.unwrap_err();
        assert!(why.contains("TLS") && why.len() <= 200, "{why}");
        assert_eq!((server.connections(), server.requests().len()), (1, 0));
    }
}

#[tokio::test]
async fn any_2xx_is_told_and_nothing_else() {
    for (status, told) in [
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
        let answered = hooks(&["127.0.0.1"]).tell(&parcel(&server.url)).await;
        assert_eq!(answered.is_ok(), told, "{status}: {answered:?}");
        if let Err(NotTold(why)) = answered {
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
        let told = hooks(&["127.0.0.1"]).tell(&parcel(&server.url)).await;
        let why = format!(
            "the receiver answered HTTP {status}; redirects are not followed: give the final address"
        );
        assert_eq!(told, Err(NotTold(why)));
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_receiver_that_is_slow_in_any_way_is_left_within_the_limit() {
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
        assert_eq!(impatient().tell(&parcel(url)).await, Err(NotTold(why.to_owned())), "{url}");
    }
}

/// What counts is the status: a receiver that says 200 and goes on talking was told.
#[tokio::test]
async fn an_answer_without_end_is_neither_read_nor_waited_for_to_its_end() {
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
    hooks(&["127.0.0.1"]).tell(&parcel(&endless.url)).await.unwrap();
    let written = timeout(PATIENCE, written.recv()).await.unwrap().unwrap();
    // What the system buffers on the way is beyond us.
    assert!(written < 32 * 1024 * 1024, "{written}");

    let stuck = Server::start(|mut visit| async move {
        visit.request().await;
        visit.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
        std::future::pending::<()>().await;
    })
    .await;
    let told = timeout(PATIENCE, impatient().tell(&parcel(&stuck.url))).await;
    assert_eq!(told, Ok(Ok(())));
}

#[tokio::test]
async fn what_is_no_answer_is_not_told() {
    for answer in ["", "c4n4ry\r\n\r\n", "HTTP/1.1 200", "HTTP/1.1 20x OK\r\n\r\n"] {
        let server = Server::answering(answer).await;
        let NotTold(why) = hooks(&["127.0.0.1"]).tell(&parcel(&server.url)).await.unwrap_err();
        assert!(why.starts_with("the exchange failed: ") && !why.contains("c4n4ry"), "{why}");
    }
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "c4n4ry".repeat(20_000));
    let server = Server::answering(huge).await;
    let NotTold(why) = hooks(&["127.0.0.1"]).tell(&parcel(&server.url)).await.unwrap_err();
    assert!(why.len() <= 200 && !why.contains("c4n4ry"), "{why}");
}

#[tokio::test]
async fn nobody_listening_is_not_told_and_shows_neither_path_nor_token() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/c4n4ry?c4n4ry", listener.local_addr().unwrap());
    drop(listener);
    let NotTold(why) = hooks(&["127.0.0.1"]).tell(&parcel(&url)).await.unwrap_err();
    assert!(why.starts_with("cannot connect: "), "{why}");
    assert!(!why.contains("c4n4ry") && !why.contains("canary"), "{why}");
}

#[tokio::test]
async fn an_id_that_would_break_the_head_is_not_sent() {
    let server = Server::answering(ok("")).await;
    let parcel = Parcel { id: "msg\r\nx: y".into(), ..parcel(&server.url) };
    let not_told = hooks(&["127.0.0.1"]).tell(&parcel).await.unwrap_err();
    assert!(not_told.0.contains("its id"), "{not_told}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn debug_output_shows_no_secret() {
    let config = HooksConfig {
        extra_root_pem: Some(certificate("localhost").cert.pem().into_bytes()),
        ..config(&["hooks.internal:8080"])
    };
    let shown = format!("{config:?}");
    assert!(shown.contains("hooks.internal:8080"), "{shown}");
    let hooks = Hooks::new(config, Arc::new(HandClock::default())).unwrap();
    let parcel = parcel("https://x/c4n4ry");
    let shown = format!("{shown} {hooks:?} {parcel:?} {:?}", parcel.notice);
    for hidden in ["whsec_", &STANDARD.encode(KEY), "c4n4ry", "canary", "BEGIN"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused_at_start() {
    let refused = |config| Hooks::new(config, Arc::new(HandClock::default())).unwrap_err();
    let roots = HooksConfig { extra_root_pem: Some(b"none".to_vec()), ..config(&[]) };
    assert!(matches!(refused(roots), BadHooks::Tls(BadUpstream::Roots(_))));
    let agent = HooksConfig { user_agent: "a\nb".into(), ..config(&[]) };
    assert_eq!(refused(agent), BadHooks::UserAgent);
    let secret = refused(HooksConfig::new(Secret::new("c4n4ry")));
    assert!(!format!("{secret} {secret:?}").contains("c4n4ry"));
    assert_eq!(
        secret.to_string(),
        "`callbacks.secret` cannot be used: it does not begin with whsec_; write whsec_ and the base64 of 24 to 64 random bytes, best as env:NAME or file:PATH"
    );
}
