//! `solvegate pools`: reads and changes standing orders, by the v1 door.

use serde_json::{Map, Value, json};

use super::{
    Context,
    gateway::{Gateway, Role},
    readings, tables,
};
use crate::{
    assemble::Purpose,
    cli::{PoolSetArgs, PoolsAction, PoolsArgs, Whom},
    client::Call,
    exit::{Exit, Failure},
    output,
};

const PATH: &str = "/v1/pools";

/// Runs `pools`.
pub(super) async fn run(context: &Context, args: &PoolsArgs) -> Result<(), Failure> {
    let whom = args.whom();
    match &args.action {
        None => readings::pools().ask(context, whom).await,
        Some(PoolsAction::Expect { id, count, wait, at, .. }) => {
            let mut body = json!({ "count": count });
            if let Some(wait) = wait {
                body["in_s"] = json!(wait.as_secs());
            }
            if let Some(at) = at {
                body["at"] = json!(at);
            }
            let path = format!("{PATH}/{}/expect", readings::plain(id)?);
            change(context, whom, &Call::post(path, body)).await
        }
        Some(PoolsAction::Set(set)) => change(context, whom, &Call::put(PATH, body_of(set)?)).await,
        Some(PoolsAction::Close { id, .. }) => {
            let path = format!("{PATH}/{}", readings::plain(id)?);
            send(context, whom, &Call::delete(path)).await?;
            if whom.json {
                return output::json(&json!({ "closed": id }));
            }
            output::line(format_args!("closed: {id}"))
        }
    }
}

async fn change(context: &Context, whom: &Whom, call: &Call) -> Result<(), Failure> {
    let pool = send(context, whom, call).await?;
    if whom.json { output::json(&pool) } else { tables::pools(&json!({ "items": [pool] })) }
}

async fn send(context: &Context, whom: &Whom, call: &Call) -> Result<Value, Failure> {
    let gateway = Gateway::open(context, whom, Purpose::Reading).await?;
    let reply = gateway.ask(Role::Admin, call).await;
    gateway.close().await;
    reply?.good()
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
