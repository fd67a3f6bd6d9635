//! Prints responses of the v1 API as tables. Columns are names of members, separated by spaces.

mod reconciliation;

use serde_json::Value;

use crate::{exit::Failure, output};

pub(super) use reconciliation::reconciliation;

pub(super) fn history(answer: &Value) -> Result<(), Failure> {
    list(answer, "id state kind sitekey source cost attempts elapsed_ms opened_at code")?;
    more(answer)
}

fn more(answer: &Value) -> Result<(), Failure> {
    match answer["next"].as_str() {
        Some(next) => output::line(format_args!("more: --cursor {next}")),
        None => Ok(()),
    }
}

pub(super) fn active(answer: &Value) -> Result<(), Failure> {
    list(answer, "id stage kind worker attempt opened_at due last_code")
}

pub(super) fn dead_letters(answer: &Value) -> Result<(), Failure> {
    list(answer, "id class code kind worker project attempts cost died_at pageurl")?;
    more(answer)
}

/// A dead letter with its whole cause chain, the oldest generation first.
pub(super) fn dead_letter(answer: &Value) -> Result<(), Failure> {
    let names = "id class code kind worker project sitekey pageurl attempts cost died_at generation revives";
    for name in names.split(' ') {
        output::line(format_args!("{name:<10} {}", text(&answer[name])))?;
    }
    let closed = &answer["closed"];
    if closed.is_object() {
        let (how, at, claim) = (text(&closed["how"]), text(&closed["at"]), text(&closed["claim"]));
        output::line(format_args!("closed     {how} at {at}, claim {claim}"))?;
    }
    let columns = "attempt at code cost";
    if members(&answer["earlier"]).next().is_some() {
        output::line(format_args!("\nearlier generations:"))?;
        rows(members(&answer["earlier"]), columns)?;
    }
    output::line(format_args!("\ncauses:"))?;
    rows(members(&answer["causes"]), columns)
}

/// The result for each dead letter.
pub(super) fn revived(results: &[&Value]) -> Result<(), Failure> {
    rows(results.iter().copied(), "id result claim why")
}

/// The pools, then the learned margins.
pub(super) fn pools(answer: &Value) -> Result<(), Failure> {
    let cells = |pool: &Value| {
        let mut cells = texts(pool, "id kind pageurl level target stock coming");
        cells[4] = format!("{} ({})", cells[4], text(&pool["why"]));
        cells.extend([percent(&pool["hit_rate"]), percent(&pool["waste_rate"])]);
        cells.push(text(&pool["cost_per_served"]));
        cells
    };
    let headings =
        ["id", "kind", "site", "level", "target", "stock", "coming", "hit %", "waste %", "each"];
    if members(&answer["items"]).next().is_none() {
        return output::line(format_args!("none"));
    }
    output::rows(headings, members(&answer["items"]).map(cells))?;
    if members(&answer["margins"]).next().is_none() {
        return Ok(());
    }
    output::line(format_args!("\nlearned margins:"))?;
    rows(members(&answer["margins"]), "host kind extra_s good bad")
}

fn percent(share: &Value) -> String {
    share.as_f64().map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
}

pub(super) fn stats(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{}", text(&answer["date"])))?;
    let names =
        "claims attempts solved failed replayed joined stocked ambiguous wasted refused cost saved";
    let cells =
        |row: &Value| [texts(row, "worker project kind"), texts(&row["counts"], names)].concat();
    let mut rows: Vec<_> = members(&answer["totals"]).map(cells).collect();
    let all = ["all", "", ""].map(str::to_owned);
    rows.push(all.into_iter().chain(texts(&answer["counts"], names)).collect());
    output::rows(format!("worker project kind {names}").split(' '), rows)
}

pub(super) fn report(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{} to {}", text(&answer["from"]), text(&answer["to"])))?;
    let cells = |title: &str, sums: &Value| {
        let mut cells = texts(sums, "claims attempts savings paid saved saved_percent");
        cells.insert(0, title.to_owned());
        cells
    };
    let groups = ["by_project", "by_kind"].map(|group| answer[group].as_object());
    let groups = groups.into_iter().flatten().flatten();
    let mut rows: Vec<_> = groups.map(|(name, sums)| cells(name, sums)).collect();
    rows.push(cells("all", &answer["all"]));
    let headings = ["", "claims", "attempts", "savings", "paid", "saved", "saved %"];
    output::rows(headings, rows)
}

/// The history of a claim, one ledger entry per line.
pub(super) fn story(answer: &Value) -> Result<(), Failure> {
    let claim = &answer["claim"];
    let [id, state, kind] = ["id", "state", "kind"].map(|name| text(&claim[name]));
    let [page, basis] = ["pageurl", "basis"].map(|name| text(&claim[name]));
    output::line(format_args!("claim {id} is {state}: {kind} for {page} ({basis})"))?;
    let cells = |entry: &Value| {
        let facts = entry["facts"].as_object().into_iter().flatten();
        let facts: Vec<_> = facts.map(|(name, value)| format!("{name}={}", text(value))).collect();
        vec![text(&entry["at"]), text(&entry["event"]), facts.join(" ")]
    };
    output::rows(["at", "event", ""], members(&answer["entries"]).map(cells))
}

/// Who did what from where. The details of a reload are long and stand last.
pub(super) fn audit(answer: &Value) -> Result<(), Failure> {
    let cells = |entry: &Value| {
        let facts = entry["facts"].as_object().into_iter().flatten();
        let about = ["claim", "solve"].map(|name| (name, &entry[name]));
        let about = about.into_iter().filter(|(_, id)| !id.is_null());
        let facts = about.chain(facts.map(|(name, value)| (name.as_str(), value)));
        let facts: Vec<_> = facts.map(|(name, value)| format!("{name}={}", text(value))).collect();
        let mut cells = texts(entry, "seq at actor role address action");
        cells.push(facts.join(" "));
        cells
    };
    let headings = ["seq", "at", "actor", "role", "address", "action", ""];
    output::rows(headings, members(&answer["items"]).map(cells))?;
    more(answer)
}

pub(super) fn balance(answer: &Value) -> Result<(), Failure> {
    output::line(format_args!("{}", text(&answer["balance"])))
}

/// What is paused, since when and by whom.
pub(super) fn pauses(answer: &Value) -> Result<(), Failure> {
    let cells = |pause: &Value| {
        let mut cells = texts(pause, "since by role address");
        cells.insert(0, pause_scope(pause));
        cells
    };
    let mut items = members(&answer["items"]).peekable();
    if items.peek().is_none() {
        return output::line(format_args!("nothing is paused"));
    }
    output::rows(["paused", "since", "by", "role", "address"], items.map(cells))
}

pub(super) fn pause_scope(scope: &Value) -> String {
    match (scope["site"].as_str(), scope["worker"].as_str()) {
        (Some(site), _) => format!("site {site}"),
        (None, Some(worker)) => format!("worker {worker}"),
        (None, None) => "everything".to_owned(),
    }
}

fn list(answer: &Value, columns: &str) -> Result<(), Failure> {
    rows(members(&answer["items"]), columns)
}

fn rows<'v>(items: impl Iterator<Item = &'v Value>, columns: &str) -> Result<(), Failure> {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return output::line(format_args!("none"));
    }
    output::rows(columns.split(' '), items.map(|item| texts(item, columns)))
}

pub(super) fn members(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(item: &Value, names: &str) -> Vec<String> {
    names.split(' ').map(|name| text(&item[name])).collect()
}

/// Absent values are printed as a dash: unknown money is not zero.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
