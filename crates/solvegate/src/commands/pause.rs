//! `solvegate pause` and `solvegate resume`: the emergency stop over the v1 API.

use serde_json::json;

use super::{Context, gateway_client::GatewayClient, queries::Query, tables};
use crate::{
    cli::{ClientArgs, PauseArgs, ResumeArgs, ScopeArgs},
    client::Call,
    exit::Failure,
    output,
};

pub(super) async fn pause(context: &Context, args: &PauseArgs) -> Result<(), Failure> {
    if args.list {
        return Query::new("/v1/pauses", tables::pauses).run(context, &args.client).await;
    }
    set(context, &args.client, "/-/pause", &args.scope).await
}

pub(super) async fn resume(context: &Context, args: &ResumeArgs) -> Result<(), Failure> {
    set(context, &args.client, "/-/resume", &args.scope).await
}

async fn set(
    context: &Context,
    client: &ClientArgs,
    path: &str,
    scope: &ScopeArgs,
) -> Result<(), Failure> {
    let body = json!({ "site": scope.site, "worker": scope.worker });
    let answer = GatewayClient::call(context, client, &Call::post(path, body)).await?;
    if client.json {
        return output::json(&answer);
    }
    let is_pause = path == "/-/pause";
    let did = match (is_pause, answer["changed"] == true) {
        (true, true) => "paused",
        (true, false) => "already paused",
        (false, true) => "resumed",
        (false, false) => "was not paused",
    };
    output::line(format_args!("{did}: {}", tables::pause_scope(&answer["scope"])))?;
    if is_pause && answer["declared"] == false {
        output::line(format_args!(
            "note: the gateway's configuration has nothing like that; check the spelling"
        ))?;
    }
    // So that nobody wonders after a resume what is left.
    tables::pauses(&answer)
}
