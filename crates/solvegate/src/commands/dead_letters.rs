//! `solvegate dead-letters`: lists, revives and purges dead letters over the v1 API. The gateway bounds the work of a call, so
//! bulk commands repeat the call with the returned cursor.

use std::{collections::BTreeMap, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Context,
    gateway_client::{GatewayClient, Role},
    progress::Progress,
    queries::{self, Query},
    tables,
};
use crate::{
    assemble::Purpose,
    cli::{BulkArgs, DeadLettersAction, PurgeArgs, ReviveArgs},
    client::Call,
    exit::{Exit, Failure},
    output,
};

const PATH: &str = "/v1/dead-letters";
/// How long the gateway works on one bulk call.
const CALL_TIME: Duration = Duration::from_secs(20);
/// The gateway's limit of ids per call.
const MAX_IDS: usize = 1000;
/// With more results than this, only those that need attention are listed.
const MAX_LISTED: usize = 50;

/// The dead letters a bulk command applies to.
enum DeadLetterSelection<'a> {
    Ids(&'a [String]),
    Filter(Vec<(&'static str, String)>),
}

pub(super) async fn run(context: &Context, action: &DeadLettersAction) -> Result<(), Failure> {
    match action {
        DeadLettersAction::List { filter, closed, limit, cursor, client } => {
            let query = queries::dead_letters(filter, *closed, *limit, cursor.as_ref());
            query.run(context, client).await
        }
        DeadLettersAction::Show { id, client } => {
            let path = format!("{PATH}/{}", queries::check_id(id)?);
            Query::new(&path, tables::dead_letter).run(context, client).await
        }
        DeadLettersAction::Revive(args) => revive(context, args).await,
        DeadLettersAction::Purge(args) => purge(context, args).await,
    }
}

// === impl DeadLetterSelection ===

impl<'a> DeadLetterSelection<'a> {
    /// No arguments never mean everything, and ids cannot be combined with filters.
    fn read(BulkArgs { ids, filter, all }: &'a BulkArgs) -> Result<Self, Failure> {
        let usage = |what: &str| Err(Failure::new(Exit::Usage, what));
        let pairs = filter.pairs();
        match (ids.is_empty(), pairs.is_empty(), *all) {
            (true, true, false) => usage("give ids, a filter such as --code, or --all"),
            (true, true, true) | (true, false, false) => Ok(Self::Filter(pairs)),
            (true, false, true) => usage("give filters or --all, not both"),
            (false, true, false) => {
                ids.iter().try_for_each(|id| queries::check_id(id).map(drop))?;
                Ok(Self::Ids(ids))
            }
            (false, _, _) => usage("give ids or filters, not both"),
        }
    }

    fn count(&self) -> Option<usize> {
        match self {
            Self::Ids(ids) => Some(ids.len()),
            Self::Filter(_) => None,
        }
    }
}

// --- revive ---

async fn revive(context: &Context, args: &ReviveArgs) -> Result<(), Failure> {
    let which = DeadLetterSelection::read(&args.which)?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Reading).await?;
    let mut results = Vec::new();
    let worked = revive_all(&gateway, args, &which, &mut results).await;
    gateway.close().await;
    // Print the results so far even if a later call failed.
    if worked.is_ok() || !results.is_empty() {
        show_revived(args, &results)?;
    }
    worked?;
    verdict(&results)
}

async fn revive_all(
    gateway: &GatewayClient,
    args: &ReviveArgs,
    which: &DeadLetterSelection<'_>,
    results: &mut Vec<Value>,
) -> Result<(), Failure> {
    let progress = Progress::new("revived", which.count(), args.client.json);
    let request = |mut body: Value| {
        body["rate"] = json!(args.rate);
        body["dry_run"] = json!(args.dry_run);
        body
    };
    let bodies: Vec<Value> = match which {
        DeadLetterSelection::Ids(ids) => {
            ids.chunks(batch_size(args)).map(|batch| request(json!({ "ids": batch }))).collect()
        }
        DeadLetterSelection::Filter(pairs) => vec![request(json!({ "filter": as_filter(pairs) }))],
    };
    for mut body in bodies {
        loop {
            let call = Call::post(format!("{PATH}/revive"), body.clone()).waiting(CALL_TIME);
            let mut answer = gateway.send(Role::Admin, &call).await?.good()?;
            if let Value::Array(more) = answer["results"].take() {
                progress.add(u64::try_from(more.len()).unwrap_or(u64::MAX));
                results.extend(more);
            }
            let Some(next) = answer["next"].as_str() else { break };
            body["cursor"] = next.into();
        }
    }
    Ok(())
}

/// As many ids as one call can process at the given rate.
fn batch_size(args: &ReviveArgs) -> usize {
    let seconds = CALL_TIME.as_secs() * 3 / 4;
    let processed = usize::try_from(u64::from(args.rate) * seconds).unwrap_or(MAX_IDS);
    if args.dry_run { MAX_IDS } else { processed.clamp(1, MAX_IDS) }
}

/// Ages are numbers in a body and text in a query.
fn as_filter(pairs: &[(&'static str, String)]) -> Value {
    let member = |(name, value): &(&'static str, String)| match value.parse::<u64>() {
        Ok(seconds) if name.ends_with("_s") => ((*name).to_owned(), json!(seconds)),
        Ok(_) | Err(_) => ((*name).to_owned(), json!(value)),
    };
    Value::Object(pairs.iter().map(member).collect())
}

fn result_of(result: &Value) -> &str {
    result["result"].as_str().unwrap_or("unknown")
}

/// Whether a result needs attention.
fn needs_attention(result: &Value) -> bool {
    matches!(result_of(result), "refused" | "unknown")
}

fn show_revived(args: &ReviveArgs, results: &[Value]) -> Result<(), Failure> {
    if args.client.json {
        let answer = json!({ "dry_run": args.dry_run, "results": results, "next": null });
        return output::json(&answer);
    }
    let is_listed = |result: &&Value| results.len() <= MAX_LISTED || needs_attention(result);
    let listed: Vec<&Value> = results.iter().filter(is_listed).collect();
    if !listed.is_empty() {
        tables::revived(&listed)?;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for result in results {
        *counts.entry(result_of(result)).or_default() += 1;
    }
    let summary: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
    let summary = if summary.is_empty() { "none".into() } else { summary.join(", ") };
    output::line(format_args!("{}: {summary}", count_text(results.len())))?;
    let opened = results.iter().any(|result| result_of(result) == "opened");
    if opened && args.client.server.is_none() {
        output::line(format_args!("a running gateway will solve them: solvegate serve"))?;
    }
    Ok(())
}

/// An unknown id or a refused revival fails the command.
fn verdict(results: &[Value]) -> Result<(), Failure> {
    let count = |name| results.iter().filter(|result| result_of(result) == name).count();
    match (count("unknown"), count("refused")) {
        (0, 0) => Ok(()),
        (0, refused) => {
            Err(Failure::new(Exit::Refused, format!("refused: {}", count_text(refused))))
        }
        (unknown, _) => Err(not_found(unknown)),
    }
}

fn count_text(count: usize) -> String {
    if count == 1 { "1 dead letter".into() } else { format!("{count} dead letters") }
}

fn not_found(count: usize) -> Failure {
    Failure::new(Exit::Failed, format!("not found: {}", count_text(count)))
}

// --- purge ---

async fn purge(context: &Context, args: &PurgeArgs) -> Result<(), Failure> {
    let which = DeadLetterSelection::read(&args.which)?;
    let gateway = GatewayClient::open(context, &args.client, Purpose::Reading).await?;
    let progress = Progress::new("purged", which.count(), args.client.json);
    let mut unknown = Vec::new();
    let worked = match which {
        DeadLetterSelection::Ids(ids) => {
            purge_ids(&gateway, args.dry_run, ids, &progress, &mut unknown).await
        }
        DeadLetterSelection::Filter(pairs) => {
            purge_filtered(&gateway, args, pairs, &progress).await
        }
    };
    gateway.close().await;
    let purged = progress.count();
    drop(progress);
    if worked.is_ok() || purged > 0 {
        show_purged(args, purged, &unknown)?;
    }
    worked?;
    if unknown.is_empty() { Ok(()) } else { Err(not_found(unknown.len())) }
}

async fn purge_ids(
    gateway: &GatewayClient,
    dry_run: bool,
    ids: &[String],
    progress: &Progress,
    unknown: &mut Vec<String>,
) -> Result<(), Failure> {
    for id in ids {
        let path = format!("{PATH}/{id}");
        let call = if dry_run { Call::get(path) } else { Call::delete(path) };
        let reply = gateway.send(Role::Admin, &call).await?;
        if reply.status == StatusCode::NOT_FOUND {
            unknown.push(id.clone());
        } else {
            reply.good()?;
            progress.add(1);
        }
    }
    Ok(())
}

async fn purge_filtered(
    gateway: &GatewayClient,
    args: &PurgeArgs,
    mut query: Vec<(&'static str, String)>,
    progress: &Progress,
) -> Result<(), Failure> {
    query.extend(args.which.all.then(|| ("all", "true".into())));
    query.extend(args.closed.then(|| ("closed", "true".into())));
    query.extend(args.dry_run.then(|| ("dry_run", "true".into())));
    loop {
        let call = Call::delete(queries::with_query(PATH, &query)).waiting(CALL_TIME);
        let answer = gateway.send(Role::Admin, &call).await?.good()?;
        progress.add(answer["purged"].as_u64().unwrap_or(0));
        let Some(next) = answer["next"].as_str() else { return Ok(()) };
        query.retain(|(name, _)| *name != "cursor");
        query.push(("cursor", next.into()));
    }
}

fn show_purged(args: &PurgeArgs, purged: usize, unknown: &[String]) -> Result<(), Failure> {
    if args.client.json {
        let answer = json!({ "dry_run": args.dry_run, "purged": purged, "unknown": unknown });
        return output::json(&answer);
    }
    for id in unknown {
        output::line(format_args!("{id} not found"))?;
    }
    let verb = if args.dry_run { "would be purged" } else { "purged" };
    output::line(format_args!("{verb}: {}", count_text(purged)))
}
