//! `solvegate dead-letters`: reads, revives and purges what was given up on, by the v1 door. Long work is done in many
//! calls, each bounded by the gateway; what is left is asked for again with its cursor.

use std::{collections::BTreeMap, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Context,
    gateway::{Gateway, Role},
    progress::Progress,
    readings, tables,
};
use crate::{
    assemble::Purpose,
    cli::{DeadLettersAction, LetterFilter, PurgeArgs, ReviveArgs},
    client::Call,
    exit::{Exit, Failure},
    output,
};

const PATH: &str = "/v1/dead-letters";
/// A call works for about so long before it answers.
const CALL_WORKS: Duration = Duration::from_secs(20);
/// So many letters are named in one call.
const LOT: usize = 1000;
/// Up to so many results are shown one by one; of more, only those somebody has to look at.
const SHOWN: usize = 50;

/// Which letters a bulk command is about.
enum Which<'a> {
    Ids(&'a [String]),
    Filter(Vec<(&'static str, String)>),
}

/// Runs `dead-letters`.
pub(super) async fn run(context: &Context, action: &DeadLettersAction) -> Result<(), Failure> {
    match action {
        DeadLettersAction::List { filter, closed, limit, cursor, whom } => {
            let question = readings::dead_letters(filter, *closed, *limit, cursor.as_ref());
            question.ask(context, whom).await
        }
        DeadLettersAction::Show { id, whom } => readings::dead_letter(id)?.ask(context, whom).await,
        DeadLettersAction::Revive(args) => revive(context, args).await,
        DeadLettersAction::Purge(args) => purge(context, args).await,
    }
}

// === impl Which ===

impl<'a> Which<'a> {
    /// Neither is nothing meant as everything, nor are names and filters mixed.
    fn read(ids: &'a [String], filter: &LetterFilter, all: bool) -> Result<Self, Failure> {
        let usage = |what: &str| Err(Failure::new(Exit::Usage, what));
        let pairs = filter.pairs();
        match (ids.is_empty(), pairs.is_empty(), all) {
            (true, true, false) => usage("name letters, give a filter, or say --all"),
            (true, true, true) | (true, false, false) => Ok(Self::Filter(pairs)),
            (true, false, true) => usage("give filters or --all, not both"),
            (false, true, false) => {
                ids.iter().try_for_each(|id| readings::plain(id).map(drop))?;
                Ok(Self::Ids(ids))
            }
            (false, _, _) => usage("name letters or filter them, not both"),
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
    let which = Which::read(&args.ids, &args.filter, args.all)?;
    let gateway = Gateway::open(context, &args.whom, Purpose::Reading).await?;
    let mut results = Vec::new();
    let worked = revive_all(&gateway, args, &which, &mut results).await;
    gateway.close().await;
    // What was done is said, also when the rest could not be.
    if worked.is_ok() || !results.is_empty() {
        show_revived(args, &results)?;
    }
    worked?;
    verdict(&results)
}

async fn revive_all(
    gateway: &Gateway,
    args: &ReviveArgs,
    which: &Which<'_>,
    results: &mut Vec<Value>,
) -> Result<(), Failure> {
    let progress = Progress::new("revived", which.count(), args.whom.json);
    let asked = |members: Value| {
        let mut body = members;
        body["rate"] = json!(args.rate);
        body["dry_run"] = json!(args.dry_run);
        body
    };
    let bodies: Vec<Value> = match which {
        Which::Ids(ids) => ids.chunks(lot(args)).map(|lot| asked(json!({ "ids": lot }))).collect(),
        Which::Filter(pairs) => vec![asked(json!({ "filter": as_filter(pairs) }))],
    };
    for mut body in bodies {
        loop {
            let call = Call::post(format!("{PATH}/revive"), body.clone()).waiting(CALL_WORKS);
            let mut answer = gateway.ask(Role::Admin, &call).await?.good()?;
            if let Value::Array(more) = answer["results"].take() {
                progress.add(u64::try_from(more.len()).unwrap_or(u64::MAX));
                results.extend(more);
            }
            match answer["next"].take() {
                Value::String(next) => body["cursor"] = next.into(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => break,
            }
        }
    }
    Ok(())
}

/// As many as one call can work on at the wanted rate.
fn lot(args: &ReviveArgs) -> usize {
    let seconds = CALL_WORKS.as_secs() * 3 / 4;
    let worked = usize::try_from(u64::from(args.rate) * seconds).unwrap_or(LOT);
    if args.dry_run { LOT } else { worked.clamp(1, LOT) }
}

/// Ages are numbers in the body and text in a query.
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

/// Whether somebody has to look at it.
fn is_trouble(result: &Value) -> bool {
    matches!(result_of(result), "refused" | "unknown")
}

fn show_revived(args: &ReviveArgs, results: &[Value]) -> Result<(), Failure> {
    if args.whom.json {
        let answer = json!({ "dry_run": args.dry_run, "results": results, "next": null });
        return output::json(&answer);
    }
    let is_shown = |result: &&Value| results.len() <= SHOWN || is_trouble(result);
    let shown: Vec<&Value> = results.iter().filter(is_shown).collect();
    if !shown.is_empty() {
        tables::revived(&shown)?;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for result in results {
        *counts.entry(result_of(result)).or_default() += 1;
    }
    let told: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
    let told = if told.is_empty() { "none".into() } else { told.join(", ") };
    output::line(format_args!("{}: {told}", letters(results.len())))?;
    let opened = results.iter().any(|result| result_of(result) == "opened");
    if opened && args.whom.server.is_none() {
        output::line(format_args!("they wait for a running gateway: solvegate serve"))?;
    }
    Ok(())
}

/// A letter that was named and is not there, or may not be revived, is a failure of the command.
fn verdict(results: &[Value]) -> Result<(), Failure> {
    let count = |name| results.iter().filter(|result| result_of(result) == name).count();
    match (count("unknown"), count("refused")) {
        (0, 0) => Ok(()),
        (0, refused) => Err(Failure::new(Exit::Refused, format!("refused: {}", letters(refused)))),
        (unknown, _) => Err(not_there(unknown)),
    }
}

fn letters(count: usize) -> String {
    if count == 1 { "1 dead letter".into() } else { format!("{count} dead letters") }
}

fn not_there(count: usize) -> Failure {
    Failure::new(Exit::Failed, format!("not there: {}", letters(count)))
}

// --- purge ---

/// What a purge has done so far.
struct Tally {
    purged: u64,
    unknown: Vec<String>,
    progress: Progress,
}

async fn purge(context: &Context, args: &PurgeArgs) -> Result<(), Failure> {
    let which = Which::read(&args.ids, &args.filter, args.all)?;
    let gateway = Gateway::open(context, &args.whom, Purpose::Reading).await?;
    let progress = Progress::new("purged", which.count(), args.whom.json);
    let mut tally = Tally { purged: 0, unknown: Vec::new(), progress };
    let worked = match which {
        Which::Ids(ids) => purge_ids(&gateway, args, ids, &mut tally).await,
        Which::Filter(pairs) => purge_filtered(&gateway, args, pairs, &mut tally).await,
    };
    gateway.close().await;
    let Tally { purged, unknown, .. } = tally;
    if worked.is_ok() || purged > 0 {
        show_purged(args, purged, &unknown)?;
    }
    worked?;
    match unknown.len() {
        0 => Ok(()),
        unknown => Err(not_there(unknown)),
    }
}

async fn purge_ids(
    gateway: &Gateway,
    args: &PurgeArgs,
    ids: &[String],
    tally: &mut Tally,
) -> Result<(), Failure> {
    for id in ids {
        let path = format!("{PATH}/{id}");
        let call = if args.dry_run { Call::get(path) } else { Call::delete(path) };
        let reply = gateway.ask(Role::Admin, &call).await?;
        if reply.status == StatusCode::NOT_FOUND {
            tally.unknown.push(id.clone());
        } else {
            reply.good()?;
            tally.add(1);
        }
    }
    Ok(())
}

async fn purge_filtered(
    gateway: &Gateway,
    args: &PurgeArgs,
    mut query: Vec<(&'static str, String)>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    query.extend(args.all.then(|| ("all", "true".into())));
    query.extend(args.dry_run.then(|| ("dry_run", "true".into())));
    let mut cursor: Option<String> = None;
    loop {
        let mut query = query.clone();
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let call = Call::delete(readings::with_query(PATH, &query)).waiting(CALL_WORKS);
        let answer = gateway.ask(Role::Admin, &call).await?.good()?;
        tally.add(answer["purged"].as_u64().unwrap_or(0));
        match answer["next"].as_str() {
            Some(next) => cursor = Some(next.into()),
            None => return Ok(()),
        }
    }
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, more: u64) {
        self.purged += more;
        self.progress.add(more);
    }
}

fn show_purged(args: &PurgeArgs, purged: u64, unknown: &[String]) -> Result<(), Failure> {
    if args.whom.json {
        let answer = json!({ "dry_run": args.dry_run, "purged": purged, "unknown": unknown });
        return output::json(&answer);
    }
    for id in unknown {
        output::line(format_args!("{id} is not there"))?;
    }
    let verb = if args.dry_run { "would be purged" } else { "purged" };
    output::line(format_args!("{verb}: {}", letters(usize::try_from(purged).unwrap_or(usize::MAX))))
}
