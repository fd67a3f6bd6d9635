//! Requests, built once as bytes: only the number in the idempotency key changes.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

/// The challenge of every bench, as a client sends it.
#[derive(Clone, Debug)]
pub(crate) struct ChallengeText {
    pub(crate) sitekey: String,
    pub(crate) pageurl: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// The position of the number that makes every request a different claim.
    number_at: Option<usize>,
}

/// The address of requests, and the worker's key.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// The declared site of every bench.
pub(crate) const HOST: &str = "shop.example.com";

const SITEKEY: &str = "0x4AAAAAAABkMYinukE8nzYS";
/// Replaced by a new number with as many digits.
const NUMBER: &str = "0000000000000000";

/// A number is used once per run, so that every key is a different claim.
static NEXT: AtomicU64 = AtomicU64::new(1);

// === impl ChallengeText ===

impl ChallengeText {
    pub(crate) fn new() -> Self {
        Self { sitekey: SITEKEY.to_owned(), pageurl: format!("https://{HOST}/login") }
    }
}

// === impl Target ===

impl Target {
    /// `GET` without a key, for bare handlers.
    pub(crate) fn bare(&self, path: &str) -> Request {
        Request::fixed(format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address))
    }

    /// A claim with this key; repeated, it is the same claim.
    pub(crate) fn claim(&self, key: &str) -> Request {
        Request::fixed(self.claim_text(key, ""))
    }

    /// A different claim every time.
    pub(crate) fn new_claim(&self) -> Request {
        Request::numbered(self.claim_text(NUMBER, ""))
    }

    /// A different claim every time, answered with its token.
    pub(crate) fn new_claim_to_the_end(&self) -> Request {
        Request::numbered(self.claim_text(NUMBER, "prefer: wait=60\r\n"))
    }

    /// Waits for a claim.
    pub(crate) fn wait_for(&self, id: &str) -> Request {
        let Self { address, key } = self;
        Request::fixed(format!(
            "GET /v1/solves/{id}?wait=60 HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\r\n"
        ))
    }

    /// Fetches a claim through the compatibility API.
    pub(crate) fn res_php(&self, id: &str) -> Request {
        let Self { address, key } = self;
        Request::fixed(format!(
            "GET /res.php?key={key}&action=get&id={id} HTTP/1.1\r\nhost: {address}\r\n\r\n"
        ))
    }

    fn claim_text(&self, idempotency_key: &str, more: &str) -> String {
        let Self { address, key } = self;
        let body = body();
        let length = body.len();
        format!(
            "POST /v1/solves HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
             idempotency-key: {idempotency_key}\r\ncontent-type: application/json\r\n{more}\
             content-length: {length}\r\n\r\n{body}"
        )
    }
}

fn body() -> String {
    let ChallengeText { sitekey, pageurl } = ChallengeText::new();
    format!(r#"{{"kind":"turnstile","sitekey":"{sitekey}","pageurl":"{pageurl}"}}"#)
}

/// The bytes per claim that the gateway must store: the body and the key.
pub(crate) fn stored_bytes() -> usize {
    body().len() + NUMBER.len()
}

// === impl Request ===

impl Request {
    fn fixed(text: String) -> Self {
        Self { bytes: text.into_bytes(), number_at: None }
    }

    fn numbered(text: String) -> Self {
        let number_at = text.find(NUMBER);
        Self { bytes: text.into_bytes(), number_at }
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> &[u8] {
        if let Some(at) = self.number_at {
            let number = format!("{:016}", NEXT.fetch_add(1, Ordering::Relaxed));
            self.bytes[at..at + NUMBER.len()].copy_from_slice(number.as_bytes());
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_new_claim_has_a_key_of_its_own_and_nothing_else_changes() {
        let target = Target { address: "127.0.0.1:1".parse().unwrap(), key: "k".repeat(32) };
        let mut request = target.new_claim();
        let one = String::from_utf8(request.next().to_vec()).unwrap();
        let other = String::from_utf8(request.next().to_vec()).unwrap();
        assert_eq!(one.len(), other.len());
        let differing = one.lines().zip(other.lines()).filter(|(a, b)| a != b);
        let differing: Vec<_> = differing.map(|(line, _)| line.split(':').next()).collect();
        assert_eq!(differing, [Some("idempotency-key")]);
    }
}
