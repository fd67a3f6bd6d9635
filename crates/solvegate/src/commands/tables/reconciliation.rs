//! `reconcile`: the sums first, then what explains a difference.

use serde_json::Value;

use super::{currency, members, text, texts};
use crate::{exit::Failure, output};

pub(in crate::commands) fn reconciliation(answer: &Value) -> Result<(), Failure> {
    let verdict = text(&answer["verdict"]).replace('_', " ");
    output::line(format_args!("{}: {verdict}", text(&answer["day"])))?;
    let segments: Vec<&Value> = members(&answer["segments"]).collect();
    if !segments.is_empty() {
        output::line(format_args!(""))?;
        let headings = [
            "from",
            "to",
            "attempts",
            "ledger",
            "provider",
            "difference",
            "unexplained",
            "verdict",
        ];
        output::rows(headings, segments.iter().map(|one| cells(one)))?;
        output::line(format_args!(""))?;
        explanation(answer)?;
    }
    for one in members(&answer["top_ups"]) {
        let [from, to] = ["from", "to"].map(|name| text(&one[name]));
        let [least, ledger] = ["at_least", "by_the_ledger"].map(|name| text(&one[name]));
        output::line(format_args!(
            "top-up between {from} and {to}: at least {least}, by the ledger {ledger}; not judged"
        ))?;
    }
    let missed = &answer["not_covered"];
    if missed["attempts"].as_u64().is_some_and(|count| count > 0) {
        let [count, cost] = ["attempts", "cost"].map(|name| text(&missed[name]));
        output::line(format_args!("{count} attempts for {cost} are outside of the readings"))?;
    }
    currency(answer)?;
    if members(&answer["items"]).next().is_none() {
        return Ok(());
    }
    output::line(format_args!("\nattempts whose charge is uncertain:"))?;
    let names = "claim solve attempt kind at why";
    let item = |item: &Value| {
        let mut cells = texts(item, names);
        let prices: Vec<_> = members(&item["prices"]).map(text).collect();
        cells.push(if prices.is_empty() { "-".into() } else { prices.join(" or ") });
        cells
    };
    let headings = names.split(' ').chain(["price"]);
    output::rows(headings, members(&answer["items"]).map(item))?;
    match answer["items_left_off"].as_u64() {
        Some(more @ 1..) => output::line(format_args!("and {more} more")),
        Some(0) | None => Ok(()),
    }
}

fn cells(one: &Value) -> Vec<String> {
    let names = ["attempts", "settled", "charged", "difference", "unexplained"];
    let mut cells: Vec<_> = ["from", "to"].map(|name| text(&one[name]["at"])).into();
    cells.extend(names.map(|name| text(&one[name])));
    cells.push(text(&one["verdict"]).replace('_', " "));
    cells
}

/// What may explain a difference.
fn explanation(answer: &Value) -> Result<(), Failure> {
    let by = &answer["explained_by"];
    let [least, most, in_flight] =
        ["least", "most", "in_flight_at_readings"].map(|name| text(&by[name]));
    let counts = by["attempts"].as_object().into_iter().flatten();
    let counts: Vec<_> = counts
        .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
        .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
        .collect();
    let counts = if counts.is_empty() { "no uncertain attempt".into() } else { counts.join(", ") };
    output::line(format_args!(
        "explained by: {counts}, {in_flight} in flight at a reading; from {least} to {most}"
    ))
}
