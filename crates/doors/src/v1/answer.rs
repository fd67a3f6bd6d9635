//! How a claim's outcome is told on v1: the token, "not yet", or a problem.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use domain::{
    claim::{Claim, Source},
    retry::Class,
    token::Answer,
};
use engine::Outcome;
use serde_json::{Value, json};

use super::shape;
use crate::{
    Doors,
    error::{Refusal, seconds},
};

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The answer for an outcome. `replayed`: the claim had been made before this request.
pub(super) fn tell(doors: &Doors, outcome: Outcome, replayed: bool) -> Response {
    let replayed = replayed || matches!(outcome, Outcome::Served { source: Source::Replay, .. });
    let mut response = match outcome {
        Outcome::Served { claim, source } => Json(served(&claim, source)).into_response(),
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

/// The deadline passed; when it was the account at the provider that let it pass, that is what somebody has to mend.
fn lapsed(doors: &Doors, claim: Claim) -> Refusal {
    let table = doors.engine().config().retry;
    let trouble = claim.code.clone().filter(|code| table.rule(code).class == Class::Account);
    let claim = Box::new(claim);
    match trouble {
        Some(code) => Refusal::AccountTrouble(claim, code.to_string()),
        None => Refusal::Lapsed(claim),
    }
}

fn served(claim: &Claim, source: Source) -> Value {
    let token = claim.token.as_ref();
    let mut answer = json!({
        "id": claim.id.to_string(),
        "state": claim.state.name(),
        "kind": claim.kind.name(),
        "token": token.map(|token| value(&token.answer)),
        "source": source.name(),
        "expires_at": token.map(|token| token.expires_at),
        "attempts": claim.attempts,
        "polls": claim.polls,
        "elapsed_ms": shape::elapsed_ms(claim),
        "cost": shape::money(claim.cost),
    });
    let extras = token.and_then(|token| token.answer.extras.as_ref());
    if let (Some(extras), Some(members)) = (extras, answer.as_object_mut()) {
        // Members a site may ask for besides the token, such as the user agent it was made with.
        let extras = serde_json::from_str(extras.expose()).unwrap_or(Value::Null);
        members.insert("extras".into(), extras);
    }
    answer
}

/// The token: a text, or the JSON value some kinds have.
fn value(answer: &Answer) -> Value {
    let text = answer.text.expose();
    let parsed = if answer.is_json { serde_json::from_str(text).ok() } else { None };
    parsed.unwrap_or_else(|| json!(text))
}

fn waiting(claim: &Claim, eta: Duration) -> Response {
    let body = json!({
        "id": claim.id.to_string(),
        "state": claim.state.name(),
        "kind": claim.kind.name(),
        "deadline": claim.deadline,
    });
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, seconds(eta));
    let location = HeaderValue::try_from(format!("/v1/solves/{}", claim.id));
    headers.insert(header::LOCATION, location.expect("an id is digits"));
    response
}
