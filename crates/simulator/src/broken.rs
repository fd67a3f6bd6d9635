//! Replies of the simulated provider, intact or with a fault. Used by `server`. Returning [`Abort`] closes the connection
//! without a reply.

use std::{future::pending, iter, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

use crate::{
    clock::pause,
    faults::{Fault, Planned},
    server::{ReplyBody, never},
};

/// Closes the connection without (the rest of) a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed on purpose")]
pub(crate) struct Abort;

/// The reply without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) is_json: bool,
    /// Whether to allow other origins (`header_acao=1`).
    pub(crate) allow_origin: bool,
}

const HTML: &str = "<html>\r\n<head><title>Simulated trouble</title></head>\r\n<body><center><h1>\
                    Simulated trouble</h1></center></body>\r\n</html>\r\n";
/// Not UTF-8, not a code, not JSON.
const GARBAGE: &[u8] = b"\x00\xff\xfe{\"sta\xc3\x28tus\": OK;|;NaN";
const HUGE_CHUNKS: usize = 1024;
static CHUNK: [u8; 64 * 1024] = [b'A'; 64 * 1024];
/// Long enough for the data before an abort to be sent.
const FLUSH: Duration = Duration::from_millis(30);

// === impl Reply ===

impl Reply {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_json: false, allow_origin: false }
    }

    pub(crate) fn whole(self) -> Response<ReplyBody> {
        let body = Full::new(Bytes::from(self.text.clone())).map_err(never).boxed_unsync();
        self.with(body)
    }

    fn with(&self, body: ReplyBody) -> Response<ReplyBody> {
        let mut response = Response::new(body);
        let content_type = if self.is_json { "application/json" } else { "text/plain" };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.allow_origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        response
    }

    fn without_id(self) -> Self {
        let text = if self.is_json { r#"{"status":1,"request":""}"# } else { "OK|" };
        Self { text: text.to_owned(), ..self }
    }

    /// Announces a longer body than it sends, then closes the connection.
    fn truncated(self) -> Response<ReplyBody> {
        let announced = self.text.len() + 64;
        let sent = Bytes::from(self.text.clone());
        let cut = stream::unfold(Some(sent), async |sent| {
            let Some(sent) = sent else {
                pause(FLUSH).await;
                return Some((Err(Abort), None));
            };
            let half = sent.slice(..sent.len() / 2);
            Some((Ok(Frame::data(half)), None))
        });
        let mut response = self.with(StreamBody::new(cut).boxed_unsync());
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(announced));
        response
    }

    /// The correct reply, byte by byte.
    fn trickled(self, over: Duration) -> Response<ReplyBody> {
        let bytes = Bytes::from(self.text.clone());
        let gap = over / u32::try_from(bytes.len().max(1)).unwrap_or(u32::MAX);
        let trickle = stream::unfold(bytes, move |mut rest| async move {
            if rest.is_empty() {
                return None;
            }
            pause(gap).await;
            let byte = rest.split_to(1);
            Some((Ok(Frame::data(byte)), rest))
        });
        let mut response = self.with(StreamBody::new(trickle).boxed_unsync());
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(self.text.len()));
        response
    }

    /// A success that continues for 64 MiB.
    fn huge(self) -> Response<ReplyBody> {
        let chunks = iter::repeat_n(Bytes::from_static(&CHUNK), HUGE_CHUNKS);
        let all = iter::once(Bytes::from_static(b"OK|")).chain(chunks);
        let frames = stream::iter(all.map(|chunk| Ok(Frame::data(chunk))));
        self.with(StreamBody::new(frames).boxed_unsync())
    }
}

pub(crate) async fn deliver(
    struck: Option<Planned>,
    reply: Reply,
) -> Result<Response<ReplyBody>, Abort> {
    let Some(Planned { fault, .. }) = struck else { return Ok(reply.whole()) };
    match fault {
        Fault::Drop | Fault::Unreachable => Err(Abort),
        Fault::Hang => pending().await,
        Fault::Status(status) => {
            Ok(page(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY)))
        }
        Fault::TooManyRequests { retry_after } => {
            let mut response = page(StatusCode::TOO_MANY_REQUESTS);
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            Ok(response)
        }
        Fault::Garbage => {
            let body = Full::new(Bytes::from_static(GARBAGE)).map_err(never).boxed_unsync();
            Ok(reply.with(body))
        }
        Fault::Truncated => Ok(reply.truncated()),
        Fault::Html => Ok(page(StatusCode::OK)),
        Fault::Empty => Ok(Reply::text("").whole()),
        Fault::NoId => Ok(reply.without_id().whole()),
        Fault::Huge => Ok(reply.huge()),
        Fault::Trickle(ms) => Ok(reply.trickled(Duration::from_millis(ms))),
        Fault::Code(_) | Fault::Unsolvable | Fault::NeverReady | Fault::SameTask => {
            Ok(reply.whole())
        }
    }
}

/// An HTML error page, as proxies in front of a provider send it.
pub(crate) fn page(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Reply::text(HTML).whole();
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
