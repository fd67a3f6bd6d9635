//! The PostgreSQL store does what every store must, on a server and through a pooler, and keeps its promises when
//! connections end and the server crashes.

mod bells;
mod common;
mod direct;
#[path = "../gateways/mod.rs"]
mod gateways;
mod losses;
mod pooled;
#[path = "../schedule/mod.rs"]
mod schedule;
mod schema;
mod secure;
mod trust;

use std::sync::atomic::{AtomicU64, Ordering};

use stores::conformance::{
    Fresh,
    servers::{PostgresServer, shared_bouncer, shared_postgres},
};

/// A store in a schema of its own.
async fn fresh(url: &str) -> Fresh {
    Fresh { backend: connect(url, &prefix()).await, keep: Box::new(()) }
}

async fn connect(url: &str, schema: &str) -> stores::Backend {
    let join = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{join}schema={schema}");
    stores::connect(&url).await.expect("the private server is up")
}

/// A server through something else, with the way past it for hints.
fn through(url: &str, server: &PostgresServer) -> String {
    let direct = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    format!("{url}?listen={direct}")
}

/// The shared server through its pooler.
fn pooled_url() -> String {
    through(&shared_bouncer().url(), shared_postgres())
}

/// Nobody else's schema.
fn prefix() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", DRAWN.fetch_add(1, Ordering::Relaxed))
}
