//! The middleware around every route, in this order: HTTP rules (cheap, so first), the handler with its panics caught,
//! security headers (on errors too), the access log. It is one function instead of five layers, which saves four boxed
//! futures per request.

use std::{net::IpAddr, panic::AssertUnwindSafe, sync::atomic::Ordering};

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
    caller::CallerName,
    error::Refusal,
    peer::{HeadFault, Peer},
};

/// The fields of the log line. The request target is not among them, because it may contain keys.
struct AccessLog {
    method: Method,
    route: Option<MatchedPath>,
    caller_name: CallerName,
    started: Timestamp,
}

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
             frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Under TLS, so that a browser does not fall back to plain HTTP.
const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

pub(crate) async fn handle_request(
    State(doors): State<Doors>,
    mut request: Request,
    next: Next,
) -> Response {
    let log = AccessLog::start(&doors, &mut request);
    let closes = closes_connection(&request);
    let is_secure = request.extensions().get::<Peer>().is_some_and(Peer::is_secure);
    let mut response = match check(&doors, &request) {
        Ok(()) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
            doors.0.panics.fetch_add(1, Ordering::Relaxed);
            Refusal::Panicked.into_response()
        }),
        Err(refusal) => refusal.into_response(),
    };
    add_headers(response.headers_mut(), closes);
    if is_secure {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, A_YEAR);
    }
    log.finish(&doors, &response);
    response
}

// === HTTP rules ===

fn check(doors: &Doors, request: &Request) -> Result<(), Refusal> {
    match request.extensions().get::<Peer>().and_then(Peer::fault) {
        Some(HeadFault::Framing) => return Err(Refusal::Framing),
        Some(HeadFault::HeadTooLarge) => return Err(Refusal::HeadTooLarge),
        None => {}
    }
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Refusal::Method);
    }
    // `h2c` is ignored, as the standard allows: some HTTP libraries offer it with their first request.
    check_only(request.headers(), header::UPGRADE, b"h2c", Refusal::Upgrade)?;
    check_host(doors, request)?;
    check_only(request.headers(), header::CONTENT_ENCODING, b"identity", Refusal::Encoding)
}

/// Accepts a header with this value only.
fn check_only(
    headers: &HeaderMap,
    name: HeaderName,
    accepted: &[u8],
    otherwise: Refusal,
) -> Result<(), Refusal> {
    let is_accepted = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(accepted);
    if headers.get_all(name).iter().all(is_accepted) { Ok(()) } else { Err(otherwise) }
}

/// Prevents DNS rebinding, where a page of another site makes a browser send requests here under that site's name. An IP
/// address cannot be rebound, so any IP literal is accepted.
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
    if is_allowed_host(doors, host) { Ok(()) } else { Err(Refusal::Misdirected) }
}

fn is_allowed_host(doors: &Doors, host: &Authority) -> bool {
    if host.as_str().contains('@') {
        return false;
    }
    let name = host.host().trim_end_matches('.').to_ascii_lowercase();
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name == "localhost"
        || literal.parse::<IpAddr>().is_ok()
        || doors.config().allowed_hosts.contains(&name)
}

/// guard.rs does not follow the stream after a chunked body or an offered upgrade, so the connection has to end there.
fn closes_connection(request: &Request) -> bool {
    let headers = request.headers();
    request.version() < Version::HTTP_2
        && (headers.contains_key(header::TRANSFER_ENCODING)
            || headers.contains_key(header::UPGRADE)
            || *request.method() == Method::CONNECT)
}

// === headers ===

fn add_headers(headers: &mut HeaderMap, closes_connection: bool) {
    for (name, value) in HEADERS {
        headers.insert(name, value);
    }
    if closes_connection {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // Responses contain tokens, so a cache may keep only those that say so themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

// === impl AccessLog ===

impl AccessLog {
    fn start(doors: &Doors, request: &mut Request) -> Self {
        let caller_name = CallerName::default();
        request.extensions_mut().insert(caller_name.clone());
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { method: request.method().clone(), route, caller_name, started: doors.now() }
    }

    fn finish(self, doors: &Doors, response: &Response) {
        let route = self.route.as_ref().map_or("(none)", MatchedPath::as_str);
        let worker = self.caller_name.0.get().map_or("(nobody)", String::as_str);
        let took = doors.now().since(self.started);
        let status = response.status().as_u16();
        info!(method = %self.method, route, status, ?took, worker, "request answered");
    }
}
