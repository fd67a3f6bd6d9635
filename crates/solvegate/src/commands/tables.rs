//! Prints responses of the v1 API as tables. Columns are names of members, separated by spaces.

mod reconciliation;

use serde_json::Value;

use crate::{exit::Failure, output};

pub(super) use reconciliation::reconciliation;

const DEAD_LETTERS: &str = "id class code kind worker project attempts cost died_at pageurl";

/// What is not known: unknown money is not zero.
const UNKNOWN: &str = "\u{2013}";

pub(super) fn history(answer: &Value) -> Result<(), Failure> {
    list(answer, "id state kind sitekey source cost attempts elapsed_ms opened_at code")?;
    currency(answer)?;
    more(answer)
}

/// The currency of a table's amounts, if the configuration names it.
pub(super) fn currency(answer: &Value) -> Result<(), Failure> {
    match answer["currency"].as_str() {
        Some(currency) => output::line(format_args!("amounts in {currency}")),
        None => Ok(()),
    }
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
    list(answer, DEAD_LETTERS)?;
    currency(answer)?;
    more(answer)
}

/// With how those that are closed were closed.
pub(super) fn all_dead_letters(answer: &Value) -> Result<(), Failure> {
    let cells = |letter: &Value| {
        let mut cells = texts(letter, DEAD_LETTERS);
        cells.insert(1, text(&letter["closed"]["how"]).replace('_', " "));
        cells
    };
    let mut items = members(&answer["items"]).peekable();
    if items.peek().is_none() {
        return output::line(format_args!("none"));
    }
    let mut headings: Vec<_> = DEAD_LETTERS.split(' ').collect();
    headings.insert(1, "closed");
    output::rows(headings, items.map(cells))?;
    currency(answer)?;
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
    rows(members(&answer["causes"]), columns)?;
    currency(answer)
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
    currency(answer)?;
    if members(&answer["margins"]).next().is_none() {
        return Ok(());
    }
    output::line(format_args!("\nlearned margins:"))?;
    rows(members(&answer["margins"]), "host kind extra_s good bad")
}

pub(super) fn percent(share: &Value) -> String {
    share.as_f64().map_or_else(|| UNKNOWN.into(), |share| format!("{:.1}", share * 100.0))
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
    output::rows(["at", "event", ""], members(&answer["entries"]).map(cells))?;
    currency(answer)
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

pub(super) fn texts(item: &Value, names: &str) -> Vec<String> {
    names.split(' ').map(|name| text(&item[name])).collect()
}

/// Absent values are printed as a dash.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => UNKNOWN.into(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
