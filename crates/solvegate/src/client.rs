//! The HTTP client for `--server`: one request per connection, JSON both ways, or lines of it both ways at once (`lines`).

mod lines;

use std::{fmt, future::Future, path::Path, time::Duration};

use bytes::Bytes;
use domain::secret::Secret;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use upstream::Stream;
use url::Url;

pub use lines::{LineBody, LineStream, line_body};

use crate::{
    endpoint::Endpoint,
    exit::{Exit, Failure},
};

/// A running gateway.
pub struct Remote {
    endpoint: Endpoint,
    key: Secret,
}

#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
    timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 16 * 1024 * 1024;

// === impl Call ===

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { method: Method::GET, path, headers: Vec::new(), body: None, timeout: ANSWER_TIMEOUT }
    }

    pub fn post(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }

    /// A request whose body is a stream of JSON lines.
    pub fn lines(path: impl Into<String>) -> Self {
        Self { method: Method::POST, ..Self::get(path) }
    }

    pub fn put(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::PUT, ..Self::post(path, body) }
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Extends the timeout for the answer.
    #[must_use]
    pub fn waiting(mut self, more: Duration) -> Self {
        self.timeout += more;
        self
    }

    pub fn request(&self, host: &str, key: &Secret) -> Result<Request<Full<Bytes>>, Failure> {
        let body = self.body.as_ref().map(Value::to_string);
        let content_type = body.is_some().then_some("application/json");
        self.with_body(host, key, content_type, Full::new(Bytes::from(body.unwrap_or_default())))
    }

    /// The request with a body of JSON lines.
    pub fn request_of_lines(
        &self,
        host: &str,
        key: &Secret,
        lines: LineBody,
    ) -> Result<Request<LineBody>, Failure> {
        self.with_body(host, key, Some("application/x-ndjson"), lines)
    }

    fn with_body<B>(
        &self,
        host: &str,
        key: &Secret,
        content_type: Option<&'static str>,
        body: B,
    ) -> Result<Request<B>, Failure> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&self.path)
            .header(header::HOST, host)
            .header(header::AUTHORIZATION, format!("Bearer {}", key.expose()))
            .header(header::ACCEPT, "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        // Only --key and --idempotency-key come from the user; a line break in one of them is the likely cause.
        request.body(body).map_err(|_| {
            Failure::new(Exit::Usage, "--key or --idempotency-key contains characters that HTTP does not allow, such as a line break")
        })
    }
}

// === impl Reply ===

impl Reply {
    pub async fn read<B>(response: http::Response<B>) -> Result<Self, Failure>
    where
        B: hyper::body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = response.into_parts();
        let limited = Limited::new(body, MAX_ANSWER);
        let bytes = limited.collect().await.map_err(unreadable)?.to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(unreadable)?
        };
        Ok(Self { status: parts.status, headers: parts.headers, body })
    }

    /// The body of a successful response, otherwise the gateway's error.
    pub fn good(self) -> Result<Value, Failure> {
        if self.status.is_success() { Ok(self.body) } else { Err(self.failure()) }
    }

    /// The gateway's error as an exit code and a sentence.
    pub fn failure(&self) -> Failure {
        let exit = match self.status.as_u16() {
            400 | 413 | 414 | 415 | 422 | 431 => Exit::Usage,
            401 | 403 | 429 => Exit::Refused,
            503 => Exit::Unreachable,
            504 => Exit::Timeout,
            _ => Exit::Failed,
        };
        let text = |name: &str| self.body.get(name).and_then(Value::as_str);
        if text("code") == Some("unauthorized") {
            return Failure::new(exit, WRONG_KEY);
        }
        let what = text("detail").or_else(|| text("title"));
        let what = without_position(what.unwrap_or("the gateway refused the request"));
        let what = with_option_names(&what);
        match text("code") {
            Some(code) => Failure::new(exit, format!("{what} ({code})")),
            None => Failure::new(exit, format!("{what} (HTTP {})", self.status.as_u16())),
        }
    }
}

const WRONG_KEY: &str = "wrong key: no worker and no admin of the gateway has the key in --key or SOLVEGATE_KEY; a first start makes \
                         both (unauthorized)";

/// Without the place in a JSON that the user did not write.
pub fn without_position(detail: &str) -> String {
    match detail.rsplit_once(" at line ") {
        Some((what, place))
            if place.bytes().all(|b| b.is_ascii_digit() || b" column".contains(&b)) =>
        {
            what.to_owned()
        }
        Some(_) | None => detail.to_owned(),
    }
}

