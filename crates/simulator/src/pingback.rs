//! The simulated provider's calls back, over HTTP: `id=…&code=…` to the address that came with the submission, when the
//! task is over. Before: `exchange`, which hands in what is due. To this machine only, and a bounded number of them.

use std::{io, net::IpAddr, time::Duration};

use bytes::Bytes;
use domain::{id::TaskId, time::Timestamp};
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::mpsc, task::JoinSet, time::timeout};

use crate::{clock::pause, exchange::poll_reply, server::Front};

/// A call that is to be made.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) task: TaskId,
    pub(crate) at: Timestamp,
    pub(crate) address: Address,
}

/// Where somebody on this machine wants to be called.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    host: String,
    port: u16,
    uri: Uri,
}

/// So many calls are waited for at once, and as many may be handed in meanwhile; what is beyond that is not made.
pub(crate) const MOST: usize = 10_000;
/// For connecting, asking and being answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between the first try and the second, which is the last.
const AGAIN: Duration = Duration::from_millis(500);

// === impl Address ===

impl Address {
    /// An `http://` address of this machine; `None` for any other: a simulator calls nobody else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let port = uri.port_u16().unwrap_or(80);
        (uri.scheme_str() == Some("http") && is_here).then_some(Self { host, port, uri })
    }
}

/// Makes the calls that are handed in, each in its time, until nobody can hand in another.
pub(crate) async fn run(mut due: mpsc::Receiver<Due>, front: Front) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = calls.join_next() => {}
            next = due.recv(), if calls.len() < MOST => match next {
                Some(due) => drop(calls.spawn(call(due, front.clone()))),
                None => return,
            },
        }
    }
}

async fn call(due: Due, front: Front) {
    front.clock.sleep_until(due.at).await;
    let Some(told) = front.account.with(|b| b.result(due.task.as_str(), front.clock.now())) else {
        return;
    };
    let body = Bytes::from(wire::pingback::write_body(&due.task, &poll_reply(told)));
    let mut posted = post(&due.address, body.clone()).await;
    if posted.is_err() {
        pause(AGAIN).await;
        posted = post(&due.address, body).await;
    }
    match posted {
        Ok(()) => front.account.with(|behaviour| behaviour.called_back(&due.task)),
        Err(error) => tracing::warn!(task = %due.task, %error, "pingback delivery failed"),
    }
}

async fn post(address: &Address, body: Bytes) -> io::Result<()> {
    let posted = timeout(PATIENCE, exchange(address, body)).await;
    posted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn exchange(address: &Address, body: Bytes) -> io::Result<()> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(io::Error::other)?;
    let target = address.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::post(target)
        .header(header::HOST, format!("{}:{}", address.host, address.port))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::CONNECTION, "close")
        .body(Full::new(body))
        .map_err(io::Error::other)?;
    // The body goes unread, and with the sender the connection ends.
    let answer = async move { sender.send_request(request).await.map(|reply| reply.status()) };
    let (answered, _) = tokio::join!(answer, connection);
    let status = answered.map_err(io::Error::other)?;
    if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("HTTP {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called() {
        for here in [
            "http://127.0.0.1:81/p/x",
            "http://localhost/p",
            "http://[::1]:8080/",
            "http://127.9.9.9/",
        ] {
            assert!(Address::parse(here).is_some(), "{here}");
        }
        for elsewhere in [
            "https://127.0.0.1/p",
            "http://10.0.0.1/p",
            "http://gateway.example.com/p",
            "http://localhost.example.com/",
            "http://0.0.0.0/",
            "127.0.0.1:80",
            "/p",
            "",
        ] {
            assert!(Address::parse(elsewhere).is_none(), "{elsewhere}");
        }
    }
}
