//! `solvegate pools`: lists and changes pools over the v1 API.

use serde_json::{Value, json};

use super::{
    Context,
    gateway_client::GatewayClient,
    queries::{self, Query},
    solve::{challenge_json, name_option},
    tables,
};
use crate::{
    cli::{ClientArgs, PoolSetArgs, PoolsAction, PoolsArgs},
    client::Call,
    exit::Failure,
    output,
};

const PATH: &str = "/v1/pools";

pub(super) async fn run(context: &Context, args: &PoolsArgs) -> Result<(), Failure> {
    let client = args.client();
    match &args.action {
        None | Some(PoolsAction::List { .. }) => {
            Query::new(PATH, tables::pools).run(context, client).await
        }
        Some(PoolsAction::Expect { id, count, wait, at, .. }) => {
            let body = json!({ "count": count, "in_s": wait.map(|wait| wait.as_secs()), "at": at });
            let path = format!("{PATH}/{}/expect", queries::check_id(id)?);
            change(context, client, &Call::post(path, body)).await
        }
        Some(PoolsAction::Set(set)) => {
            change(context, client, &Call::put(PATH, body_of(set)?)).await
        }
        Some(PoolsAction::Close { id, .. }) => {
            let path = format!("{PATH}/{}", queries::check_id(id)?);
            send(context, client, &Call::delete(path)).await?;
            if client.json {
                return output::json(&json!({ "closed": id }));
            }
            output::line(format_args!("closed: {id}"))
        }
    }
}

async fn change(context: &Context, client: &ClientArgs, call: &Call) -> Result<(), Failure> {
    let pool = send(context, client, call).await?;
    if client.json { output::json(&pool) } else { tables::pools(&json!({ "items": [pool] })) }
}

async fn send(context: &Context, client: &ClientArgs, call: &Call) -> Result<Value, Failure> {
    GatewayClient::call(context, client, call).await.map_err(name_option)
}

fn body_of(args: &PoolSetArgs) -> Result<Value, Failure> {
    let mut body = challenge_json(&args.kind, &args.challenge)?;
    body["level"] = args.level.parse::<u32>().map_or_else(|_| json!(args.level), Value::from);
    body["max"] = json!(args.max);
    body["waste"] = json!(args.waste);
    body["project"] = json!(args.project);
    Ok(body)
}
