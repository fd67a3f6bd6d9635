//! A corner of a shared server: a key prefix, schema or table that no other case uses.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use domain::{ports::Chance, secret::Secret};
use stores::{Backend, EncryptionKey, Keyring, OpenError};

/// Placeholder in a `dynamodb:` URL for the corner's table.
pub(crate) const ANY_TABLE: &str = "any-table";

/// A name that is unique in this process.
pub fn fresh_corner() -> String {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    format!("case{}", GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// Opens a store in a corner of the server at this URL.
pub async fn connect_to_corner(server: &str, corner: &str) -> Backend {
    connect_sealed_to_corner(server, corner, None).await.expect("the private server is up")
}

/// Opens a store in a corner of the server at this URL, with encryption keys.
pub async fn connect_sealed_to_corner(
    server: &str,
    corner: &str,
    keys: Option<&'static Keyring>,
) -> Result<Backend, OpenError> {
    let url = url_of_corner(server, corner);
    if url.starts_with("dynamodb:") {
        stores::migrate(&url).await.expect("the table can be created");
    }
    stores::connect_sealed(&url, keys).await
}

/// An encryption key: 32 bytes that count up from `first`.
pub fn encryption_key(first: u8) -> EncryptionKey {
    let text = (first..).take(32).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    EncryptionKey::parse(&Secret::new(text)).expect("bytes that count up are all different")
}

/// The keyring of a gateway: its key, and the one before it.
pub fn keyring(current: u8, old: Option<u8>) -> &'static Keyring {
    let old = old.map(encryption_key);
    Keyring::new(&encryption_key(current), old.as_ref(), Arc::new(Counter))
}

/// Numbers that no other keyring of this process gets: a nonce must not repeat.
#[derive(Debug)]
struct Counter;

impl Chance for Counter {
    fn draw(&self) -> u64 {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        DRAWN.fetch_add(1, Ordering::Relaxed)
    }
}

fn url_of_corner(server: &str, corner: &str) -> String {
    if server.starts_with("dynamodb:") {
        return server.replacen(ANY_TABLE, corner, 1);
    }
    let option = if server.starts_with("postgres") { "schema" } else { "prefix" };
    let join = if server.contains('?') { '&' } else { '?' };
    format!("{server}{join}{option}={corner}")
}
