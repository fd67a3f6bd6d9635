//! Dead letters on v1: a worker reads its own; the admin reads all, brings them back and throws them away. A call about
//! many works for at most 20 seconds and then says where to go on.

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
};
use domain::{
    dead_letter::Closing,
    id::{ClaimId, SolveId, WorkerName},
    ports::{DeadLetterFilter, Scope},
};
use engine::{Bulk, BulkDone, Revived, Which};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ask,
    object::Object,
    query::Query,
    records, shape,
    wanted::{self, Wanted},
};
use crate::{
    Doors, body,
    caller::{AdminCaller, Caller},
    error::Refusal,
};

/// What `POST /v1/dead-letters/revive` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviveBody {
    ids: Option<Vec<String>>,
    filter: Option<Object<Wanted>>,
    /// Letters a second.
    #[serde(default = "usual_rate")]
    rate: u32,
    #[serde(default)]
    dry_run: bool,
    cursor: Option<String>,
}

const RATE_MAX: u32 = 1000;
/// One call names no more letters than it can work off at its rate: the engine gives it so many seconds.
const IDS_MAX: usize = 1000;
const CALL_SECONDS: u32 = 20;

fn usual_rate() -> u32 {
    10
}

/// `GET /v1/dead-letters`.
pub(super) async fn list(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &known(&["closed", "limit", "cursor"]))?;
    let filter = DeadLetterFilter {
        closed: query.flag("closed")?,
        from: records::cursor(&query)?,
        limit: records::limit(&query)?,
        ..Wanted::read(&query)?.filter(caller.scope(), doors.now())?
    };
    let page = doors.engine().records().dead_letters(filter).await?;
    Ok(Json(shape::page(&page, shape::dead_letter)))
}

/// `GET /v1/dead-letters/{id}`.
pub(super) async fn show(
    State(doors): State<Doors>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let found = doors.engine().records().dead_letter(letter_id(&id)?).await?;
    let visible = found.filter(|letter| match caller.scope() {
        Scope::All => true,
        Scope::Worker(name) => letter.worker == name,
    });
    visible.map(|letter| Json(shape::whole_dead_letter(&letter))).ok_or(Refusal::NotFound)
}

/// `POST /v1/dead-letters/revive`, for the admin.
pub(super) async fn revive(
    State(doors): State<Doors>,
    _admin: AdminCaller,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let (parts, body) = request.into_parts();
    Query::read(parts.uri.query(), &[])?;
    let body = body::read(&doors, &parts.headers, body, doors.limits().json_bytes).await?;
    let body: ReviveBody = ask::json(&parts.headers, &body)?;
    let bulk = body.bulk(&doors)?;
    let done = doors.engine().revive(&bulk).await?;
    Ok(Json(told(&bulk, &done)))
}

/// `DELETE /v1/dead-letters/{id}`, for the admin.
pub(super) async fn purge_one(
    State(doors): State<Doors>,
    _admin: AdminCaller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let bulk = purging(Which::Ids(vec![letter_id(&id)?]), false);
    match doors.engine().purge(&bulk).await? {
        (0, _) => Err(Refusal::NotFound),
        (_, _) => Ok(StatusCode::NO_CONTENT),
    }
}

/// `DELETE /v1/dead-letters`, for the admin.
pub(super) async fn purge(
    State(doors): State<Doors>,
    _admin: AdminCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &known(&["closed", "all", "dry_run", "cursor"]))?;
    let is_filtered = wanted::NAMES.iter().any(|name| query.get(name).is_some());
    check_all(is_filtered, query.flag("all")?)?;
    let filter = DeadLetterFilter {
        closed: query.flag("closed")?,
        from: records::cursor(&query)?,
        ..Wanted::read(&query)?.filter(Scope::All, doors.now())?
    };
    let bulk = purging(Which::Matching(filter), query.flag("dry_run")?);
    let (purged, next) = doors.engine().purge(&bulk).await?;
    let next = next.map(shape::cursor);
    Ok(Json(json!({ "dry_run": bulk.dry_run, "purged": purged, "next": next })))
}

