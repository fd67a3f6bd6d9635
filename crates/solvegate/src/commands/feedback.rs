//! `solvegate feedback`: reports whether the site accepted a token, which the provider and the margins learn from.

use serde_json::json;

use super::{Context, gateway_client::GatewayClient, queries};
use crate::{
    cli::{FeedbackArgs, Verdict},
    client::Call,
    exit::Failure,
    output,
};

pub(super) async fn run(context: &Context, args: &FeedbackArgs) -> Result<(), Failure> {
    let id = queries::check_id(&args.id)?;
    let verdict = match args.verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
    };
    let call = Call::post(format!("/v1/solves/{id}/report"), json!({ "verdict": verdict }));
    let answer = GatewayClient::call(context, &args.client, &call).await?;
    if args.client.json {
        return output::json(&answer);
    }
    output::line(format_args!("recorded: the token of claim {id} was {verdict}"))
}
