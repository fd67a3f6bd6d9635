//! The only place where an error becomes a response: problem+json on v1 and for HTTP itself, a code on the compat door.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::{
    actor::AdminRole,
    challenge::BadChallenge,
    claim::Claim,
    declarations::SiteRefusal,
    id::Project,
    pause::{MAX_PAUSES, PauseScope},
    ports::{Fault, StoreError},
    retry::{Class, Code, RetryTable},
    site::ContentRefusal,
    time::Timestamp,
};
use engine::{ClaimRefusal, FetchRefusal, PoolRefusal};
use serde_json::{Value, json};
use wire::{code, submit::BadPart};

use crate::{caller::AuthError, ended::EndedClaim};

/// Why a request is refused. The text says what happened and what to do.
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
    #[error(
        "the request bodies of this worker that are coming in have {0} bytes together, which is the limit; send fewer at once"
    )]
    TooManyBytes(u32),
    #[error("timeout while reading the request body; send it faster")]
    Slow,
    #[error("the connection closed before the whole request body arrived")]
    Broken,
    #[error("send JSON, with Content-Type: application/json")]
    NotJson,
    #[error("send one JSON object per line, with Content-Type: application/x-ndjson")]
    NotLines,
    #[error(
        "`id` is missing: it is the line's idempotency key, so that the batch can be sent again"
    )]
    NoLineId,
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
        "`ids` has {named} dead letters, but at {rate} per second one call processes at most {max} in its 20 seconds; \
         split them over several calls, or raise `rate`"
    )]
    TooManyIds { named: usize, max: usize, rate: u32 },
    #[error("keys do not belong in a URL; send Authorization: Bearer KEY")]
    KeyInUrl,
    #[error(
        "missing or unknown key; send the key of a worker or an admin as Authorization: Bearer KEY"
    )]
    Unauthorized,
    #[error(
        "too many failed logins from this address; fix the key, then retry after the time in Retry-After"
    )]
    TooManyWrongKeys(Duration),
    #[error("only the key of an admin may do this")]
    AdminOnly,
    #[error("this needs an admin with the role {needs}; this key has the role {has}")]
    RoleTooLow { has: AdminRole, needs: AdminRole },
    #[error("only an admin may read another worker's records; leave `worker` out")]
    OthersRecords,
    #[error("only a worker's key may claim: cost is charged to a worker's project")]
    WorkersOnly,
    #[error("sites and worker keys are declared in the configuration; edit it and reload")]
    DeclaredInConfiguration,
    #[error("not found; check the path and the id")]
    NotFound,
    #[error(
        "this worker may not charge the project {project}; it may charge: {allowed}. Leave `project` out, or add it to \
         `projects` of the worker in the configuration"
    )]
    Project { project: Project, allowed: String },
    #[error("this worker's rate limit is exceeded; retry after the time in Retry-After")]
    Rate(Duration),
    #[error("too many pingbacks from this address; retry later")]
    TooManyPingbacks(Duration),
    #[error("there are {MAX_PAUSES} pauses; resume one first, or pause everything")]
    TooManyPauses,
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
    #[error("the solve failed; the provider's last code was {}{}", .0.last_code(), .0.hint())]
    Failed(Box<EndedClaim>),
    #[error("the claim's deadline passed before a token was ready{}", .0.hint())]
    Lapsed(Box<EndedClaim>),
    #[error(
        "the claim's deadline passed while submissions were paused ({scope}); nothing was paid for it{}", .ended.hint()
    )]
    LapsedPaused { ended: Box<EndedClaim>, scope: PauseScope },
    #[error(
        "the claim's deadline passed while the account at the provider was blocked: {code}{}", .ended.hint()
    )]
    AccountTrouble { ended: Box<EndedClaim>, code: Code },
    #[error("the claim was withdrawn")]
    Withdrawn(Box<EndedClaim>),
    #[error("the token for this claim has expired; create a new claim")]
    Expired(Box<EndedClaim>),
    #[error("internal error; it has been logged")]
    Panicked,
}

/// `Retry-After` while the store or the provider is unavailable.
const UNAVAILABLE_WAIT: Duration = Duration::from_secs(5);
/// When the bodies of a worker that are coming in are probably whole.
const BODIES_WAIT: Duration = Duration::from_secs(1);

/// Bounds the detail, which may quote the caller's input.
const MAX_DETAIL: usize = 300;

// === impl Refusal ===

/// Refuses a field of the request.
pub(crate) fn bad_field<T>(field: &'static str, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal::BadField { field, why })
}