/// Nothing said is never taken for everything.
fn check_all(is_filtered: bool, all: bool) -> Result<(), Refusal> {
    let refused = |why: &str| Err(Refusal::BadQuery(why.to_owned()));
    match (is_filtered, all) {
        (false, false) => refused("give a filter, or all=true to throw every open letter away"),
        (true, true) => refused("give filters or all=true, not both"),
        (false, true) | (true, false) => Ok(()),
    }
}

fn known(more: &[&'static str]) -> Vec<&'static str> {
    [&wanted::NAMES, more].concat()
}

/// A text that is no id names no letter.
fn letter_id(text: &str) -> Result<SolveId, Refusal> {
    text.parse().map_err(|_| Refusal::NotFound)
}

fn admin() -> WorkerName {
    WorkerName::new("admin").expect("five letters make a name")
}

fn purging(which: Which, dry_run: bool) -> Bulk {
    Bulk { which, by: admin(), rate: RATE_MAX, dry_run, allowances: [].into() }
}

// === impl ReviveBody ===

impl ReviveBody {
    fn bulk(self, doors: &Doors) -> Result<Bulk, Refusal> {
        if !(1..=RATE_MAX).contains(&self.rate) {
            return bad("rate", "is not from 1 to 1000 letters a second");
        }
        let (rate, dry_run) = (self.rate, self.dry_run);
        let workers = doors.workers().list().into_iter();
        let allowances = workers.map(|worker| (worker.name, worker.allowance)).collect();
        Ok(Bulk { which: self.which(doors)?, by: admin(), rate, dry_run, allowances })
    }

    fn which(self, doors: &Doors) -> Result<Which, Refusal> {
        let most = self.most_ids();
        match (self.ids, self.filter, self.cursor) {
            (Some(ids), None, None) if ids.len() > most => {
                Err(Refusal::TooManyIds { named: ids.len(), most, rate: self.rate })
            }
            (Some(ids), None, None) => {
                let ids: Result<_, _> = ids.iter().map(|id| id.parse()).collect();
                let why = "holds a name that is no dead letter's; they look like s482915037264815";
                ids.map(Which::Ids).or_else(|_| bad("ids", why))
            }
            (None, Some(Object(wanted)), cursor) => {
                let from = cursor.as_deref().map(records::cursor_of).transpose()?;
                let filter = wanted.filter(Scope::All, doors.now())?;
                Ok(Which::Matching(DeadLetterFilter { from, ..filter }))
            }
            (Some(_), None, Some(_)) => bad("cursor", "goes with `filter` only"),
            (Some(_), Some(_), _) | (None, None, _) => {
                bad("ids", "or `filter`: give exactly one of both")
            }
        }
    }

    /// Trying takes no time.
    fn most_ids(&self) -> usize {
        let worked_off = usize::try_from(self.rate.saturating_mul(CALL_SECONDS));
        if self.dry_run { IDS_MAX } else { worked_off.unwrap_or(IDS_MAX).min(IDS_MAX) }
    }
}

fn bad<T>(field: &'static str, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal::BadField { field, why })
}

fn told(bulk: &Bulk, done: &BulkDone) -> Value {
    let result = |(id, revived): &(SolveId, Revived)| {
        let (result, claim, why) = words(revived);
        let claim = claim.map(|claim| claim.to_string());
        json!({ "id": id.to_string(), "result": result, "claim": claim, "why": why })
    };
    let results: Vec<_> = done.items.iter().map(result).collect();
    json!({ "dry_run": bulk.dry_run, "results": results, "next": done.next.map(shape::cursor) })
}

/// What became of a letter: the word for programs, its claim, and the reason for people.
fn words(revived: &Revived) -> (&'static str, Option<ClaimId>, Option<&str>) {
    match revived {
        Revived::Opened(claim) => ("opened", Some(*claim), None),
        Revived::Joined(claim) => ("joined", Some(*claim), None),
        Revived::Stocked(claim) => ("stocked", Some(*claim), None),
        Revived::Replayed(claim) => ("replayed", Some(*claim), None),
        Revived::Would => ("would_revive", None, None),
        Revived::Closed(Closing::Revived) => ("closed", None, Some("it was revived before")),
        Revived::Closed(Closing::LateAnswer) => ("closed", None, Some("its answer came after all")),
        Revived::Unknown => ("unknown", None, Some("there is no such dead letter")),
        Revived::Refused(why) => ("refused", None, Some(why)),
    }
}
