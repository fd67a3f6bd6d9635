//! Dead letters on v1: a worker reads its own; admins read all, and revive and purge from the role operator on. A bulk call works for at most 20 seconds
//! and then returns a cursor to continue from.

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
};
use domain::{
    actor::Actor,
    dead_letter::Closing,
    id::{ClaimId, SolveId},
    ports::{DeadLetterFilter, Scope},
};
use engine::{BulkReport, BulkRequest, DeadLetterSelection, Revived};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    dead_letter_filter::{self, FilterParams},
    object::Object,
    query::Query,
    records, request, shape,
};
use crate::{
    Doors,
    caller::{Caller, OperatorCaller},
    error::{Refusal, bad_field},
};

/// The body of `POST /v1/dead-letters/revive`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviveBody {
    ids: Option<Vec<String>>,
    filter: Option<Object<FilterParams>>,
    /// Dead letters per second.
    #[serde(default = "default_rate")]
    rate: u32,
    #[serde(default)]
    dry_run: bool,
    cursor: Option<String>,
}

const RATE_MAX: u32 = 1000;
/// A call may not name more dead letters than it can process at its rate in the time the engine gives it.
const IDS_MAX: usize = 1000;
const CALL_SECONDS: u32 = 20;

fn default_rate() -> u32 {
    10
}

/// `GET /v1/dead-letters`.
pub(super) async fn list(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &param_names(&["closed", "limit", "cursor"]))?;
    let filter = DeadLetterFilter {
        closed: query.flag("closed")?,
        from: records::cursor(&query)?,
        limit: records::limit(&query)?,
        ..FilterParams::read(&query)?.filter(caller.scope(), doors.now())?
    };
    let page = doors.engine().records().dead_letters(filter).await?;
    Ok(Json(shape::with_currency(&doors, shape::page(&page, shape::dead_letter))))
}

/// `GET /v1/dead-letters/{id}`.
pub(super) async fn show(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let found = doors.engine().records().dead_letter(request::id(&id)?).await?;
    let scope = caller.scope();
    let visible = found.filter(|letter| match &scope {
        Scope::All => true,
        Scope::Worker(name) => letter.worker == *name,
    });
    let mut letter = visible.ok_or(Refusal::NotFound)?;
    if let Scope::Worker(_) = &scope {
        // Claims of other workers may have waited for the same solve.
        let mut own = Vec::new();
        for id in letter.claims {
            if doors.engine().find_claim(&scope, id).await.is_ok() {
                own.push(id);
            }
        }
        letter.claims = own;
    }
    Ok(Json(shape::with_currency(&doors, shape::whole_dead_letter(&letter))))
}

/// `POST /v1/dead-letters/revive`, for operators.
pub(super) async fn revive(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let body: ReviveBody = request::body(&doors, request).await?;
    let bulk = body.bulk(&doors, actor)?;
    let done = doors.engine().revive(&bulk).await?;
    Ok(Json(bulk_result(&bulk, &done)))
}

/// `DELETE /v1/dead-letters/{id}`, for operators.
pub(super) async fn purge_one(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let bulk = purging(DeadLetterSelection::Ids(vec![request::id(&id)?]), actor, false);
    match doors.engine().purge(&bulk).await? {
        (0, _) => Err(Refusal::NotFound),
        (_, _) => Ok(StatusCode::NO_CONTENT),
    }
}

/// `DELETE /v1/dead-letters`, for operators.
pub(super) async fn purge(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query =
        Query::read(query.as_deref(), &param_names(&["closed", "all", "dry_run", "cursor"]))?;
    let is_filtered = dead_letter_filter::NAMES.iter().any(|name| query.get(name).is_some());
    check_all(is_filtered, query.flag("all")?)?;
    let filter = DeadLetterFilter {
        closed: query.flag("closed")?,
        from: records::cursor(&query)?,
        ..FilterParams::read(&query)?.filter(Scope::All, doors.now())?
    };
    let bulk = purging(DeadLetterSelection::Matching(filter), actor, query.flag("dry_run")?);
    let (purged, next) = doors.engine().purge(&bulk).await?;
    let next = next.map(shape::cursor);
    Ok(Json(json!({ "dry_run": bulk.dry_run, "purged": purged, "next": next })))
}

