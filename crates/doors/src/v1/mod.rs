//! The JSON API: strict parsing, `Authorization: Bearer KEY`, errors as problem+json. A worker sees its own records, the admin
//! sees all. Money is a decimal string, or `null` where it is unknown.
//!
//! # Layout
//! - `solves`: claim, fetch, withdraw, report, explain; `request`: body → claim; `outcome`: outcome → response;
//!   `batches`: many claims in one request
//! - `records`: history, active; `dead_letters`, with `dead_letter_filter`; `pools`; `pauses`: the emergency stop; `totals`:
//!   statistics and the savings report; `reconcile`: the ledger against the provider's balance; `what_if`:
//!   other settings; `account`: balance, declarations; `audit`: the audit trail
//! - `query`: query strings; `object`: JSON bodies; `shape`: records as JSON

mod account;
mod audit;
mod batches;
mod dead_letter_filter;
mod dead_letters;
mod object;
mod outcome;
mod pauses;
mod pools;
mod query;
mod reconcile;
mod records;
mod request;
mod shape;
mod solves;
mod totals;
mod what_if;

use axum::{
    Router,
    routing::{any, delete, get, post},
};

pub use shape::site as site_json;

use crate::{Doors, caller::ReaderCaller, error::Refusal};

/// The routes of v1.
pub(crate) fn routes() -> Router<Doors> {
    Router::new()
        .route("/v1/solves", post(solves::claim))
        .route("/v1/solves/{id}", get(solves::fetch).delete(solves::withdraw))
        .route("/v1/solves/{id}/report", post(solves::report))
        .route("/v1/solves/{id}/explain", get(solves::explain))
        .route("/v1/batches", post(batches::run))
        .route("/v1/history", get(records::history))
        .route("/v1/active", get(records::active))
        .route("/v1/dead-letters", get(dead_letters::list).delete(dead_letters::purge))
        .route("/v1/dead-letters/revive", post(dead_letters::revive))
        .route("/v1/dead-letters/{id}", get(dead_letters::show).delete(dead_letters::purge_one))
        .route("/v1/pools", get(pools::list).put(pools::set))
        .route("/v1/pools/{id}", delete(pools::close))
        .route("/v1/pools/{id}/expect", post(pools::expect))
        .route("/v1/pauses", get(pauses::list))
        .route("/-/pause", post(pauses::pause))
        .route("/-/resume", post(pauses::resume))
        .route("/v1/stats", get(totals::stats))
        .route("/v1/report", get(totals::savings_report))
        .route("/v1/reconcile", get(reconcile::reconcile))
        .route("/v1/what-if", get(what_if::what_if))
        .route("/v1/audit", get(audit::trail))
        .route("/v1/audit/export", get(audit::export))
        .route("/v1/balance", get(account::balance))
        .route("/v1/sites", get(account::sites))
        .route("/v1/workers", get(account::workers))
        .route("/v1/admin/{*rest}", any(admin_area))
}

/// Sites and keys are declared in a file, where changes can be reviewed, so there is no administration over HTTP yet. The
/// prefix is reserved: workers are refused there whatever the path.
pub(crate) async fn admin_area(_admin: ReaderCaller) -> Refusal {
    Refusal::DeclaredInConfiguration
}
