//! `solvegate what-if`: the ledger's claims under other settings.

use std::time::Duration;

use serde_json::Value;

use super::{
    Context,
    queries::Query,
    tables::{currency, members, text},
};
use crate::{cli::WhatIfArgs, exit::Failure, output};

pub(super) async fn run(context: &Context, args: &WhatIfArgs) -> Result<(), Failure> {
    let ms = |length: Option<Duration>| length.map(|length| length.as_millis());
    Query::new("/v1/what-if", table)
        .with("days", Some(args.days))
        .with("reuse_window_ms", ms(args.reuse_window))
        .with("no_reuse", args.no_reuse.then_some(true))
        .with("no_keys", args.no_keys.then_some(true))
        .with("no_joins", args.no_joins.then_some(true))
        .with("no_pools", args.no_pools.then_some(true))
        .with("poll_every_ms", ms(args.poll_every))
        .run(context, &args.client)
        .await
}

fn table(answer: &Value) -> Result<(), Failure> {
    let [from, to] = ["from", "to"].map(|name| text(&answer[name]));
    output::line(format_args!("{from} to {to}"))?;
    let names = [
        "claims",
        "repeats",
        "solves",
        "attempts",
        "cost",
        "cost_unknown",
        "slot_seconds",
        "polls",
        "mean_wait_ms",
        "wasted",
    ];
    let row = |name: &str| {
        let cells = [&answer["actual"][name], &answer["estimate"][name]].map(text);
        [name.replace('_', " "), cells[0].clone(), cells[1].clone()]
    };
    output::rows(["", "as it was", "what if"], names.map(row))?;
    let [added, saved] = ["solves_added", "solves_saved"].map(|name| text(&answer[name]));
    output::line(format_args!("{added} solves more, {saved} fewer"))?;
    currency(answer)?;
    output::line(format_args!("\nassumptions:"))?;
    for assumption in members(&answer["assumptions"]).filter_map(Value::as_str) {
        output::line(format_args!("- {assumption}"))?;
    }
    Ok(())
}
