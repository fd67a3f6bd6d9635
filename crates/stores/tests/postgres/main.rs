//! The PostgreSQL store does what every store must, on a server and through a pooler, and keeps its promises when
//! connections end and the server crashes.

mod direct;
#[path = "../gateways/mod.rs"]
mod gateways;
#[path = "../schedule/mod.rs"]
mod schedule;

use std::sync::atomic::{AtomicU64, Ordering};

use stores::conformance::Fresh;

/// A store in a schema of its own.
async fn fresh(url: &str) -> Fresh {
    Fresh { backend: connect(url, &prefix()).await, keep: Box::new(()) }
}

async fn connect(url: &str, schema: &str) -> stores::Backend {
    stores::connect(&format!("{url}?schema={schema}")).await.expect("the private server is up")
}

/// Nobody else's schema.
fn prefix() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", DRAWN.fetch_add(1, Ordering::Relaxed))
}
