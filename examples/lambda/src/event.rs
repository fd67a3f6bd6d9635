//! Events and answers: API Gateway's payload 2.0, which function URLs use too, and schedules.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

#[derive(Debug)]
pub(crate) enum Event {
    /// A request of a worker.
    Request(Box<Request>),
    /// A scheduled round.
    Schedule,
}

/// A request to the v1 API.
pub(crate) type Request = http::Request<Full<Bytes>>;

/// The answer of the v1 API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    raw_path: String,
    #[serde(default)]
    raw_query_string: String,
    #[serde(default)]
    headers: Map<String, Value>,
    request_context: Value,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

/// The message for an unknown event.
const UNKNOWN: &str = "neither a request (payload format 2.0) nor a schedule (\"source\": \"aws.events\" or \"aws.scheduler\")";
/// The only path served; everything else needs a long-running gateway.
const SERVED: &str = "/v1/solves";

// === impl Event ===

impl Event {
    /// Parses an event; the error says what is wrong with it.
    pub(crate) fn read(event: Value) -> Result<Self, String> {
        let source = event.get("source").and_then(Value::as_str);
        if matches!(source, Some("aws.events" | "aws.scheduler")) {
            return Ok(Self::Schedule);
        }
        if event.get("requestContext").is_none() {
            return Err(UNKNOWN.to_owned());
        }
        let payload = Payload::deserialize(event).map_err(|error| format!("{UNKNOWN}: {error}"))?;
        payload.request().map(|request| Self::Request(Box::new(request)))
    }
}

// === impl Payload ===

impl Payload {
    fn request(self) -> Result<Request, String> {
        let body = self.body.unwrap_or_default();
        let body = if self.is_base64_encoded {
            STANDARD.decode(body).map_err(|error| format!("the body is not base64: {error}"))?
        } else {
            body.into_bytes()
        };
        let target = match self.raw_query_string.as_str() {
            "" => self.raw_path,
            query => format!("{}?{query}", self.raw_path),
        };
        let method = self.request_context["http"]["method"].as_str().ok_or(UNKNOWN)?;
        let mut request = http::Request::builder()
            .method(method)
            .uri(target)
            .body(Full::from(body))
            .map_err(|error| error.to_string())?;
        for (name, value) in &self.headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            let value = HeaderValue::from_str(value.as_str().unwrap_or_default());
            request.headers_mut().insert(name, value.map_err(|error| error.to_string())?);
        }
        // API Gateway has already handled the host and the framing of the body.
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        for name in [header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE] {
            request.headers_mut().remove(name);
        }
        Ok(request)
    }
}

/// Calls the v1 API.
pub(crate) async fn answer<S, B>(door: S, request: Request) -> Answer
where
    S: tower::Service<Request, Response = http::Response<B>, Error = std::convert::Infallible>,
    B: http_body_util::BodyExt<Data = Bytes>,
{
    let path = request.uri().path();
    if path != SERVED && !path.starts_with("/v1/solves/") {
        return Answer::plain(StatusCode::NOT_FOUND, "this function serves /v1/solves");
    }
    let Ok(response) = door.oneshot(request).await;
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() },
        Err(_) => Answer::plain(StatusCode::INTERNAL_SERVER_ERROR, "the answer was cut off"),
    }
}

// === impl Answer ===

impl Answer {
    fn plain(status: StatusCode, title: &str) -> Self {
        let body = json!({ "title": title, "status": status.as_u16() }).to_string();
        let mut headers = HeaderMap::new();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        Self { status, headers, body: body.into() }
    }

    pub(crate) fn into_json(self) -> Value {
        let headers: Map<String, Value> = self
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.into())))
            .collect();
        let (body, is_base64) = match std::str::from_utf8(&self.body) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (STANDARD.encode(&self.body), true),
        };
        json!({
            "statusCode": self.status.as_u16(),
            "headers": headers,
            "body": body,
            "isBase64Encoded": is_base64,
        })
    }
}
