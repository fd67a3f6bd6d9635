//! A scripted provider, a manual clock and a challenge.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    id::{AttemptName, Nonce, SolveId, TaskId},
    ports::Clock,
    secret::Secret,
    site::PageUrl,
    time::Timestamp,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use upstream::{Upstream, UpstreamConfig};

/// The account's key in all tests; it must appear in request bodies only.
pub(crate) const KEY: &str = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry32";

/// The test timeout, generous for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A provider that runs one script for each connection.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
pub(crate) struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

/// One connection, for the script.
pub(crate) struct Visit<S = TcpStream> {
    pub(crate) stream: S,
    pub(crate) number: usize,
    pub(crate) seen: Arc<Seen>,
}

#[derive(Debug, Default)]
pub(crate) struct HandClock(AtomicU64);

// === impl Server ===

impl Server {
    /// Runs `script` for every connection until it is dropped.
    pub(crate) async fn start<F, T>(script: F) -> Self
    where
        F: Fn(Visit) -> T + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let seen = Arc::clone(&seen);
            async move {
                let mut visits = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let number = seen.connections.fetch_add(1, Ordering::SeqCst) + 1;
                    visits.spawn(script(Visit { stream, number, seen: Arc::clone(&seen) }));
                }
            }
        });
        Self { url, seen, _tasks: tasks }
    }

    /// Reads one request per connection, answers with these bytes, closes.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into().into();
        Self::start(move |mut visit| {
            let bytes = Arc::clone(&bytes);
            async move {
                visit.request().await;
                visit.write(&bytes).await;
            }
        })
        .await
    }

    /// Answers every request of a connection with the same body.
    pub(crate) async fn keeping_alive(body: &str) -> Self {
        let bytes: Arc<str> = ok(body).into();
        Self::start(move |mut visit| {
            let bytes = Arc::clone(&bytes);
            async move {
                while visit.request().await.is_some() {
                    visit.write(bytes.as_bytes()).await;
                }
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }
}

// === impl Visit ===

impl<S: AsyncRead + AsyncWrite + Unpin> Visit<S> {
    /// Reads and records one request; `None` if the client disconnects first.
    pub(crate) async fn request(&mut self) -> Option<()> {
        let mut text = String::new();
        loop {
            let mut buf = [0; 4096];
            let read = self.stream.read(&mut buf).await.ok().filter(|read| *read > 0)?;
            text.push_str(std::str::from_utf8(&buf[..read]).unwrap());
            if is_whole(&text) {
                self.seen.requests.lock().unwrap().push(text);
                return Some(());
            }
        }
    }

    /// Writes as much as the client reads.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).await.is_ok() {
            self.stream.flush().await.ok();
        }
    }
}

fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    body.len() >= length.parse().unwrap()
}

// === impl HandClock ===

impl HandClock {
    pub(crate) fn turn(&self, length: Duration) {
        self.0.fetch_add(u64::try_from(length.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: Timestamp) {
        while self.now() < at {
            tokio::task::yield_now().await;
        }
    }
}

// === helpers ===

/// A reply with status 200 and a length.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Long timeouts, for tests that must not time out on a busy machine.
pub(crate) fn config(url: &str) -> UpstreamConfig {
    UpstreamConfig::new(url, Secret::new(KEY))
}

/// Short timeouts, for tests of timeouts.
pub(crate) fn short_timeouts(url: &str) -> UpstreamConfig {
    let short = Duration::from_millis(300);
    UpstreamConfig { submit_timeout: short, poll_timeout: short, ..config(url) }
}

pub(crate) fn upstream(config: UpstreamConfig) -> Upstream {
    Upstream::new(config, Arc::new(HandClock::default())).unwrap()
}

pub(crate) fn challenge() -> Challenge {
    let pageurl = PageUrl::parse("https://shop.example.com/login").unwrap();
    let draft = ChallengeParts {
        sitekey: Some("0x4AAA".into()),
        pageurl: Some(pageurl),
        params: [("action".to_owned(), "a&b=c".to_owned())].into(),
        ..ChallengeParts::default()
    };
    Challenge::new(Kind::Turnstile, draft).unwrap()
}

pub(crate) fn attempt() -> AttemptName {
    let solve = SolveId::from_number(123_456_789_012_345);
    AttemptName { solve, attempt: 2, nonce: Nonce::from_number(77) }
}

pub(crate) fn task(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}
