//! Every row of "transport-level outcomes of a submit": the event, and whether a task may exist.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    ports::{Provider as _, Submission},
    retry::Code,
    secret::Secret,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use upstream::{BadUpstream, Upstream, UpstreamConfig};

use crate::support::{
    HandClock, KEY, Server, attempt, challenge, config, ok, short_timeouts, task, upstream,
};

const ACCEPTED: &str = r#"{"status":1,"request":"2122988149"}"#;

async fn submit(config: UpstreamConfig) -> Submission {
    let submission = upstream(config).submit(&challenge(), attempt()).await;
    assert!(!format!("{submission:?}").contains(KEY), "{submission:?}");
    submission
}

/// Submits to a server that answers with these bytes, and checks that there was one request.
async fn answered(bytes: impl Into<Vec<u8>>) -> Submission {
    let server = Server::answering(bytes).await;
    let submission = submit(config(&server.url)).await;
    assert_eq!((server.connections(), server.requests().len()), (1, 1), "submitted once");
    submission
}

fn why_ambiguous(submission: Submission) -> String {
    match submission {
        Submission::Ambiguous { why, .. } => {
            assert!((1..=200).contains(&why.len()) && !why.contains("body-text"), "{why}");
            why
        }
        Submission::Accepted(_) | Submission::Rejected { .. } | Submission::NotSent(_) => {
            panic!("a task may exist, but: {submission:?}")
        }
    }
}

#[tokio::test]
async fn a_valid_id_is_an_accepted_task() {
    assert_eq!(answered(ok(ACCEPTED)).await, Submission::Accepted(task("2122988149")));
    assert_eq!(answered(ok("OK|2122988149")).await, Submission::Accepted(task("2122988149")));
}

#[tokio::test]
async fn the_key_is_sent_in_the_body_only() {
    let server = Server::answering(ok(ACCEPTED)).await;
    let config = UpstreamConfig { user_agent: "tester/1".into(), ..config(&server.url) };
    submit(config).await;
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /in.php HTTP/1.1\r\n"), "{head}");
    assert!(!head.contains(KEY), "{head}");
    for line in ["accept-encoding: identity", "connection: close", "user-agent: tester/1"] {
        assert!(head.lines().any(|sent| sent == line), "{line} is missing in {head}");
    }
    assert!(head.contains(&format!("host: {}", server.url.strip_prefix("http://").unwrap())));
    assert!(body.contains(&format!("key={KEY}")) && body.contains("json=1"), "{body}");
    assert!(body.contains("method=turnstile"), "{body}");
    assert!(body.contains("action=a%26b%3Dc"), "values cannot break out: {body}");
    assert!(!body.contains("soft_id") && !body.contains("pingback"), "{body}");
}

#[tokio::test]
async fn a_code_in_a_well_formed_body_is_a_refusal() {
    for body in [r#"{"status":0,"request":"ERROR_NO_SLOT_AVAILABLE"}"#, "ERROR_NO_SLOT_AVAILABLE"] {
        let code = Code::new("ERROR_NO_SLOT_AVAILABLE");
        let refused = Submission::Rejected { code, retry_after: None };
        assert_eq!(answered(ok(body)).await, refused, "{body}");
    }
}

#[tokio::test]
async fn a_code_that_quotes_the_key_is_redacted() {
    let body = format!(r#"{{"status":0,"request":"https://example.com/why?key={KEY}"}}"#);
    let code = Code::new("https://example.com/why?key=…");
    assert_eq!(answered(ok(&body)).await, Submission::Rejected { code, retry_after: None });
}

#[tokio::test]
async fn http_429_is_a_refusal_with_its_retry_after() {
    for (headers, wait) in [
        ("retry-after: 7\r\ncontent-length: 0\r\n", Some(7)),
        ("retry-after: soon\r\ncontent-length: 0\r\n", None),
        ("content-length: 0\r\n", None),
        // Only the status matters, so a truncated body changes nothing.
        ("retry-after: 7\r\ncontent-length: 500\r\n", Some(7)),
    ] {
        let bytes = format!("HTTP/1.1 429 Too Many Requests\r\n{headers}\r\n");
        let retry_after = wait.map(Duration::from_secs);
        let refused = Submission::Rejected { code: Code::new("HTTP_429"), retry_after };
        assert_eq!(answered(bytes).await, refused, "{headers}");
    }
}

#[tokio::test]
async fn a_refused_connection_sends_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let submission = submit(config(&format!("http://{closed}"))).await;
    assert!(matches!(&submission, Submission::NotSent(why) if why.contains("cannot connect")));
}

