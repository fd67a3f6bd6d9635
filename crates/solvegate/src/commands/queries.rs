//! The read-only commands: history, active, stats, report, dead letters, pools, explain, balance. Each is one GET to the v1
//! API; `--json` prints the response as it is, otherwise it is printed as a table.

use serde_json::Value;
use url::form_urlencoded;

use super::{Context, gateway_client::GatewayClient, money, tables};
use crate::{
    cli::{ClientArgs, DeadLetterFilter, HistoryArgs, ReportArgs},
    client::Call,
    exit::{Exit, Failure},
    output,
};

/// A GET and the function that prints its response as a table.
pub(super) struct Query {
    path: String,
    params: Vec<(&'static str, String)>,
    show: fn(&Value) -> Result<(), Failure>,
}

// === impl Query ===

impl Query {
    pub(super) fn new(path: &str, show: fn(&Value) -> Result<(), Failure>) -> Self {
        Self { path: path.into(), params: Vec::new(), show }
    }

    pub(super) fn with<T: ToString>(mut self, name: &'static str, value: Option<T>) -> Self {
        self.params.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Sends the request and prints the response.
    pub(super) async fn run(self, context: &Context, client: &ClientArgs) -> Result<(), Failure> {
        let path = with_query(&self.path, &self.params);
        let answer = GatewayClient::call(context, client, &Call::get(path)).await?;
        if client.json { output::json(&answer) } else { (self.show)(&answer) }
    }
}

pub(super) fn history(args: &HistoryArgs) -> Query {
    Query::new("/v1/history", tables::history)
        .with("sitekey", args.sitekey.as_ref())
        .with("kind", args.kind.as_ref())
        .with("state", args.state.as_ref())
        .with("worker", args.worker.as_ref())
        .with("project", args.project.as_ref())
        .with("code", args.code.as_ref())
        .with("from", args.from.as_ref())
        .with("to", args.to.as_ref())
        .with("cursor", args.cursor.as_ref())
        .with("limit", Some(args.limit))
}

pub(super) fn report(args: &ReportArgs) -> Query {
    Query::new("/v1/report", money::report)
        .with("from", args.from.as_ref())
        .with("to", args.to.as_ref())
        .with("compare", args.compare.then_some(true))
}

pub(super) fn dead_letters(
    filter: &DeadLetterFilter,
    closed: bool,
    limit: usize,
    cursor: Option<&String>,
) -> Query {
    let mut query = Query::new(
        "/v1/dead-letters",
        if closed { tables::all_dead_letters } else { tables::dead_letters },
    );
    query.params = filter.pairs();
    query.with("closed", closed.then_some(true)).with("limit", Some(limit)).with("cursor", cursor)
}

pub(super) fn explain(id: &str) -> Result<Query, Failure> {
    Ok(Query::new(&format!("/v1/solves/{}/explain", check_id(id)?), tables::story))
}

pub(super) fn with_query(path: &str, query: &[(&'static str, String)]) -> String {
    if query.is_empty() {
        return path.into();
    }
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{path}?{query}")
}

/// An id becomes part of a path, so only letters and digits are allowed.
pub(super) fn check_id(id: &str) -> Result<&str, Failure> {
    let is_plain =
        !id.is_empty() && id.len() <= 40 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    is_plain.then_some(id).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{id:?} is not an id: expected letters and digits"))
    })
}
