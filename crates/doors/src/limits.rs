//! Every limit of the doors in one place, with its default.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections in total.
    pub connections: usize,
    /// Open connections from one network.
    pub connections_per_address: usize,
    /// From accepting a connection, or the first byte of a request, to the end of its head.
    pub head_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long a write may make no progress.
    pub write_timeout: Duration,
    /// How long a connection may be without a request.
    pub idle_timeout: Duration,
    /// From accepting a connection to its first request.
    pub first_request_timeout: Duration,
    /// How long a connection without a key keeps its place when all places are taken.
    pub stranger_grace: Duration,
    pub handshake_timeout: Duration,
    /// How long requests under way may take to finish when the process stops.
    pub drain: Duration,
    /// The size of all header lines together, without the request line.
    pub head_bytes: usize,
    /// The number of header lines.
    pub headers: usize,
    /// The size of a JSON body without its image.
    pub json_bytes: usize,
    /// The size of an image in a JSON body, in base64.
    pub image_bytes: usize,
    /// The size of a body on the compat door, image included.
    pub form_bytes: usize,
    /// The size of a body on `res.php`.
    pub poll_bytes: usize,
    /// How much of a form is searched for its key as it comes in. A key that comes later is found when the form is whole.
    pub key_bytes: usize,
    /// Bytes of forms without a key so far, held for all addresses together; as many again for networks that have shown a
    /// valid key lately.
    pub stranger_bytes: usize,
    /// The same for one network that has shown no key.
    pub stranger_bytes_per_address: usize,
    /// Bytes of the bodies of one worker's requests that are not parsed yet.
    pub worker_bytes: u32,
    /// Forms without a key so far that one connection may be sending.
    pub stranger_forms: u32,
    /// Concurrent HTTP/2 streams per connection.
    pub streams: u32,
    /// The longest wait for `Prefer: wait` and `?wait`.
    pub wait: Duration,
    /// Wrong keys per minute from one address. Beyond it, keys are not checked unless a valid one came from there lately.
    pub wrong_keys: u32,
    /// Log lines per minute about wrong keys.
    pub login_lines: u32,
    /// Pingbacks per minute from one address, genuine or not.
    pub pingbacks: u32,
}

/// hyper refuses longer request targets; images in a GET query work up to about 48 kB.
pub(crate) const TARGET_BYTES: usize = 64 * 1024;

/// The most lines of a batch in flight; fewer when there are fewer slots.
pub(crate) const BATCH_LINES: usize = 256;
/// The least, however few slots there are.
pub(crate) const BATCH_LEAST_LINES: usize = 4;
/// Lines of a batch that are admitted at the same time.
pub(crate) const BATCH_ADMISSIONS: usize = 16;
/// No further line of a batch is read while the texts of those being admitted have this size.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

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
            first_request_timeout: seconds(10),
            stranger_grace: seconds(1),
            handshake_timeout: seconds(5),
            drain: seconds(25),
            head_bytes: 16 * 1024,
            headers: 64,
            json_bytes: 256 * 1024,
            image_bytes: 1536 * 1024,
            form_bytes: 2 * 1024 * 1024,
            poll_bytes: 64 * 1024,
            key_bytes: 64 * 1024,
            stranger_bytes: 4 * 1024 * 1024,
            stranger_bytes_per_address: 2 * 1024 * 1024,
            worker_bytes: 64 * 1024 * 1024,
            stranger_forms: 8,
            streams: 100,
            wait: seconds(120),
            wrong_keys: 10,
            login_lines: 100,
            pingbacks: 3000,
        }
    }
}
