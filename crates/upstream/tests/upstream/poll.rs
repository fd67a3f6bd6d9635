//! Calls that cost nothing: the meaning of replies, reuse of connections, caching of the balance.

use std::{sync::Arc, time::Duration};

use domain::{
    money::Money,
    ports::{Fault, Feedback, Poll, Polled, Provider as _, Threads},
    retry::Code,
};
use tokio::time::timeout;
use upstream::{Upstream, UpstreamConfig};

use crate::support::{HandClock, KEY, Server, config, ok, short_timeouts, task, upstream};

const NOT_READY: &str = r#"{"status":0,"request":"CAPCHA_NOT_READY"}"#;

async fn poll(config: UpstreamConfig) -> Polled {
    upstream(config).poll(&task("7")).await
}

async fn answered(bytes: impl Into<Vec<u8>>) -> Poll {
    let server = Server::answering(bytes).await;
    let polled = poll(config(&server.url)).await;
    assert_eq!((server.requests().len(), polled.price), (1, None), "asked once");
    polled.poll
}

fn fault(poll: Poll) -> Fault {
    match poll {
        Poll::Fault(fault) => {
            assert!(!fault.why.is_empty() && !fault.why.contains("body-text"), "{fault}");
            fault
        }
        Poll::NotReady | Poll::Solved(_) | Poll::Code(_) => {
            panic!("not intelligible, but {poll:?}")
        }
    }
}

/// Lets pending events on the loopback be processed.
async fn settle() {
    timeout(Duration::from_millis(100), std::future::pending::<()>()).await.unwrap_err();
}

