//! The DynamoDB store when the table is slow, refuses requests, or loses replies.

mod common;
mod compaction;
mod faults;
mod notifications;

use store_tests::servers::shared_dynamodb;

/// The shared server. Gateways read most commits from the log.
fn rarely_compacting() -> String {
    shared_dynamodb().any_table()
}

/// The shared server with compaction after every few commits, so that gateways read mostly segments.
fn often_compacting() -> String {
    often_compacting_at(&rarely_compacting())
}

/// The same for the URL of a table.
fn often_compacting_at(url: &str) -> String {
    format!("{url}&file_every=3")
}

async fn open(url: &str) -> stores::Backend {
    stores::migrate(url).await.expect("the table can be created");
    stores::connect(url).await.expect("the private server is up")
}