/// Fields of the API whose command-line options have other names.
const RENAMED: [(&str, &str); 5] = [
    ("deadline_s", "deadline"),
    ("older_than_s", "older-than"),
    ("newer_than_s", "newer-than"),
    ("in_s", "in"),
    ("params", "param"),
];
/// Fields of the API that are options by the same name.
const SAME: &str = "actor action kind sitekey pageurl image state limit cursor date from to site worker project level \
                    max waste count";

/// The gateway names fields of its API, as in "`limit` is not …"; the user typed `--limit`.
fn with_option_names(detail: &str) -> String {
    let same = SAME.split(' ').map(|name| (name, name));
    RENAMED.into_iter().chain(same).fold(detail.to_owned(), |text, (field, option)| {
        text.replace(&format!("`{field}`"), &format!("--{option}"))
    })
}

fn unreadable(error: impl fmt::Display) -> Failure {
    let what = format!("cannot read the response: {error}; is --server a solvegate?");
    Failure::new(Exit::Unreachable, what)
}

/// A TLS server answers an unencrypted request with a TLS alert, which hyper cannot parse.
fn not_http(error: hyper::Error) -> Failure {
    if error.is_parse() {
        let what = "the response is not HTTP; if the gateway speaks TLS: use https://";
        return Failure::new(Exit::Unreachable, what);
    }
    unreadable(error)
}

// === impl Remote ===

impl Remote {
    /// Validates the address; does not connect yet.
    pub fn new(server: &str, key: Secret, cacert: Option<&Path>) -> Result<Self, Failure> {
        let usage = |what: String| Failure::new(Exit::Usage, what);
        let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(Url::has_host).ok_or_else(|| {
            usage(format!("--server: {server:?} is not an address such as http://127.0.0.1:8402"))
        })?;
        let endpoint =
            Endpoint::new(url, cacert).map_err(|what| usage(format!("--cacert: {what}")))?;
        Ok(Self { endpoint, key })
    }

    pub async fn send(&self, call: &Call) -> Result<Reply, Failure> {
        let request = call.request(self.endpoint.authority(), &self.key)?;
        let stream = self.open().await?;
        let answer = async { exchange(self.handshake(stream).await?, request).await };
        self.within(call.timeout, answer).await
    }

    /// Sends lines and returns with the head of the response; both streams go on.
    pub async fn send_lines(&self, call: &Call, lines: LineBody) -> Result<LineStream, Failure> {
        let request = call.request_of_lines(self.endpoint.authority(), &self.key, lines)?;
        let stream = self.open().await?;
        let head = async { lines::exchange(self.handshake(stream).await?, request).await };
        self.within(call.timeout, head).await
    }

    async fn within<T>(
        &self,
        length: Duration,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let answer = timeout(length, answer).await;
        answer.map_err(|_| self.unreachable("timeout while waiting for the response"))?
    }

    async fn open(&self) -> Result<TcpStream, Failure> {
        timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .map_err(|_| self.unreachable("no connection within 5 s"))?
            .map_err(|error| self.unreachable(error))
    }

    async fn handshake(&self, stream: TcpStream) -> Result<Box<dyn Stream>, Failure> {
        let stream = self.endpoint.handshake(stream).await;
        stream.map_err(|error| self.handshake_failure(&error))
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(&*self.endpoint.resolve().await?).await
    }

    /// Explains a failed handshake: no TLS at the other end, an untrusted certificate, or a lost connection.
    fn handshake_failure(&self, error: &std::io::Error) -> Failure {
        let what = match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => {
                "the gateway does not speak TLS: use http://".to_owned()
            }
            Some(rustls::Error::InvalidCertificate(why)) => format!(
                "the gateway's certificate is not trusted ({why:?}): pass --cacert with its certificate, \
                 DIR/tls-cert.pem in the gateway's data directory if it is self-signed"
            ),
            Some(_) | None => return self.unreachable(error),
        };
        Failure::new(Exit::Unreachable, format!("{}: {what}", self.endpoint.authority()))
    }

    fn unreachable(&self, why: impl fmt::Display) -> Failure {
        let gateway = self.endpoint.authority();
        let what = format!("cannot reach {gateway}: {why}; is the gateway running?");
        Failure::new(Exit::Unreachable, what)
    }
}

/// Sends the request and drives the connection meanwhile.
pub async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<Reply, Failure> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(not_http)?;
        Reply::read(response).await
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        reply = &mut answer => reply,
        // The connection may end at the moment the response is complete.
        _ = &mut connection => answer.await,
    }
}
