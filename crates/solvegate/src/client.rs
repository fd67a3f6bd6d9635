//! A small HTTP client for `--server`: one request, one connection, JSON both ways.

use std::{fmt, path::Path, time::Duration};

use bytes::Bytes;
use domain::secret::Secret;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use url::Url;

use crate::{
    exit::{Exit, Failure},
    reach::{Reach, Stream},
};

/// A running gateway.
pub struct Remote {
    reach: Reach,
    key: Secret,
}

/// What is asked of a gateway.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
    patience: Duration,
}

/// What it answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// How.
    pub status: StatusCode,
    /// With which headers.
    pub headers: HeaderMap,
    /// What.
    pub body: Value,
}

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

// === impl Call ===

impl Call {
    /// Reads something.
    pub fn get(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { method: Method::GET, path, headers: Vec::new(), body: None, patience: ANSWER }
    }

    /// Sends something.
    pub fn post(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }

    /// Puts something in its place.
    pub fn put(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::PUT, ..Self::post(path, body) }
    }

    /// Takes something back.
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The answer may take so much longer.
    #[must_use]
    pub fn waiting(mut self, more: Duration) -> Self {
        self.patience += more;
        self
    }

    /// The request for this host, with this key.
    pub fn request(&self, host: &str, key: &Secret) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&self.path)
            .header(header::HOST, host)
            .header(header::AUTHORIZATION, format!("Bearer {}", key.expose()))
            .header(header::ACCEPT, "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = self.body.as_ref().map(Value::to_string);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        // The only texts of the caller's in here are a key and header values: a line break is the likely trouble.
        request.body(body).map_err(|_| {
            Failure::new(Exit::Usage, "a key or header holds characters HTTP does not allow")
        })
    }
}

// === impl Reply ===

impl Reply {
    /// Reads a whole answer.
    pub async fn read<B>(response: http::Response<B>) -> Result<Self, Failure>
    where
        B: hyper::body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = response.into_parts();
        let limited = Limited::new(body, ANSWER_BYTES);
        let bytes = limited.collect().await.map_err(unreadable)?.to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(unreadable)?
        };
        Ok(Self { status: parts.status, headers: parts.headers, body })
    }

    /// The answer, or what the gateway says is wrong.
    pub fn good(self) -> Result<Value, Failure> {
        if self.status.is_success() { Ok(self.body) } else { Err(self.failure()) }
    }

    /// What the gateway says is wrong, as an exit code and a sentence.
    pub fn failure(&self) -> Failure {
        let exit = match self.status.as_u16() {
            400 | 413 | 414 | 415 | 422 | 431 => Exit::Usage,
            401 | 403 | 429 => Exit::Refused,
            503 => Exit::Unreachable,
            504 => Exit::Timeout,
            _ => Exit::Failed,
        };
        let text = |name: &str| self.body.get(name).and_then(Value::as_str);
        let what = text("detail").or_else(|| text("title")).unwrap_or("the gateway refused");
        match text("code") {
            Some(code) => Failure::new(exit, format!("{what} ({code})")),
            None => Failure::new(exit, format!("{what} (HTTP {})", self.status.as_u16())),
        }
    }
}

fn unreadable(error: impl fmt::Display) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("the answer cannot be read: {error}; is this a solvegate?"),
    )
}

/// A TLS server answers a plain request with a TLS alert, which is no HTTP.
fn not_http(error: hyper::Error) -> Failure {
    if error.is_parse() {
        let what = "the answer is not HTTP; if the gateway speaks TLS: use https://";
        return Failure::new(Exit::Unreachable, what);
    }
    unreadable(error)
}

// === impl Remote ===

impl Remote {
    /// Checks the address; connects to nobody yet.
    pub fn new(server: &str, key: Secret, cacert: Option<&Path>) -> Result<Self, Failure> {
        let usage = |what: String| Failure::new(Exit::Usage, what);
        let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(Url::has_host).ok_or_else(|| {
            usage(format!("--server: {server:?} is not an address such as http://127.0.0.1:8402"))
        })?;
        let reach = Reach::new(url, cacert).map_err(|what| usage(format!("--cacert: {what}")))?;
        Ok(Self { reach, key })
    }

    /// Asks once.
    pub async fn send(&self, call: &Call) -> Result<Reply, Failure> {
        let request = call.request(self.reach.authority(), &self.key)?;
        let stream = timeout(CONNECT, self.connect()).await;
        let stream =
            stream.map_err(|_| self.away("no answer in 5 s"))?.map_err(|e| self.away(e))?;
        let answer = async {
            let stream = self.reach.secure(stream).await.map_err(|error| self.untrusted(&error))?;
            exchange(stream, request).await
        };
        timeout(call.patience, answer).await.map_err(|_| self.away("the answer took too long"))?
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        self.reach.connect(&self.reach.find().await?).await
    }

    /// Why no TLS connection came about: the gateway speaks plain HTTP, its certificate is not trusted, or it went away.
    fn untrusted(&self, error: &std::io::Error) -> Failure {
        let failed = |why: fmt::Arguments<'_>| {
            Failure::new(Exit::Unreachable, format!("{}: {why}", self.reach.authority()))
        };
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => {
                failed(format_args!("the gateway does not speak TLS: use http://"))
            }
            Some(rustls::Error::InvalidCertificate(why)) => failed(format_args!(
                "the gateway's certificate is not trusted ({why:?}): pass --cacert with its certificate, \
                 DIR/tls-cert.pem in the gateway's data directory if it is self-signed"
            )),
            Some(_) | None => self.away(error),
        }
    }

    fn away(&self, why: impl fmt::Display) -> Failure {
        Failure::new(
            Exit::Unreachable,
            format!("{} cannot be reached: {why}; is the gateway running?", self.reach.authority()),
        )
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("authority", &self.reach.authority()).finish_non_exhaustive()
    }
}

/// Sends the request and drives the connection beside it.
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
        // The connection may end in the same moment as the answer is complete.
        _ = &mut connection => answer.await,
    }
}
