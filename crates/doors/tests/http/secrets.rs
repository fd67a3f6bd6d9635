//! Keys, tokens and pages never reach the log.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::fmt::MakeWriter;

use crate::{
    callbacks::Receiver,
    world::{Setting, WORKER, World, turnstile},
};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn the_log_has_worker_and_route_but_no_secret() {
    let sink = Sink::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(sink.clone())
        .finish();
    let _until_the_end = tracing::subscriber::set_default(subscriber);
    let mut receiver = Receiver::open().await;
    let callback_hosts = Some(vec![receiver.host.clone()]);
    let world = World::with(Setting { callback_hosts, ..Setting::default() }).await;
    let target = format!(
        "/in.php?key={WORKER}&method=turnstile&sitekey=canary-sitekey&userAgent=canary-agent\
         &pageurl=https://shop.example.com/canary-page&proxy=u:canary-proxy@h:1&proxytype=HTTP"
    );
    let is_logged = |line: &str| {
        line.contains(" doors::") && line.contains("/in.php") && line.contains("worker=\"one\"")
    };
    let mut id = world.php(&target).await.body.replacen("OK|", "", 1);
    // Tests on other threads have no subscriber. When one of them reaches a log statement first at this moment,
    // `tracing` caches it as disabled until its cache is rebuilt.
    for _ in 0..100 {
        if sink.text().lines().any(is_logged) {
            break;
        }
        tracing::callsite::rebuild_interest_cache();
        id = world.php(&target).await.body.replacen("OK|", "", 1);
    }
    let token = world.php(&format!("/res.php?key={WORKER}&action=get&id={id}")).await.body;
    let token = token.strip_prefix("OK|").unwrap();
    world.get("/canary-path", "canary-key-canary-key-canary-key").await;
    world.claim("0x4A", &["Idempotency-Key: canary-idempotency"]).await;
    for host in [receiver.host.as_str(), "10.0.0.1"] {
        let member = format!(r#"{{"callback_url":"http://{host}/canary-hook","#);
        let body = turnstile("0x4B").replacen('{', &member, 1);
        world.post("/v1/solves", WORKER, &[], &body).await;
    }
    receiver.notice().await;
    let log = sink.text();
    assert!(log.lines().any(is_logged), "{log}");
    for secret in [WORKER, token, "canary"] {
        let leaks: Vec<_> = log.lines().filter(|line| line.contains(secret)).collect();
        assert!(leaks.is_empty(), "{secret} in {leaks:?}");
    }
}
