//! The simulated provider's pingbacks over HTTP: `id=…&code=…` to the address given in the submission, when the task is over.
//! `exchange` schedules them. They go to this machine only, and their number is bounded.

use std::{io, net::IpAddr, time::Duration};

use bytes::Bytes;
use domain::{id::TaskId, time::Timestamp};
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::mpsc, task::JoinSet, time::timeout};

use crate::{behaviour::PollEffect, clock::pause, exchange::poll_reply, server::Front};

#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) task: TaskId,
    pub(crate) at: Timestamp,
    pub(crate) address: CallbackAddress,
}

/// A pingback address on this machine.
#[derive(Clone, Debug)]
pub(crate) struct CallbackAddress {
    host: String,
    port: u16,
    uri: Uri,
}

/// The number of scheduled pingbacks, and of queued ones; more are dropped.
pub(crate) const MAX_SCHEDULED: usize = 10_000;
/// For connection, request and reply together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the one retry.
const RETRY_AFTER: Duration = Duration::from_millis(500);

// === impl CallbackAddress ===

impl CallbackAddress {
    /// `None` for an address that is not `http://` on this machine: a simulator must not call others.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let port = uri.port_u16().unwrap_or(80);
        (uri.scheme_str() == Some("http") && is_here).then_some(Self { host, port, uri })
    }
}

/// Sends scheduled pingbacks until the channel closes.
pub(crate) async fn run(mut due: mpsc::Receiver<Due>, front: Front) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = calls.join_next() => {}
            next = due.recv(), if calls.len() < MAX_SCHEDULED => match next {
                Some(due) => drop(calls.spawn(call(due, front.clone()))),
                None => return,
            },
        }
    }
}

async fn call(due: Due, front: Front) {
    front.clock.sleep_until(due.at).await;
    let result = front.account.with(|b| b.outcome(due.task.as_str(), front.clock.now()));
    if result == PollEffect::NotReady {
        return;
    }
    let body = Bytes::from(wire::pingback::write_body(&due.task, &poll_reply(result)));
    let mut posted = post(&due.address, body.clone()).await;
    if posted.is_err() {
        pause(RETRY_AFTER).await;
        posted = post(&due.address, body).await;
    }
    match posted {
        Ok(()) => front.account.with(|behaviour| {
            *behaviour.ledger.pingbacks.entry(due.task).or_default() += 1;
        }),
        Err(error) => tracing::warn!(task = %due.task, %error, "pingback delivery failed"),
    }
}

async fn post(address: &CallbackAddress, body: Bytes) -> io::Result<()> {
    let posted = timeout(TIMEOUT, exchange(address, body)).await;
    posted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn exchange(address: &CallbackAddress, body: Bytes) -> io::Result<()> {
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
    // The body is not read; dropping the sender ends the connection.
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
            assert!(CallbackAddress::parse(here).is_some(), "{here}");
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
            assert!(CallbackAddress::parse(elsewhere).is_none(), "{elsewhere}");
        }
    }
}
