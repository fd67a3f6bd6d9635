//! The commands that read: history, active, stats, report, dead letters, pools, explain, balance. Each is one question to
//! the v1 door; `--json` prints its answer as it is, otherwise it becomes a table.

use serde_json::Value;
use url::form_urlencoded;

use super::{
    Context,
    gateway::{Gateway, Role},
    tables,
};
use crate::{
    assemble::Purpose,
    cli::{HistoryArgs, LetterFilter, ReportArgs, Whom},
    client::Call,
    exit::{Exit, Failure},
    output,
};

/// A question and how its answer is shown to a person.
pub(super) struct Question {
    path: String,
    query: Vec<(&'static str, String)>,
    show: fn(&Value) -> Result<(), Failure>,
}

// === impl Question ===

impl Question {
    fn new(path: &str, show: fn(&Value) -> Result<(), Failure>) -> Self {
        Self { path: path.into(), query: Vec::new(), show }
    }

    fn with<T: ToString>(mut self, name: &'static str, value: Option<T>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Asks, and prints the answer.
    pub(super) async fn ask(self, context: &Context, whom: &Whom) -> Result<(), Failure> {
        let path = with_query(&self.path, &self.query);
        let gateway = Gateway::open(context, whom, Purpose::Reading).await?;
        let reply = gateway.ask(Role::Admin, &Call::get(path)).await;
        gateway.close().await;
        let answer = reply?.good()?;
        if whom.json { output::json(&answer) } else { (self.show)(&answer) }
    }
}

/// `history`.
pub(super) fn history(args: &HistoryArgs) -> Question {
    Question::new("/v1/history", tables::history)
        .with("sitekey", args.sitekey.as_ref())
        .with("kind", args.kind.as_ref())
        .with("state", args.state.as_ref())
        .with("cursor", args.cursor.as_ref())
        .with("limit", Some(args.limit))
}

/// `active`.
pub(super) fn active() -> Question {
    Question::new("/v1/active", tables::active)
}

/// `stats`.
pub(super) fn stats(date: Option<&String>) -> Question {
    Question::new("/v1/stats", tables::stats).with("date", date)
}

/// `report`.
pub(super) fn report(args: &ReportArgs) -> Question {
    Question::new("/v1/report", tables::report)
        .with("from", args.from.as_ref())
        .with("to", args.to.as_ref())
}

/// `dead-letters list`.
pub(super) fn dead_letters(
    filter: &LetterFilter,
    closed: bool,
    limit: usize,
    cursor: Option<&String>,
) -> Question {
    let mut question = Question::new("/v1/dead-letters", tables::dead_letters);
    question.query = filter.pairs();
    question
        .with("closed", closed.then_some(true))
        .with("limit", Some(limit))
        .with("cursor", cursor)
}

/// `dead-letters show`.
pub(super) fn dead_letter(id: &str) -> Result<Question, Failure> {
    Ok(Question::new(&format!("/v1/dead-letters/{}", plain(id)?), tables::dead_letter))
}

/// `pools`.
pub(super) fn pools() -> Question {
    Question::new("/v1/pools", tables::pools)
}

/// `explain`.
pub(super) fn explain(id: &str) -> Result<Question, Failure> {
    Ok(Question::new(&format!("/v1/solves/{}/explain", plain(id)?), tables::story))
}

/// `balance`.
pub(super) fn balance() -> Question {
    Question::new("/v1/balance", tables::balance)
}

/// The path with these values.
pub(super) fn with_query(path: &str, query: &[(&'static str, String)]) -> String {
    if query.is_empty() {
        return path.into();
    }
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{path}?{query}")
}

/// An id becomes part of a path: only letters and digits may.
pub(super) fn plain(id: &str) -> Result<&str, Failure> {
    let is_plain =
        !id.is_empty() && id.len() <= 40 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    is_plain.then_some(id).ok_or_else(|| Failure::new(Exit::Usage, "an id is letters and digits"))
}
