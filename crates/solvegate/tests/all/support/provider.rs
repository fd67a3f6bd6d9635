//! A provider that accepts everything and keeps what it was sent, as a judge of what leaves the gateway.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, routing::any};
use tokio::{net::TcpListener, task::JoinHandle};
use url::form_urlencoded;

/// The fields of one submission.
pub(crate) type Sent = BTreeMap<String, String>;

type Log = Arc<Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    sent: Vec<Sent>,
    /// The answer to every submission, instead of an id.
    refusal: Option<&'static str>,
}

pub(crate) struct LoggingProvider {
    pub(crate) url: String,
    log: Log,
    server: JoinHandle<()>,
}

// === impl LoggingProvider ===

impl LoggingProvider {
    pub(crate) async fn start() -> Self {
        let log = Log::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/in.php", any(submit))
            .route("/res.php", any(async || "CAPCHA_NOT_READY"))
            .with_state(Arc::clone(&log));
        #[expect(clippy::disallowed_methods, reason = "a test outside the process under test")]
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, log, server }
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().sent.clone()
    }

    /// Answers every submission with this code from now on, or accepts all again.
    pub(crate) fn refuse_all(&self, code: Option<&'static str>) {
        self.log.lock().unwrap().refusal = code;
    }
}

impl Drop for LoggingProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn submit(State(log): State<Log>, body: String) -> String {
    let mut log = log.lock().unwrap();
    log.sent.push(form_urlencoded::parse(body.as_bytes()).into_owned().collect());
    log.refusal.map_or_else(|| format!("OK|{}", 1000 + log.sent.len()), str::to_owned)
}
