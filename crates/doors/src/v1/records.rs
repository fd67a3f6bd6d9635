//! Lists on v1: history, newest first, and solves in flight. Other lists use the same parameters.

use std::time::Duration;

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    challenge::Kind,
    claim::ClaimState,
    id::{Project, WorkerName},
    ports::{ClaimFilter, Cursor, Scope},
    retry::Code,
    time::Day,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{query::Query, shape, totals};
use crate::{
    Doors,
    caller::Caller,
    error::{Refusal, bad_field},
};

const HISTORY: [&str; 10] =
    ["sitekey", "kind", "state", "worker", "project", "code", "from", "to", "limit", "cursor"];
const DEFAULT_PAGE: u64 = 50;
const MAX_PAGE: u64 = 200;

/// `GET /v1/history`.
pub(super) async fn history(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &HISTORY)?;
    let day = |name| totals::date(&query, name);
    let filter = ClaimFilter {
        scope: narrowed(caller.scope(), worker(&query)?)?,
        sitekey: query.get("sitekey").map(str::to_owned),
        kind: kind(&query)?,
        state: state(&query)?,
        project: project(&query)?,
        code: query.get("code").map(Code::from),
        since: day("from")?.map(Day::start),
        until: day("to")?.map(|last| last.end().minus(Duration::from_millis(1))),
        from: cursor(&query)?,
        limit: limit(&query)?,
    };
    let page = doors.engine().records().history(filter).await?;
    Ok(Json(shape::with_currency(&doors, shape::page(&page, shape::claim))))
}

/// `GET /v1/active`.
pub(super) async fn active(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["limit"])?;
    let solves = doors.engine().records().active(caller.scope(), limit(&query)?).await?;
    let items: Vec<_> = solves.iter().map(shape::active).collect();
    Ok(Json(json!({ "items": items })))
}

pub(super) fn limit(query: &Query) -> Result<usize, Refusal> {
    let limit = query.number("limit", 1..=MAX_PAGE)?.unwrap_or(DEFAULT_PAGE);
    Ok(usize::try_from(limit).expect("at most 200"))
}

pub(super) fn kind(query: &Query) -> Result<Option<Kind>, Refusal> {
    query.parsed("kind", "the name of a kind")
}

pub(super) fn project(query: &Query) -> Result<Option<Project>, Refusal> {
    let refused = |_| Refusal::BadQuery("`project` is not the name of a project".into());
    query.get("project").map(Project::new).transpose().map_err(refused)
}

pub(super) fn worker(query: &Query) -> Result<Option<WorkerName>, Refusal> {
    let refused = |_| Refusal::BadQuery("`worker` is not the name of a worker".into());
    query.get("worker").map(WorkerName::new).transpose().map_err(refused)
}

/// The scope of one worker, which only an admin may choose.
pub(super) fn narrowed(scope: Scope, worker: Option<WorkerName>) -> Result<Scope, Refusal> {
    match (scope, worker) {
        (Scope::All, Some(worker)) => Ok(Scope::Worker(worker)),
        (Scope::Worker(own), Some(worker)) if own != worker => Err(Refusal::OthersRecords),
        (scope, _) => Ok(scope),
    }
}

fn state(query: &Query) -> Result<Option<ClaimState>, Refusal> {
    let state = query.get("state").map(|name| ClaimState::deserialize(json!(name)));
    let refused =
        |_| Refusal::BadQuery("`state` is not waiting, served, failed, withdrawn or lapsed".into());
    state.transpose().map_err(refused)
}

pub(super) fn cursor(query: &Query) -> Result<Option<Cursor>, Refusal> {
    query.get("cursor").map(cursor_of).transpose()
}

pub(super) fn cursor_of(text: &str) -> Result<Cursor, Refusal> {
    let refused = || bad_field("cursor", "is not the `next` of an earlier response");
    shape::read_cursor(text).map_or_else(refused, Ok)
}
