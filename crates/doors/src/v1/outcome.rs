//! Turns a claim's outcome into a response: the token, 202 while it is waiting, or a problem.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use domain::{
    claim::{Claim, Source},
    id::ClaimId,
    money::Money,
    pause::Pause,
    retry::{Class, own},
    time::Timestamp,
    token::Answer,
};
use engine::{ClaimRefusal, Outcome};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::shape;
use crate::{
    Doors,
    ended::EndedClaim,
    error::{Refusal, seconds},
};

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `replayed` says that an earlier request made the claim.
pub(super) fn respond(doors: &Doors, outcome: Outcome, replayed: bool) -> Response {
    let replayed = replayed || matches!(outcome, Outcome::Served { source: Source::Replay, .. });
    let mut response = match outcome {
        Outcome::Served { claim, source } => {
            Json(ServedBody::new(doors, &claim, source)).into_response()
        }
        Outcome::Waiting { claim, eta } => waiting(doors, &claim, eta, replayed),
        ended @ (Outcome::Failed(_)
        | Outcome::Lapsed(_)
        | Outcome::Withdrawn(_)
        | Outcome::Expired(_)) => refusal_of(doors, ended).respond(Some(doors.now())),
    };
    mark_replay(response.headers_mut(), replayed);
    response
}

/// The body for a served claim, as a value, or why there is none.
pub(super) fn settled(doors: &Doors, outcome: Outcome) -> Result<Value, Refusal> {
    let Outcome::Served { claim, source } = outcome else { return Err(refusal_of(doors, outcome)) };
    Ok(json!(ServedBody::new(doors, &claim, source)))
}

/// The refusal for a claim without a token.
fn refusal_of(doors: &Doors, outcome: Outcome) -> Refusal {
    let ended = |claim| Box::new(EndedClaim::new(doors.engine(), claim, doors.now()));
    match outcome {
        Outcome::Failed(claim) => Refusal::Failed(ended(claim)),
        Outcome::Lapsed(claim) => lapsed(doors, ended(claim)),
        Outcome::Withdrawn(claim) => Refusal::Withdrawn(ended(claim)),
        Outcome::Served { claim, .. } | Outcome::Expired(claim) => Refusal::Expired(ended(claim)),
        // Nobody waits for it any longer, because the gateway stops.
        Outcome::Waiting { .. } => ClaimRefusal::Draining.into(),
    }
}

fn mark_replay(headers: &mut HeaderMap, replayed: bool) {
    if replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
}

/// The deadline passed, or the token expired before anybody fetched it. If the provider's account was blocked or submissions
/// are paused, the error says so, because the operator has to end that.
fn lapsed(doors: &Doors, ended: Box<EndedClaim>) -> Refusal {
    if ended.claim.code.as_ref().is_some_and(|code| code.as_str() == own::TOKEN_EXPIRED) {
        return Refusal::Expired(ended);
    }
    let table = &doors.engine().config().retry;
    let claim = &ended.claim;
    let trouble = claim.code.clone().filter(|code| table.rule(code).class == Class::Account);
    let pause = doors.engine().pause_that_stopped(claim);
    match (trouble, pause) {
        (Some(code), _) => Refusal::AccountTrouble { ended, code },
        (None, Some(Pause { scope, .. })) => Refusal::LapsedPaused { ended, scope },
        (None, None) => Refusal::Lapsed(ended),
    }
}

/// The body for a served claim. It is a struct and not a JSON map, because this is the hot path.
#[derive(Serialize)]
struct ServedBody<'a> {
    id: ClaimId,
    state: &'static str,
    kind: &'a str,
    token: Option<TokenValue<'a>>,
    source: &'static str,
    expires_at: Option<Timestamp>,
    attempts: u32,
    polls: u32,
    elapsed_ms: Option<u64>,
    cost: Option<Money>,
    /// Set when the configuration names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    /// Set when its key had opened it again after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    /// Values a site may need besides the token, such as the user agent it was solved with.
    #[serde(skip_serializing_if = "Option::is_none")]
    extras: Option<Box<RawValue>>,
}

/// The token: a string, or for some kinds a JSON value.
#[derive(Serialize)]
#[serde(untagged)]
enum TokenValue<'a> {
    Text(&'a str),
    Value(Box<RawValue>),
}

impl<'a> ServedBody<'a> {
    fn new(doors: &Doors, claim: &'a Claim, source: Source) -> Self {
        let token = claim.token.as_ref();
        let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
        Self {
            id: claim.id,
            state: claim.state.name(),
            kind: claim.kind.name(),
            token: token.map(|token| TokenValue::new(&token.answer)),
            source: source.name(),
            expires_at: token.map(|token| token.expires_at),
            attempts: claim.attempts,
            polls: claim.polls,
            elapsed_ms: shape::elapsed_ms(claim),
            cost: claim.cost,
            currency: doors.config().currency.map(|currency| currency.to_string()),
            generation: Some(claim.generation()).filter(|generation| *generation > 1),
            extras: token.and_then(|token| raw(token.answer.extras.as_ref()?.expose())),
        }
    }
}

impl<'a> TokenValue<'a> {
    fn new(answer: &'a Answer) -> Self {
        let text = answer.text.expose();
        let value = if answer.is_json { RawValue::from_string(text.to_owned()).ok() } else { None };
        value.map_or(Self::Text(text), Self::Value)
    }
}

/// `joined` says that another request opened the claim.
fn waiting(doors: &Doors, claim: &Claim, eta: Duration, joined: bool) -> Response {
    let eta_s = seconds(eta);
    let mut body = json!({
        "id": claim.id.to_string(),
        "state": claim.state.name(),
        "kind": claim.kind.name(),
        "deadline": claim.deadline,
        "eta_s": eta_s,
    });
    if claim.generation() > 1 {
        body["generation"] = json!(claim.generation());
    }
    if joined {
        body["source"] = json!(Source::Join.name());
    }
    if let Some(pause) = doors.engine().pause_that_stopped(claim) {
        body["paused"] = json!(pause.scope.to_string());
    }
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, eta_s.into());
    let location = HeaderValue::try_from(format!("/v1/solves/{}", claim.id));
    headers.insert(header::LOCATION, location.expect("an id is digits"));
    response
}
