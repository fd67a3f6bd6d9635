//! Claims on v1: claim, fetch, withdraw, report on the token, explain.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    claim::{ClaimState, Repeats, Source},
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
    error::{Refusal, bad_field},
    in_flight::HeldBody,
};

/// Whether the site accepted the token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    verdict: Feedback,
}

/// How a request met its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The request made the claim.
    Made,
    /// Another request made it, and it was in flight.
    Joined,
    /// Another request made it, and it had ended.
    Replayed,
}

/// `POST /v1/solves`.
pub(super) async fn claim(
    State(doors): State<Doors>,
    caller: WorkerCaller,
    request: Request,
) -> Result<Response, Response> {
    let now = doors.now();
    let refused = |refusal: Refusal| refusal.respond(Some(now));
    let (known, peer) = (&caller.known, caller.peer.as_ref());
    doors.take(known, known.claims.as_ref(), peer).map_err(|wait| refused(Refusal::Rate(wait)))?;
    let (ask, wait) = read(&doors, &caller, request).await.map_err(|refusal| {
        if let Refusal::Project { .. } = refusal {
            doors.count_refusal(Some(known), peer, refusal.status_and_code().1);
        }
        refused(refusal)
    })?;
    let (outcome, arrival) = admit(&doors, &caller, ask, wait).await.map_err(refused)?;
    Ok(outcome::respond(&doors, arrival.outcome_for_caller(outcome), arrival.is_repeat()))
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
    let mut held = HeldBody::begin(doors, caller.known.worker.name.clone());
    let body = body::read_held(&mut held, limits, &parts.headers, body, most).await?;
    let mut body = SolveBody::read(&parts.headers, &body, limits)?;
    if body.take_id().is_some() {
        return bad_field("id", "belongs to a line of /v1/batches; here, send an Idempotency-Key");
    }
    let ask = body.into_claim(&caller.known.worker, key)?;
    let address = caller.peer.as_ref().map(|peer| peer.address().to_canonical());
    Ok((ClaimRequest { address, ..ask }, wait))
}

/// Makes the claim and waits up to `wait` for its outcome.
async fn admit(
    doors: &Doors,
    caller: &WorkerCaller,
    ask: ClaimRequest,
    wait: Duration,
) -> Result<(Outcome, Arrival), Refusal> {
    let Admitted { outcome, replayed } = doors.engine().claim(ask).await?;
    let arrival = Arrival::new(&outcome, replayed);
    let claim = outcome.claim();
    if wait.is_zero() || claim.state.is_final() {
        return Ok((outcome, arrival));
    }
    let scope = Scope::Worker(caller.known.worker.name.clone());
    let outcome = doors.fetch(caller.peer.as_ref(), &scope, claim.id, wait).await?;
    Ok((outcome, arrival))
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
        return Ok(Json(shape::with_currency(&doors, shape::claim(&claim))).into_response());
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
    let by = caller.operator(&doors)?;
    let claim = doors.engine().withdraw(&caller.scope(), request::id(&id)?, by).await?;
    Ok(Json(shape::with_currency(&doors, shape::claim(&claim))))
}

/// `POST /v1/solves/{id}/report`.
pub(super) async fn report(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let by = caller.operator(&doors)?;
    let Verdict { verdict } = request::body_of(&doors, &caller, request).await?;
    doors.engine().report(&caller.scope(), request::id(&id)?, verdict, by).await?;
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
    let story =
        json!({ "claim": shape::claim(&story.claim), "entries": entries, "repeats": repeats });
    Ok(Json(shape::with_currency(&doors, story)))
}

// === impl Arrival ===

impl Arrival {
    pub(super) fn new(outcome: &Outcome, replayed: bool) -> Self {
        match (replayed, outcome.claim().state) {
            (false, _) => Self::Made,
            (true, ClaimState::Waiting) => Self::Joined,
            (true, _) => Self::Replayed,
        }
    }

    pub(super) fn is_repeat(self) -> bool {
        self != Self::Made
    }

    /// Names where the token came from as this caller sees it. Callers of one claim fetch it in any order, so which of them
    /// came first says nothing about who opened it.
    pub(super) fn outcome_for_caller(self, outcome: Outcome) -> Outcome {
        let Outcome::Served { claim, source: _ } = outcome else { return outcome };
        let source = match self {
            Self::Made => claim.source.unwrap_or(Source::Upstream),
            Self::Joined => Source::Join,
            Self::Replayed => Source::Replay,
        };
        Outcome::Served { claim, source }
    }
}
