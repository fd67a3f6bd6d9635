//! The emergency stop, for admins: pause and resume submissions, and list what is paused.

use axum::{
    Json,
    extract::{RawQuery, Request, State},
};
use domain::{
    actor::Actor,
    id::WorkerName,
    pause::{Pause, PauseScope, Pauses},
    ports::PauseResult,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{query::Query, request};
use crate::{
    Doors,
    caller::{OperatorCaller, ReaderCaller},
    error::{Refusal, bad_field},
};

/// The body of `POST /-/pause` and `/-/resume`; an empty one means everything.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeBody {
    site: Option<String>,
    worker: Option<String>,
}

/// `POST /-/pause`.
pub(super) async fn pause(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    set(&doors, actor, request, true).await
}

/// `POST /-/resume`.
pub(super) async fn resume(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    set(&doors, actor, request, false).await
}

/// `GET /v1/pauses`.
pub(super) async fn list(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    Ok(Json(json!({ "items": items(&doors.engine().pauses().await?) })))
}

async fn set(
    doors: &Doors,
    actor: Actor,
    request: Request,
    paused: bool,
) -> Result<Json<Value>, Refusal> {
    let body: ScopeBody = request::body_or_default(doors, request).await?;
    let scope = body.scope()?;
    // A gateway whose file is newer must be able to pause what others still have, so this is a hint and no refusal.
    let is_declared = is_declared(doors, &scope);
    match doors.engine().set_pause(scope.clone(), paused, actor).await? {
        PauseResult::Done { pauses, is_new } => Ok(Json(json!({
            "scope": scope_json(&scope),
            "changed": is_new,
            "declared": is_declared,
            "items": items(&pauses),
        }))),
        PauseResult::TooMany => Err(Refusal::TooManyPauses),
    }
}

/// Whether this gateway's configuration has anything in the scope. If not, it may be misspelt.
fn is_declared(doors: &Doors, scope: &PauseScope) -> bool {
    let declared = doors.engine().declarations();
    match scope {
        PauseScope::Everything => true,
        PauseScope::Site(rule) => rule
            .parse()
            .is_ok_and(|rule| declared.sites.iter().any(|site| site.rule.shares_hosts_with(&rule))),
        PauseScope::Worker(name) => declared.workers.scope(name).is_ok(),
    }
}

// === impl ScopeBody ===

impl ScopeBody {
    fn scope(self) -> Result<PauseScope, Refusal> {
        match (self.site, self.worker) {
            (None, None) => Ok(PauseScope::Everything),
            (Some(site), None) => PauseScope::site(&site).or_else(|_| {
                bad_field(
                    "site",
                    "is not a host or `*.host`, as in [[site]], optionally with a port",
                )
            }),
            (None, Some(worker)) => WorkerName::new(&worker)
                .map(PauseScope::Worker)
                .or_else(|_| bad_field("worker", "is not the name of a worker")),
            (Some(_), Some(_)) => bad_field("site", "or `worker`: give at most one of the two"),
        }
    }
}

// === shapes ===

fn items(pauses: &Pauses) -> Vec<Value> {
    pauses.iter().map(item).collect()
}

fn item(pause: &Pause) -> Value {
    let Pause { scope, since, by } = pause;
    let mut shape = scope_json(scope);
    shape["since"] = json!(since);
    shape["by"] = json!(by.name.as_str());
    shape["role"] = json!(by.role.name());
    shape["address"] = json!(by.address.map(|address| address.to_string()));
    shape
}

fn scope_json(scope: &PauseScope) -> Value {
    let (name, site, worker) = match scope {
        PauseScope::Everything => ("everything", None, None),
        PauseScope::Site(rule) => ("site", Some(rule.as_str()), None),
        PauseScope::Worker(worker) => ("worker", None, Some(worker.as_str())),
    };
    json!({ "scope": name, "site": site, "worker": worker })
}
