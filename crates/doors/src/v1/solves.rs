//! Claims on v1: claim, fetch, withdraw, report on the token, explain.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    claim::Repeats,
    ports::{Feedback, Scope},
};
use engine::{Admitted, ClaimRequest, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    outcome,
    query::Query,
    request::{self, SolveBody},
    shape,
};
use crate::{
    Doors, body,
    caller::{Caller, PollCaller, Role, WorkerCaller},
    error::Refusal,
};

/// Whether the site accepted the token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    verdict: Feedback,
}

/// `POST /v1/solves`.
pub(super) async fn claim(
    State(doors): State<Doors>,
    caller: WorkerCaller,
    request: Request,
) -> Result<Response, Response> {
    let now = doors.now();
    let refused = |refusal: Refusal| refusal.respond(Some(now));
    doors.take(caller.known.claims.as_ref()).map_err(|wait| refused(Refusal::Rate(wait)))?;
    let (ask, wait) = read(&doors, &caller, request).await.map_err(refused)?;
    let (outcome, replayed) = admit(&doors, &caller, ask, wait).await.map_err(refused)?;
    Ok(outcome::respond(&doors, outcome, replayed))
}

async fn read(
    doors: &Doors,
    caller: &WorkerCaller,
    request: Request,
) -> Result<(ClaimRequest, Duration), Refusal> {
    let limits = doors.limits();
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let key = request::idempotency_key(&parts.headers)?;
    let wait = request::preferred_wait(&parts.headers, limits.wait);
    let most = limits.json_bytes + limits.image_bytes;
    let body = body::read(doors, &parts.headers, body, most).await?;
    let ask =
        SolveBody::read(&parts.headers, &body, limits)?.into_claim(&caller.known.worker, key)?;
    Ok((ask, wait))
}

/// Makes the claim and waits up to `wait` for its outcome.
async fn admit(
    doors: &Doors,
    caller: &WorkerCaller,
    ask: ClaimRequest,
    wait: Duration,
) -> Result<(Outcome, bool), Refusal> {
    let Admitted { outcome, replayed } = doors.engine().claim(ask).await?;
    let claim = outcome.claim();
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
    PollCaller(caller): PollCaller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query.as_deref(), &["wait"])?;
    let wait = query.number("wait", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let wait = Duration::from_secs(wait).min(doors.limits().wait);
    let id = request::id(&id)?;
    if matches!(caller.role, Role::Admin(_)) {
        // An admin sees the claim without its token, which belongs to the worker, and does not consume it.
        let claim = doors.engine().find_claim(&caller.scope(), id).await?;
        return Ok(Json(shape::claim(&claim)).into_response());
    }
    let outcome = doors.fetch(caller.peer.as_ref(), &caller.scope(), id, wait).await?;
    Ok(outcome::respond(&doors, outcome, false))
}

/// `DELETE /v1/solves/{id}`.
pub(super) async fn withdraw(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    caller.operator()?;
    let claim = doors.engine().withdraw(&caller.scope(), request::id(&id)?).await?;
    Ok(Json(shape::claim(&claim)))
}

/// `POST /v1/solves/{id}/report`.
pub(super) async fn report(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    caller.operator()?;
    let Verdict { verdict } = request::body(&doors, request).await?;
    doors.engine().report(&caller.scope(), request::id(&id)?, verdict).await?;
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
    let story = doors.engine().explain(&caller.scope(), request::id(&id)?).await?;
    let entries: Vec<_> = story.entries.iter().map(shape::entry).collect();
    let Repeats { fetched, replayed } = story.repeats;
    let repeats = json!({ "fetched": fetched, "replayed": replayed });
    Ok(Json(json!({ "claim": shape::claim(&story.claim), "entries": entries, "repeats": repeats })))
}
