//! Pools on v1, for admins: list, open, close, announce demand.

use std::time::Duration;

use axum::{
    Json,
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
};
use domain::{
    budget::{Allowance, BudgetScope, Budgets},
    challenge::{Kind, Sharing},
    money::Money,
    pool::{BadPoolSize, Expectation, Level, Pool, PoolSize},
    ports::{DaySpending, LearnedMargin, PoolState},
    time::Timestamp,
};
use engine::{PoolRefusal, PoolWish};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use wire::submit::V1Parts;

use super::{
    query::Query,
    request::{self, Params},
    shape,
};
use crate::{
    Doors,
    caller::{OperatorCaller, ReaderCaller},
    error::{Refusal, bad_field},
};

/// The body of `PUT /v1/pools`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolBody {
    kind: Kind,
    method: Option<String>,
    sitekey: Option<String>,
    pageurl: Option<String>,
    #[serde(default)]
    params: Params,
    #[serde(default)]
    level: LevelParam,
    max: Option<u32>,
    waste: Option<f64>,
    project: Option<String>,
}

/// `"auto"` or a number.
struct LevelParam(Level);

/// The body of `POST /v1/pools/{id}/expect`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectBody {
    count: u32,
    at: Option<Timestamp>,
    in_s: Option<u64>,
}

/// The project that refills are charged to by default.
const DEFAULT_PROJECT: &str = "pool";
const MAX_COUNT: u32 = 1000;
/// How far ahead demand can be announced.
const MAX_AHEAD: Duration = Duration::from_secs(7 * 86_400);
/// How many tokens are listed by age.
const MAX_AGES: usize = 50;

/// `GET /v1/pools`.
pub(super) async fn list(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::read(query.as_deref(), &[])?;
    let now = doors.now();
    let (budgets, spending) = doors.engine().spending().await?;
    let pools = doors.engine().pools().await?;
    let margins = doors.engine().records().margins().await?;
    let spent = (&*budgets, &spending);
    let items: Vec<_> = pools.iter().map(|state| pool_json(state, spent, now)).collect();
    let margins: Vec<_> = margins.iter().map(margin).collect();
    let currency = shape::currency(&doors);
    Ok(Json(json!({ "items": items, "margins": margins, "currency": currency })))
}

/// `PUT /v1/pools`: opens a pool, or changes the one for the same challenge.
pub(super) async fn set(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let body: PoolBody = request::body(&doors, request).await?;
    let pool = doors.engine().set_pool(body.wish()?, actor).await?;
    pool_response(&doors, &pool).await
}