/// An empty filter must be explicit, so that a forgotten one does not purge everything.
fn check_all(is_filtered: bool, all: bool) -> Result<(), Refusal> {
    let refused = |why: &str| Err(Refusal::BadQuery(why.to_owned()));
    match (is_filtered, all) {
        (false, false) => refused("give a filter, or all=true to purge every open dead letter"),
        (true, true) => refused("give filters or all=true, not both"),
        (false, true) | (true, false) => Ok(()),
    }
}

fn param_names(more: &[&'static str]) -> Vec<&'static str> {
    [&dead_letter_filter::NAMES, more].concat()
}

fn purging(which: DeadLetterSelection, by: Actor, dry_run: bool) -> BulkRequest {
    BulkRequest { which, by, rate: RATE_MAX, dry_run, allowances: [].into() }
}

// === impl ReviveBody ===

impl ReviveBody {
    fn bulk(self, doors: &Doors, by: Actor) -> Result<BulkRequest, Refusal> {
        if !(1..=RATE_MAX).contains(&self.rate) {
            return bad_field("rate", "is not from 1 to 1000 dead letters per second");
        }
        let (rate, dry_run) = (self.rate, self.dry_run);
        let workers = doors.workers().list().into_iter();
        let allowances = workers.map(|worker| (worker.name, worker.allowance)).collect();
        Ok(BulkRequest { which: self.which(doors)?, by, rate, dry_run, allowances })
    }

    fn which(self, doors: &Doors) -> Result<DeadLetterSelection, Refusal> {
        let max = self.max_ids();
        match (self.ids, self.filter, self.cursor) {
            (Some(ids), None, None) if ids.len() > max => {
                Err(Refusal::TooManyIds { named: ids.len(), max, rate: self.rate })
            }
            (Some(ids), None, None) => {
                let ids: Result<_, _> = ids.iter().map(|id| id.parse()).collect();
                let why = "contains something that is not the id of a dead letter, such as s482915037264815";
                ids.map(DeadLetterSelection::Ids).or_else(|_| bad_field("ids", why))
            }
            (None, Some(Object(dead_letter_filter)), cursor) => {
                let from = cursor.as_deref().map(records::cursor_of).transpose()?;
                let filter = dead_letter_filter.filter(Scope::All, doors.now())?;
                Ok(DeadLetterSelection::Matching(DeadLetterFilter { from, ..filter }))
            }
            (Some(_), None, Some(_)) => bad_field("cursor", "can be used with `filter` only"),
            (Some(_), Some(_), _) | (None, None, _) => {
                bad_field("ids", "or `filter`: give exactly one of the two")
            }
        }
    }

    /// A dry run takes no time, so its rate does not matter.
    fn max_ids(&self) -> usize {
        let worked_off = usize::try_from(self.rate.saturating_mul(CALL_SECONDS));
        if self.dry_run { IDS_MAX } else { worked_off.unwrap_or(IDS_MAX).min(IDS_MAX) }
    }
}

fn bulk_result(bulk: &BulkRequest, done: &BulkReport) -> Value {
    let result = |(id, revived): &(SolveId, Revived)| {
        let (result, claim, why) = result_words(revived);
        let claim = claim.map(|claim| claim.to_string());
        json!({ "id": id.to_string(), "result": result, "claim": claim, "why": why })
    };
    let results: Vec<_> = done.items.iter().map(result).collect();
    json!({ "dry_run": bulk.dry_run, "results": results, "next": done.next.map(shape::cursor) })
}

/// The result for one dead letter: its name for programs, the claim, and the reason for people.
fn result_words(revived: &Revived) -> (&'static str, Option<ClaimId>, Option<&str>) {
    match revived {
        Revived::Opened(claim) => ("opened", Some(*claim), None),
        Revived::Joined(claim) => ("joined", Some(*claim), None),
        Revived::Stocked(claim) => ("stocked", Some(*claim), None),
        Revived::Replayed(claim) => ("replayed", Some(*claim), None),
        Revived::Would => ("would_revive", None, None),
        Revived::Closed(Closing::Revived) => ("closed", None, Some("it was revived before")),
        Revived::Closed(Closing::LateAnswer) => ("closed", None, Some("its answer arrived late")),
        Revived::Unknown => ("unknown", None, Some("there is no such dead letter")),
        Revived::Refused(why) => ("refused", None, Some(why)),
    }
}
