//! Reads a body line by line. A line has a limit on its size and on its time; the body has none.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::{error::Refusal, limits::Limits};

/// The lines of a body. Blank ones are counted and skipped.
pub(super) struct Lines {
    body: Body,
    limits: Limits,
    buffer: BytesMut,
    /// How much of the buffer is known to have no line break.
    scanned: usize,
    /// The number of the last line that was taken.
    number: u64,
    /// The rest of a line that is too long is being discarded.
    is_discarding: bool,
    is_over: bool,
    /// When the bytes that are awaited come too late.
    deadline: Option<Instant>,
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(body: Body, limits: &Limits) -> Self {
        Self {
            body,
            limits: *limits,
            buffer: BytesMut::new(),
            scanned: 0,
            number: 0,
            is_discarding: false,
            is_over: false,
            deadline: None,
        }
    }

    /// The next line and its number, or why it cannot be used. Dropping the future loses nothing.
    ///
    /// After [`Refusal::TooLarge`] the lines go on; any other refusal is the last.
    pub(super) async fn next(&mut self) -> Option<(u64, Result<Bytes, Refusal>)> {
        loop {
            if let Some(found) = self.take() {
                self.deadline = None;
                return Some(found);
            }
            if self.is_over {
                return None;
            }
            let deadline = self.deadline();
            match timeout_at(deadline, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.feed(&frame.into_data().unwrap_or_default()),
                Ok(Some(Err(_))) => return Some(self.fail(Refusal::Broken)),
                Ok(None) => self.is_over = true,
                Err(_) => return Some(self.fail(Refusal::Slow)),
            }
        }
    }

    /// Nothing is read for now, which is not the client's fault.
    pub(super) fn pause(&mut self) {
        self.deadline = None;
    }

    /// A line has the time of a body; between two lines the connection may be idle.
    fn deadline(&mut self) -> Instant {
        let is_between_lines = self.buffer.is_empty() && !self.is_discarding;
        let limits = &self.limits;
        let time = if is_between_lines { limits.idle_timeout } else { limits.body_timeout };
        *self.deadline.get_or_insert_with(|| Instant::now() + time)
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.buffer.is_empty() && !self.is_discarding {
            self.deadline = None;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// A line out of the buffer.
    fn take(&mut self) -> Option<(u64, Result<Bytes, Refusal>)> {
        loop {
            let found = self.buffer.get(self.scanned..)?.iter().position(|byte| *byte == b'\n');
            let Some(at) = found.map(|at| self.scanned + at) else { return self.take_rest() };
            self.scanned = 0;
            let line = self.buffer.split_to(at + 1).freeze();
            self.number += 1;
            if std::mem::take(&mut self.is_discarding) {
                continue;
            }
            if let Some(found) = self.used(line.slice(..at)) {
                return Some(found);
            }
        }
    }

    /// The buffer has no line break: the last line has none, and one that is too long is refused before its end.
    fn take_rest(&mut self) -> Option<(u64, Result<Bytes, Refusal>)> {
        self.scanned = self.buffer.len();
        let is_too_long = self.buffer.len() > self.max_line();
        if !self.is_over && !is_too_long && !self.is_discarding {
            return None;
        }
        self.scanned = 0;
        let rest = self.buffer.split().freeze();
        if self.is_discarding || rest.is_empty() {
            return None;
        }
        if self.is_over {
            self.number += 1;
            return self.used(rest);
        }
        self.is_discarding = true;
        Some((self.number + 1, Err(Refusal::TooLarge(self.max_line()))))
    }

    /// The line, unless it is blank.
    fn used(&self, line: Bytes) -> Option<(u64, Result<Bytes, Refusal>)> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        let is_too_long = line.len() > self.max_line();
        let line = if is_too_long { Err(Refusal::TooLarge(self.max_line())) } else { Ok(line) };
        Some((self.number, line))
    }

    fn max_line(&self) -> usize {
        self.limits.json_bytes + self.limits.image_bytes
    }

    fn fail(&mut self, refusal: Refusal) -> (u64, Result<Bytes, Refusal>) {
        self.is_over = true;
        self.buffer.clear();
        self.scanned = 0;
        (self.number + 1, Err(refusal))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt as _, StreamExt as _, stream};

    use super::*;

    fn limits() -> Limits {
        Limits { json_bytes: 8, image_bytes: 2, ..Limits::default() }
    }

    fn lines_of(pieces: &[&'static str]) -> Lines {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, Infallible>(*piece)).collect();
        Lines::new(Body::from_stream(stream::iter(pieces)), &limits())
    }

    /// Line numbers with their texts; `!` is a line that is too long.
    async fn read(pieces: &[&'static str]) -> Vec<String> {
        let mut lines = lines_of(pieces);
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().await {
            let text = match line {
                Ok(line) => String::from_utf8(line.to_vec()).unwrap(),
                Err(Refusal::TooLarge(10)) => "!".into(),
                Err(other) => panic!("{other}"),
            };
            all.push(format!("{number}{text}"));
        }
        all
    }

    #[tokio::test]
    async fn lines_keep_their_numbers_however_they_are_cut() {
        let whole = "a\n\nbc\r\n  \nlast";
        assert_eq!(read(&[whole]).await, ["1a", "3bc\r", "5last"]);
        let bytes: Vec<&'static str> = whole.split_inclusive("").collect();
        assert_eq!(read(&bytes).await, ["1a", "3bc\r", "5last"]);
        assert!(read(&[]).await.is_empty() && read(&["\n\n"]).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_once_and_the_next_is_read() {
        assert_eq!(read(&["0123456789a\nb\n"]).await, ["1!", "2b"]);
        let cut = ["0123456789", "abc", "defghijklmnop", "q\n", "b\n"];
        assert_eq!(read(&cut).await, ["1!", "2b"]);
        assert_eq!(read(&["0123456789abc", "def"]).await, ["1!"], "a last line without an end");
        assert_eq!(read(&["0123456789\n"]).await, ["10123456789"], "exactly the limit");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_stops_in_the_middle_ends_the_batch_and_a_pause_does_not_count() {
        let never = stream::iter([Ok::<_, Infallible>("a\n{")]).chain(stream::pending());
        let mut lines = Lines::new(Body::from_stream(never), &limits());
        assert!(matches!(lines.next().await, Some((1, Ok(_)))));
        assert!(lines.next().now_or_never().is_none());
        tokio::time::advance(limits().body_timeout.mul_f64(0.9)).await;
        assert!(lines.next().now_or_never().is_none());
        lines.pause();
        tokio::time::advance(limits().body_timeout).await;
        assert!(lines.next().now_or_never().is_none(), "it was paused");
        let slow = lines.next().await;
        assert!(matches!(slow, Some((2, Err(Refusal::Slow)))));
        assert!(lines.next().await.is_none());
    }
}
