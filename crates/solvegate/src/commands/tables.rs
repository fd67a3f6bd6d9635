//! Prints responses of the v1 API as tables.

use serde_json::Value;

use crate::{exit::Failure, output};

pub(super) fn history(answer: &Value) -> Result<(), Failure> {
    let columns = [
        "id",
        "state",
        "kind",
        "sitekey",
        "source",
        "cost",
        "attempts",
        "elapsed_ms",
        "opened_at",
        "code",
    ];
    list(answer, columns)?;
    more(answer)
}

fn more(answer: &Value) -> Result<(), Failure> {
    match answer["next"].as_str() {
        Some(next) => output::line(format_args!("more: --cursor {next}")),
        None => Ok(()),
    }
}

pub(super) fn active(answer: &Value) -> Result<(), Failure> {
    list(answer, ["id", "stage", "kind", "worker", "attempt", "opened_at", "due", "last_code"])
}

pub(super) fn dead_letters(answer: &Value) -> Result<(), Failure> {
    list(
        answer,
        ["id", "code", "kind", "worker", "project", "attempts", "cost", "died_at", "pageurl"],
    )?;
    more(answer)
}

/// A dead letter with its whole cause chain, the oldest generation first.
pub(super) fn dead_letter(answer: &Value) -> Result<(), Failure> {
    let names = [
        "id",
        "code",
        "kind",
        "worker",
        "project",
        "sitekey",
        "pageurl",
        "attempts",
        "cost",
        "died_at",
        "generation",
        "revives",
    ];
    for name in names {
        output::line(format_args!("{name:<10} {}", text(&answer[name])))?;
    }
    let closed = &answer["closed"];
    if closed.is_object() {
        let (how, at, claim) = (text(&closed["how"]), text(&closed["at"]), text(&closed["claim"]));
        output::line(format_args!("closed     {how} at {at}, claim {claim}"))?;
    }
    let columns = ["attempt", "at", "code", "cost"];
    if members(&answer["earlier"]).next().is_some() {
        output::line(format_args!("\nearlier generations:"))?;
        rows(&answer["earlier"], columns)?;
    }
    output::line(format_args!("\ncauses:"))?;
    rows(&answer["causes"], columns)
}

/// The result for each dead letter.
pub(super) fn revived(results: &[&Value]) -> Result<(), Failure> {
    let columns = ["id", "result", "claim", "why"];
    let mut table = output::table(columns);
    for result in results {
        table.add_row(columns.map(|name| text(&result[name])));
    }
    output::line(format_args!("{}", table.trim_fmt()))
}

/// The pools, then the learned margins.
pub(super) fn pools(answer: &Value) -> Result<(), Failure> {
    if members(&answer["items"]).next().is_none() {
        return output::line(format_args!("none"));
    }
    let mut table = output::table([
        "id", "kind", "site", "level", "target", "stock", "coming", "hit %", "waste %", "each",
    ]);
    for pool in members(&answer["items"]) {
        table.add_row([
            text(&pool["id"]),
            text(&pool["kind"]),
            text(&pool["pageurl"]),
            text(&pool["level"]),
            format!("{} ({})", text(&pool["target"]), text(&pool["why"])),
            text(&pool["stock"]),
            text(&pool["coming"]),
            percent(&pool["hit_rate"]),
            percent(&pool["waste_rate"]),
            text(&pool["cost_per_served"]),
        ]);
    }
    output::line(format_args!("{}", table.trim_fmt()))?;
    if members(&answer["margins"]).next().is_none() {
        return Ok(());
    }
    output::line(format_args!("\nlearned margins:"))?;
    rows(&answer["margins"], ["host", "kind", "extra_s", "good", "bad"])
}

fn percent(share: &Value) -> String {
    share.as_f64().map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
}

pub(super) fn stats(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{}", text(&answer["date"])))?;
    let names = [
        "claims",
        "attempts",
        "solved",
        "failed",
        "replayed",
        "joined",
        "stocked",
        "ambiguous",
        "wasted",
        "refused",
        "cost",
        "saved",
    ];
    let mut table = output::table(["worker", "project", "kind"]);
    let mut header: Vec<String> = ["worker", "project", "kind"].map(Into::into).into();
    header.extend(names.map(Into::into));
    table.set_header(header);
    for row in members(&answer["totals"]) {
        let mut cells: Vec<String> =
            ["worker", "project", "kind"].map(|name| text(&row[name])).into();
        cells.extend(names.map(|name| text(&row["counts"][name])));
        table.add_row(cells);
    }
    let mut sums: Vec<String> = vec!["all".into(), String::new(), String::new()];
    sums.extend(names.map(|name| text(&answer["counts"][name])));
    table.add_row(sums);
    output::line(format_args!("{}", table.trim_fmt()))
}

pub(super) fn report(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{} to {}", text(&answer["from"]), text(&answer["to"])))?;
    let names = ["claims", "attempts", "savings", "paid", "saved", "saved_percent"];
    let mut table =
        output::table(["", "claims", "attempts", "savings", "paid", "saved", "saved %"]);
    let mut add = |title: String, sums: &Value| {
        let mut cells = vec![title];
        cells.extend(names.map(|name| text(&sums[name])));
        table.add_row(cells);
    };
    for group in ["by_project", "by_kind"] {
        for (name, sums) in answer[group].as_object().into_iter().flatten() {
            add(name.clone(), sums);
        }
    }
    add("all".into(), &answer["all"]);
    output::line(format_args!("{}", table.trim_fmt()))
}

/// The history of a claim, one ledger entry per line.
pub(super) fn story(answer: &Value) -> Result<(), Failure> {
    let claim = &answer["claim"];
    output::line(format_args!(
        "claim {} is {}: {} for {} ({})",
        text(&claim["id"]),
        text(&claim["state"]),
        text(&claim["kind"]),
        text(&claim["pageurl"]),
        text(&claim["basis"]),
    ))?;
    let mut table = output::table(["at", "event", ""]);
    for entry in members(&answer["entries"]) {
        table.add_row([text(&entry["at"]), text(&entry["event"]), facts(entry)]);
    }
    output::line(format_args!("{}", table.trim_fmt()))
}

pub(super) fn balance(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{}", text(&answer["balance"])))
}

fn facts(entry: &Value) -> String {
    let facts = entry["facts"].as_object().into_iter().flatten();
    let facts_text: Vec<_> = facts.map(|(name, value)| format!("{name}={}", text(value))).collect();
    facts_text.join(" ")
}

fn list<const N: usize>(answer: &Value, columns: [&str; N]) -> Result<(), Failure> {
    rows(&answer["items"], columns)
}

fn rows<const N: usize>(items: &Value, columns: [&str; N]) -> Result<(), Failure> {
    if members(items).next().is_none() {
        return output::line(format_args!("none"));
    }
    let mut table = output::table(columns);
    for item in members(items) {
        table.add_row(columns.map(|name| text(&item[name])));
    }
    output::line(format_args!("{}", table.trim_fmt()))
}

fn members(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Absent values are printed as a dash: unknown money is not zero.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
