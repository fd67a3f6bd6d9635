//! `solvegate retry-table`: prints the retry table with the configured profile and overrides, without a gateway.
//! docs/retry-table.md has its output for the default configuration.

use domain::retry::{RetryTable, Rule};
use serde_json::json;

use super::Context;
use crate::{exit::Failure, output};

pub(super) fn run(context: &Context, json: bool) -> Result<(), Failure> {
    let table = context.sources.load()?.retry;
    if json { output::json(&as_json(&table)) } else { show(&table) }
}

fn as_json(table: &RetryTable) -> serde_json::Value {
    let backoff = table.backoff();
    json!({
        "rules": table.rules().collect::<Vec<_>>(),
        "backoff": {
            "base_s": backoff.base.as_secs_f64(),
            "cap_s": backoff.cap.as_secs_f64(),
            "most": backoff.most,
            "jitter": table.jitter(),
        },
    })
}

fn show(table: &RetryTable) -> Result<(), Failure> {
    let headings = ["code", "class", "retries", "waits", "new attempt", "charged"];
    output::rows(headings, table.rules().map(cells))?;
    output::line(format_args!("\nbackoff: {table}"))
}

fn cells(rule: &Rule) -> [String; 6] {
    let yes = |is| if is { "yes" } else { "no" };
    [
        rule.code.to_string(),
        rule.class.to_string(),
        rule.retries().map_or("not counted".into(), |retries| retries.to_string()),
        rule.waits(),
        yes(rule.new_attempt).into(),
        rule.charged.map_or("unknown", yes).into(),
    ]
}
