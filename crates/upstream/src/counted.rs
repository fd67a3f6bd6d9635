//! The witness of a submission: counts the plaintext bytes that were handed over for sending. It sits between HTTP
//! and TLS, so that a handshake does not count and error kinds need not be trusted.

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

/// A TCP or TLS stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// How many plaintext bytes may have left. Zero is a proof; anything else is only a suspicion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent(Arc<AtomicUsize>);

/// A stream that keeps the count.
pub(crate) struct Counted {
    inner: Box<dyn Stream>,
    sent: Sent,
}

// === impl Sent ===

impl Sent {
    /// No byte left.
    pub(crate) fn nothing(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }

    /// A failed write counts as well: TLS may have sent a record before it noticed the failure.
    fn note(&self, written: &Poll<io::Result<usize>>, offered: usize) {
        match written {
            Poll::Ready(Ok(bytes)) => self.add(*bytes),
            Poll::Ready(Err(_)) => self.add(offered),
            Poll::Pending => {}
        }
    }
}

// === impl Counted ===

impl Counted {
    /// Counts into `sent` what goes through `inner`.
    pub(crate) fn new(inner: Box<dyn Stream>, sent: Sent) -> Self {
        Self { inner, sent }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.sent.note(&written, buf.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.sent.note(&written, bufs.iter().map(|buf| buf.len()).sum());
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
    async fn what_is_read_does_not_count_and_what_is_written_does() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let sent = Sent::default();
        let mut stream = Counted::new(Box::new(ours), sent.clone());
        theirs.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        stream.flush().await.unwrap();
        assert!(sent.nothing());
        stream.write_all(b"x").await.unwrap();
        assert!(!sent.nothing());
    }

    #[tokio::test]
    async fn a_failed_write_is_no_proof_that_nothing_left() {
        let (ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        let sent = Sent::default();
        let mut stream = Counted::new(Box::new(ours), sent.clone());
        assert!(stream.write_all(b"x").await.is_err());
        assert!(!sent.nothing());
    }
}
