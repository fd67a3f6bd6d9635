//! Parses the body and headers of `POST /v1/solves` strictly. An error here costs nothing.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use axum::{
    body::Bytes,
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{challenge::Kind, claim::Door, id::Project, secret::Secret};
use engine::ClaimRequest;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use wire::submit::{BadPart, V1Parts};

use super::{object::Object, query::Query};
use crate::{
    Doors, body,
    caller::{Caller, Role},
    error::{Refusal, bad_field},
    in_flight::HeldBody,
    limits::Limits,
    worker::Worker,
};

/// The JSON body. Unknown members are refused, so that nothing a caller meant is silently ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SolveBody {
    /// Of a line of a batch.
    id: Option<LineId>,
    kind: Kind,
    method: Option<String>,
    sitekey: Option<String>,
    pageurl: Option<String>,
    #[serde(default)]
    params: Params,
    image: Option<String>,
    project: Option<String>,
    deadline_s: Option<u64>,
    callback_url: Option<String>,
    #[serde(default)]
    fresh: bool,
}

/// The idempotency key of a line: a string or a whole number.
struct LineId(String);

/// Parameters by the provider's names: strings, numbers and booleans, each name once.
#[derive(Default)]
pub(super) struct Params(pub(super) BTreeMap<String, String>);

const DEADLINE_MAX: u64 = 3600;
const CALLBACK_URL_MAX: usize = 2048;

// === impl SolveBody ===

impl SolveBody {
    /// Parses the body. The image has its own size limit.
    pub(super) fn read(headers: &HeaderMap, body: &[u8], limits: &Limits) -> Result<Self, Refusal> {
        check_json(headers)?;
        Self::parse(body, limits)
    }

    pub(super) fn parse(body: &[u8], limits: &Limits) -> Result<Self, Refusal> {
        let read: Self = object(body)?;
        let image = read.image.as_ref().map_or(0, String::len);
        if image > limits.image_bytes {
            return Err(Refusal::TooLarge(limits.image_bytes));
        }
        if body.len() - image > limits.json_bytes {
            return Err(Refusal::TooLarge(limits.json_bytes));
        }
        Ok(read)
    }

    /// The `id` of a line of a batch.
    pub(super) fn take_id(&mut self) -> Option<String> {
        self.id.take().map(|LineId(id)| id)
    }

    pub(super) fn into_claim(
        self,
        worker: &Worker,
        key: Option<String>,
    ) -> Result<ClaimRequest, Refusal> {
        let deadline = self.deadline()?;
        let callback_url = self.callback_url()?;
        let project = match &self.project {
            Some(name) => worker.check_project(project(name)?)?,
            None => worker.project.clone(),
        };
        let fresh = self.fresh;
        Ok(ClaimRequest {
            worker: worker.name.clone(),
            project,
            door: Door::V1,
            challenge: self.challenge()?,
            key,
            fresh,
            deadline,
            allowance: worker.allowance,
            collect: true,
            callback_url,
            address: None,
        })
    }

    fn deadline(&self) -> Result<Option<Duration>, Refusal> {
        match self.deadline_s {
            None => Ok(None),
            Some(seconds @ 1..=DEADLINE_MAX) => Ok(Some(Duration::from_secs(seconds))),
            Some(_) => bad_field("deadline_s", "is not from 1 to 3600 seconds"),
        }
    }

    /// Checks only the length; the webhook sender checks the address.
    fn callback_url(&self) -> Result<Option<Secret>, Refusal> {
        match &self.callback_url {
            Some(url) if url.chars().count() > CALLBACK_URL_MAX => {
                bad_field("callback_url", "is longer than 2048 characters")
            }
            Some(url) => Ok(Some(Secret::new(url.as_str()))),
            None => Ok(None),
        }
    }

    fn challenge(self) -> Result<domain::challenge::Challenge, Refusal> {
        let image = self.image.as_deref().map(decoded).transpose()?;
        let Self { kind, method, sitekey, pageurl, params: Params(params), .. } = self;
        let kind = kind_or_method(kind, method.as_deref())?;
        Ok(wire::submit::challenge(kind, V1Parts { sitekey, pageurl, params, image })?)
    }
}

