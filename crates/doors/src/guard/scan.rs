//! Finds request heads that two parsers could frame differently (request smuggling). hyper accepts a request with both
//! `Content-Length` and `Transfer-Encoding`, or with two equal lengths, without reporting it; a proxy in front of us may have
//! framed it the other way. The scan never interprets a request; it can only refuse one.

use crate::peer::HeadFault;

/// Follows the requests on one connection.
#[derive(Debug)]
pub(crate) struct Scan {
    at: Position,
    head: Head,
    head_bytes_max: usize,
}

/// Where in the stream of requests we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Between requests: no byte of the next one has arrived.
    Start,
    /// Inside a head.
    Head,
    /// Inside a body, with this many bytes left.
    Body(u64),
    /// No longer followed: the connection ends with the current request.
    Opaque,
}

/// The head being read. Only the start of each line is kept; the names and lengths we look for are shorter.
#[derive(Debug)]
struct Head {
    line: [u8; LINE],
    line_len: usize,
    first_line: bool,
    bytes: usize,
    length: Option<u64>,
    chunked: bool,
    fault: Option<HeadFault>,
}

const LINE: usize = 64;

// === impl Scan ===

impl Scan {
    pub(crate) fn new(head_bytes_max: usize) -> Self {
        Self { at: Position::Start, head: Head::new(), head_bytes_max }
    }

    pub(crate) fn at(&self) -> Position {
        self.at
    }

    /// Scans the next bytes; a fault is final for the connection.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Option<HeadFault> {
        while !bytes.is_empty() {
            match self.at {
                Position::Opaque => return None,
                Position::Body(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.at = if left == 0 { Position::Start } else { Position::Body(left) };
                }
                Position::Start | Position::Head => {
                    let (line_end, rest) = split_line(bytes);
                    self.head.take(&bytes[..bytes.len() - rest.len()]);
                    bytes = rest;
                    self.at = Position::Head;
                    if line_end && self.head.end_line() {
                        self.end_head();
                    }
                    if self.head.bytes > self.head_bytes_max {
                        self.head.fault.get_or_insert(HeadFault::HeadTooLarge);
                    }
                    if let Some(fault) = self.head.fault {
                        self.at = Position::Opaque;
                        return Some(fault);
                    }
                }
            }
        }
        None
    }

    fn end_head(&mut self) {
        let head = std::mem::replace(&mut self.head, Head::new());
        self.at = match (head.chunked, head.length) {
            (true, Some(_)) => {
                self.head.fault = Some(HeadFault::Framing);
                Position::Opaque
            }
            // Chunks are not followed: middleware.rs closes the connection after a chunked request.
            (true, None) => Position::Opaque,
            (false, None | Some(0)) => Position::Start,
            (false, Some(length)) => Position::Body(length),
        };
    }
}

/// Whether a line ends in `bytes`, and the rest after it. A bare line feed ends a line for hyper, so it does here.
fn split_line(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (true, &bytes[end + 1..]),
        None => (false, &[]),
    }
}

// === impl Head ===

impl Head {
    fn new() -> Self {
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

    /// Parses the finished line; returns whether it was the last of the head.
    fn end_line(&mut self) -> bool {
        let kept = &self.line[..self.line_len.min(LINE)];
        let whole = self.line_len <= LINE;
        let line = kept.strip_suffix(b"\n").unwrap_or(kept);
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.line_len = 0;
        if line.is_empty() {
            // Like hyper, skip empty lines before a request line.
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
                self.fault = Some(HeadFault::Framing);
            }
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !whole || !value.eq_ignore_ascii_case(b"chunked") {
                self.fault = Some(HeadFault::Framing);
            }
            self.chunked = true;
        }
    }
}

/// A length consists of digits only: no sign, no comma, no space.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> (Position, Option<HeadFault>) {
        let mut whole = Scan::new(1024);
        let seen = whole.feed(text.as_bytes());
        let mut single = Scan::new(1024);
        let fault = text.bytes().find_map(|byte| single.feed(&[byte]));
        assert_eq!((whole.at, seen), (single.at, fault), "split differently: {text:?}");
        (whole.at, seen)
    }

    #[test]
    fn ordinary_requests_pass_however_they_are_split() {
        assert_eq!(scanned("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (Position::Start, None));
        assert_eq!(scanned("GET / HTTP/1.1\nHost: a\n\n"), (Position::Start, None));
        assert_eq!(scanned("\r\nGET / HTTP/1.1\r\nHo"), (Position::Head, None));
        let post = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
        assert_eq!(scanned(post), (Position::Body(4), None));
        assert_eq!(scanned(&format!("{post}abcdGET / HTTP/1.1\r\n\r\n")), (Position::Start, None));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(scanned(chunked), (Position::Opaque, None));
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
            assert_eq!((at, fault), (Position::Opaque, Some(HeadFault::Framing)), "{head}");
        }
    }

    #[test]
    fn a_second_request_on_a_connection_is_read_as_well() {
        let first = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        let second = "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(scanned(&format!("{first}{second}")).1, Some(HeadFault::Framing));
    }

    #[test]
    fn long_heads_are_found_and_long_targets_are_not_heads() {
        let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(4000));
        assert_eq!(scanned(&target), (Position::Start, None));
        let header = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(1100));
        assert_eq!(scanned(&header).1, Some(HeadFault::HeadTooLarge));
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
