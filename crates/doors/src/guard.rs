//! Wraps the socket below hyper: scans request heads for smuggling, closes connections of slow clients, and closes without
//! cutting off the response. Used by accept.rs.
//!
//! The timeouts: a head has to be complete 5 s after its first byte, over HTTP/1 and HTTP/2; a connection needs its first
//! request within 10 s; between requests it may be idle for 75 s. body.rs has the timeout for bodies.
//!
//! Socket timeouts use the machine's clock and not the engine's, because no claim depends on them.

mod frames;
pub(crate) mod scan;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use crate::{limits::Limits, peer::Peer};
use frames::Frames;
use scan::{Position, Scan};

/// A stream with timeouts and a scan for request smuggling.
pub(crate) struct GuardedStream<S> {
    stream: S,
    peer: Peer,
    follow: Follow,
    limits: Limits,
    reading: Deadline,
    writing: Deadline,
    opened_at: Instant,
    /// The number of finished requests when the idle timeout started.
    finished: u64,
    /// How many more bytes to discard while closing.
    lingering: Option<usize>,
}

/// What is followed on the stream.
enum Follow {
    Requests(Scan),
    /// Of HTTP/2. They have unambiguous lengths, so there is no smuggling to look for.
    Frames(Frames),
}

/// A timer that can be off.
struct Deadline {
    timer: Pin<Box<Sleep>>,
    set: bool,
}

/// Before closing we read what is still in transit for a moment. Otherwise the kernel answers it with a reset, and the client
/// loses the error response we just sent.
const LINGER_BYTES: usize = 2 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);
/// Less than the smallest buffer of hyper, 8 KiB.
const STRANGER_READ: usize = 4 * 1024;

// === impl GuardedStream ===

impl<S> GuardedStream<S> {
    pub(crate) fn new(stream: S, peer: Peer, limits: Limits, is_http1: bool) -> Self {
        let follow = if is_http1 {
            Follow::Requests(Scan::new(limits.head_bytes))
        } else {
            Follow::Frames(Frames::new())
        };
        let (mut reading, writing) = (Deadline::new(), Deadline::new());
        reading.set(limits.head_timeout);
        let opened_at = Instant::now();
        Self {
            stream,
            peer,
            follow,
            limits,
            reading,
            writing,
            opened_at,
            finished: 0,
            lingering: None,
        }
    }

    /// Scans the bytes that arrived and sets the timeout for the next ones.
    fn on_read(&mut self, bytes: &[u8]) {
        match &mut self.follow {
            Follow::Requests(scan) => {
                let before = scan.at();
                if let Some(fault) = scan.feed(bytes) {
                    self.peer.set_fault(fault);
                }
                let after = scan.at();
                self.on_request_bytes(before, after);
            }
            Follow::Frames(frames) => {
                let was_incomplete = frames.is_incomplete();
                let completed = frames.feed(bytes);
                match (was_incomplete && !completed, frames.is_incomplete()) {
                    (_, false) => self.wait_for_request(),
                    // Not reset by each byte: the timeout is for the whole head.
                    (true, true) => {}
                    (false, true) => self.reading.set(self.limits.head_timeout),
                }
            }
        }
    }

    fn on_request_bytes(&mut self, before: Position, after: Position) {
        match (before, after) {
            (_, Position::Start) => self.wait_for_request(),
            // Not reset by each byte: the timeout is for the whole head.
            (Position::Head, Position::Head) => {}
            (Position::Start | Position::Body(_) | Position::Opaque, Position::Head) => {
                self.reading.set(self.limits.head_timeout);
            }
            // body.rs has the timeout for bodies.
            (_, Position::Body(_) | Position::Opaque) => self.reading.clear(),
        }
    }

    /// A connection that has finished no request has until a fixed time for its first one, whatever else it sends.
    fn wait_for_request(&mut self) {
        let (_, finished) = self.peer.load();
        let idle = Instant::now() + self.limits.idle_timeout;
        let first = self.opened_at + self.limits.first_request_timeout;
        self.reading.set_at(if finished == 0 { idle.min(first) } else { idle });
    }

    /// Ready when the client has sent nothing for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.reading.poll(cx));
            let (under_way, finished) = self.peer.load();
            if !self.between_requests() || (under_way == 0 && finished == self.finished) {
                return Poll::Ready(());
            }
            // A request is under way or just finished, so the idle timeout starts over.
            self.finished = finished;
            self.reading.set(self.limits.idle_timeout);
        }
    }

    fn between_requests(&self) -> bool {
        match &self.follow {
            Follow::Requests(scan) => scan.at() == Position::Start,
            Follow::Frames(frames) => !frames.is_incomplete(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let before = buf.filled().len();
        match guard.read_piece(cx, buf) {
            Poll::Ready(done) => {
                guard.on_read(&buf.filled()[before..]);
                Poll::Ready(done)
            }
            Poll::Pending => guard.poll_idle(cx).map(|()| Err(timed_out("read timeout"))),
        }
    }
}

impl<S: AsyncWrite + AsyncRead + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let done = Pin::new(&mut guard.stream).poll_write(cx, buf);
        guard.writing.bound(done, guard.limits.write_timeout, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let done = Pin::new(&mut guard.stream).poll_write_vectored(cx, bufs);
        guard.writing.bound(done, guard.limits.write_timeout, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let done = Pin::new(&mut guard.stream).poll_flush(cx);
        guard.writing.bound(done, guard.limits.write_timeout, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        if guard.lingering.is_none() {
            let done = Pin::new(&mut guard.stream).poll_shutdown(cx);
            ready!(guard.writing.bound(done, guard.limits.write_timeout, cx))?;
            if guard.between_requests() || matches!(guard.follow, Follow::Frames(_)) {
                return Poll::Ready(Ok(()));
            }
            guard.lingering = Some(LINGER_BYTES);
            guard.reading.set(LINGER);
        }
        guard.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> GuardedStream<S> {
    /// Reads; from a peer without a key in small pieces, because hyper doubles its buffer whenever a read fills it.
    fn read_piece(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.peer.has_shown_key() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let mut piece =
            ReadBuf::new(buf.initialize_unfilled_to(buf.remaining().min(STRANGER_READ)));
        let done = Pin::new(&mut self.stream).poll_read(cx, &mut piece);
        let count = piece.filled().len();
        buf.advance(count);
        done
    }

    /// Discards incoming bytes until the timeout or the limit.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scrap = [0; 8 * 1024];
        while let Some(left) = self.lingering.filter(|left| *left > 0) {
            let mut buf = ReadBuf::new(&mut scrap);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.lingering = Some(left.saturating_sub(buf.filled().len()));
                }
                Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return self.reading.poll(cx),
            }
        }
        Poll::Ready(())
    }
}

// === impl Deadline ===

impl Deadline {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a socket's timeout, not a claim's time")]
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { timer, set: false }
    }

    fn set(&mut self, length: Duration) {
        self.set_at(Instant::now() + length);
    }

    fn set_at(&mut self, at: Instant) {
        self.timer.as_mut().reset(at);
        self.set = true;
    }

    fn clear(&mut self) {
        self.set = false;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.set { self.timer.as_mut().poll(cx) } else { Poll::Pending }
    }

    /// Fails a write that has been pending for `length`.
    fn bound<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        length: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.clear();
            return done;
        }
        if !self.set {
            self.set(length);
        }
        self.poll(cx).map(|()| Err(timed_out("write timeout")))
    }
}

fn timed_out(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}
