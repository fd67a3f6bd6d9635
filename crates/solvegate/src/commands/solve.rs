//! `solvegate solve`: one claim, from the command line to the token.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ports::Clock as _;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Context,
    gateway::{Gateway, Role},
};
use crate::{
    assemble::Purpose,
    cli::SolveArgs,
    client::{Call, Reply},
    clock::SystemClock,
    exit::{Exit, Failure},
    output,
};

/// One answer is waited for at most so long; then it is asked again.
const WAIT: Duration = Duration::from_secs(30);

/// The gateway says how a claim ended a moment after its deadline: what it says is better than what we could.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Claims, waits and prints the token.
pub(super) async fn run(context: &Context, args: &SolveArgs) -> Result<(), Failure> {
    let body = body(args)?;
    let gateway = Gateway::open(context, &args.whom, Purpose::Solving).await?;
    let reply = claim(&gateway, args, body).await;
    gateway.close().await;
    let answer = reply?.good()?;
    if args.whom.json {
        return output::json(&answer);
    }
    let token = &answer["token"];
    // Some kinds answer with an object: printed as JSON.
    match token.as_str() {
        Some(token) => output::line(format_args!("{token}")),
        None => output::line(format_args!("{token}")),
    }
}

async fn claim(gateway: &Gateway, args: &SolveArgs, body: Value) -> Result<Reply, Failure> {
    let clock = SystemClock::start();
    let end = clock.now().plus(args.deadline + LAST_WORD);
    let wait = || WAIT.min(end.since(clock.now())).as_secs().max(1);
    let mut call = Call::post("/v1/solves", body).header("prefer", format!("wait={}", wait()));
    if let Some(key) = &args.idempotency_key {
        call = call.header("idempotency-key", key);
    }
    let mut reply = gateway.ask(Role::Worker, &call.waiting(WAIT)).await?;
    while reply.status == StatusCode::ACCEPTED {
        if clock.now() >= end {
            let id = reply.body["id"].as_str().unwrap_or("?");
            let what =
                format!("no token within {:?}; claim {id} goes on, ask again", args.deadline);
            return Err(Failure::new(Exit::Timeout, what));
        }
        let path = reply.headers.get(http::header::LOCATION).and_then(|path| path.to_str().ok());
        let path = path.ok_or_else(|| Failure::new(Exit::Failed, "the gateway named no claim"))?;
        let again = Call::get(format!("{path}?wait={}", wait())).waiting(WAIT);
        reply = gateway.ask(Role::Worker, &again).await?;
    }
    Ok(reply)
}

fn body(args: &SolveArgs) -> Result<Value, Failure> {
    let mut params = Map::new();
    for (name, value) in &args.params {
        if params.insert(name.clone(), json!(value)).is_some() {
            return Err(Failure::new(Exit::Usage, format!("--param {name} is given twice")));
        }
    }
    let mut body = json!({ "kind": args.kind, "params": params, "fresh": args.fresh });
    body["deadline_s"] = json!(args.deadline.as_secs().max(1));
    if let Some(sitekey) = &args.sitekey {
        body["sitekey"] = json!(sitekey);
    }
    if let Some(pageurl) = &args.pageurl {
        body["pageurl"] = json!(pageurl);
    }
    if let Some(path) = &args.image {
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("{} cannot be read: {error}", path.display()))
        })?;
        body["image"] = json!(STANDARD.encode(bytes));
    }
    Ok(body)
}
