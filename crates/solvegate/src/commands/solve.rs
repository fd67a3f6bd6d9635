//! `solvegate solve`: makes one claim and prints its token.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ports::Clock as _;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Context,
    gateway_client::{GatewayClient, Role},
};
use crate::{
    assemble::Purpose,
    cli::{ChallengeArgs, SolveArgs},
    client::{Call, Reply},
    clock::SystemClock,
    exit::{Exit, Failure},
    output,
};

/// The longest wait in one request; then the claim is polled again.
const WAIT: Duration = Duration::from_secs(30);

/// Extra time after the deadline, in which the gateway reports how the claim ended.
const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &Context, args: &SolveArgs) -> Result<(), Failure> {
    let body = body(args)?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Solving).await?;
    let reply = claim(&gateway, args, body).await;
    gateway.close().await;
    let answer = reply?.good().map_err(name_option)?;
    if args.client.json {
        return output::json(&answer);
    }
    // Some kinds have an object as the token; it is printed as JSON.
    let token = &answer["token"];
    let text = token.as_str().map_or_else(|| token.to_string(), str::to_owned);
    output::line(format_args!("{text}"))
}

/// The gateway names a missing part as the API does; here it is an option.
pub(super) fn name_option(failure: Failure) -> Failure {
    let text = failure.to_string();
    let Some((before, rest)) = text.split_once("needs `") else { return failure };
    let Some((part, after)) = rest.split_once('`') else { return failure };
    let option = match part {
        "body" => "--image FILE".into(),
        "sitekey" | "pageurl" => format!("--{part}"),
        param => format!("--param {param}=VALUE"),
    };
    Failure::new(failure.exit, format!("{before}needs {option}{after}"))
}

async fn claim(gateway: &GatewayClient, args: &SolveArgs, body: Value) -> Result<Reply, Failure> {
    let clock = SystemClock::start();
    let end = clock.now().plus(args.deadline + GRACE);
    let wait = || WAIT.min(end.since(clock.now())).as_secs().max(1);
    let mut call = Call::post("/v1/solves", body).header("prefer", format!("wait={}", wait()));
    if let Some(key) = &args.idempotency_key {
        call = call.header("idempotency-key", key);
    }
    let mut reply = gateway.send(Role::Worker, &call.waiting(WAIT)).await?;
    while reply.status == StatusCode::ACCEPTED {
        if clock.now() >= end {
            let id = reply.body["id"].as_str().unwrap_or("?");
            let what = format!(
                "no token within {:?}; claim {id} continues, see: solvegate explain {id}",
                args.deadline
            );
            return Err(Failure::new(Exit::Timeout, what));
        }
        let path = reply.headers.get(http::header::LOCATION).and_then(|path| path.to_str().ok());
        let path = path.ok_or_else(|| {
            Failure::new(Exit::Failed, "the gateway's response has no Location header")
        })?;
        let again = Call::get(format!("{path}?wait={}", wait())).waiting(WAIT);
        reply = gateway.send(Role::Worker, &again).await?;
    }
    Ok(reply)
}

fn body(args: &SolveArgs) -> Result<Value, Failure> {
    let mut body = challenge_json(&args.kind, &args.challenge)?;
    body["fresh"] = json!(args.fresh);
    body["deadline_s"] = json!(args.deadline.as_secs().max(1));
    if let Some(path) = &args.image {
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("--image: cannot read {}: {error}", path.display()))
        })?;
        body["image"] = json!(STANDARD.encode(bytes));
    }
    Ok(body)
}

/// The members of a challenge in the v1 API.
pub(super) fn challenge_json(kind: &str, args: &ChallengeArgs) -> Result<Value, Failure> {
    let ChallengeArgs { sitekey, pageurl, params: given } = args;
    let mut params = Map::new();
    for (name, value) in given {
        if params.insert(name.clone(), json!(value)).is_some() {
            return Err(Failure::new(Exit::Usage, format!("--param {name} is given twice")));
        }
    }
    Ok(json!({ "kind": kind, "sitekey": sitekey, "pageurl": pageurl, "params": params }))
}
