//! Every bound of the doors in one place, with its default. A limit nobody can exceed is a promise we can keep.

use std::time::Duration;

/// What a caller may ask of the doors before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections altogether.
    pub connections: usize,
    /// Open connections from one address.
    pub connections_per_address: usize,
    /// From accepting a connection, or the first byte of a request, to the end of its head.
    pub head_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// A write that makes no progress for so long ends the connection.
    pub write_timeout: Duration,
    /// A connection without a request for so long is closed.
    pub idle_timeout: Duration,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For requests under way when the process stops.
    pub drain: Duration,
    /// Header lines of a request together, without the request line.
    pub head_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// A JSON body, without its picture.
    pub json_bytes: usize,
    /// A picture in a JSON body, in base64.
    pub image_bytes: usize,
    /// A body on the compat door, picture included.
    pub form_bytes: usize,
    /// HTTP/2 streams of one connection at once.
    pub streams: u32,
    /// How long `Prefer: wait` and `?wait` may hold an answer.
    pub wait: Duration,
    /// Wrong keys a minute from one address, before they are refused unseen.
    pub wrong_keys: u32,
    /// Pingbacks a minute from one address, real or not.
    pub pingbacks: u32,
}

/// hyper refuses longer request targets; images in a GET query work up to about 48 kB.
pub(crate) const TARGET_BYTES: usize = 64 * 1024;

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            head_timeout: seconds(5),
            body_timeout: seconds(10),
            write_timeout: seconds(30),
            idle_timeout: seconds(75),
            handshake_timeout: seconds(5),
            drain: seconds(25),
            head_bytes: 16 * 1024,
            headers: 64,
            json_bytes: 256 * 1024,
            image_bytes: 1536 * 1024,
            form_bytes: 2 * 1024 * 1024,
            streams: 100,
            wait: seconds(120),
            wrong_keys: 10,
            pingbacks: 3000,
        }
    }
}
