//! Prints statistics, the report and the balance. Amounts are what is known; a line below each table says how much they leave
//! out. docs/money.md explains the columns.

use serde_json::Value;

use super::tables::{members, percent, text, texts};
use crate::{exit::Failure, output};

const OUTCOMES: &str = "claims served failed lapsed withdrawn waiting";

/// The sums of a day: claims, then solves and money, each by worker, project and kind, by kind, and in all.
pub(super) fn stats(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{}{}", text(&answer["date"]), in_currency(answer)))?;
    let rows = rows_of_day(answer);
    let claims = format!("{OUTCOMES} replayed joined stocked refused");
    section("claims", &rows, &claims.split(' ').collect::<Vec<_>>(), |counts| {
        texts(counts, &claims)
    })?;
    let names = ["opened", "attempts", "solved", "ambiguous", "wasted", "hit %", "waste %"];
    let times = ["mean s", "median s", "p95 s"];
    section("solves", &rows, &[names.as_slice(), times.as_slice()].concat(), |counts| {
        let mut cells = texts(counts, "opened attempts solved ambiguous wasted");
        cells.extend([percent(&counts["hit_rate"]), percent(&counts["waste_rate"])]);
        let times = ["solve_mean_ms", "solve_median_ms", "solve_p95_ms"];
        cells.extend(times.map(|name| seconds(&counts[name])));
        cells
    })?;
    section("money", &rows, &["cost", "unknown", "saved", "savings"], |counts| {
        texts(counts, "cost cost_unknown saved savings")
    })?;
    let all = &answer["counts"];
    left_out(("cost", &all["cost_unknown"], &all["costed"]), ("saved", &all["saved_unknown"]))
}

/// What was paid and saved in a period: a table for each grouping, each with its total.
pub(super) fn report(answer: &Value) -> Result<(), Failure> {
    let (from, to) = (text(&answer["from"]), text(&answer["to"]));
    output::line(format_args!("{from} to {to}{}", in_currency(answer)))?;
    let sums = format!("{OUTCOMES} attempts savings paid paid_unknown saved saved_percent");
    let headings: Vec<_> = sums.split(' ').map(heading).collect();
    for (title, group) in [("project", "by_project"), ("kind", "by_kind"), ("worker", "by_worker")]
    {
        let mut rows: Vec<_> = named(&answer[group]).map(|(name, row)| (vec![name], row)).collect();
        rows.push((vec!["total".to_owned()], &answer["all"]));
        output::line(format_args!(""))?;
        table(&[title], &headings, &rows, |row| texts(row, &sums))?;
    }
    let all = &answer["all"];
    let saved = ("saved", &all["saved_unknown"]);
    left_out(("paid", &all["paid_unknown"], &all["paid_attempts"]), saved)?;
    compared(&answer["compare"])
}

/// The balance, with its currency.
pub(super) fn balance(answer: &Value) -> Result<(), Failure> {
    let currency = answer["currency"].as_str().map(|name| format!(" {name}"));
    output::line(format_args!("{}{}", text(&answer["balance"]), currency.unwrap_or_default()))
}

fn compared(compared: &Value) -> Result<(), Failure> {
    if compared.is_null() {
        return Ok(());
    }
    output::line(format_args!("\ncalled directly, the same requests would have cost:"))?;
    let names = "requests each direct paid";
    let mut rows: Vec<_> =
        named(&compared["by_kind"]).map(|(name, row)| (vec![name], row)).collect();
    rows.push((vec!["total".to_owned()], compared));
    let headings: Vec<_> = names.split(' ').collect();
    table(&["kind"], &headings, &rows, |row| {
        let mut cells = texts(row, names);
        if row.get("each").is_none() {
            cells[1].clear();
        }
        cells
    })?;
    if let Some(less) = compared["less"].as_str() {
        output::line(format_args!("paid less by {less}"))?;
    }
    output::line(format_args!("assumed:"))?;
    for assumption in members(&compared["assumptions"]) {
        output::line(format_args!("- {}", text(assumption)))?;
    }
    Ok(())
}

/// The names of a row's group, and its counts.
type Row<'v> = (Vec<String>, &'v Value);

fn rows_of_day(answer: &Value) -> Vec<Row<'_>> {
    let mut rows: Vec<_> = members(&answer["totals"])
        .map(|total| (texts(total, "worker project kind"), &total["counts"]))
        .collect();
    let all = |kind: String| vec!["all".to_owned(), String::new(), kind];
    rows.extend(named(&answer["by_kind"]).map(|(kind, counts)| (all(kind), counts)));
    rows.push((all(String::new()), &answer["counts"]));
    rows
}

fn section(
    title: &str,
    rows: &[Row<'_>],
    headings: &[&str],
    cells: impl Fn(&Value) -> Vec<String>,
) -> Result<(), Failure> {
    output::line(format_args!("\n{title}"))?;
    table(&["worker", "project", "kind"], headings, rows, cells)
}

fn table(
    groups: &[&str],
    headings: &[&str],
    rows: &[Row<'_>],
    cells: impl Fn(&Value) -> Vec<String>,
) -> Result<(), Failure> {
    let rows = rows.iter().map(|(names, row)| [names.clone(), cells(row)].concat());
    output::rows([groups, headings].concat(), rows)
}

/// The entries of an object, by name.
fn named(groups: &Value) -> impl Iterator<Item = (String, &Value)> {
    groups.as_object().into_iter().flatten().map(|(name, row)| (name.clone(), row))
}

fn heading(name: &str) -> &str {
    match name {
        "paid_unknown" => "unknown",
        "saved_percent" => "saved %",
        other => other,
    }
}

fn in_currency(answer: &Value) -> String {
    answer["currency"].as_str().map_or_else(String::new, |name| format!(", amounts in {name}"))
}

fn seconds(millis: &Value) -> String {
    let tenths = millis.as_u64().map(|millis| (millis + 50) / 100);
    tenths.map_or_else(|| text(millis), |tenths| format!("{}.{}", tenths / 10, tenths % 10))
}

/// Says how much the sums and percentages leave out.
fn left_out(
    (cost, unknown, of): (&str, &Value, &Value),
    (saved, worth): (&str, &Value),
) -> Result<(), Failure> {
    if unknown.as_u64().is_some_and(|unknown| unknown > 0) {
        let (unknown, of) = (text(unknown), text(of));
        output::line(format_args!("{cost} leaves out {unknown} of {of} attempts of unknown cost"))?;
    }
    if worth.as_u64().is_some_and(|unknown| unknown > 0) {
        output::line(format_args!("{saved} leaves out {} savings of unknown worth", text(worth)))?;
    }
    Ok(())
}
