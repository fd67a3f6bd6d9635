//! The Redis store does what every store must, on one server and on a cluster, and keeps its promises when the server
//! does not.

mod bells;
mod cluster;
mod crowds;
mod differential;
#[path = "../gateways/mod.rs"]
mod gateways;
mod keys;
mod losses;
#[path = "../schedule/mod.rs"]
mod schedule;
mod single;
mod skew;
mod tls;

use std::sync::atomic::{AtomicU64, Ordering};

use stores::conformance::Fresh;

/// A store under keys of its own.
async fn fresh(url: &str) -> Fresh {
    Fresh { backend: connect(url, &prefix()).await, keep: Box::new(()) }
}

async fn connect(url: &str, prefix: &str) -> stores::Backend {
    stores::connect(&format!("{url}?prefix={prefix}")).await.expect("the private server is up")
}

/// Nobody else's keys.
fn prefix() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", DRAWN.fetch_add(1, Ordering::Relaxed))
}
