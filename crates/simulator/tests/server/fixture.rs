//! A simulated provider, a clock moved by hand and a bare socket.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{ports::Clock, time::Timestamp};
use serde_json::Value;
use simulator::{BehaviourConfig, Call, Fault, Planned, Sim, SimConfig, SimHandle};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// A clock that the test sets; its sleep returns at once.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicU64);

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.fetch_max(at.millis(), Ordering::SeqCst);
    }
}

/// A running provider and its time.
pub(crate) struct ServerFixture {
    pub(crate) sim: SimHandle,
    pub(crate) clock: Arc<ManualClock>,
}

/// The bytes received before the connection closed.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A key of the right length.
pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";
/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

// === impl ServerFixture ===

impl ServerFixture {
    pub(crate) async fn new() -> Self {
        Self::with(BehaviourConfig::new(1)).await
    }

    pub(crate) async fn with(behaviour: BehaviourConfig) -> Self {
        let clock = Arc::new(ManualClock(AtomicU64::new(1_800_000_000_000)));
        let behaviour = behaviour.solving_in(Duration::from_secs(10));
        let config = SimConfig { clock: clock.clone(), ..SimConfig::new(behaviour) };
        Self { sim: Sim::start(config).await.expect("loopback works"), clock }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub(crate) fn plan(&self, on: Call, fault: Fault, accepted: bool) {
        self.sim.account().plan(Planned { accepted, ..Planned::next(on, fault) });
    }

    /// Sends a request as it is and reads until the connection is closed.
    pub(crate) async fn send(&self, head: &str, body: &[u8]) -> HttpReply {
        let mut stream = TcpStream::connect(self.sim.addr()).await.expect("loopback works");
        let length = body.len();
        let head =
            format!("{head}\r\nHost: sim\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("loopback works");
        stream.write_all(body).await.expect("loopback works");
        let mut all = Vec::new();
        // A reset is an end like any other here.
        drop(timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("an end in time"));
        HttpReply::read(&all)
    }

    pub(crate) async fn get(&self, path: &str) -> HttpReply {
        self.send(&format!("GET {path} HTTP/1.1"), b"").await
    }

    pub(crate) async fn submit(&self, fields: &str) -> String {
        self.get(&format!("/in.php?key={KEY}&{fields}")).await.text()
    }

    pub(crate) async fn fetch(&self, fields: &str) -> String {
        self.get(&format!("/res.php?key={KEY}&{fields}")).await.text()
    }

    /// The task a plain submission was answered with.
    pub(crate) async fn task(&self, fields: &str) -> String {
        let text = self.submit(fields).await;
        text.strip_prefix("OK|").unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    pub(crate) fn paid(&self) -> usize {
        self.sim.account().ledger().accepted.len()
    }
}

// === impl HttpReply ===

impl HttpReply {
    fn read(all: &[u8]) -> Self {
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let (head, body) = all.split_at(end.unwrap_or(0));
        Self { head: String::from_utf8_lossy(head).to_lowercase(), body: body.to_vec() }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn text(&self) -> String {
        assert_eq!(self.status(), 200, "{self:?}");
        String::from_utf8(self.body.clone()).expect("the reply is text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the reply is JSON")
    }
}
