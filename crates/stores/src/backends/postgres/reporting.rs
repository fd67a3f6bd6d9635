//! Reporting columns: parts of a row's body in columns of their own, for people and their queries. No decision reads them, and they
//! contain no token, proxy or callback address.

use domain::{
    callback::Callback,
    claim::{Claim, Source},
    dead_letter::DeadLetter,
    id::{SolveId, TaskId},
    ledger::Total,
    money::Money,
    ports::StoreError,
    retry::Code,
    solve::Solve,
    time::Timestamp,
};
use tokio_postgres::types::Type;

use crate::{
    schema::codec::Codec,
    schema::tables::{
        Archived, Authorised, Callbacks, Challenges, Claims, DeadLetters, Holders, Keys, Margins,
        Pages, Pools, Solves, Spending, Stock, Table, Tasks, Totals,
    },
};

use super::columns::{SqlValue, time};

/// The name, type and value of a column.
pub(super) type ReportingColumn = (&'static str, Type, SqlValue);

/// The reporting columns of a row. All rows of a table have the same ones, in the same order.
pub(super) fn reporting_columns(
    codec: Codec,
    key: &[u8],
    bytes: &[u8],
) -> Result<Vec<ReportingColumn>, StoreError> {
    Ok(match key[0] {
        Claims::TAG => claim(&codec.read_row::<Claims>(key, bytes)?),
        Keys::TAG => vec![number("claim", codec.read_row::<Keys>(key, bytes)?.claim.number())],
        Solves::TAG => solve(&codec.read_row::<Solves>(key, bytes)?),
        Challenges::TAG => {
            vec![text("kind", codec.read_row::<Challenges>(key, bytes)?.kind().name())]
        }
        Holders::TAG => vec![at("alive_until", codec.read_row::<Holders>(key, bytes)?.until)],
        Stock::TAG => {
            let stocked = codec.read_row::<Stock>(key, bytes)?;
            whose(stocked.worker.as_str(), stocked.project.as_str(), stocked.kind.name())
        }
        Pages::TAG => {
            let page = codec.read_row::<Pages>(key, bytes)?.entries;
            vec![
                number("first_seq", page.first().map(|entry| entry.seq)),
                at("at", page.first().map(|entry| entry.at)),
                number("entries", page.len() as u64),
            ]
        }
        Totals::TAG => total(&codec.read_row::<Totals>(key, bytes)?),
        Spending::TAG => {
            let reserved = codec.read_row::<Spending>(key, bytes)?.month.reserved;
            vec![number("opened", reserved.solves), micros("listed_micros", reserved.cost)]
        }
        Authorised::TAG => {
            vec![number("authorised", u64::from(codec.read_row::<Authorised>(key, bytes)?))]
        }
        DeadLetters::TAG => dead_letter(&codec.read_row::<DeadLetters>(key, bytes)?),
        Tasks::TAG => {
            let (solve, attempt) = codec.read_row::<Tasks>(key, bytes)?;
            vec![number("solve", solve.number()), number("attempt", u64::from(attempt))]
        }
        Callbacks::TAG => callback(&codec.read_row::<Callbacks>(key, bytes)?),
        Pools::TAG => {
            let pool = codec.read_row::<Pools>(key, bytes)?;
            vec![
                number("arrived", pool.arrived),
                number("hits", pool.hits),
                number("ordered", pool.ordered),
                number("wasted", pool.wasted),
            ]
        }
        Margins::TAG => {
            let margin = codec.read_row::<Margins>(key, bytes)?;
            vec![number("good", margin.good), number("bad", margin.bad)]
        }
        Archived::TAG => vec![number("seq", codec.read_row::<Archived>(key, bytes)?.last.seq)],
        _ => Vec::new(),
    })
}

fn callback(callback: &Callback) -> Vec<ReportingColumn> {
    vec![
        text("state", callback.state.name()),
        number("tries", u64::from(callback.tries)),
        at("due", callback.due),
    ]
}

fn claim(claim: &Claim) -> Vec<ReportingColumn> {
    let mut columns = whose(claim.worker.as_str(), claim.project.as_str(), claim.kind.name());
    columns.extend([
        text("state", claim.state.name()),
        text("source", claim.source.map(Source::name)),
        text("code", claim.code.as_ref().map(Code::as_str)),
        text("sitekey", claim.sitekey.as_deref()),
        text("pageurl", claim.pageurl.as_deref()),
        number("solve", claim.solve.map(SolveId::number)),
        at("opened_at", claim.opened_at),
        at("ended_at", claim.ended_at),
        at("delivered_at", claim.delivered_at),
        number("attempts", u64::from(claim.attempts)),
        micros("cost_micros", claim.cost),
    ]);
    columns
}

fn solve(solve: &Solve) -> Vec<ReportingColumn> {
    let mut columns = whose(solve.worker.as_str(), solve.project.as_str(), solve.kind.name());
    columns.extend([
        text("stage", solve.stage.name()),
        text("holder", solve.holder.map(|holder| holder.to_string()).as_deref()),
        text("task", solve.task.as_ref().map(TaskId::as_str)),
        number("attempt", u64::from(solve.attempt)),
        at("opened_at", solve.opened_at),
        at("due", solve.due),
        at("ended_at", solve.ended_at),
    ]);
    columns
}

fn dead_letter(letter: &DeadLetter) -> Vec<ReportingColumn> {
    let mut columns = whose(letter.worker.as_str(), letter.project.as_str(), letter.kind.name());
    columns.extend([
        text("code", letter.code.as_str()),
        number("attempts", u64::from(letter.attempts)),
        micros("cost_micros", letter.cost),
        at("died_at", letter.died_at),
        at("closed_at", letter.closed.as_ref().map(|closed| closed.at)),
    ]);
    columns
}

fn total(total: &Total) -> Vec<ReportingColumn> {
    let counts = &total.counts;
    let mut columns = whose(total.worker.as_str(), total.project.as_str(), total.kind.name());
    columns.extend([
        // Each row is one lane, so only plain counts add up: a claim of this lane may end in another one.
        number("claims", counts.claims),
        number("opened", counts.opened),
        number("attempts", counts.attempts),
        number("solved", counts.solved),
        number("failed", counts.failed),
        number("replayed", counts.replayed),
        number("joined", counts.joined),
        number("stocked", counts.stocked),
        micros("cost_micros", counts.net_cost()),
    ]);
    columns
}

fn whose(worker: &str, project: &str, kind: &str) -> Vec<ReportingColumn> {
    vec![text("worker", worker), text("project", project), text("kind", kind)]
}

/// A text column cannot hold a zero byte. Replacing it is harmless, because no decision reads these columns.
fn text<'t>(name: &'static str, text: impl Into<Option<&'t str>>) -> ReportingColumn {
    let text = text.into().map(|text| SqlValue::Text(text.replace('\0', "\u{fffd}")));
    (name, Type::TEXT, text.unwrap_or(SqlValue::Null))
}

fn at(name: &'static str, moment: impl Into<Option<Timestamp>>) -> ReportingColumn {
    let moment = moment.into().map(|moment| SqlValue::Time(time(moment.millis())));
    (name, Type::TIMESTAMPTZ, moment.unwrap_or(SqlValue::Null))
}

fn number(name: &'static str, number: impl Into<Option<u64>>) -> ReportingColumn {
    let number = number.into().map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    (name, Type::INT8, number.map_or(SqlValue::Null, SqlValue::Number))
}

fn micros(name: &'static str, amount: impl Into<Option<Money>>) -> ReportingColumn {
    let amount = amount.into().map(|amount| SqlValue::Number(amount.micros()));
    (name, Type::INT8, amount.unwrap_or(SqlValue::Null))
}
