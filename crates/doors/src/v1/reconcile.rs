//! The ledger of a day against the provider's balance, for admins of any role.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    challenge::Kind,
    money::Money,
    reconcile::{BalanceReading, BooksVerdict, Doubt, Reconciliation, Segment, TopUp},
};
use engine::{ReconcileRefusal, Reconciled, ReconciledItem};
use serde_json::{Value, json};

use super::{query::Query, shape, totals};
use crate::{Doors, caller::ReaderCaller, error::Refusal};

/// Uncertain attempts in one response.
const MOST_ITEMS: usize = 1000;

/// `GET /v1/reconcile?day=&top_up=`.
pub(super) async fn reconcile(
    State(doors): State<Doors>,
    _admin: ReaderCaller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["day", "top_up"])?;
    let day = totals::date(&query, "day")?.unwrap_or(doors.now().day());
    let top_up = query.parsed::<Money>("top_up", "an amount of money such as 20.00")?;
    match doors.engine().reconcile(day, top_up).await {
        Ok(found) => Ok(Json(shape::with_currency(&doors, shaped(&found)))),
        Err(refusal @ ReconcileRefusal::Future(_)) => Err(Refusal::BadQuery(refusal.to_string())),
        Err(ReconcileRefusal::Store(error)) => Err(error.into()),
    }
}

fn shaped(found: &Reconciled) -> Value {
    let result = &found.result;
    let segments = &result.segments;
    let total = |amount: fn(&Segment) -> Money| -> Money { segments.iter().map(amount).sum() };
    let (settled, charged) = (total(|one| one.settled), total(|one| one.charged));
    let items: Vec<_> = found.items.iter().take(MOST_ITEMS).map(item).collect();
    json!({
        "day": result.day,
        "verdict": name(result.verdict),
        "why": why(found),
        "readings": result.readings,
        "ledger": {
            "attempts": segments.iter().map(|one| one.attempts).sum::<u64>(),
            "cost": money(settled, segments),
        },
        "provider": { "charged": money(charged, segments) },
        "difference": money(charged - settled, segments),
        "unexplained": unexplained(found, total(|one| one.unexplained)),
        "explained_by": {
            "least": money(total(|one| one.explains.0), segments),
            "most": money(total(|one| one.explains.1), segments),
            "in_flight_at_readings": segments.iter().map(|one| one.in_flight).sum::<u64>(),
            "attempts": counts(&found.items),
        },
        "segments": segments.iter().map(|one| segment(found, one)).collect::<Vec<_>>(),
        "top_ups": result.top_ups.iter().map(top_up).collect::<Vec<_>>(),
        "items": items,
        "items_left_off": found.items.len().saturating_sub(MOST_ITEMS),
        "not_covered": {
            "attempts": result.not_covered.0,
            "cost": shape::money(Some(result.not_covered.1)),
        },
    })
}

/// Without a segment nothing was compared, which is not zero.
fn money(amount: Money, segments: &[Segment]) -> Value {
    shape::money(Some(amount).filter(|_| !segments.is_empty()))
}

/// Under a plan nothing has to explain the difference, so nothing is unexplained.
fn unexplained(found: &Reconciled, amount: Money) -> Value {
    if found.under_plan { Value::Null } else { money(amount, &found.result.segments) }
}

fn segment(found: &Reconciled, one: &Segment) -> Value {
    let money = |amount| shape::money(Some(amount));
    json!({
        "from": reading(&one.from),
        "to": reading(&one.to),
        "attempts": one.attempts,
        "settled": money(one.settled),
        "charged": money(one.charged),
        "difference": money(one.charged - one.settled),
        "explains": { "least": money(one.explains.0), "most": money(one.explains.1) },
        "in_flight": one.in_flight,
        "unpriced": one.unpriced,
        "unexplained": unexplained(found, one.unexplained),
        "verdict": name(one.verdict),
    })
}

fn reading(reading: &BalanceReading) -> Value {
    json!({ "at": reading.at, "balance": shape::money(Some(reading.amount)) })
}

fn top_up(one: &TopUp) -> Value {
    json!({
        "from": one.between.0,
        "to": one.between.1,
        "at_least": shape::money(Some(one.at_least)),
        "by_the_ledger": shape::money(Some(one.by_the_ledger)),
    })
}

fn item(ReconciledItem { item, claim }: &ReconciledItem) -> Value {
    json!({
        "solve": item.solve.to_string(),
        "attempt": item.attempt,
        "claim": claim.map(|claim| claim.to_string()),
        "kind": item.kind.as_ref().map(Kind::name),
        "at": item.at,
        "why": doubt(item.doubt),
        "prices": item.prices.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn counts(items: &[ReconciledItem]) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, _> = DOUBTS.map(|each| (doubt(each), 0)).into();
    for ReconciledItem { item, .. } in items {
        *counts.entry(doubt(item.doubt)).or_default() += 1;
    }
    counts
}

const DOUBTS: [Doubt; 5] =
    [Doubt::Ambiguous, Doubt::Authorised, Doubt::WrittenOff, Doubt::UnknownCost, Doubt::InFlight];

fn doubt(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Ambiguous => "ambiguous",
        Doubt::Authorised => "authorised",
        Doubt::WrittenOff => "written_off",
        Doubt::UnknownCost => "unknown_cost",
        Doubt::InFlight => "in_flight",
    }
}

fn name(verdict: BooksVerdict) -> &'static str {
    match verdict {
        BooksVerdict::AddsUp => "adds_up",
        BooksVerdict::CannotBeJudged => "cannot_be_judged",
        BooksVerdict::DoesNotAddUp => "does_not_add_up",
    }
}

/// What a reader has to know beside the verdict.
fn why(found: &Reconciled) -> Vec<String> {
    let Reconciled { result, unread, .. } = found;
    let mut why = Vec::new();
    if let Some(unread) = unread {
        why.push(format!("the balance could not be read now: {unread}"));
    }
    if found.under_plan {
        why.push("the account pays for threads (`plan`), so its balance does not move".into());
    } else {
        why.extend(about_charges(result));
    }
    if result.lost_writes {
        why.push("the store lost writes on this day, so entries may be missing".into());
    }
    why
}

/// Why charges cannot be compared, or do not add up.
fn about_charges(result: &Reconciliation) -> Vec<String> {
    let mut why = Vec::new();
    if result.segments.is_empty() {
        why.push(match (result.top_ups.len(), result.readings) {
            (0, 0) => "the ledger has no reading of the balance around this day".into(),
            (0, _) => {
                "the ledger has one reading of the balance around this day, and two are needed"
                    .into()
            }
            _ => "the balance rose between all readings; name what was paid in with top_up".into(),
        });
    }
    let unpriced: u64 = result.segments.iter().map(|one| one.unpriced).sum();
    if unpriced > 0 {
        why.push(format!("{unpriced} attempts have no known price; set price_per_1000"));
    }
    for one in result.segments.iter().filter(|one| one.verdict == BooksVerdict::DoesNotAddUp) {
        let (from, to, amount) = (one.from.at, one.to.at, one.unexplained);
        why.push(if amount > Money::ZERO {
            format!("between {from} and {to} the provider charged {amount} that the ledger does not have: another user of the account, or another price")
        } else {
            let amount = Money::ZERO - amount;
            format!("between {from} and {to} the provider charged {amount} less than the ledger has: a small top-up, a refund, or another price")
        });
    }
    why
}
