//! `solvegate pools`: lists and changes pools over the v1 API.

use serde_json::{Map, Value, json};

use super::{
    Context,
    gateway_client::{GatewayClient, Role},
    queries,
    solve::name_option,
    tables,
};
use crate::{
    assemble::Purpose,
    cli::{ClientArgs, PoolSetArgs, PoolsAction, PoolsArgs},
    client::Call,
    exit::{Exit, Failure},
    output,
};

const PATH: &str = "/v1/pools";

pub(super) async fn run(context: &Context, args: &PoolsArgs) -> Result<(), Failure> {
    let client = args.client();
    match &args.action {
        None => queries::pools().run(context, client).await,
        Some(PoolsAction::Expect { id, count, wait, at, .. }) => {
            let mut body = json!({ "count": count });
            if let Some(wait) = wait {
                body["in_s"] = json!(wait.as_secs());
            }
            if let Some(at) = at {
                body["at"] = json!(at);
            }
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
    let gateway = GatewayClient::open(context, client, Purpose::Reading).await?;
    let reply = gateway.send(Role::Admin, call).await;
    gateway.close().await;
    reply?.good().map_err(name_option)
}

fn body_of(args: &PoolSetArgs) -> Result<Value, Failure> {
    let mut params = Map::new();
    for (name, value) in &args.params {
        if params.insert(name.clone(), json!(value)).is_some() {
            return Err(Failure::new(Exit::Usage, format!("--param {name} is given twice")));
        }
    }
    let level = args.level.parse::<u32>().map_or_else(|_| json!(args.level), |level| json!(level));
    Ok(json!({
        "kind": args.kind,
        "sitekey": args.sitekey,
        "pageurl": args.pageurl,
        "params": params,
        "level": level,
        "max": args.max,
        "waste": args.waste,
        "project": args.project,
    }))
}
