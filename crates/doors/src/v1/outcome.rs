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
    retry::Class,
    time::Timestamp,
    token::Answer,
};
use engine::Outcome;
use serde::Serialize;
use serde_json::{json, value::RawValue};

use super::shape;
use crate::{
    Doors,
    error::{Refusal, seconds},
};

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `replayed` says that an earlier request made the claim.
pub(super) fn respond(doors: &Doors, outcome: Outcome, replayed: bool) -> Response {
    let replayed = replayed || matches!(outcome, Outcome::Served { source: Source::Replay, .. });
    let mut response = match outcome {
        Outcome::Served { claim, source } => Json(ServedBody::new(&claim, source)).into_response(),
        Outcome::Waiting { claim, eta } => waiting(&claim, eta),
        Outcome::Failed(claim) => Refusal::Failed(Box::new(claim)).into_response(),
        Outcome::Lapsed(claim) => lapsed(doors, claim).into_response(),
        Outcome::Withdrawn(claim) => Refusal::Withdrawn(Box::new(claim)).into_response(),
        Outcome::Expired(claim) => Refusal::Expired(Box::new(claim)).into_response(),
    };
    mark_replay(response.headers_mut(), replayed);
    response
}

fn mark_replay(headers: &mut HeaderMap, replayed: bool) {
    if replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
}

/// The deadline passed. If the provider's account was blocked, the error says so, because the operator has to fix that.
fn lapsed(doors: &Doors, claim: Claim) -> Refusal {
    let table = &doors.engine().config().retry;
    let trouble = claim.code.clone().filter(|code| table.rule(code).class == Class::Account);
    let claim = Box::new(claim);
    match trouble {
        Some(code) => Refusal::AccountTrouble(claim, code.to_string()),
        None => Refusal::Lapsed(claim),
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
    fn new(claim: &'a Claim, source: Source) -> Self {
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

fn waiting(claim: &Claim, eta: Duration) -> Response {
    let eta_s = seconds(eta);
    let body = json!({
        "id": claim.id.to_string(),
        "state": claim.state.name(),
        "kind": claim.kind.name(),
        "deadline": claim.deadline,
        "eta_s": eta_s,
    });
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, eta_s.into());
    let location = HeaderValue::try_from(format!("/v1/solves/{}", claim.id));
    headers.insert(header::LOCATION, location.expect("an id is digits"));
    response
}
