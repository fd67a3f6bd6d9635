//! `solvegate reconcile`: the ledger against the provider's balance.

use serde_json::Value;

use super::{Context, gateway_client::GatewayClient, queries::with_query, tables};
use crate::{
    cli::ReconcileArgs,
    client::Call,
    exit::{Exit, Failure},
    output,
};

pub(super) async fn run(context: &Context, args: &ReconcileArgs) -> Result<(), Failure> {
    let given = [("day", &args.day), ("top_up", &args.top_up)];
    let query: Vec<_> =
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let path = with_query("/v1/reconcile", &query);
    let answer = GatewayClient::call(context, &args.client, &Call::get(path)).await?;
    if args.client.json {
        output::json(&answer)?;
    } else {
        tables::reconciliation(&answer)?;
    }
    let (day, unexplained) = (tables::text(&answer["day"]), tables::text(&answer["unexplained"]));
    match answer["verdict"].as_str() {
        Some("adds_up") => Ok(()),
        Some("does_not_add_up") => {
            let what = format!("the books of {day} do not add up: {unexplained} is unexplained");
            Err(Failure::new(Exit::Failed, what))
        }
        Some(_) | None => Err(Failure::new(Exit::NotJudged, cannot_be_judged(&day, &answer))),
    }
}

fn cannot_be_judged(day: &str, answer: &Value) -> String {
    let why: Vec<_> = tables::members(&answer["why"]).filter_map(Value::as_str).collect();
    format!("the books of {day} cannot be judged: {}", why.join("; "))
}
