//! One HTTP/1.1 connection: sends a request, reads a reply of bounded length, never retries and never follows a redirect.
//! The connection makes progress only while a request is under way, so it needs no background task.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use domain::{
    ports::Fault,
    retry::{Code, own},
};
use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};

use crate::counted::CountedStream;

/// The longest reply we read to a call about one task.
pub(crate) const MAX_REPLY: usize = 256 * 1024;

/// How much of a webhook receiver's reply we read before we close the connection.
const MAX_RECEIVER_REPLY: usize = 64 * 1024;

const MAX_HEADERS: usize = 64 * 1024;

/// Limits on a reply: the time until its first byte, and its length.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) first_byte: Duration,
    pub(crate) max_bytes: usize,
}

/// An open connection without a request under way.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<CountedStream>, Full<Bytes>>>>,
}

/// The body of a reply with status 200, and the connection if it can be reused.
pub(crate) struct Exchanged {
    pub(crate) body: Bytes,
    pub(crate) connection: Option<Connection>,
}

// === impl Connection ===

impl Connection {
    /// Prepares HTTP on a stream; writes nothing yet.
    pub(crate) async fn new(stream: CountedStream) -> Result<Self, Fault> {
        let opened = http1::Builder::new()
            .max_header_size(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, driver) = opened.map_err(|error| fault(&error))?;
        Ok(Self { sender, driver: Box::pin(driver) })
    }

    /// Sends one request. The caller bounds the time for the whole reply.
    pub(crate) async fn send(
        self,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Exchanged, Fault> {
        let Self { mut sender, mut driver } = self;
        let (body, open) = {
            let reply = pin!(exchange(&mut sender, request, bounds));
            // The connection comes first. A process that was stopped finds its timeout over and the reply waiting, and must
            // read before it gives up.
            match select(&mut driver, reply).await {
                // The connection has ended, but the reply may have arrived before that.
                Either::Left((_, reply)) => (reply.await, false),
                Either::Right((body, _)) => (body, true),
            }
        };
        Ok(Exchanged { body: body?, connection: open.then_some(Self { sender, driver }) })
    }

    /// Sends one request, returns the status of the reply and closes. It reads the start of the body, so that the receiver
    /// does not see a reset while it is still writing.
    pub(crate) async fn post_and_close(
        self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<StatusCode, Fault> {
        let Self { mut sender, mut driver } = self;
        let status = pin!(async move {
            let begun = timeout_at(deadline, sender.send_request(request)).await;
            let reply = begun.map_err(|_| Fault::seen("no answer within the timeout"))?;
            let (head, body) = reply.map_err(|error| fault(&error))?.into_parts();
            let body = Limited::new(body, MAX_RECEIVER_REPLY).collect();
            timeout_at(deadline, body).await.ok();
            Ok(head.status)
        });
        // As in `send`.
        match select(&mut driver, status).await {
            Either::Left((_, status)) => status.await,
            Either::Right((status, _)) => status,
        }
    }

    /// Whether the other side still keeps it open, as far as we can know without sending.
    pub(crate) fn is_open(&mut self) -> bool {
        self.driver.as_mut().now_or_never().is_none() && self.sender.is_ready()
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Bytes, Fault> {
    let begun = timeout(bounds.first_byte, sender.send_request(request)).await;
    let reply = begun.map_err(|_| Fault::seen("no answer within the timeout"))?;
    let reply = reply.map_err(|error| fault(&error))?;
    check_head(&reply)?;
    let body = Limited::new(reply.into_body(), bounds.max_bytes).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let too_long = error.is::<LengthLimitError>();
        Fault::seen(if too_long { "the answer is too long" } else { "the answer was cut off" })
    })
}

/// The protocol answers everything with 200. Any other status comes from a machine in between, so we ignore its body.
fn check_head(reply: &Response<Incoming>) -> Result<(), Fault> {
    let status = reply.status();
    if status != StatusCode::OK {
        return Err(Fault {
            code: (status == StatusCode::TOO_MANY_REQUESTS).then(|| Code::new(own::HTTP_429)),
            why: format!("HTTP {}", status.as_u16()),
            retry_after: retry_after(reply.headers()),
        });
    }
    let encodings = reply.headers().get_all(header::CONTENT_ENCODING);
    if encodings.iter().any(|encoding| encoding != "identity") {
        return Err(Fault::seen("the answer is compressed although we did not accept that"));
    }
    Ok(())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// hyper's errors never quote bytes of the reply, so they are safe to log.
fn fault(error: &hyper::Error) -> Fault {
    Fault::seen(format!("the exchange failed: {error}"))
}
