//! The audit trail on v1, for admins of any role: who did what, and the whole ledger with its hashes, so that a caller can
//! verify it without trust in this gateway.

use std::time::Duration;

use axum::{
    Json,
    extract::{RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use domain::{
    chain::LedgerItem,
    challenge::Kind,
    id::WorkerName,
    ledger::{Entry, Event},
    ports::AuditFilter,
    time::{Day, Timestamp},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{query::Query, records, shape};
use crate::{Doors, caller::ReaderCaller, error::Refusal};

/// One page of an export.
#[derive(Serialize)]
struct ExportPage<'a> {
    items: &'a [LedgerItem],
    /// The number to continue from; `None` at the end of the ledger.
    next: Option<u64>,
}

const DAY: Duration = Duration::from_secs(86_400);
/// Entries of an export in one response.
const MAX_EXPORT: u64 = 1000;

/// `GET /v1/audit`.
pub(super) async fn trail(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let known = ["actor", "action", "from", "to", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known)?;
    let until = time(&query, "to", |day| start(day).plus(DAY).minus(Duration::from_millis(1)))?;
    let filter = AuditFilter {
        actor: query.parsed::<WorkerName>("actor", "the name of an admin or worker")?,
        action: query.get("action").map(str::to_owned),
        since: time(&query, "from", start)?,
        until,
        from: records::cursor(&query)?,
        limit: records::limit(&query)?,
    };
    let page = doors.engine().records().audit(filter).await?;
    Ok(Json(shape::page(&page, entry)))
}

/// `GET /v1/audit/export`: the ledger in order, each entry as it was hashed.
pub(super) async fn export(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query.as_deref(), &["from", "limit"])?;
    let from = query.number("from", 0..=u64::MAX)?.unwrap_or(0);
    let limit = query.number("limit", 1..=MAX_EXPORT)?.unwrap_or(MAX_EXPORT);
    let limit = usize::try_from(limit).expect("at most a thousand");
    let items = doors.engine().records().chain(from, limit).await?;
    let next = items.last().map(|last| last.seq().saturating_add(1));
    // The order of the members matters here, and a `Value` does not keep it.
    let body = serde_json::to_string(&ExportPage { items: &items, next });
    let body = body.expect("an entry has no maps with keys that are not texts");
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A time, or a day that stands for one.
fn time(
    query: &Query,
    name: &str,
    of_day: fn(Day) -> Timestamp,
) -> Result<Option<Timestamp>, Refusal> {
    if let Some(day) = query.get(name).and_then(|text| text.parse::<Day>().ok()) {
        return Ok(Some(of_day(day)));
    }
    query.parsed(name, "a date such as 2026-11-15, or a time such as 2026-11-15T20:00:00Z")
}

fn start(day: Day) -> Timestamp {
    Timestamp::default().plus(DAY * day.number())
}

/// One entry: who did what from where, and its facts.
fn entry(entry: &Entry) -> Value {
    let mut facts = shape::entry(entry)["facts"].take();
    let (mut role, mut address) = (Value::Null, Value::Null);
    if let Event::Administered { by, action } = &entry.event {
        (role, address) = (json!(by.role), json!(by.address));
        // serde writes an action with facts as an object with one member.
        facts = facts["action"].get_mut(action.name()).map(Value::take).unwrap_or_default();
    } else if let Some(from) = facts.as_object_mut().and_then(|facts| facts.remove("address")) {
        address = from;
    }
    json!({
        "seq": entry.seq,
        "at": entry.at,
        "actor": entry.actor().as_str(),
        "role": role,
        "address": address,
        "action": entry.event.audited_as(),
        "facts": if facts.is_null() { json!({}) } else { facts },
        "claim": entry.claim.map(|id| id.to_string()),
        "solve": entry.solve.map(|id| id.to_string()),
        "worker": entry.worker.as_str(),
        "project": entry.project.as_str(),
        "kind": entry.kind.as_ref().map(Kind::name),
    })
}