impl Refusal {
    /// The HTTP status, and the code for programs.
    pub(crate) fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Framing => (StatusCode::BAD_REQUEST, "ambiguous_framing"),
            Self::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Upgrade => (StatusCode::BAD_REQUEST, "no_upgrade"),
            Self::Host(_) => (StatusCode::BAD_REQUEST, "bad_host"),
            Self::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "unknown_host"),
            Self::Encoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::TooManyBytes(_) => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            Self::Broken => (StatusCode::BAD_REQUEST, "body_broken"),
            Self::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json"),
            Self::NotLines => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_ndjson"),
            Self::NoLineId => (StatusCode::BAD_REQUEST, "missing_id"),
            Self::BadJson(_) => (StatusCode::BAD_REQUEST, "bad_json"),
            Self::BadQuery(_) => (StatusCode::BAD_REQUEST, "bad_query"),
            Self::BadIdempotencyKey => (StatusCode::BAD_REQUEST, "bad_idempotency_key"),
            Self::BadPart(BadPart::PageUrl(_)) => (StatusCode::BAD_REQUEST, "invalid_pageurl"),
            Self::BadPart(BadPart::Challenge(BadChallenge::UnknownKind { .. })) => UNKNOWN_KIND,
            Self::BadPart(_) => (StatusCode::BAD_REQUEST, "invalid_challenge"),
            Self::BadField { .. } => (StatusCode::BAD_REQUEST, "bad_field"),
            Self::TooManyIds { .. } => (StatusCode::BAD_REQUEST, "too_many_ids"),
            Self::KeyInUrl => (StatusCode::BAD_REQUEST, "key_in_url"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::TooManyWrongKeys(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_keys"),
            Self::AdminOnly | Self::OthersRecords => (StatusCode::FORBIDDEN, "admin_only"),
            Self::RoleTooLow { .. } => (StatusCode::FORBIDDEN, "role_too_low"),
            Self::WorkersOnly => (StatusCode::FORBIDDEN, "workers_only"),
            Self::Project { .. } => (StatusCode::FORBIDDEN, "project_not_allowed"),
            Self::DeclaredInConfiguration => (StatusCode::BAD_REQUEST, "declared_in_configuration"),
            Self::NotFound
            | Self::Fetch(FetchRefusal::NotFound(_))
            | Self::Pool(PoolRefusal::Unknown(_)) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Pool(PoolRefusal::Site(refusal)) => status_of_site(refusal),
            Self::Pool(PoolRefusal::Kind(_)) => (StatusCode::BAD_REQUEST, "not_pooled"),
            Self::TooManyPingbacks(_) | Self::Rate(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_exceeded")
            }
            Self::Claim(refusal) => status_of_claim(refusal),
            Self::Fetch(FetchRefusal::Store(_))
            | Self::Pool(PoolRefusal::Store(_))
            | Self::Store(_) => STORE_UNAVAILABLE,
            Self::Provider(_) => (StatusCode::SERVICE_UNAVAILABLE, "provider_unavailable"),
            Self::Failed(_) => (StatusCode::BAD_GATEWAY, "solve_failed"),
            Self::TooManyPauses => (StatusCode::CONFLICT, "too_many_pauses"),
            Self::Lapsed(_) | Self::LapsedPaused { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "deadline_passed")
            }
            Self::AccountTrouble { .. } => (StatusCode::SERVICE_UNAVAILABLE, "account_trouble"),
            Self::Withdrawn(_) => (StatusCode::GONE, "withdrawn"),
            Self::Expired(_) => (StatusCode::GONE, "token_expired"),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    /// Whether the connection has to be closed, because the bytes that follow were not read or cannot be trusted.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::Framing
                | Self::HeadTooLarge
                | Self::Upgrade
                | Self::Host(_)
                | Self::TooLarge(_)
                | Self::TooManyBytes(_)
                | Self::Slow
                | Self::Broken
        )
    }

    pub(crate) fn retry_after(&self, now: Option<Timestamp>) -> Option<Duration> {
        if let Self::TooManyWrongKeys(wait) | Self::Rate(wait) | Self::TooManyPingbacks(wait) = self
        {
            return Some(*wait);
        }
        if let Self::Claim(ClaimRefusal::OverBudget(reached)) = self {
            return Some(now.map_or(UNAVAILABLE_WAIT, |now| reached.until.since(now)));
        }
        if let Self::Claim(ClaimRefusal::TooLate { deadline, eta }) = self {
            return Some(eta.saturating_sub(*deadline));
        }
        if let Self::TooManyBytes(_) = self {
            return Some(BODIES_WAIT);
        }
        if let Self::Claim(ClaimRefusal::Busy { retry_after, .. }) = self {
            return Some(*retry_after);
        }
        if let Self::Provider(fault) = self {
            return Some(fault.retry_after.unwrap_or(UNAVAILABLE_WAIT));
        }
        if let Some(ended) = self.ended()
            && ended.claim.has_named_key()
        {
            return ended.retry_after;
        }
        (self.status_and_code().0 == StatusCode::SERVICE_UNAVAILABLE).then_some(UNAVAILABLE_WAIT)
    }

    fn ended(&self) -> Option<&EndedClaim> {
        let (Self::Failed(ended)
        | Self::Lapsed(ended)
        | Self::LapsedPaused { ended, .. }
        | Self::AccountTrouble { ended, .. }
        | Self::Withdrawn(ended)
        | Self::Expired(ended)) = self
        else {
            return None;
        };
        Some(ended)
    }

    /// The status and the body of the response.
    pub(crate) fn status_and_problem(&self) -> (StatusCode, Value) {
        let (status, code) = self.status_and_code();
        (status, self.problem(status, code))
    }

    fn problem(&self, status: StatusCode, code: &str) -> Value {
        // Details of a store failure go to the log and to /readyz, not to callers.
        let is_store = (status, code) == STORE_UNAVAILABLE;
        let detail = if is_store { STORE_DETAIL.to_owned() } else { self.to_string() };
        let mut problem = json!({
            "type": format!("urn:solvegate:problem:{code}"),
            "title": code.replace('_', " "),
            "status": status.as_u16(),
            "detail": detail.chars().take(MAX_DETAIL).collect::<String>(),
            "code": code,
        });
        if let Some(ended) = self.ended() {
            ended.add_to(&mut problem);
        }
        problem
    }

    /// The response; `Retry-After` of a budget depends on the time.
    pub(crate) fn respond(&self, now: Option<Timestamp>) -> Response {
        let (status, code) = self.status_and_code();
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

const STORE_UNAVAILABLE: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable");
const STORE_DETAIL: &str = "the store is unavailable; retry in a moment with the same idempotency key: nothing is paid twice";

const UNKNOWN_KIND: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "unknown_kind");