/// The outcome is a race, but "not sent" must always be true.
#[tokio::test]
async fn not_sent_means_that_no_byte_arrived() {
    for _ in 0..50 {
        let received = Arc::new(AtomicUsize::new(0));
        let server = Server::start({
            let received = Arc::clone(&received);
            move |mut visit| {
                let received = Arc::clone(&received);
                async move {
                    visit.stream.shutdown().await.unwrap();
                    let mut bytes = Vec::new();
                    visit.stream.read_to_end(&mut bytes).await.ok();
                    received.store(bytes.len() + 1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let submission = submit(config(&server.url)).await;
        while received.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        match submission {
            Submission::NotSent(_) => assert_eq!(received.load(Ordering::SeqCst) - 1, 0),
            Submission::Ambiguous { .. } => {}
            other @ (Submission::Accepted(_) | Submission::Rejected { .. }) => panic!("{other:?}"),
        }
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_request_is_ambiguous() {
    why_ambiguous(answered("").await);
    // Closing with unread bytes resets the connection.
    let server = Server::start(|mut visit| async move {
        visit.stream.read_exact(&mut [0; 16]).await.unwrap();
    })
    .await;
    why_ambiguous(submit(config(&server.url)).await);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn any_status_but_200_is_ambiguous_even_with_a_valid_body() {
    for status in [201, 204, 302, 400, 403, 404, 500, 502, 503, 504] {
        let bytes = ok(ACCEPTED).replace("200 OK", &format!("{status} Odd"));
        assert_eq!(why_ambiguous(answered(bytes).await), format!("HTTP {status}"));
    }
}

#[tokio::test]
async fn an_ambiguous_reply_keeps_its_retry_after() {
    let bytes = "HTTP/1.1 503 Odd\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let submission = answered(bytes).await;
    let wait = std::time::Duration::from_secs(7);
    let kept =
        matches!(submission, Submission::Ambiguous { retry_after: Some(w), .. } if w == wait);
    assert!(kept, "{submission:?}");
}

#[tokio::test]
async fn a_redirect_is_never_followed() {
    let elsewhere = Server::answering(ok(ACCEPTED)).await;
    for status in [301, 302, 303, 307, 308] {
        let url = &elsewhere.url;
        let bytes = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {url}/in.php\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(why_ambiguous(answered(bytes).await), format!("HTTP {status}"));
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_truncated_answer_is_ambiguous() {
    let half = &ACCEPTED[..25];
    for bytes in [
        format!("HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{half}"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n19\r\n{half}\r\n"),
        format!("HTTP/1.1 200 OK\r\n\r\n{half}"),
        "HTTP/1.1 200 OK\r\ncontent-le".to_owned(),
        // A truncated plain-text id still looks like an id; only the length reveals it.
        "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nOK|21229".to_owned(),
    ] {
        why_ambiguous(answered(bytes).await);
    }
}

#[tokio::test]
async fn garbage_with_status_200_is_ambiguous_and_never_quoted() {
    for body in [
        "",
        "<html><body>body-text</body></html>",
        "body-text",
        r#"{"error":"body-text"}"#,
        r#"{"status":1,"request":""}"#,
        r#"{"status":1,"request":"1|body-text"}"#,
        r#"{"status":1}"#,
        "OK|",
        "null",
    ] {
        why_ambiguous(answered(ok(body)).await);
    }
    why_ambiguous(answered("SSH-2.0-body-text\r\n").await);
    why_ambiguous(
        answered(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\xff\xfe\x00".to_vec()).await,
    );
}

#[tokio::test]
async fn a_compressed_reply_is_not_decompressed() {
    let bytes = ok(ACCEPTED).replace("200 OK\r\n", "200 OK\r\ncontent-encoding: gzip\r\n");
    assert!(why_ambiguous(answered(bytes).await).contains("compressed"));
    let bytes = ok(ACCEPTED).replace("200 OK\r\n", "200 OK\r\ncontent-encoding: identity\r\n");
    assert!(matches!(answered(bytes).await, Submission::Accepted(_)));
}

#[tokio::test]
async fn an_endless_reply_is_cut_off_at_the_limit() {
    let written = Arc::new(AtomicUsize::new(0));
    let server = Server::start({
        let written = Arc::clone(&written);
        move |mut visit| {
            let written = Arc::clone(&written);
            async move {
                visit.request().await;
                visit.write(b"HTTP/1.1 200 OK\r\n\r\n").await;
                for _ in 0..6400 {
                    if visit.stream.write_all(&[b' '; 16 * 1024]).await.is_err() {
                        return;
                    }
                    written.fetch_add(16 * 1024, Ordering::SeqCst);
                }
            }
        }
    })
    .await;
    assert!(why_ambiguous(submit(config(&server.url)).await).contains("too long"));
    // Bytes beyond the limit are in the sockets' buffers.
    assert!(written.load(Ordering::SeqCst) < 32 * 1024 * 1024);
    let megabyte = "x".repeat(1024 * 1024);
    assert!(why_ambiguous(answered(ok(&megabyte)).await).contains("too long"));
}

#[tokio::test]
async fn an_endless_head_is_cut_off_too() {
    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1024 * 1024));
    why_ambiguous(answered(head).await);
}

#[tokio::test]
async fn silence_after_the_request_is_ambiguous() {
    let server = Server::start(|mut visit| async move {
        visit.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    assert!(why_ambiguous(submit(short_timeouts(&server.url)).await).contains("timeout"));
    let first_byte_timeout = Duration::from_millis(200);
    let config = UpstreamConfig { first_byte_timeout, ..config(&server.url) };
    assert!(why_ambiguous(submit(config).await).contains("no answer within"));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_slow_reply_times_out() {
    let server = Server::start(|mut visit| async move {
        visit.request().await;
        visit.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n").await;
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        for _ in 0..1000 {
            tick.tick().await;
            visit.write(b" ").await;
        }
    })
    .await;
    assert!(why_ambiguous(submit(short_timeouts(&server.url)).await).contains("no whole answer"));
}

#[tokio::test]
async fn an_unread_request_is_ambiguous() {
    let server = Server::start(|visit| async move {
        let _held = visit;
        std::future::pending::<()>().await;
    })
    .await;
    why_ambiguous(submit(short_timeouts(&server.url)).await);
}

#[tokio::test]
async fn every_submission_uses_a_new_connection() {
    let server = Server::keeping_alive(ACCEPTED).await;
    let upstream = upstream(config(&server.url));
    for _ in 0..3 {
        let submission = upstream.submit(&challenge(), attempt()).await;
        assert!(matches!(submission, Submission::Accepted(_)), "{submission:?}");
    }
    assert_eq!(server.connections(), 3);
}

#[test]
fn nothing_prints_the_key() {
    let config = UpstreamConfig {
        extra_root_pem: Some(b"canary-pem".to_vec()),
        ..config("http://127.0.0.1:9/canary-path")
    };
    let shown = format!("{config:?}");
    assert!(!shown.contains(KEY) && !shown.contains("canary-p"), "{shown}");
    let shown = format!("{:?}", upstream(config));
    assert!(!shown.contains(KEY) && !shown.contains("pem"), "{shown}");
}

#[test]
fn an_upstream_without_a_key_is_refused_at_start() {
    let config = UpstreamConfig { key: Secret::new(" "), ..config("http://127.0.0.1:9") };
    let refused = Upstream::new(config, Arc::new(HandClock::default())).unwrap_err();
    assert_eq!(refused, BadUpstream::NoKey);
}
