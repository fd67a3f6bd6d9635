//! The one layer around every route, in this order: HTTP rules (cheap, before any work), the handler with its panics
//! caught, security headers (on refusals too), the log line. One function instead of five layers: one boxed future.

use std::{net::IpAddr, panic::AssertUnwindSafe};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use domain::time::Timestamp;
use futures_util::FutureExt as _;
use tracing::info;

use crate::{
    Doors,
    caller::CalledBy,
    error::Refusal,
    peer::{Fault, Peer},
};

/// What the log line tells. Never the target itself: keys and pages are in it.
struct Line {
    method: Method,
    route: Option<MatchedPath>,
    called_by: CalledBy,
    began: Timestamp,
}

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Takes a request over the threshold and its answer back.
pub(crate) async fn cross(
    State(doors): State<Doors>,
    mut request: Request,
    next: Next,
) -> Response {
    let line = Line::begin(&doors, &mut request);
    let ends = ends_connection(&request);
    let mut response = match check(&doors, &request) {
        Ok(()) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
            doors.count_panic();
            Refusal::Panicked.into_response()
        }),
        Err(refusal) => refusal.into_response(),
    };
    secure(response.headers_mut(), ends);
    line.end(&doors, &response);
    response
}

// === HTTP rules ===

fn check(doors: &Doors, request: &Request) -> Result<(), Refusal> {
    match request.extensions().get::<Peer>().and_then(Peer::fault) {
        Some(Fault::Framing) => return Err(Refusal::Framing),
        Some(Fault::HeadTooLarge) => return Err(Refusal::HeadTooLarge),
        None => {}
    }
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Refusal::Method);
    }
    check_upgrade(request.headers())?;
    check_host(doors, request)?;
    check_encoding(request.headers())
}

/// `h2c` is ignored, as the standard allows: some HTTP libraries offer it with every first request.
fn check_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
    let ignored = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"h2c");
    if headers.get_all(header::UPGRADE).iter().all(ignored) {
        Ok(())
    } else {
        Err(Refusal::Upgrade)
    }
}

/// A page of another site may make a browser send requests here under that site's name (DNS rebinding): only names
/// we know are answered to. An address cannot be rebound, so any IP literal will do.
fn check_host(doors: &Doors, request: &Request) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_2 => {
            return Err(Refusal::Host("the Host header is missing"));
        }
        (_, Some(_)) => return Err(Refusal::Host("there is more than one Host header")),
        (host, None) => host,
    };
    let named = match named.map(|host| Authority::try_from(host.as_bytes())) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err(Refusal::Host("the Host header cannot be read")),
        None => None,
    };
    let target = request.uri().authority();
    let host = match (&named, target) {
        (Some(host), Some(target)) if host != target => {
            return Err(Refusal::Host("the Host header and the request target disagree"));
        }
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => return Err(Refusal::Host("the Host header is missing")),
    };
    if is_ours(doors, host) { Ok(()) } else { Err(Refusal::Misdirected) }
}

fn is_ours(doors: &Doors, host: &Authority) -> bool {
    if host.as_str().contains('@') {
        return false;
    }
    let name = host.host().trim_end_matches('.').to_ascii_lowercase();
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name == "localhost"
        || literal.parse::<IpAddr>().is_ok()
        || doors.config().allowed_hosts.contains(&name)
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let all_plain = headers.get_all(header::CONTENT_ENCODING).iter().all(plain);
    if all_plain { Ok(()) } else { Err(Refusal::Encoding) }
}

/// What comes after a chunked body or an offered upgrade is not read along by the guard: nothing may come.
fn ends_connection(request: &Request) -> bool {
    let headers = request.headers();
    request.version() < Version::HTTP_2
        && (headers.contains_key(header::TRANSFER_ENCODING)
            || headers.contains_key(header::UPGRADE)
            || *request.method() == Method::CONNECT)
}

// === headers ===

fn secure(headers: &mut HeaderMap, ends_connection: bool) {
    for (name, value) in HEADERS {
        headers.insert(name, value);
    }
    if ends_connection {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // Answers hold tokens; only what says otherwise itself may be kept by anyone.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

// === impl Line ===

impl Line {
    fn begin(doors: &Doors, request: &mut Request) -> Self {
        let called_by = CalledBy::default();
        request.extensions_mut().insert(called_by.clone());
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { method: request.method().clone(), route, called_by, began: doors.now() }
    }

    fn end(self, doors: &Doors, response: &Response) {
        let route = self.route.as_ref().map_or("(none)", MatchedPath::as_str);
        let worker = self.called_by.0.get().map_or("(nobody)", String::as_str);
        let took = doors.now().since(self.began);
        let status = response.status().as_u16();
        info!(method = %self.method, route, status, ?took, worker, "request answered");
    }
}
