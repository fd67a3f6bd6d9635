//! A corner of a shared server: a key prefix, schema or table that no other case uses.

use std::sync::atomic::{AtomicU64, Ordering};

use stores::Backend;

/// Placeholder in a `dynamodb:` URL for the corner's table.
pub(crate) const ANY_TABLE: &str = "any-table";

/// A name that is unique in this process.
pub fn fresh_corner() -> String {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// Opens a store in a corner of the server at this URL.
pub async fn connect_to_corner(server: &str, corner: &str) -> Backend {
    let url = url_of_corner(server, corner);
    if url.starts_with("dynamodb:") {
        stores::migrate(&url).await.expect("the table can be created");
    }
    stores::connect(&url).await.expect("the private server is up")
}

fn url_of_corner(server: &str, corner: &str) -> String {
    if server.starts_with("dynamodb:") {
        return server.replacen(ANY_TABLE, corner, 1);
    }
    let option = if server.starts_with("postgres") { "schema" } else { "prefix" };
    let join = if server.contains('?') { '&' } else { '?' };
    format!("{server}{join}{option}={corner}")
}