/// `DELETE /v1/pools/{id}`.
pub(super) async fn close(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Refusal> {
    Query::read(query.as_deref(), &[])?;
    doors.engine().close_pool(request::id(&id)?, actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/pools/{id}/expect`: announces demand.
pub(super) async fn expect(
    State(doors): State<Doors>,
    OperatorCaller(actor): OperatorCaller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let id = request::id(&id)?;
    let body: ExpectBody = request::body(&doors, request).await?;
    let expectation = Expectation { at: body.at(doors.now())?, left: body.count };
    let pool = doors.engine().expect(id, expectation, actor).await?;
    pool_response(&doors, &pool).await
}

/// The pool in the form of the list; without stock if it has been closed meanwhile.
async fn pool_response(doors: &Doors, pool: &Pool) -> Result<Json<Value>, Refusal> {
    let found = doors.engine().pools().await?.into_iter().find(|s| s.pool.id() == pool.id());
    let gone = || PoolState { pool: pool.clone(), stock: Vec::new(), coming: 0, waiting: 0 };
    let (budgets, spending) = doors.engine().spending().await?;
    Ok(Json(pool_json(&found.unwrap_or_else(gone), (&budgets, &spending), doors.now())))
}

// === impl PoolBody ===

impl PoolBody {
    fn wish(self) -> Result<PoolWish, Refusal> {
        let kind = request::kind_or_method(self.kind, self.method.as_deref())?;
        if kind.sharing() != Sharing::Exclusive {
            return Err(PoolRefusal::Kind(kind.name().to_owned()).into());
        }
        let size =
            PoolSize::new(self.level.0, self.max, self.waste).or_else(
                |bad_size| match bad_size {
                    BadPoolSize::Level => {
                        bad_field("level", "is not \"auto\" or a number from 1 to `max`")
                    }
                    BadPoolSize::Max => bad_field("max", "is not from 1 to 1000"),
                    BadPoolSize::Waste => bad_field("waste", "is not from 0 to 1"),
                },
            )?;
        let project = request::project(self.project.as_deref().unwrap_or(DEFAULT_PROJECT))?;
        let Params(params) = self.params;
        let parts = V1Parts { sitekey: self.sitekey, pageurl: self.pageurl, params, image: None };
        Ok(PoolWish {
            challenge: wire::submit::challenge(kind, parts)?,
            project,
            level: size.level,
            most: size.most,
            waste: size.waste,
            // The budgets of pools are configured.
            budget: Allowance::default(),
        })
    }
}

// === impl LevelParam ===

impl Default for LevelParam {
    fn default() -> Self {
        Self(Level::Auto)
    }
}

impl<'de> Deserialize<'de> for LevelParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match (value.as_str(), number) {
            (Some("auto"), _) => Ok(Self(Level::Auto)),
            (_, Some(number)) => Ok(Self(Level::Fixed(number))),
            (_, None) => Err(D::Error::custom("`level` is not \"auto\" or a whole number")),
        }
    }
}

// === impl ExpectBody ===

impl ExpectBody {
    fn at(&self, now: Timestamp) -> Result<Timestamp, Refusal> {
        if !(1..=MAX_COUNT).contains(&self.count) {
            return bad_field("count", "is not from 1 to 1000");
        }
        let at = match (self.at, self.in_s) {
            (Some(at), None) => at,
            (None, Some(seconds)) => now.plus(Duration::from_secs(seconds)),
            (Some(_), Some(_)) | (None, None) => {
                return bad_field("at", "or `in_s`: give exactly one of the two");
            }
        };
        let is_near = at <= now.plus(MAX_AHEAD) && at.plus(Duration::from_secs(60)) >= now;
        if is_near { Ok(at) } else { bad_field("at", "is not within the next seven days") }
    }
}

// === shapes ===

fn pool_json(
    state: &PoolState,
    (budgets, spending): (&Budgets, &DaySpending),
    now: Timestamp,
) -> Value {
    let PoolState { pool, stock, coming, waiting } = state;
    let budget = budgets.of_pool(&pool.fingerprint);
    let limits = spending.states(&BudgetScope::Pool(pool.id()), &budget);
    let mut shape = order(pool);
    let left: Vec<u64> =
        stock.iter().take(MAX_AGES).map(|until| until.since(now).as_secs()).collect();
    let more = json!({
        "target": pool.target.level,
        "why": pool.target.why.text(),
        "stock": stock.len(),
        "stock_by_age": left,
        "coming": coming,
        "waiting": waiting,
        "arrived": pool.arrived,
        "hits": pool.hits,
        "hit_rate": share(pool.hits, pool.arrived),
        "served": pool.served,
        "ordered": pool.ordered,
        "wasted": pool.wasted,
        "waste_rate": share(pool.wasted, pool.served + pool.wasted),
        "cost": shape::money(known_cost(pool)),
        "cost_unknown": pool.cost_unknown,
        "cost_per_served": cost_per_served(pool),
        "rate_per_s": rounded(pool.demand.rate(now)),
        "expected": pool.expected.iter().map(expected).collect::<Vec<_>>(),
        "controller": pool.controller.map(|holder| holder.to_string()),
        "since": pool.since,
        "budget": shape::budget(&limits),
    });
    shape::extend(&mut shape, more);
    shape
}

/// The pool's order without its parameters, which may contain a proxy's password.
fn order(pool: &Pool) -> Value {
    let (order, challenge) = (&pool.order, &pool.order.challenge);
    let level = match order.level {
        Level::Auto => json!("auto"),
        Level::Fixed(level) => json!(level),
    };
    json!({
        "id": pool.id().to_string(),
        "kind": challenge.kind().name(),
        "sitekey": challenge.sitekey(),
        "pageurl": challenge.pageurl().map(ToString::to_string),
        "project": order.project.as_str(),
        "basis": order.basis,
        "declared": order.is_declared,
        "level": level,
        "max": order.most,
        "waste": f64::from(order.waste) / 1000.0,
    })
}

fn expected(one: &Expectation) -> Value {
    json!({ "count": one.left, "at": one.at })
}

fn margin(learned: &LearnedMargin) -> Value {
    json!({
        "host": learned.host,
        "kind": learned.kind.name(),
        "extra_s": learned.extra.as_secs(),
        "good": learned.good,
        "bad": learned.bad,
    })
}

/// `null` for a share of nothing.
fn share(part: u64, whole: u64) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let share = part as f64 / whole as f64;
    if whole == 0 { Value::Null } else { rounded(share) }
}

fn rounded(number: f64) -> Value {
    json!(shape::rounded(number))
}

/// What is known of the cost; `None` when nothing is.
fn known_cost(pool: &Pool) -> Option<Money> {
    (pool.cost_unknown == 0 || pool.cost > Money::ZERO).then_some(pool.cost)
}

/// `null` while nothing was served or some cost is unknown.
fn cost_per_served(pool: &Pool) -> Value {
    let served = i64::try_from(pool.served).unwrap_or(i64::MAX);
    if served == 0 || pool.cost_unknown > 0 {
        return Value::Null;
    }
    let each = pool.cost.micros() / served;
    shape::money(Some(Money::from_micros(each)))
}
