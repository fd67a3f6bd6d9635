//! The balance at the provider, and the declared sites and workers.

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    budget::BudgetScope, declarations::KnownWorkers, id::Project, money::Money, ports::DaySpending,
};
use serde_json::{Value, json};

use super::{query::Query, shape};
use crate::{
    Doors,
    caller::{Caller, ReaderCaller},
    error::Refusal,
    worker::Worker,
};

/// `GET /v1/balance`, for admins and for workers that may.
pub(super) async fn balance(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    if !caller.may_read_balance() {
        return Err(Refusal::AdminOnly);
    }
    let balance: Money = doors.engine().balance().await.map_err(Refusal::Provider)?;
    let (budgets, spending) = doors.engine().spending().await?;
    let limits = spending.states(&BudgetScope::Account, &budgets.account);
    Ok(Json(json!({
        "balance": shape::money(Some(balance)),
        "currency": shape::currency(&doors),
        "budget": shape::budget(&limits),
    })))
}

/// `GET /v1/sites`, for admins.
pub(super) async fn sites(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let declared = doors.engine().declarations();
    let items: Vec<_> = declared.sites.iter().map(shape::site).collect();
    let images = declared.images.as_ref();
    Ok(Json(json!({
        "items": items,
        "images": images.map(|images| &images.basis),
        "images_kinds": images.map(|images| &images.kinds),
        "images_expires": images.and_then(|images| images.expires),
    })))
}

/// `GET /v1/workers`, for admins.
pub(super) async fn workers(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let known = &doors.engine().declarations().workers;
    let (_, spending) = doors.engine().spending().await?;
    let items: Vec<_> =
        doors.workers().list().iter().map(|each| worker(each, known, &spending)).collect();
    Ok(Json(shape::with_currency(&doors, json!({ "items": items }))))
}

fn worker(worker: &Worker, known: &KnownWorkers, spending: &DaySpending) -> Value {
    let scope = BudgetScope::Worker(worker.name.clone());
    let limits = spending.states(&scope, &worker.allowance);
    let scope = known.scope(&worker.name).ok();
    let sites = scope.as_ref().and_then(|scope| scope.sites.as_deref());
    let sites: Option<Vec<_>> = sites.map(|rules| rules.iter().map(ToString::to_string).collect());
    json!({
        "name": worker.name.as_str(),
        "project": worker.project.as_str(),
        "projects": worker.projects.iter().map(Project::as_str).collect::<Vec<_>>(),
        "priority": worker.priority,
        "solves_per_day": worker.allowance.solves_per_day,
        "cost_per_day": shape::money(worker.allowance.cost_per_day),
        "budget": shape::budget(&limits),
        "rate": worker.rate.map(|rate| rate.to_string()),
        "poll_rate": worker.poll_rate.map(|rate| rate.to_string()),
        "read_rate": worker.read_rate.map(|rate| rate.to_string()),
        "sites": sites,
        "images": scope.is_some_and(|scope| scope.images),
    })
}
