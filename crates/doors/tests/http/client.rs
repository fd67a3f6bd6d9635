//! A client that sends exactly the bytes it is given.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head, as sent.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The test timeout, generous for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// A text member of the JSON body.
    pub(crate) fn text(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("no {name}: {self:?}")).to_owned()
    }
}

/// Sends a request and reads one answer.
pub(crate) async fn send(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may refuse before it has read everything.
    stream.write_all(request).await.ok();
    read_answer(&mut stream).await.expect("an answer")
}

/// Reads one answer; `None` when the connection ends without one.
pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    timeout(PATIENCE, read(stream)).await.expect("an answer in time")
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(answer) = complete(&bytes) {
            return Some(answer);
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend(&chunk[..count]),
        }
    }
}

fn complete(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
    let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    (answer.body.len() >= length).then_some(answer)
}

/// Whether the server closes the connection; discards what it sends before.
pub(crate) async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut scrap = [0; 4096];
    let closed = async {
        while let Ok(count) = stream.read(&mut scrap).await {
            if count == 0 {
                break;
            }
        }
    };
    timeout(PATIENCE, closed).await.is_ok()
}
