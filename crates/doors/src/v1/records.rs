//! Lists on v1, newest first: history, solves under way, dead letters.

use axum::{
    Json,
    extract::{Path, RawQuery, State},
};
use domain::{
    challenge::Kind,
    claim::ClaimState,
    id::{Project, SolveId},
    ports::{ClaimFilter, Cursor, DeadLetterFilter, Scope},
    retry::Code,
};
use serde_json::{Value, json};

use super::{query::Query, shape};
use crate::{Doors, caller::Caller, error::Refusal};

const PAGE: u64 = 50;
const PAGE_MAX: u64 = 200;

const STATES: [ClaimState; 5] = [
    ClaimState::Waiting,
    ClaimState::Served,
    ClaimState::Failed,
    ClaimState::Withdrawn,
    ClaimState::Lapsed,
];

/// `GET /v1/history`.
pub(super) async fn history(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let known = ["sitekey", "kind", "state", "project", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known)?;
    let filter = ClaimFilter {
        scope: caller.scope(),
        sitekey: query.get("sitekey").map(str::to_owned),
        kind: kind(&query)?,
        state: state(&query)?,
        project: project(&query)?,
        from: cursor(&query)?,
        limit: limit(&query)?,
    };
    let page = doors.engine().records().history(filter).await?;
    Ok(Json(shape::page(&page, shape::claim)))
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

/// `GET /v1/dead-letters`.
pub(super) async fn dead_letters(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["code", "kind", "closed", "limit", "cursor"])?;
    let filter = DeadLetterFilter {
        scope: caller.scope(),
        code: query.get("code").map(Code::from),
        kind: kind(&query)?,
        closed: query.parsed("closed", "true or false")?.unwrap_or(false),
        from: cursor(&query)?,
        limit: limit(&query)?,
    };
    let page = doors.engine().records().dead_letters(filter).await?;
    Ok(Json(shape::page(&page, shape::dead_letter)))
}

/// `GET /v1/dead-letters/{id}`.
pub(super) async fn dead_letter(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let id: SolveId = id.parse().map_err(|_| Refusal::NotFound)?;
    let found = doors.engine().records().dead_letter(id).await?;
    let visible = found.filter(|letter| match caller.scope() {
        Scope::All => true,
        Scope::Worker(name) => letter.worker == name,
    });
    visible.map(|letter| Json(shape::dead_letter(&letter))).ok_or(Refusal::NotFound)
}

fn limit(query: &Query) -> Result<usize, Refusal> {
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE);
    Ok(usize::try_from(limit).expect("at most 200"))
}

fn kind(query: &Query) -> Result<Option<Kind>, Refusal> {
    query.parsed("kind", "the name of a kind")
}

fn project(query: &Query) -> Result<Option<Project>, Refusal> {
    let refused = |_| Refusal::BadQuery("`project` is not the name of a project".into());
    query.get("project").map(Project::new).transpose().map_err(refused)
}

fn state(query: &Query) -> Result<Option<ClaimState>, Refusal> {
    let Some(name) = query.get("state") else { return Ok(None) };
    let refused =
        || Refusal::BadQuery("`state` is not waiting, served, failed, withdrawn or lapsed".into());
    STATES.into_iter().find(|state| state.name() == name).map(Some).ok_or_else(refused)
}

fn cursor(query: &Query) -> Result<Option<Cursor>, Refusal> {
    let Some(text) = query.get("cursor") else { return Ok(None) };
    let refused = || Refusal::BadQuery("`cursor` is not the `next` of a page before".into());
    shape::read_cursor(text).map(Some).ok_or_else(refused)
}
