//! Claims on v1: make one, fetch it, take it back, tell how its token fared, and the whole story.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    id::ClaimId,
    ports::{Feedback, Scope},
};
use engine::{Admitted, Ask, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer,
    ask::{self, SolveBody},
    query::Query,
    shape,
};
use crate::{
    Doors, body,
    caller::{Caller, Role, WorkerCaller},
    claim_of,
    error::Refusal,
};

/// How a token fared.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    verdict: Fared,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fared {
    Good,
    Bad,
}

/// `POST /v1/solves`.
pub(super) async fn claim(
    State(doors): State<Doors>,
    caller: WorkerCaller,
    request: Request,
) -> Result<Response, Response> {
    let now = doors.now();
    let refused = |refusal: Refusal| refusal.at(now);
    if let Some(meter) = &caller.known.meter {
        meter.take().map_err(|wait| refused(Refusal::Rate(wait)))?;
    }
    let (ask, wait) = read(&doors, &caller, request).await.map_err(refused)?;
    let (outcome, replayed) = admit(&doors, &caller, ask, wait).await.map_err(refused)?;
    Ok(answer::tell(&doors, outcome, replayed))
}

async fn read(
    doors: &Doors,
    caller: &WorkerCaller,
    request: Request,
) -> Result<(Ask, Duration), Refusal> {
    let limits = doors.limits();
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let key = ask::idempotency_key(&parts.headers)?;
    let wait = ask::preferred_wait(&parts.headers, limits.wait);
    let most = limits.json_bytes + limits.image_bytes;
    let body = body::read(doors, &parts.headers, body, most).await?;
    let ask = SolveBody::read(&parts.headers, &body, limits)?.ask(&caller.known.worker, key)?;
    Ok((ask, wait))
}

/// Makes the claim and waits as long as preferred.
async fn admit(
    doors: &Doors,
    caller: &WorkerCaller,
    ask: Ask,
    wait: Duration,
) -> Result<(Outcome, bool), Refusal> {
    let Admitted { outcome, replayed } = doors.engine().claim(ask).await?;
    let claim = claim_of(&outcome);
    if wait.is_zero() || claim.state.is_final() {
        return Ok((outcome, replayed));
    }
    let scope = Scope::Worker(caller.known.worker.name.clone());
    let outcome = doors.fetch(caller.peer.as_ref(), &scope, claim.id, wait).await?;
    Ok((outcome, replayed))
}

/// `GET /v1/solves/{id}?wait=N`.
pub(super) async fn fetch(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query.as_deref(), &["wait"])?;
    let wait = query.number("wait", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let wait = Duration::from_secs(wait).min(doors.limits().wait);
    let id = claim_id(&id)?;
    if matches!(caller.role, Role::Admin) {
        // The admin watches: a token belongs to the worker that claimed it, and looking hands nothing out.
        let claim = doors.engine().look(&caller.scope(), id).await?;
        return Ok(Json(shape::claim(&claim)).into_response());
    }
    let outcome = doors.fetch(caller.peer.as_ref(), &caller.scope(), id, wait).await?;
    Ok(answer::tell(&doors, outcome, false))
}

/// `DELETE /v1/solves/{id}`.
pub(super) async fn withdraw(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let claim = doors.engine().withdraw(&caller.scope(), claim_id(&id)?).await?;
    Ok(Json(shape::claim(&claim)))
}

/// `POST /v1/solves/{id}/report`.
pub(super) async fn report(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let body = body::read(&doors, &parts.headers, body, doors.limits().json_bytes).await?;
    let Verdict { verdict } = ask::json(&parts.headers, &body)?;
    let feedback = match verdict {
        Fared::Good => Feedback::Good,
        Fared::Bad => Feedback::Bad,
    };
    doors.engine().report(&caller.scope(), claim_id(&id)?, feedback).await?;
    Ok(Json(json!({ "id": id, "recorded": true })))
}

/// `GET /v1/solves/{id}/explain`.
pub(super) async fn explain(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let told = doors.engine().explain(&caller.scope(), claim_id(&id)?).await?;
    let entries: Vec<_> = told.entries.iter().map(shape::entry).collect();
    Ok(Json(json!({ "claim": shape::claim(&told.claim), "entries": entries })))
}

/// A text that is no id names no claim.
fn claim_id(text: &str) -> Result<ClaimId, Refusal> {
    text.parse().map_err(|_| Refusal::NotFound)
}
