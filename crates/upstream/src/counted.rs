//! Counts the plaintext bytes of a submission that were handed over for sending. It sits between HTTP and TLS, so that a
//! handshake does not count and we do not depend on error kinds.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::Stream;

/// How many plaintext bytes may have been sent. Zero proves that nothing was; any other number proves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct BytesSent(Arc<AtomicUsize>);

pub(crate) struct CountedStream {
    inner: Box<dyn Stream>,
    sent: BytesSent,
}

// === impl BytesSent ===

impl BytesSent {
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }

    /// A failed write counts as well: TLS may have sent a record before it noticed the failure.
    fn record(&self, written: &Poll<io::Result<usize>>, offered: usize) {
        match written {
            Poll::Ready(Ok(bytes)) => self.add(*bytes),
            Poll::Ready(Err(_)) => self.add(offered),
            Poll::Pending => {}
        }
    }
}

// === impl CountedStream ===

impl CountedStream {
    pub(crate) fn new(inner: Box<dyn Stream>, sent: BytesSent) -> Self {
        Self { inner, sent }
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.sent.record(&written, buf.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.sent.record(&written, bufs.iter().map(|buf| buf.len()).sum());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn only_written_bytes_count() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let sent = BytesSent::default();
        let mut stream = CountedStream::new(Box::new(ours), sent.clone());
        theirs.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        stream.flush().await.unwrap();
        assert!(sent.is_zero());
        stream.write_all(b"x").await.unwrap();
        assert!(!sent.is_zero());
    }

    #[tokio::test]
    async fn a_failed_write_does_not_prove_that_nothing_was_sent() {
        let (ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        let sent = BytesSent::default();
        let mut stream = CountedStream::new(Box::new(ours), sent.clone());
        assert!(stream.write_all(b"x").await.is_err());
        assert!(!sent.is_zero());
    }
}
