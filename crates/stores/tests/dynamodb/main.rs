//! The DynamoDB store does what every store must, and keeps its promises when the table is slow, refuses, or forgets to answer.

mod bells;
mod common;
mod faults;
mod filing;
#[expect(dead_code, reason = "hints come with the log here, not by themselves")]
#[path = "../gateways/mod.rs"]
mod gateways;
mod often;
#[path = "../schedule/mod.rs"]
mod schedule;
mod seldom;

use std::sync::atomic::{AtomicU64, Ordering};

use stores::conformance::{Fresh, servers::shared_dynamodb};

/// A store in a table of its own.
async fn fresh(options: &str) -> Fresh {
    Fresh { backend: connect(options, &prefix()).await, keep: Box::new(()) }
}

/// A store in a table of the shared server.
async fn connect(options: &str, table: &str) -> stores::Backend {
    open(&format!("{}{options}", shared_dynamodb().url(table))).await
}

async fn open(url: &str) -> stores::Backend {
    stores::migrate(url).await.expect("the table can be made");
    stores::connect(url).await.expect("the private server is up")
}

/// Nobody else's table.
fn prefix() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", DRAWN.fetch_add(1, Ordering::Relaxed))
}
