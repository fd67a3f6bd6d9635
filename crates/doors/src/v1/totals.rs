//! Totals on v1: the statistics of a day, and the savings report for a period.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    ledger::{Counts, Total},
    money::Money,
    ports::TotalsFilter,
    time::Day,
};
use serde_json::{Value, json};

use super::{query::Query, shape};
use crate::{Doors, caller::Caller, error::Refusal};

/// Statistics are kept for 400 days.
const MAX_DAYS: u32 = 400;
/// The days of a report that are read at once.
const DAYS_AT_ONCE: usize = 50;
const LAST_OF_PART: u32 = 49;

/// `GET /v1/stats?date=`.
pub(super) async fn stats(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["date"])?;
    let day = date(&query, "date")?.unwrap_or(doors.now().day());
    let ask = TotalsFilter { scope: caller.scope(), from: day, to: day };
    let totals = doors.engine().records().totals(ask).await?;
    let rows: Vec<_> = totals
        .iter()
        .map(|total| {
            json!({
                "worker": total.worker.as_str(),
                "project": total.project.as_str(),
                "kind": total.kind.name(),
                "counts": shape::counts(&total.counts),
            })
        })
        .collect();
    Ok(Json(json!({ "date": day, "counts": shape::counts(&sum(&totals)), "totals": rows })))
}

/// `GET /v1/report?from=&to=`.
pub(super) async fn savings_report(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["from", "to"])?;
    let to = date(&query, "to")?.unwrap_or(doors.now().day());
    let from = date(&query, "from")?.unwrap_or(Day::from_number(to.number().saturating_sub(29)));
    if from > to || to.number() - from.number() >= MAX_DAYS {
        let why = format!("`from` to `to` is not a period of 1 to {MAX_DAYS} days");
        return Err(Refusal::BadQuery(why));
    }
    let (mut all, mut by_project, mut by_kind) =
        (Counts::default(), BTreeMap::new(), BTreeMap::new());
    // In parts, so that one call to the store is short and little is held in memory.
    for first in (from.number()..=to.number()).step_by(DAYS_AT_ONCE) {
        let last = to.number().min(first + LAST_OF_PART);
        let (from, to) = (Day::from_number(first), Day::from_number(last));
        let ask = TotalsFilter { scope: caller.scope(), from, to };
        let totals = doors.engine().records().totals(ask).await?;
        all.add(&sum(&totals));
        add_to_groups(&mut by_project, &totals, |total| total.project.as_str());
        add_to_groups(&mut by_kind, &totals, |total| total.kind.name());
    }
    let saved_in = |groups: BTreeMap<String, Counts>| -> Value {
        groups.into_iter().map(|(name, counts)| (name, saved(&counts))).collect()
    };
    Ok(Json(json!({
        "from": from,
        "to": to,
        "all": saved(&all),
        "by_project": saved_in(by_project),
        "by_kind": saved_in(by_kind),
    })))
}

pub(super) fn date(query: &Query, name: &str) -> Result<Option<Day>, Refusal> {
    query.parsed(name, "a date such as 2026-11-15")
}

fn sum(totals: &[Total]) -> Counts {
    let mut all = Counts::default();
    for total in totals {
        all.add(&total.counts);
    }
    all
}

fn add_to_groups(
    groups: &mut BTreeMap<String, Counts>,
    totals: &[Total],
    name: impl Fn(&Total) -> &str,
) {
    for total in totals {
        groups.entry(name(total).to_owned()).or_default().add(&total.counts);
    }
}

/// The cost that was paid, and the cost saved by claims that needed no new attempt.
fn saved(counts: &Counts) -> Value {
    let paid = shape::money(Some(counts.cost));
    json!({
        "claims": counts.claims,
        "attempts": counts.attempts,
        "savings": counts.savings(),
        "replayed": counts.replayed,
        "joined": counts.joined,
        "stocked": counts.stocked,
        "ambiguous": counts.ambiguous,
        "wasted": counts.wasted,
        "paid": paid,
        "paid_unknown": counts.cost_unknown,
        "saved": shape::money(Some(counts.saved)),
        "saved_percent": percent(counts.saved, counts.cost),
    })
}

/// The saved share of the total in whole percent; `null` when no cost is known.
fn percent(saved: Money, paid: Money) -> Option<i64> {
    let all = saved + paid;
    (all > Money::ZERO).then(|| saved.micros().saturating_mul(100) / all.micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_a_part_of_what_would_have_been_paid() {
        let money = Money::from_micros;
        assert_eq!(percent(money(3), money(1)), Some(75));
        assert_eq!(percent(money(0), money(5)), Some(0));
        assert_eq!(percent(Money::ZERO, Money::ZERO), None);
    }
}