/// The kind that `kind` and `method` name: `{"kind":"other","method":"yandex"}` is the provider's method `yandex`.
pub(super) fn kind_or_method(kind: Kind, method: Option<&str>) -> Result<Kind, Refusal> {
    match (kind.name() == "other", method) {
        (false, None) => Ok(kind),
        (false, Some(_)) => bad_field("method", "is only for the kind \"other\""),
        (true, None) => {
            bad_field("method", "is missing: the kind \"other\" needs the provider's method")
        }
        (true, Some(method)) => {
            let named: Kind = method.parse().map_err(BadPart::from)?;
            let is_method = matches!(named, Kind::Other(_));
            if is_method {
                Ok(named)
            } else {
                bad_field("method", "is the name of a kind; write it as `kind`")
            }
        }
    }
}

/// Decodes an image in base64, with or without a `data:` prefix.
fn decoded(image: &str) -> Result<Vec<u8>, Refusal> {
    let text = match image.split_once(";base64,") {
        Some((prefix, text)) if prefix.starts_with("data:") => text,
        Some(_) | None => image,
    };
    STANDARD.decode(text).or_else(|_| bad_field("image", "is not base64"))
}

pub(super) fn project(name: &str) -> Result<Project, Refusal> {
    Project::new(name)
        .or_else(|_| bad_field("project", "is not 1-64 characters of A-Z a-z 0-9 . _ -"))
}

/// An unparseable id is a 404.
pub(super) fn id<T: FromStr>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| Refusal::NotFound)
}

/// The JSON body of a request without a query.
pub(super) async fn body<T: DeserializeOwned>(
    doors: &Doors,
    request: Request,
) -> Result<T, Refusal> {
    let (headers, body) = read(doors, request).await?;
    json(&headers, &body)
}

/// The same for a caller that may be a worker, whose bodies are counted.
pub(super) async fn body_of<T: DeserializeOwned>(
    doors: &Doors,
    caller: &Caller,
    request: Request,
) -> Result<T, Refusal> {
    let Role::Worker(known) = &caller.role else { return body(doors, request).await };
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let (limits, headers) = (doors.limits(), &parts.headers);
    let mut held = HeldBody::begin(doors, known.worker.name.clone());
    let body = body::read_held(&mut held, limits, headers, body, limits.json_bytes).await?;
    json(headers, &body)
}

/// The same, where an empty body is a valid one.
pub(super) async fn body_or_default<T: DeserializeOwned + Default>(
    doors: &Doors,
    request: Request,
) -> Result<T, Refusal> {
    let (headers, body) = read(doors, request).await?;
    if body.is_empty() { Ok(T::default()) } else { json(&headers, &body) }
}

async fn read(doors: &Doors, request: Request) -> Result<(HeaderMap, Bytes), Refusal> {
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let body = body::read(doors, &parts.headers, body, doors.limits().json_bytes).await?;
    Ok((parts.headers, body))
}

fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Refusal> {
    check_json(headers)?;
    object(body)
}

fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    if is_json { Ok(()) } else { Err(Refusal::NotJson) }
}

fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let read: Result<Object<T>, _> = serde_json::from_slice(body);
    read.map(|Object(read)| read).map_err(|error| Refusal::BadJson(error.to_string()))
}

/// The `Idempotency-Key` header. An empty one is an error, not an absent key.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut all = headers.get_all("idempotency-key").iter();
    let (first, second) = (all.next(), all.next());
    let Some(key) = first else { return Ok(None) };
    let key = key.to_str().unwrap_or_default();
    if second.is_some() {
        return Err(Refusal::BadIdempotencyKey);
    }
    check_key(key)?;
    Ok(Some(key.to_owned()))
}

/// 1 to 255 printable characters.
pub(super) fn check_key(key: &str) -> Result<(), Refusal> {
    let printable = key.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    let is_key = printable && (1..=255).contains(&key.len());
    if is_key { Ok(()) } else { Err(Refusal::BadIdempotencyKey) }
}

/// The wait of `Prefer: wait=N`. RFC 7240 requires that unknown preferences are ignored.
pub(super) fn preferred_wait(headers: &HeaderMap, most: Duration) -> Duration {
    let texts =
        headers.get_all("prefer").iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    let waits = texts.flat_map(|text| text.split(',')).filter_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| value.trim().trim_matches('"').parse().ok()).flatten()
    });
    waits.map(Duration::from_secs).next().unwrap_or_default().min(most)
}

