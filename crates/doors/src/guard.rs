//! Stands between the socket and hyper: reads along for heads that could smuggle, ends connections whose other side
//! is too slow, and closes without cutting off the answer. Before: accept.rs. After: hyper, then the layers.
//!
//! Socket timeouts go by the machine's clock, not by the engine's: nothing about a claim depends on them.

mod scan;

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
use scan::{At, Scan};

/// A stream with patience that ends.
pub(crate) struct Guard<S> {
    stream: S,
    peer: Peer,
    /// `None` for HTTP/2, whose frames leave no doubt about lengths.
    scan: Option<Scan>,
    limits: Limits,
    reading: Patience,
    writing: Patience,
    /// Requests that had finished when the idle time began.
    finished: u64,
    /// Bytes that may still be thrown away while closing.
    lingering: Option<usize>,
}

/// A timer that is set, or not.
struct Patience {
    timer: Pin<Box<Sleep>>,
    set: bool,
}

/// Bytes still on their way are taken in for a moment, else the kernel would answer them with a reset and the client
/// would lose the refusal it was just sent.
const LINGER_BYTES: usize = 2 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);

// === impl Guard ===

impl<S> Guard<S> {
    /// Guards a stream of HTTP/1 requests.
    pub(crate) fn http1(stream: S, peer: Peer, limits: Limits) -> Self {
        let scan = Some(Scan::new(limits.head_bytes));
        Self::new(stream, peer, limits, scan)
    }

    /// Guards an HTTP/2 connection.
    pub(crate) fn http2(stream: S, peer: Peer, limits: Limits) -> Self {
        Self::new(stream, peer, limits, None)
    }

    fn new(stream: S, peer: Peer, limits: Limits, scan: Option<Scan>) -> Self {
        let mut reading = Patience::new();
        reading.set(limits.head_timeout);
        let writing = Patience::new();
        Self { stream, peer, scan, limits, reading, writing, finished: 0, lingering: None }
    }

    /// Looks at what came in and sets the time for what is to come.
    fn saw(&mut self, bytes: &[u8]) {
        let Some(scan) = &mut self.scan else {
            return self.reading.set(self.limits.idle_timeout);
        };
        let before = scan.at();
        if let Some(fault) = scan.feed(bytes) {
            self.peer.set_fault(fault);
        }
        match (before, scan.at()) {
            (_, At::Start) => self.reading.set(self.limits.idle_timeout),
            // Not set again by every byte: the whole head has to come in time.
            (At::Head, At::Head) => {}
            (At::Start | At::Body(_) | At::Opaque, At::Head) => {
                self.reading.set(self.limits.head_timeout);
            }
            // Bodies have their own time, in body.rs.
            (_, At::Body(_) | At::Opaque) => self.reading.clear(),
        }
    }

    /// Whether the other side has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.reading.poll(cx));
            let (under_way, finished) = self.peer.load();
            let idle = self.scan.as_ref().is_none_or(|scan| scan.at() == At::Start);
            if !idle || (under_way == 0 && finished == self.finished) {
                return Poll::Ready(());
            }
            // A held answer, or one just given: the idle time begins anew.
            self.finished = finished;
            self.reading.set(self.limits.idle_timeout);
        }
    }

    fn between_requests(&self) -> bool {
        self.scan.as_ref().is_none_or(|scan| scan.at() == At::Start)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut guard.stream).poll_read(cx, buf) {
            Poll::Ready(done) => {
                guard.saw(&buf.filled()[before..]);
                Poll::Ready(done)
            }
            Poll::Pending => guard.poll_silence(cx).map(|()| Err(timed_out("nothing was sent"))),
        }
    }
}

impl<S: AsyncWrite + AsyncRead + Unpin> AsyncWrite for Guard<S> {
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
            if guard.between_requests() {
                return Poll::Ready(Ok(()));
            }
            guard.lingering = Some(LINGER_BYTES);
            guard.reading.set(LINGER);
        }
        guard.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// Throws away what still comes, for a moment and up to a bound.
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

// === impl Patience ===

impl Patience {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a socket's patience, not a claim's time")]
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { timer, set: false }
    }

    fn set(&mut self, length: Duration) {
        self.timer.as_mut().reset(Instant::now() + length);
        self.set = true;
    }

    fn clear(&mut self) {
        self.set = false;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.set { self.timer.as_mut().poll(cx) } else { Poll::Pending }
    }

    /// Passes a finished write on; a pending one only for `length`.
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
        self.poll(cx).map(|()| Err(timed_out("the answer was not taken")))
    }
}

fn timed_out(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}
