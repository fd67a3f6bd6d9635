//! Reads along with hyper and finds request heads that two readers could frame differently. hyper takes a request
//! with both `Content-Length` and `Transfer-Encoding`, or with two equal lengths, and hides that it did; a proxy in
//! front of us may have read it the other way. It never decides what a request means, only that it is refused.

use crate::peer::Fault;

/// Where in the stream of requests of one connection we are.
#[derive(Debug)]
pub(super) struct Scan {
    at: At,
    head: Head,
    head_bytes_max: usize,
}

/// What a stretch of bytes brought to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Between requests: nothing of the next one has come.
    Start,
    /// Within a head.
    Head,
    /// Within a body of so many bytes more.
    Body(u64),
    /// Not followed any further: the connection ends with the request that is being read.
    Opaque,
}

/// What is known of the head being read. Only the start of each line is kept: no name or length of interest is longer.
#[derive(Debug)]
struct Head {
    line: [u8; LINE],
    line_len: usize,
    first_line: bool,
    bytes: usize,
    length: Option<u64>,
    chunked: bool,
    fault: Option<Fault>,
}

const LINE: usize = 64;

// === impl Scan ===

impl Scan {
    pub(super) fn new(head_bytes_max: usize) -> Self {
        Self { at: At::Start, head: Head::fresh(), head_bytes_max }
    }

    pub(super) fn at(&self) -> At {
        self.at
    }

    /// Follows the next bytes; a fault is final for the connection.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Option<Fault> {
        while !bytes.is_empty() {
            match self.at {
                At::Opaque => return None,
                At::Body(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.at = if left == 0 { At::Start } else { At::Body(left) };
                }
                At::Start | At::Head => {
                    let (line_end, rest) = split_line(bytes);
                    self.head.take(&bytes[..bytes.len() - rest.len()]);
                    bytes = rest;
                    self.at = At::Head;
                    if line_end && self.head.end_line() {
                        self.end_head();
                    }
                    if self.head.bytes > self.head_bytes_max {
                        self.head.fault.get_or_insert(Fault::HeadTooLarge);
                    }
                    if let Some(fault) = self.head.fault {
                        self.at = At::Opaque;
                        return Some(fault);
                    }
                }
            }
        }
        None
    }

    fn end_head(&mut self) {
        let head = std::mem::replace(&mut self.head, Head::fresh());
        self.at = match (head.chunked, head.length) {
            (true, Some(_)) => {
                self.head.fault = Some(Fault::Framing);
                At::Opaque
            }
            // Chunks are not followed: the layer closes the connection after a chunked request.
            (true, None) => At::Opaque,
            (false, None | Some(0)) => At::Start,
            (false, Some(length)) => At::Body(length),
        };
    }
}

/// Whether a line ends in `bytes`, and what comes after it. A bare line feed ends a line for hyper, so it does here.
fn split_line(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (true, &bytes[end + 1..]),
        None => (false, &[]),
    }
}

// === impl Head ===

impl Head {
    fn fresh() -> Self {
        Self {
            line: [0; LINE],
            line_len: 0,
            first_line: true,
            bytes: 0,
            length: None,
            chunked: false,
            fault: None,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(LINE - self.line_len.min(LINE));
        if let Some(room) = self.line.get_mut(self.line_len..self.line_len + kept) {
            room.copy_from_slice(&bytes[..kept]);
        }
        self.line_len += bytes.len();
        if !self.first_line {
            self.bytes += bytes.len();
        }
    }

    /// Reads the finished line; whether it was the last of the head.
    fn end_line(&mut self) -> bool {
        let kept = &self.line[..self.line_len.min(LINE)];
        let whole = self.line_len <= LINE;
        let line = kept.strip_suffix(b"\n").unwrap_or(kept);
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.line_len = 0;
        if line.is_empty() {
            // Empty lines before a request line are skipped, as hyper does.
            return !self.first_line;
        }
        if !std::mem::take(&mut self.first_line) {
            self.read(&line, whole);
        }
        false
    }

    fn read(&mut self, line: &[u8], whole: bool) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = if whole { digits(value) } else { None };
            if length.is_none() || self.length.is_some() {
                self.fault = Some(Fault::Framing);
            }
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !whole || !value.eq_ignore_ascii_case(b"chunked") {
                self.fault = Some(Fault::Framing);
            }
            self.chunked = true;
        }
    }
}

/// A length is digits and nothing else: no sign, no comma, no space.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> (At, Option<Fault>) {
        let mut whole = Scan::new(1024);
        let seen = whole.feed(text.as_bytes());
        let mut single = Scan::new(1024);
        let fault = text.bytes().find_map(|byte| single.feed(&[byte]));
        assert_eq!((whole.at, seen), (single.at, fault), "split differently: {text:?}");
        (whole.at, seen)
    }

    #[test]
    fn ordinary_requests_pass_however_they_are_split() {
        assert_eq!(scanned("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (At::Start, None));
        assert_eq!(scanned("GET / HTTP/1.1\nHost: a\n\n"), (At::Start, None));
        assert_eq!(scanned("\r\nGET / HTTP/1.1\r\nHo"), (At::Head, None));
        let post = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
        assert_eq!(scanned(post), (At::Body(4), None));
        assert_eq!(scanned(&format!("{post}abcdGET / HTTP/1.1\r\n\r\n")), (At::Start, None));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(scanned(chunked), (At::Opaque, None));
    }

    #[test]
    fn heads_that_could_be_framed_two_ways_are_found() {
        let heads = [
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Content-Length: 2\r\nContent-Length: 2",
            "Content-Length: 2, 2",
            "Content-Length: +2",
            "Content-Length: 0x2",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "TRANSFER-ENCODING: xchunked",
        ];
        for head in heads {
            let (at, fault) = scanned(&format!("POST / HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n"));
            assert_eq!((at, fault), (At::Opaque, Some(Fault::Framing)), "{head}");
        }
    }

    #[test]
    fn a_second_request_on_a_connection_is_read_as_well() {
        let first = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        let second = "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(scanned(&format!("{first}{second}")).1, Some(Fault::Framing));
    }

    #[test]
    fn long_heads_are_found_and_long_targets_are_not_heads() {
        let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(4000));
        assert_eq!(scanned(&target), (At::Start, None));
        let header = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(1100));
        assert_eq!(scanned(&header).1, Some(Fault::HeadTooLarge));
    }

    proptest::proptest! {
        #[test]
        fn how_the_bytes_are_split_changes_nothing(
            pieces in proptest::collection::vec(0..PIECES.len(), 0..30),
        ) {
            let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
            scanned(&text);
        }
    }

    const PIECES: [&str; 12] = [
        "GET / HTTP/1.1\r\n",
        "\r\n",
        "\n",
        "\r",
        ":",
        " ",
        "Content-Length",
        "Transfer-Encoding: chunked\r\n",
        "7",
        "Content-Length: 12\r\n",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "\0",
    ];
}
