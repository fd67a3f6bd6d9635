//! The DynamoDB store keeps its promises when the table is slow, refuses, or forgets to answer.

mod bells;
mod common;
mod faults;
mod filing;

use store_tests::servers::shared_dynamodb;

/// The shared server. Its commits are read from the log.
fn seldom() -> String {
    shared_dynamodb().any_table()
}

/// The same, with commits filed after a few, so that most is read from sheets.
fn often() -> String {
    often_at(&seldom())
}

/// The same at a table's URL.
fn often_at(url: &str) -> String {
    format!("{url}&file_every=3")
}

async fn open(url: &str) -> stores::Backend {
    stores::migrate(url).await.expect("the table can be made");
    stores::connect(url).await.expect("the private server is up")
}
