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

type Log = Arc<Mutex<Vec<Sent>>>;

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
        self.log.lock().unwrap().clone()
    }
}

impl Drop for LoggingProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn submit(State(log): State<Log>, body: String) -> String {
    let mut log = log.lock().unwrap();
    log.push(form_urlencoded::parse(body.as_bytes()).into_owned().collect());
    format!("OK|{}", 1000 + log.len())
}
