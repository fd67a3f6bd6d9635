//! Callers in a closed loop: each sends a request, reads the whole answer and repeats, on a persistent connection.
//! Bounded in time and in number.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use solvegate::exit::{Exit, Failure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

use crate::requests::Request;

#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    /// One for each caller.
    pub(crate) requests: Vec<Request>,
    pub(crate) length: Duration,
    /// The maximum number of requests of all callers.
    pub(crate) most: u64,
    /// Any other status ends the bench, because it would measure something else.
    pub(crate) status: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadResult {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer<'l> {
    pub(crate) status: u16,
    pub(crate) body: &'l [u8],
}

struct Shared {
    ends: Instant,
    begun: AtomicU64,
    most: u64,
    status: u16,
}

/// The status, and the position and length of the body.
struct Head {
    status: u16,
    body_at: usize,
    body_length: usize,
}

const BUFFER: usize = 4096;

// === impl Load ===

impl Load {
    /// Connects all callers, then starts them.
    pub(crate) async fn run(&self) -> Result<LoadResult, Failure> {
        let mut lines = Vec::with_capacity(self.requests.len());
        for _ in &self.requests {
            lines.push(Connection::connect(self.address).await?);
        }
        let began = Instant::now();
        let shared = Arc::new(Shared {
            ends: began + self.length,
            begun: AtomicU64::new(0),
            most: self.most,
            status: self.status,
        });
        let mut callers = JoinSet::new();
        for (line, request) in lines.into_iter().zip(&self.requests) {
            callers.spawn(call(line, request.clone(), Arc::clone(&shared)));
        }
        let mut requests = 0;
        while let Some(caller) = callers.join_next().await {
            requests += caller.map_err(Failure::of(Exit::Failed))??;
        }
        Ok(LoadResult { requests, took: began.elapsed() })
    }
}

/// Returns the number of answers.
async fn call(
    mut line: Connection,
    mut request: Request,
    shared: Arc<Shared>,
) -> Result<u64, Failure> {
    let mut answered = 0;
    while Instant::now() < shared.ends && shared.begun.fetch_add(1, Ordering::Relaxed) < shared.most
    {
        let answer = line.exchange(request.next()).await?;
        if answer.status != shared.status {
            return Err(answer.unexpected());
        }
        answered += 1;
    }
    Ok(answered)
}

// === impl LoadResult ===

impl LoadResult {
    pub(crate) fn rate(self) -> f64 {
        as_f64(self.requests) / self.took.as_secs_f64()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER] })
    }

    /// Sends without waiting for the answer.
    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    /// Sends and reads the whole answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.send(request).await?;
        let mut filled = 0;
        let head = loop {
            filled += self.read(filled).await?;
            if let Some(head) = Head::find(&self.buffer[..filled]) {
                break head;
            }
        };
        let end = head.body_at + head.body_length;
        while filled < end {
            filled += self.read(filled).await?;
        }
        Ok(Answer { status: head.status, body: &self.buffer[head.body_at..end] })
    }

    async fn read(&mut self, filled: usize) -> io::Result<usize> {
        if filled == self.buffer.len() {
            self.buffer.resize(2 * filled, 0);
        }
        match self.stream.read(&mut self.buffer[filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

// === impl Answer ===

impl Answer<'_> {
    /// The failure for an unexpected status.
    pub(crate) fn unexpected(&self) -> Failure {
        let said = String::from_utf8_lossy(self.body);
        Failure::new(Exit::Failed, format!("the server answered {}: {said}", self.status))
    }
}

// === impl Head ===

impl Head {
    fn find(bytes: &[u8]) -> Option<Self> {
        const LENGTH: &[u8] = b"content-length:";
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = &bytes[..end];
        let status = number(head.get(9..12)?)?;
        let length = head.split(|b| *b == b'\n').find_map(|line| {
            let (name, value) = line.split_at_checked(LENGTH.len())?;
            name.eq_ignore_ascii_case(LENGTH).then(|| number(value.trim_ascii()))?
        });
        Some(Self { status, body_at: end + 4, body_length: usize::from(length.unwrap_or(0)) })
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_once_it_is_whole() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 12\r\n\r\nhello";
        assert!(Head::find(&whole[..40]).is_none());
        let head = Head::find(whole).unwrap();
        assert_eq!((head.status, head.body_length), (202, 12));
        assert_eq!(&whole[head.body_at..], b"hello");
    }
}
