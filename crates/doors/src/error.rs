//! The only place where an error becomes a status: problem+json on v1 and for HTTP itself, a code on the compat door.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{
    claim::Claim,
    ports::{Fault, StoreError},
    retry::{Class, Code, RetryTable},
    time::Timestamp,
};
use engine::{ClaimRefusal, FetchRefusal, PoolRefusal};
use serde_json::{Map, Value, json};
use wire::{code, submit::BadPart};

use crate::caller::NoEntry;

/// Why a request is not answered as it wishes. The text says what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("conflicting request lengths; send either one Content-Length or a chunked body")]
    Framing,
    #[error("the request headers are too large; send fewer or shorter ones")]
    HeadTooLarge,
    #[error("this path does not support this method")]
    Method,
    #[error("the connection cannot be upgraded to another protocol")]
    Upgrade,
    #[error("{0}")]
    Host(&'static str),
    #[error("unknown Host header; add that host name to the gateway's allowed hosts")]
    Misdirected,
    #[error("compressed request bodies are not supported; send this one without Content-Encoding")]
    Encoding,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("timeout while reading the request body; send it faster")]
    Slow,
    #[error("the connection closed before the whole request body arrived")]
    Broken,
    #[error("send JSON, with Content-Type: application/json")]
    NotJson,
    #[error("{0}")]
    BadJson(String),
    #[error("{0}")]
    BadQuery(String),
    #[error("give one Idempotency-Key of 1 to 255 printable ASCII characters, or none")]
    BadIdempotencyKey,
    #[error(transparent)]
    BadPart(#[from] BadPart),
    #[error("`{field}` {why}")]
    BadField { field: &'static str, why: &'static str },
    #[error(
        "`ids` names {named} letters and at {rate} a second one call takes at most {most}: it works for no longer than \
         20 seconds; name them in several calls, or raise `rate`"
    )]
    TooManyIds { named: usize, most: usize, rate: u32 },
    #[error("keys do not belong in a URL; send Authorization: Bearer KEY")]
    KeyInUrl,
    #[error(
        "missing or unknown key; send a worker key or the admin key as Authorization: Bearer KEY"
    )]
    NoEntry,
    #[error(
        "too many failed logins from this address; fix the key, then retry after the time in Retry-After"
    )]
    TooManyWrongKeys(Duration),
    #[error("only the admin key may do this")]
    AdminOnly,
    #[error("only the admin key may ask for another worker's records; leave `worker` out")]
    OthersRecords,
    #[error("only a worker's key may claim: cost is charged to a worker's project")]
    WorkersOnly,
    #[error("sites and worker keys are declared in the configuration; edit it and reload")]
    DeclaredInConfiguration,
    #[error("not found; check the path and the id")]
    NotFound,
    #[error("this worker's rate limit is exceeded; retry after the time in Retry-After")]
    Rate(Duration),
    #[error("too many pingbacks from this address; retry later")]
    TooManyPingbacks(Duration),
    #[error(transparent)]
    Pool(#[from] PoolRefusal),
    #[error(transparent)]
    Claim(#[from] ClaimRefusal),
    #[error(transparent)]
    Fetch(#[from] FetchRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the provider did not answer: {0}")]
    Provider(Fault),
    #[error("the solve failed; the provider's last code was {}", last_word(.0))]
    Failed(Box<Claim>),
    #[error("the claim's deadline passed before a token was ready")]
    Lapsed(Box<Claim>),
    #[error("the claim's deadline passed while the account at the provider was blocked: {1}")]
    AccountTrouble(Box<Claim>, String),
    #[error("the claim was withdrawn")]
    Withdrawn(Box<Claim>),
    #[error("the token for this claim has expired; create a new claim")]
    Expired(Box<Claim>),
    #[error("internal error; it has been logged")]
    Panicked,
}

/// What to wait when the store or the account is away.
const AWAY: Duration = Duration::from_secs(5);

/// Details are for people; what a caller sent is not repeated to it at length.
const DETAIL_MAX: usize = 300;

fn last_word(claim: &Claim) -> &str {
    claim.code.as_ref().map_or("nothing", Code::as_str)
}

// === impl Refusal ===

impl Refusal {
    /// Its status and its name for programs.
    pub(crate) fn told(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Framing => (StatusCode::BAD_REQUEST, "ambiguous_framing"),
            Self::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Upgrade => (StatusCode::BAD_REQUEST, "no_upgrade"),
            Self::Host(_) => (StatusCode::BAD_REQUEST, "bad_host"),
            Self::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "unknown_host"),
            Self::Encoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            Self::Broken => (StatusCode::BAD_REQUEST, "body_broken"),
            Self::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json"),
            Self::BadJson(_) => (StatusCode::BAD_REQUEST, "bad_json"),
            Self::BadQuery(_) => (StatusCode::BAD_REQUEST, "bad_query"),
            Self::BadIdempotencyKey => (StatusCode::BAD_REQUEST, "bad_idempotency_key"),
            Self::BadPart(bad) => (StatusCode::BAD_REQUEST, name_of_part(bad)),
            Self::BadField { .. } => (StatusCode::BAD_REQUEST, "bad_field"),
            Self::TooManyIds { .. } => (StatusCode::BAD_REQUEST, "too_many_ids"),
            Self::KeyInUrl => (StatusCode::BAD_REQUEST, "key_in_url"),
            Self::NoEntry => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::TooManyWrongKeys(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_keys"),
            Self::AdminOnly | Self::OthersRecords => (StatusCode::FORBIDDEN, "admin_only"),
            Self::WorkersOnly => (StatusCode::FORBIDDEN, "workers_only"),
            Self::DeclaredInConfiguration => (StatusCode::BAD_REQUEST, "declared_in_configuration"),
            Self::NotFound
            | Self::Fetch(FetchRefusal::NotFound(_))
            | Self::Pool(PoolRefusal::Unknown(_)) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Pool(PoolRefusal::Site(_)) => (StatusCode::FORBIDDEN, "site_not_declared"),
            Self::Pool(PoolRefusal::Kind(_)) => (StatusCode::BAD_REQUEST, "not_pooled"),
            Self::TooManyPingbacks(_) | Self::Rate(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_exceeded")
            }
            Self::Claim(refusal) => told_of_claim(refusal),
            Self::Fetch(FetchRefusal::Store(_))
            | Self::Pool(PoolRefusal::Store(_))
            | Self::Store(_) => STORE_AWAY,
            Self::Provider(_) => (StatusCode::SERVICE_UNAVAILABLE, "provider_unavailable"),
            Self::Failed(_) => (StatusCode::BAD_GATEWAY, "solve_failed"),
            Self::Lapsed(_) => (StatusCode::GATEWAY_TIMEOUT, "deadline_passed"),
            Self::AccountTrouble(..) => (StatusCode::SERVICE_UNAVAILABLE, "account_trouble"),
            Self::Withdrawn(_) => (StatusCode::GONE, "withdrawn"),
            Self::Expired(_) => (StatusCode::GONE, "token_expired"),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    /// Whether the connection ends with this answer: what follows on it cannot be trusted or was not read.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Framing
                | Self::HeadTooLarge
                | Self::Upgrade
                | Self::Host(_)
                | Self::TooLarge(_)
                | Self::Slow
                | Self::Broken
        )
    }

    /// When to come again.
    fn retry_after(&self, now: Option<Timestamp>) -> Option<Duration> {
        if let Self::TooManyWrongKeys(wait) | Self::Rate(wait) | Self::TooManyPingbacks(wait) = self
        {
            return Some(*wait);
        }
        if let Self::Claim(ClaimRefusal::OverBudget { until, .. }) = self {
            return Some(now.map_or(AWAY, |now| until.since(now)));
        }
        if let Self::Claim(ClaimRefusal::TooLate { deadline, eta }) = self {
            return Some(eta.saturating_sub(*deadline));
        }
        if let Self::Provider(fault) = self {
            return Some(fault.retry_after.unwrap_or(AWAY));
        }
        (self.told().0 == StatusCode::SERVICE_UNAVAILABLE).then_some(AWAY)
    }

    fn claim(&self) -> Option<&Claim> {
        let (Self::Failed(claim)
        | Self::Lapsed(claim)
        | Self::AccountTrouble(claim, _)
        | Self::Withdrawn(claim)
        | Self::Expired(claim)) = self
        else {
            return None;
        };
        Some(claim)
    }

    fn problem(&self, status: StatusCode, code: &str) -> Map<String, Value> {
        // Troubles of the store are for the log and /readyz, not for callers.
        let away = matches!(
            self,
            Self::Store(_)
                | Self::Fetch(FetchRefusal::Store(_))
                | Self::Pool(PoolRefusal::Store(_))
                | Self::Claim(ClaimRefusal::Store(_))
        );
        let detail = if away { STORE_DETAIL.to_owned() } else { self.to_string() };
        let mut problem = Map::new();
        problem.insert("type".into(), json!(format!("urn:solvegate:problem:{code}")));
        problem.insert("title".into(), json!(code.replace('_', " ")));
        problem.insert("status".into(), json!(status.as_u16()));
        problem.insert("detail".into(), json!(shortened(&detail)));
        problem.insert("code".into(), json!(code));
        if let Some(claim) = self.claim() {
            problem.insert("id".into(), json!(claim.id.to_string()));
            problem.insert("state".into(), json!(claim.state.name()));
            problem.insert("provider_code".into(), json!(claim.code.as_ref().map(Code::as_str)));
        }
        problem
    }

    /// The answer, with the time it is given at: budgets say when they are renewed.
    pub(crate) fn at(self, now: Timestamp) -> Response {
        self.respond(Some(now))
    }

    fn respond(&self, now: Option<Timestamp>) -> Response {
        let (status, code) = self.told();
        if status.is_server_error() {
            tracing::warn!(code, reason = %self, "request failed");
        }
        let mut response = (status, Json(self.problem(status, code))).into_response();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"solvegate\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(wait) = self.retry_after(now) {
            headers.insert(header::RETRY_AFTER, seconds(wait).into());
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

const STORE_AWAY: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable");
const STORE_DETAIL: &str = "the store is away; ask again in a moment, with the same idempotency key: nothing is paid twice";

fn told_of_claim(refusal: &ClaimRefusal) -> (StatusCode, &'static str) {
    match refusal {
        ClaimRefusal::Site(_) => (StatusCode::FORBIDDEN, "site_not_declared"),
        ClaimRefusal::KeyMismatch(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused")
        }
        ClaimRefusal::Key(_) => (StatusCode::BAD_REQUEST, "bad_idempotency_key"),
        ClaimRefusal::OverBudget { .. } => (StatusCode::TOO_MANY_REQUESTS, "budget_exceeded"),
        ClaimRefusal::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        ClaimRefusal::TooLate { .. } => (StatusCode::TOO_MANY_REQUESTS, "cannot_meet_deadline"),
        ClaimRefusal::Callback(_) => (StatusCode::BAD_REQUEST, "callback_refused"),
        ClaimRefusal::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        ClaimRefusal::Store(_) => STORE_AWAY,
    }
}

fn name_of_part(bad: &BadPart) -> &'static str {
    if matches!(bad, BadPart::PageUrl(_)) { "invalid_pageurl" } else { "invalid_challenge" }
}

fn shortened(detail: &str) -> String {
    detail.chars().take(DETAIL_MAX).collect()
}

/// Whole seconds, upwards, at least one: the form of `Retry-After`.
pub(crate) fn seconds(wait: Duration) -> u64 {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    millis.div_ceil(1000).max(1)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.respond(None)
    }
}

impl From<NoEntry> for Refusal {
    fn from(refused: NoEntry) -> Self {
        match refused {
            // The same answer: whether a key has the right form, or exists, is nobody's business.
            NoEntry::Malformed | NoEntry::Unknown => Self::NoEntry,
            NoEntry::TooMany(wait) => Self::TooManyWrongKeys(wait),
        }
    }
}

// === codes of the compat door ===

/// What a worker on the compat door is told about a key that lets nobody in.
pub(crate) fn code_of_no_entry(refused: &NoEntry) -> Code {
    match refused {
        NoEntry::Malformed => code::ERROR_WRONG_USER_KEY.into(),
        NoEntry::Unknown => code::ERROR_KEY_DOES_NOT_EXIST.into(),
        NoEntry::TooMany(_) => code::ERROR_IP_BANNED.into(),
    }
}

/// What a worker on the compat door is told about a body that was not taken.
pub(crate) fn code_of_body(refused: &Refusal) -> Code {
    let too_large = matches!(refused, Refusal::TooLarge(_));
    if too_large { code::ERROR_TOO_BIG_CAPTCHA_FILESIZE.into() } else { code::ERROR_UPLOAD.into() }
}

/// What a worker on the compat door is told about a claim that was not admitted.
pub(crate) fn code_of_claim(refused: &ClaimRefusal) -> Code {
    match refused {
        ClaimRefusal::Site(_) => code::ERROR_SITE_NOT_DECLARED.into(),
        ClaimRefusal::KeyMismatch(_) => code::ERROR_IDEMPOTENCY_MISMATCH.into(),
        ClaimRefusal::Key(_) | ClaimRefusal::Callback(_) => code::ERROR_BAD_PARAMETERS.into(),
        ClaimRefusal::OverBudget { .. } => code::ERROR_BUDGET_EXCEEDED.into(),
        ClaimRefusal::Busy(_) | ClaimRefusal::TooLate { .. } => {
            code::ERROR_NO_SLOT_AVAILABLE.into()
        }
        ClaimRefusal::Draining | ClaimRefusal::Store(_) => code::ERROR_SERVER_ERROR.into(),
    }
}

/// What a worker on the compat door is told about a claim that ended without a token. A provider's word that no
/// other try would change is passed on; everything else would only send clients into loops of their own.
pub(crate) fn code_of_end(claim: &Claim, table: &RetryTable) -> Code {
    let provider_said = |code: &&Code| {
        code.as_str().starts_with("ERROR") && table.rule(code).class == Class::Permanent
    };
    claim
        .code
        .as_ref()
        .filter(provider_said)
        .cloned()
        .unwrap_or_else(|| code::ERROR_CAPTCHA_UNSOLVABLE.into())
}
