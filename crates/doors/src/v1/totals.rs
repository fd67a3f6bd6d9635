//! Totals on v1: the statistics of a day, and the report for a period. docs/money.md explains each figure.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{RawQuery, State},
};
use domain::{
    challenge::Kind,
    ledger::{Counts, Total},
    money::Money,
    ports::TotalsFilter,
    prices::PriceList,
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
/// What `compare` assumes.
const ASSUMPTIONS: [&str; 4] = [
    "called directly, every claim and every repeated request is one paid solve",
    "a solve costs the list price of its kind, else the mean cost of the period's attempts of that kind",
    "failures and retries would have been the same, and cost nothing more",
    "requests of kinds without any known price are left out",
];

/// The sums of a period.
#[derive(Default)]
struct PeriodSums {
    all: Counts,
    by_project: BTreeMap<String, Counts>,
    by_kind: BTreeMap<Kind, Counts>,
    by_worker: BTreeMap<String, Counts>,
}

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
    let mut sums = PeriodSums::default();
    sums.add(&totals);
    Ok(Json(json!({
        "date": day,
        "currency": shape::currency(&doors),
        "counts": shape::counts(&sums.all),
        "by_kind": named(&sums.by_kind, Kind::name, shape::counts),
        "totals": rows,
    })))
}

/// `GET /v1/report?from=&to=&compare=`.
pub(super) async fn savings_report(
    State(doors): State<Doors>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = Query::read(query.as_deref(), &["from", "to", "compare"])?;
    let to = date(&query, "to")?.unwrap_or(doors.now().day());
    let from = date(&query, "from")?.unwrap_or(Day::from_number(to.number().saturating_sub(29)));
    let compares: bool = query.parsed("compare", "true or false")?.unwrap_or(false);
    if from > to || to.number() - from.number() >= MAX_DAYS {
        let why = format!("`from` to `to` is not a period of 1 to {MAX_DAYS} days");
        return Err(Refusal::BadQuery(why));
    }
    let mut sums = PeriodSums::default();
    // In parts, so that one call to the store is short and little is held in memory.
    for first in (from.number()..=to.number()).step_by(DAYS_AT_ONCE) {
        let last = to.number().min(first + LAST_OF_PART);
        let (from, to) = (Day::from_number(first), Day::from_number(last));
        let ask = TotalsFilter { scope: caller.scope(), from, to };
        sums.add(&doors.engine().records().totals(ask).await?);
    }
    let mut report = json!({
        "from": from,
        "to": to,
        "currency": shape::currency(&doors),
        "all": paid_and_saved(&sums.all),
        "by_project": named(&sums.by_project, String::as_str, paid_and_saved),
        "by_kind": named(&sums.by_kind, Kind::name, paid_and_saved),
        "by_worker": named(&sums.by_worker, String::as_str, paid_and_saved),
    });
    if compares {
        report["compare"] = compared(&sums, &doors.engine().config().prices);
    }
    Ok(Json(report))
}

pub(super) fn date(query: &Query, name: &str) -> Result<Option<Day>, Refusal> {
    query.parsed(name, "a date such as 2026-11-15")
}

fn named<K: Ord>(
    groups: &BTreeMap<K, Counts>,
    name: impl Fn(&K) -> &str,
    shape: impl Fn(&Counts) -> Value,
) -> Value {
    groups.iter().map(|(key, counts)| (name(key).to_owned(), shape(counts))).collect()
}

// === impl PeriodSums ===

impl PeriodSums {
    fn add(&mut self, totals: &[Total]) {
        for Total { worker, project, kind, counts, .. } in totals {
            self.all.add(counts);
            self.by_project.entry(project.to_string()).or_default().add(counts);
            self.by_kind.entry(kind.clone()).or_default().add(counts);
            self.by_worker.entry(worker.to_string()).or_default().add(counts);
        }
    }
}

// === shapes ===

/// What was paid, and what was saved by requests that needed no payment. `paid_unknown` of `paid_attempts` attempts are left
/// out of `paid`, and with `saved_unknown` out of the percentage.
fn paid_and_saved(counts: &Counts) -> Value {
    let mut shape = shape::outcomes(counts);
    let more = json!({
        "attempts": counts.attempts,
        "savings": counts.savings(),
        "replayed": counts.replayed,
        "joined": counts.joined,
        "stocked": counts.stocked,
        "ambiguous": counts.ambiguous,
        "wasted": counts.wasted,
        "paid": shape::money(counts.cost_if_known()),
        "paid_unknown": counts.unknown_costs(),
        "paid_attempts": counts.costed(),
        "saved": shape::money(counts.saved_if_known()),
        "saved_unknown": counts.unknown_savings(),
        "saved_percent": counts.saved_percent(),
    });
    shape::extend(&mut shape, more);
    shape
}

/// What the same requests would have cost without a gateway, beside what was paid.
fn compared(sums: &PeriodSums, prices: &PriceList) -> Value {
    let (mut direct, mut left_out, mut by_kind) = (Money::ZERO, 0, serde_json::Map::new());
    for (kind, counts) in &sums.by_kind {
        let requests = counts.claims + counts.replayed;
        let each = prices.of_kind(kind).or(counts.mean_cost());
        let cost = each.map(|each| times(each, requests));
        direct = direct + cost.unwrap_or_default();
        left_out += if cost.is_none() { requests } else { 0 };
        let row = json!({
            "requests": requests,
            "each": shape::money(each),
            "direct": shape::money(cost),
            "paid": shape::money(counts.cost_if_known()),
            "paid_unknown": counts.unknown_costs(),
        });
        by_kind.insert(kind.name().to_owned(), row);
    }
    let requests = sums.all.claims + sums.all.replayed;
    let is_known = left_out == 0 || direct > Money::ZERO;
    let paid = sums.all.cost_if_known();
    // Only sums that are complete on both sides can be compared.
    let is_whole = left_out == 0 && sums.all.unknown_costs() == 0;
    let less = paid.filter(|_| is_whole).map(|paid| direct - paid);
    json!({
        "requests": requests,
        "direct": shape::money(is_known.then_some(direct)),
        "direct_left_out": left_out,
        "paid": shape::money(paid),
        "paid_unknown": sums.all.unknown_costs(),
        "less": shape::money(less),
        "by_kind": by_kind,
        "assumptions": ASSUMPTIONS,
    })
}

fn times(each: Money, requests: u64) -> Money {
    let requests = i64::try_from(requests).unwrap_or(i64::MAX);
    Money::from_micros(each.micros().saturating_mul(requests))
}
