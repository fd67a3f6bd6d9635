//! `solvegate solve`: makes one claim and prints its token. `solvegate fetch`: prints the token of an earlier claim.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{claim::Source, ports::Clock as _, time::Timestamp};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Context,
    gateway_client::{GatewayClient, Role},
    progress::Progress,
    queries,
};
use crate::{
    assemble::Purpose,
    cli::{ChallengeArgs, FetchArgs, SolveArgs},
    client::{Call, Reply},
    clock::SystemClock,
    exit::{Exit, Failure},
    output,
    signals::Signals,
};

/// The longest wait in one request; then the claim is polled again.
const WAIT: Duration = Duration::from_secs(30);

/// Extra time after the deadline, in which the gateway reports how the claim ended.
const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &Context, args: &SolveArgs) -> Result<(), Failure> {
    let body = body(args)?;
    let progress = Progress::waiting(args.client.json);
    let mut signals = Signals::listen()?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Solving).await?;
    let mut made = None;
    let reply = tokio::select! {
        biased;
        () = signals.stop() => Err(interrupted(made.as_deref())),
        reply = claim(&gateway, args, body, &progress, &mut made) => reply,
    };
    progress.clear();
    close(gateway, &mut signals, reply.is_ok()).await;
    let answer = reply?.good().map_err(name_option)?;
    print(&answer, args.client.json)
}

/// An engine in this process waits for tasks that are paid for, unless the user is in a hurry.
async fn close(gateway: GatewayClient, signals: &mut Signals, in_peace: bool) {
    if let (false, GatewayClient::Local(_)) = (in_peace, &gateway) {
        eprintln!("waiting for tasks that are paid for; press Ctrl-C again to stop at once");
    }
    tokio::select! {
        biased;
        () = gateway.close() => {}
        () = signals.stop() => {}
    }
}

fn interrupted(id: Option<&str>) -> Failure {
    let what = match id {
        Some(id) => {
            format!("interrupted; claim {id} goes on, fetch its token with: solvegate fetch {id}")
        }
        None => "interrupted before the claim was made".to_owned(),
    };
    Failure::new(Exit::Interrupted, what)
}

/// `solvegate fetch`.
pub(super) async fn fetch(context: &Context, args: &FetchArgs) -> Result<(), Failure> {
    let id = queries::check_id(&args.id)?;
    let progress = Progress::waiting(args.client.json);
    progress.say(format!("waiting for claim {id}"));
    let mut signals = Signals::listen()?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Solving).await?;
    let end = SystemClock::start().now().plus(args.wait);
    let reply = tokio::select! {
        biased;
        () = signals.stop() => Err(interrupted(Some(id))),
        reply = wait_for(&gateway, id, end) => reply,
    };
    progress.clear();
    close(gateway, &mut signals, reply.is_ok()).await;
    let reply = reply?;
    if reply.status == StatusCode::ACCEPTED {
        return Err(too_late(id, args.wait));
    }
    let answer = reply.good()?;
    if answer.get("token").is_none() {
        let what = "only the key of the worker that made the claim gets its token; solvegate explain shows the rest";
        return Err(Failure::new(Exit::Refused, what));
    }
    print(&answer, args.client.json)
}

fn print(answer: &Value, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(answer);
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

/// Makes the claim and waits for its end. `made` gets its id as soon as it is known.
async fn claim(
    gateway: &GatewayClient,
    args: &SolveArgs,
    body: Value,
    progress: &Progress,
    made: &mut Option<String>,
) -> Result<Reply, Failure> {
    let end = SystemClock::start().now().plus(args.deadline + GRACE);
    let mut call = Call::post("/v1/solves", body);
    if let Some(key) = &args.idempotency_key {
        call = call.header("idempotency-key", key);
    }
    progress.say(format!("asking for {}", args.kind));
    let first = gateway.send(Role::Worker, &call).await?;
    if first.status != StatusCode::ACCEPTED {
        return Ok(first);
    }
    let id = first.body["id"].as_str().unwrap_or_default().to_owned();
    *made = Some(id.clone());
    let eta = first.body["eta_s"].as_u64().unwrap_or_default();
    progress.say(format!("claim {id}: {} is being solved, usually within {eta} s", args.kind));
    let mut reply = wait_for(gateway, queries::check_id(&id)?, end).await?;
    if reply.status == StatusCode::ACCEPTED {
        return Err(too_late(&id, args.deadline));
    }
    name_source(&mut reply.body, first.body.get("source").is_some());
    Ok(reply)
}

/// Fetches cannot tell callers of one claim apart; this caller knows whether it made the claim.
fn name_source(answer: &mut Value, joined: bool) {
    let Some(source) = answer.get_mut("source") else { return };
    if joined {
        *source = json!(Source::Join.name());
    } else if *source == Source::Replay.name() {
        *source = json!(Source::Upstream.name());
    }
}

fn too_late(id: &str, length: Duration) -> Failure {
    let what = format!(
        "no token within {length:?}; claim {id} continues, see: solvegate explain {id}, or wait with: solvegate fetch {id}"
    );
    Failure::new(Exit::Timeout, what)
}

/// The claim at its end, or as it stands at the end of the wait.
async fn wait_for(gateway: &GatewayClient, id: &str, end: Timestamp) -> Result<Reply, Failure> {
    let clock = SystemClock::start();
    loop {
        let left = end.since(clock.now());
        let wait = WAIT.min(left).as_secs().max(1);
        let call = Call::get(format!("/v1/solves/{id}?wait={wait}")).waiting(WAIT);
        let reply = gateway.send(Role::Worker, &call).await?;
        if reply.status != StatusCode::ACCEPTED || clock.now() >= end {
            return Ok(reply);
        }
    }
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
