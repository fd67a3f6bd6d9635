//! A request and its response as two streams of lines that run at the same time.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::{
    body::{Body, Frame},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use upstream::Stream;

use super::{Reply, not_http, unreadable};
use crate::exit::{Exit, Failure};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose lines are sent while the request is under way; it ends when the sender is dropped.
pub struct LineBody(mpsc::Receiver<Bytes>);

/// The lines of a response.
pub struct LineStream {
    body: UnsyncBoxBody<Bytes, AnyError>,
    /// Drives the connection, if the gateway is not in this process.
    connection: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    buffer: BytesMut,
}

/// Lines on their way to the connection.
const LINES_BUFFERED: usize = 8;

/// A request body and what sends its lines.
pub fn line_body() -> (mpsc::Sender<Bytes>, LineBody) {
    let (sender, receiver) = mpsc::channel(LINES_BUFFERED);
    (sender, LineBody(receiver))
}

/// Sends the request over HTTP/1 and returns with the head of the response.
pub(super) async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<LineBody>,
) -> Result<LineStream, Failure> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
    let mut connection: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async {
        // A broken connection shows as the end of the body.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the gateway ended");
        }
    });
    let response = {
        let response = sender.send_request(request);
        tokio::pin!(response);
        tokio::select! {
            biased;
            response = &mut response => response,
            () = &mut connection => response.await,
        }
    };
    LineStream::of(response.map_err(not_http)?, Some(connection)).await
}

// === impl LineStream ===

impl LineStream {
    /// The lines of a successful response, otherwise the gateway's error.
    pub async fn of<B>(
        response: Response<B>,
        mut connection: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ) -> Result<Self, Failure>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        if response.status() != StatusCode::OK {
            let reply = Reply::read(response);
            tokio::pin!(reply);
            let reply = match &mut connection {
                None => reply.await?,
                Some(connection) => tokio::select! {
                    biased;
                    reply = &mut reply => reply?,
                    () = connection => reply.await?,
                },
            };
            return Err(reply.failure());
        }
        let body = response.into_body().map_err(Into::into).boxed_unsync();
        Ok(Self { body, connection, buffer: BytesMut::new() })
    }

    /// The next line; `None` at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.buffer.split_to(at + 1).freeze()));
            }
            let Some(frame) = self.frame().await else { return Ok(None) };
            match frame {
                Ok(frame) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.buffer.extend_from_slice(&bytes);
                }
                Err(error) => {
                    let what = format!("the gateway went away before the end: {error}");
                    return Err(Failure::new(Exit::Unreachable, what));
                }
            }
        }
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, AnyError>> {
        let Some(connection) = &mut self.connection else { return self.body.frame().await };
        tokio::select! {
            biased;
            frame = self.body.frame() => return frame,
            () = connection => {}
        }
        // The connection may end at the moment the last bytes are here.
        self.connection = None;
        self.body.frame().await
    }
}

impl Body for LineBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