#[tokio::test]
async fn a_poll_returns_the_reply_of_the_provider() {
    assert_eq!(answered(ok(NOT_READY)).await, Poll::NotReady);
    assert_eq!(answered(ok("CAPCHA_NOT_READY")).await, Poll::NotReady);
    let body = r#"{"status":0,"request":"ERROR_CAPTCHA_UNSOLVABLE"}"#;
    assert_eq!(answered(ok(body)).await, Poll::Code(Code::new("ERROR_CAPTCHA_UNSOLVABLE")));
    match answered(ok(r#"{"status":1,"request":"a|b"}"#)).await {
        Poll::Solved(answer) => assert_eq!(answer.text.expose(), "a|b"),
        other @ (Poll::NotReady | Poll::Code(_) | Poll::Fault(_)) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_key_and_the_id_travel_in_the_body() {
    let server = Server::answering(ok(NOT_READY)).await;
    poll(config(&server.url)).await;
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /res.php HTTP/1.1\r\n") && !head.contains(KEY), "{head}");
    for field in [&format!("key={KEY}"), "json=1", "action=get", "id=7"] {
        assert!(body.split('&').any(|sent| sent == field), "{field} is missing in {body}");
    }
}

#[tokio::test]
async fn prices_of_the_provider_are_kept() {
    let body = r#"{"status":1,"request":"token","price":"0.00085"}"#;
    let server = Server::answering(ok(body)).await;
    let polled = poll(UpstreamConfig { priced: true, ..config(&server.url) }).await;
    assert!(matches!(polled.poll, Poll::Solved(_)), "{polled:?}");
    assert_eq!(polled.price, Some(Money::from_micros(850)));
    assert!(server.requests()[0].contains("action=get2"));
}

#[tokio::test]
async fn an_unreadable_reply_is_a_fault_and_never_quoted() {
    for status in [302, 404, 500, 502, 503] {
        let bytes = ok(NOT_READY).replace("200 OK", &format!("{status} Odd"));
        assert_eq!(fault(answered(bytes).await).why, format!("HTTP {status}"));
    }
    for body in ["", "<html>body-text</html>", "body-text", r#"{"body-text":1}"#] {
        fault(answered(ok(body)).await);
    }
    fault(answered("").await);
    fault(answered("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nOK|").await);
    fault(answered(ok(&"x".repeat(1024 * 1024))).await);
}

#[tokio::test]
async fn http_429_is_a_fault_with_its_retry_after() {
    let bytes = "HTTP/1.1 429 Slow Down\r\nretry-after: 9\r\ncontent-length: 0\r\n\r\n";
    let fault = fault(answered(bytes).await);
    assert_eq!(fault.code, Some(Code::new("HTTP_429")));
    assert_eq!(fault.retry_after, Some(Duration::from_secs(9)));
}

#[tokio::test]
async fn polls_share_a_connection() {
    let server = Server::keeping_alive(NOT_READY).await;
    let upstream = upstream(config(&server.url));
    for _ in 0..5 {
        assert_eq!(upstream.poll(&task("7")).await.poll, Poll::NotReady);
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 5));
}

#[tokio::test]
async fn a_closed_connection_is_not_reused() {
    let server = Server::answering(ok(NOT_READY)).await;
    let upstream = upstream(config(&server.url));
    for polls in 1..=3 {
        assert_eq!(upstream.poll(&task("7")).await.poll, Poll::NotReady);
        assert_eq!(server.connections(), polls);
        settle().await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_not_reused_after_its_timeout() {
    let server = Server::keeping_alive(NOT_READY).await;
    let clock = Arc::new(HandClock::default());
    let upstream = Upstream::new(config(&server.url), clock.clone()).unwrap();
    for (wait, connections) in [(0, 1), (30, 1), (31, 2)] {
        clock.turn(Duration::from_secs(wait));
        assert_eq!(upstream.poll(&task("7")).await.poll, Poll::NotReady);
        assert_eq!(server.connections(), connections);
    }
}

/// Otherwise the late reply to the first request would be taken for the reply to the second.
#[tokio::test]
async fn a_connection_with_a_pending_reply_is_not_reused() {
    let server = Server::start(|mut visit| async move {
        visit.request().await;
        if visit.number == 1 {
            timeout(Duration::from_millis(500), std::future::pending::<()>()).await.unwrap_err();
            visit.write(ok(r#"{"status":1,"request":"late"}"#).as_bytes()).await;
        }
        visit.write(ok(NOT_READY).as_bytes()).await;
    })
    .await;
    let upstream = upstream(short_timeouts(&server.url));
    assert!(fault(upstream.poll(&task("7")).await.poll).why.contains("timeout"));
    assert_eq!(upstream.poll(&task("8")).await.poll, Poll::NotReady);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_report_is_recorded_or_refused() {
    let server = Server::keeping_alive(r#"{"status":1,"request":"OK_REPORT_RECORDED"}"#).await;
    let good = upstream(config(&server.url));
    good.report(&task("7"), Feedback::Good).await.unwrap();
    good.report(&task("8"), Feedback::Bad).await.unwrap();
    let requests = server.requests();
    assert!(requests[0].contains("action=reportgood") && requests[0].contains("id=7"));
    assert!(requests[1].contains("action=reportbad") && requests[1].contains("id=8"));

    let server = Server::keeping_alive(r#"{"status":0,"request":"ERROR_DUPLICATE_REPORT"}"#).await;
    let refused = upstream(config(&server.url)).report(&task("7"), Feedback::Bad).await;
    assert_eq!(refused.unwrap_err().code, Some(Code::new("ERROR_DUPLICATE_REPORT")));
}

#[tokio::test]
async fn the_threads_of_the_account_are_returned() {
    let server = Server::keeping_alive(r#"{"threads":"15","working_threads":"4"}"#).await;
    let threads = upstream(config(&server.url)).threads().await;
    assert_eq!(threads, Ok(Threads { total: 15, working: 4 }));
    assert!(server.requests()[0].contains("action=threadsinfo"));
}

#[tokio::test]
async fn the_balance_is_fetched_at_most_every_thirty_seconds() {
    let server = Server::keeping_alive(r#"{"status":1,"request":"12.345"}"#).await;
    let clock = Arc::new(HandClock::default());
    let upstream = Upstream::new(config(&server.url), clock.clone()).unwrap();
    let balance = Ok(Money::from_micros(12_345_000));
    let (one, two) = tokio::join!(upstream.balance(), upstream.balance());
    assert_eq!((&one, &two), (&balance, &balance));
    clock.turn(Duration::from_millis(29_999));
    assert_eq!(upstream.balance().await, balance);
    assert_eq!(server.requests().len(), 1);
    clock.turn(Duration::from_millis(1));
    assert_eq!(upstream.balance().await, balance);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_refused_key_is_cached_too() {
    let server =
        Server::keeping_alive(r#"{"status":0,"request":"ERROR_KEY_DOES_NOT_EXIST"}"#).await;
    let upstream = upstream(config(&server.url));
    for _ in 0..5 {
        let fault = upstream.balance().await.unwrap_err();
        assert_eq!(fault.code, Some(Code::new("ERROR_KEY_DOES_NOT_EXIST")));
    }
    assert_eq!(server.requests().len(), 1);
}