// === impl LineId ===

impl<'de> Deserialize<'de> for LineId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let is_whole = !raw.is_empty() && raw.bytes().all(|digit| digit.is_ascii_digit());
        let id = if is_whole { Some(raw.to_owned()) } else { serde_json::from_str(raw).ok() };
        id.map(Self).ok_or_else(|| D::Error::custom("`id` is not a string or a whole number"))
    }
}

// === impl Params ===

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ParamsVisitor)
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = Params;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings, numbers and booleans")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
        let mut params = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            let Some(text) = scalar(value.get()) else {
                return Err(A::Error::custom("a parameter is not a string, a number or a boolean"));
            };
            if params.insert(name, text).is_some() {
                return Err(A::Error::custom("a parameter is given more than once"));
            }
        }
        Ok(Params(params))
    }
}

/// A scalar in the form of `in.php`: numbers keep their text, booleans become 0 and 1.
fn scalar(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok(),
        b't' => Some("1".to_owned()),
        b'f' => Some("0".to_owned()),
        b'-' | b'0'..=b'9' => Some(json.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn read(body: &str) -> Result<SolveBody, Refusal> {
        let json = headers(&[("content-type", "application/json; charset=utf-8")]);
        SolveBody::read(&json, body.as_bytes(), &Limits::default())
    }

    #[test]
    fn parameters_are_scalars_and_become_strings() {
        let body =
            read(r#"{"kind":"turnstile","params":{"a":"x","b":1,"c":0.30,"d":true}}"#).unwrap();
        let texts: Vec<_> = body.params.0.values().map(String::as_str).collect();
        assert_eq!(texts, ["x", "1", "0.30", "1"]);
        for bad in [r#"{"a":[1]}"#, r#"{"a":{}}"#, r#"{"a":null}"#, r#"{"a":"1","a":"2"}"#] {
            assert!(read(&format!(r#"{{"kind":"turnstile","params":{bad}}}"#)).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_members_and_malformed_bodies_are_refused() {
        for bad in [
            r#"{"kind":"turnstile","api_base":"http://a.example"}"#,
            r#"{"kind":"turnstile","kind":"image"}"#,
            r#"{"kind":"../../res.php"}"#,
            r#"{"kind":"turnstile"}{}"#,
            r#"{"kind":"turnstile","deadline_s":NaN}"#,
            r#"{"kind":"turnstile","sitekey":"\ud800"}"#,
            "",
            "[]",
            r#"["turnstile",null,null,{},null,null,null,null,false]"#,
        ] {
            assert!(matches!(read(bad), Err(Refusal::BadJson(_))), "{bad}");
        }
        let form = headers(&[("content-type", "text/plain")]);
        let refused = SolveBody::read(&form, b"{}", &Limits::default());
        assert!(matches!(refused, Err(Refusal::NotJson)));
    }

    #[test]
    fn only_the_image_may_be_large() {
        let image = "A".repeat(400 * 1024);
        assert!(read(&format!(r#"{{"kind":"image","image":"{image}"}}"#)).is_ok());
        let large = read(&format!(r#"{{"kind":"turnstile","sitekey":"{image}"}}"#));
        assert!(matches!(large, Err(Refusal::TooLarge(_))));
    }

    #[test]
    fn one_printable_idempotency_key_or_none() {
        assert_eq!(idempotency_key(&headers(&[])).unwrap(), None);
        let one = headers(&[("idempotency-key", "a:b")]);
        assert_eq!(idempotency_key(&one).unwrap().as_deref(), Some("a:b"));
        let twice = headers(&[("idempotency-key", "a"), ("idempotency-key", "a")]);
        for bad in
            [headers(&[("idempotency-key", "")]), headers(&[("idempotency-key", "a\tb")]), twice]
        {
            assert!(idempotency_key(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_preference_is_bounded_and_never_an_error() {
        let most = Duration::from_secs(120);
        let wait = |text| preferred_wait(&headers(&[("prefer", text)]), most).as_secs();
        assert_eq!(wait("wait=10"), 10);
        assert_eq!(wait("respond-async, Wait = \"7\""), 7);
        assert_eq!(wait("wait=99999"), 120);
        assert_eq!((wait("wait=-1"), wait("wait=x"), wait("handling=lenient")), (0, 0, 0));
    }
}
