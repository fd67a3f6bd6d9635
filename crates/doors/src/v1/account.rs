//! The balance at the provider, and the declared sites and workers.

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::money::Money;
use serde_json::{Value, json};

use super::{query::Query, shape};
use crate::{
    Doors,
    caller::{Caller, ReaderCaller},
    error::Refusal,
    worker::Worker,
};

/// `GET /v1/balance`.
pub(super) async fn balance(
    State(doors): State<Doors>,
    _caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let balance: Money = doors.engine().balance().await.map_err(Refusal::Provider)?;
    Ok(Json(json!({ "balance": shape::money(Some(balance)) })))
}

/// `GET /v1/sites`, for admins.
pub(super) async fn sites(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let sites = doors.engine().sites();
    let items: Vec<_> = sites.iter().map(shape::site).collect();
    Ok(Json(json!({ "items": items, "images": sites.check_images().ok() })))
}

/// `GET /v1/workers`, for admins.
pub(super) async fn workers(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let items: Vec<_> = doors.workers().list().iter().map(worker).collect();
    Ok(Json(json!({ "items": items })))
}

fn worker(worker: &Worker) -> Value {
    let sites: Option<Vec<_>> =
        worker.allowed_hosts.as_ref().map(|rules| rules.iter().map(ToString::to_string).collect());
    json!({
        "name": worker.name.as_str(),
        "project": worker.project.as_str(),
        "priority": worker.priority,
        "solves_per_day": worker.allowance.solves_per_day,
        "cost_per_day": shape::money(worker.allowance.cost_per_day),
        "rate": worker.rate.map(|rate| rate.to_string()),
        "sites": sites,
    })
}