fn status_of_site(refusal: &SiteRefusal) -> (StatusCode, &'static str) {
    if matches!(refusal, SiteRefusal::Content(ContentRefusal::Method { .. })) {
        UNKNOWN_KIND
    } else if refusal.is_bad_form() {
        (StatusCode::BAD_REQUEST, "unknown_parameter")
    } else {
        (StatusCode::FORBIDDEN, "site_not_declared")
    }
}

fn status_of_claim(refusal: &ClaimRefusal) -> (StatusCode, &'static str) {
    match refusal {
        ClaimRefusal::Site(refusal) => status_of_site(refusal),
        ClaimRefusal::KeyMismatch(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused")
        }
        ClaimRefusal::Key(_) => (StatusCode::BAD_REQUEST, "bad_idempotency_key"),
        ClaimRefusal::OverBudget(_) => (StatusCode::TOO_MANY_REQUESTS, "budget_exceeded"),
        ClaimRefusal::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        ClaimRefusal::TooLate { .. } => (StatusCode::TOO_MANY_REQUESTS, "cannot_meet_deadline"),
        ClaimRefusal::Callback(_) => (StatusCode::BAD_REQUEST, "callback_refused"),
        ClaimRefusal::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        ClaimRefusal::Store(_) => STORE_UNAVAILABLE,
    }
}

/// Whole seconds, rounded up, at least one, as `Retry-After` needs them.
pub(crate) fn seconds(wait: Duration) -> u64 {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    millis.div_ceil(1000).max(1)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.respond(None)
    }
}

impl From<AuthError> for Refusal {
    fn from(refused: AuthError) -> Self {
        match refused {
            // One response for both, so that it does not reveal whether a key is well-formed.
            AuthError::Malformed | AuthError::Unknown => Self::Unauthorized,
            AuthError::TooMany(wait) => Self::TooManyWrongKeys(wait),
        }
    }
}

// === codes of the compat door ===

pub(crate) fn code_of_auth_error(refused: &AuthError) -> Code {
    match refused {
        AuthError::Malformed => code::ERROR_WRONG_USER_KEY.into(),
        AuthError::Unknown => code::ERROR_KEY_DOES_NOT_EXIST.into(),
        AuthError::TooMany(_) => code::ERROR_IP_BANNED.into(),
    }
}

pub(crate) fn code_of_body(refused: &Refusal) -> Code {
    if matches!(refused, Refusal::TooLarge(_)) {
        code::ERROR_TOO_BIG_CAPTCHA_FILESIZE.into()
    } else if matches!(refused, Refusal::TooManyBytes(_)) {
        code::ERROR_NO_SLOT_AVAILABLE.into()
    } else {
        code::ERROR_UPLOAD.into()
    }
}

pub(crate) fn code_of_claim(refused: &ClaimRefusal) -> Code {
    match refused {
        ClaimRefusal::Site(refusal) => refusal.code(),
        ClaimRefusal::KeyMismatch(_) => code::ERROR_IDEMPOTENCY_MISMATCH.into(),
        ClaimRefusal::Key(_) | ClaimRefusal::Callback(_) => code::ERROR_BAD_PARAMETERS.into(),
        ClaimRefusal::OverBudget(_) => code::ERROR_BUDGET_EXCEEDED.into(),
        ClaimRefusal::Busy { .. } | ClaimRefusal::TooLate { .. } => {
            code::ERROR_NO_SLOT_AVAILABLE.into()
        }
        ClaimRefusal::Draining | ClaimRefusal::Store(_) => code::ERROR_SERVER_ERROR.into(),
    }
}

/// The code for a claim that ended without a token. A permanent code of the provider is passed on; any other would only make
/// clients retry on their own.
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
