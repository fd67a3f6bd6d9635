//! One HTTP/1.1 connection: asks once, reads an answer of bounded length, repeats nothing and follows nothing.
//! The connection makes progress only while somebody asks, so no task of its own is needed.

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
    client::conn::http1::{Builder, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};

use crate::counted::Counted;

/// The longest answer to one question that is read.
pub(crate) const LONGEST: usize = 256 * 1024;

/// The longest answer to a notice that is read before the line is closed.
const LONGEST_THANKS: usize = 64 * 1024;

/// The longest head that is read.
const LONGEST_HEAD: usize = 64 * 1024;

/// How long an answer may take to begin, and how long it may be.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) first_byte: Duration,
    pub(crate) longest: usize,
}

/// An open connection with nothing under way.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<Counted>, Full<Bytes>>>>,
}

/// An answer with status 200, and the line if it can be used again.
pub(crate) struct Answered {
    pub(crate) body: Bytes,
    pub(crate) line: Option<Line>,
}

// === impl Line ===

impl Line {
    /// Speaks HTTP over a stream. Writes nothing yet.
    pub(crate) async fn new(stream: Counted) -> Result<Self, Fault> {
        let opened =
            Builder::new().max_header_size(LONGEST_HEAD).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| seen(&error))?;
        Ok(Self { sender, connection: Box::pin(connection) })
    }

    /// Asks once. How long the whole answer may take is the caller's to bound.
    pub(crate) async fn ask(
        self,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Answered, Fault> {
        let Self { mut sender, mut connection } = self;
        let (body, open) = {
            let answer = pin!(exchange(&mut sender, request, bounds));
            match select(answer, &mut connection).await {
                Either::Left((body, _)) => (body, true),
                // The connection has ended; what it brought before that is still to be read.
                Either::Right((_, answer)) => (answer.await, false),
            }
        };
        Ok(Answered { body: body?, line: open.then_some(Self { sender, connection }) })
    }

    /// Tells once and closes. Only the answer's status counts: of its body a little is read, so that the receiver is not
    /// cut off in the middle of its thanks.
    pub(crate) async fn tell(
        self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<StatusCode, Fault> {
        let Self { mut sender, mut connection } = self;
        let status = pin!(async move {
            let begun = timeout_at(deadline, sender.send_request(request)).await;
            let reply = begun.map_err(|_| Fault::seen("no answer within the timeout"))?;
            let (head, body) = reply.map_err(|error| seen(&error))?.into_parts();
            let thanks = Limited::new(body, LONGEST_THANKS).collect();
            timeout_at(deadline, thanks).await.ok();
            Ok(head.status)
        });
        match select(status, &mut connection).await {
            Either::Left((status, _)) => status,
            // As in `ask`: the end of the connection is not the end of what it brought.
            Either::Right((_, status)) => status.await,
        }
    }

    /// Whether the provider still keeps it open, as far as one can know without asking.
    pub(crate) fn is_open(&mut self) -> bool {
        self.connection.as_mut().now_or_never().is_none() && self.sender.is_ready()
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Bytes, Fault> {
    let begun = timeout(bounds.first_byte, sender.send_request(request)).await;
    let reply = begun.map_err(|_| Fault::seen("no answer within the timeout"))?;
    let reply = reply.map_err(|error| seen(&error))?;
    check_head(&reply)?;
    let body = Limited::new(reply.into_body(), bounds.longest).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let too_long = error.is::<LengthLimitError>();
        Fault::seen(if too_long { "the answer is too long" } else { "the answer was cut off" })
    })
}

/// The protocol answers everything with 200; any other status comes from something in between, and its body is not read.
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
        return Err(Fault::seen("the answer is compressed though that was not allowed"));
    }
    Ok(())
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// hyper's errors name what happened and never quote what was read.
fn seen(error: &hyper::Error) -> Fault {
    Fault::seen(format!("the exchange failed: {error}"))
}
