//! The JSON API: strict in what it takes, `Authorization: Bearer KEY`, errors as problem+json. A worker sees its own
//! records, the admin all of them. Money is a decimal string, `null` where nobody knows it.
//!
//! # Layout
//! - `solves`: claim, fetch, withdraw, report, explain; `ask`: body → claim; `answer`: outcome → response
//! - `records`: history, active; `letters`: dead letters, with `wanted` for which of them; `pools`: standing orders; `totals`: statistics and the
//!   savings report; `account`: balance, declarations
//! - `query`: query strings, `object`: bodies, `shape`: how records look as JSON

mod account;
mod answer;
mod ask;
mod letters;
mod object;
mod pools;
mod query;
mod records;
mod shape;
mod solves;
mod totals;
mod wanted;

use axum::{
    Router,
    routing::{any, delete, get, post},
};

use crate::{Doors, caller::AdminCaller, error::Refusal};

/// The routes of v1.
pub(crate) fn routes() -> Router<Doors> {
    Router::new()
        .route("/v1/solves", post(solves::claim))
        .route("/v1/solves/{id}", get(solves::fetch).delete(solves::withdraw))
        .route("/v1/solves/{id}/report", post(solves::report))
        .route("/v1/solves/{id}/explain", get(solves::explain))
        .route("/v1/history", get(records::history))
        .route("/v1/active", get(records::active))
        .route("/v1/dead-letters", get(letters::list).delete(letters::purge))
        .route("/v1/dead-letters/revive", post(letters::revive))
        .route("/v1/dead-letters/{id}", get(letters::show).delete(letters::purge_one))
        .route("/v1/pools", get(pools::list).put(pools::set))
        .route("/v1/pools/{id}", delete(pools::close))
        .route("/v1/pools/{id}/expect", post(pools::expect))
        .route("/v1/stats", get(totals::stats))
        .route("/v1/report", get(totals::savings_report))
        .route("/v1/balance", get(account::balance))
        .route("/v1/sites", get(account::sites))
        .route("/v1/workers", get(account::workers))
        .route("/v1/admin/{*rest}", any(admin_area))
}

/// Nothing is administered over HTTP yet: sites and keys are declared in a file, where a change is reviewed. The
/// prefix is kept closed, so that a worker is refused there whatever it asks for.
pub(crate) async fn admin_area(_admin: AdminCaller) -> Refusal {
    Refusal::DeclaredInConfiguration
}
