//! Reporting columns: parts of a row's body in columns of their own, for people and their queries. No decision reads them, and they
//! contain no token, proxy or callback address.

use domain::{
    id::{ClaimId, SolveId},
    ports::StoreError,
    time::Timestamp,
};

use crate::{
    schema::codec::read_row,
    schema::tables::{
        Archived, Authorised, Callbacks, Challenges, Claims, DeadLetters, Holders, Keys, Margins,
        Pages, Pools, Solves, Spending, Stock, Table, Tasks, Totals,
    },
};

use super::{
    NAME,
    columns::{SqlValue, time},
};

/// The reporting columns of a row, in the order of its table layout.
pub(super) fn reporting_values(key: &[u8], bytes: &[u8]) -> Result<Vec<SqlValue>, StoreError> {
    Ok(match key[0] {
        Claims::TAG => claim(&row::<Claims>(key, bytes)?),
        Keys::TAG => vec![claim_id(row::<Keys>(key, bytes)?.claim)],
        Solves::TAG => solve(&row::<Solves>(key, bytes)?),
        Challenges::TAG => vec![text(row::<Challenges>(key, bytes)?.kind().name())],
        Holders::TAG => vec![at(row::<Holders>(key, bytes)?)],
        Stock::TAG => {
            let stocked = row::<Stock>(key, bytes)?;
            whose(stocked.worker.as_str(), stocked.project.as_str(), stocked.kind.name())
        }
        Pages::TAG => {
            let page = row::<Pages>(key, bytes)?;
            let first = page.first();
            vec![
                first.map_or(SqlValue::Null, |entry| number(entry.seq)),
                first.map_or(SqlValue::Null, |entry| at(entry.at)),
                number(page.len() as u64),
            ]
        }
        Totals::TAG => total(&row::<Totals>(key, bytes)?),
        Spending::TAG => {
            let spent = row::<Spending>(key, bytes)?;
            vec![number(spent.opened), SqlValue::Number(spent.listed.micros())]
        }
        Authorised::TAG => vec![number(row::<Authorised>(key, bytes)?.into())],
        DeadLetters::TAG => dead_letter(&row::<DeadLetters>(key, bytes)?),
        Tasks::TAG => {
            let (solve, attempt) = row::<Tasks>(key, bytes)?;
            vec![solve_id(solve), number(attempt.into())]
        }
        Callbacks::TAG => {
            let callback = row::<Callbacks>(key, bytes)?;
            vec![text(callback.state.name()), number(callback.tries.into()), at(callback.due)]
        }
        Pools::TAG => {
            let pool = row::<Pools>(key, bytes)?;
            [pool.arrived, pool.hits, pool.ordered, pool.wasted].map(number).into()
        }
        Margins::TAG => {
            let margin = row::<Margins>(key, bytes)?;
            vec![number(margin.good), number(margin.bad)]
        }
        Archived::TAG => vec![number(row::<Archived>(key, bytes)?.last.seq)],
        _ => Vec::new(),
    })
}

fn row<T: Table>(key: &[u8], bytes: &[u8]) -> Result<T::Value, StoreError> {
    read_row::<T>(NAME, key, bytes)
}

fn claim(claim: &domain::claim::Claim) -> Vec<SqlValue> {
    let mut values = whose(claim.worker.as_str(), claim.project.as_str(), claim.kind.name());
    values.extend([
        text(claim.state.name()),
        maybe(claim.source, |source| text(source.name())),
        maybe(claim.code.as_ref(), |code| text(code.as_str())),
        maybe(claim.sitekey.as_deref(), text),
        maybe(claim.pageurl.as_deref(), text),
        maybe(claim.solve, solve_id),
        at(claim.opened_at),
        maybe(claim.ended_at, at),
        maybe(claim.delivered_at, at),
        number(claim.attempts.into()),
        maybe(claim.cost, |cost| SqlValue::Number(cost.micros())),
    ]);
    values
}

fn solve(solve: &domain::solve::Solve) -> Vec<SqlValue> {
    let mut values = whose(solve.worker.as_str(), solve.project.as_str(), solve.kind.name());
    values.extend([
        text(solve.stage.name()),
        maybe(solve.holder, |holder| text(&holder.to_string())),
        maybe(solve.task.as_ref(), |task| text(task.as_str())),
        number(solve.attempt.into()),
        at(solve.opened_at),
        at(solve.due),
        maybe(solve.ended_at, at),
    ]);
    values
}

fn dead_letter(letter: &domain::dead_letter::DeadLetter) -> Vec<SqlValue> {
    let mut values = whose(letter.worker.as_str(), letter.project.as_str(), letter.kind.name());
    values.extend([
        text(letter.code.as_str()),
        number(letter.attempts.into()),
        maybe(letter.cost, |cost| SqlValue::Number(cost.micros())),
        at(letter.died_at),
        maybe(letter.closed.as_ref(), |closed| at(closed.at)),
    ]);
    values
}

fn total(total: &domain::ledger::Total) -> Vec<SqlValue> {
    let counts = &total.counts;
    let mut values = whose(total.worker.as_str(), total.project.as_str(), total.kind.name());
    let sums = [
        counts.claims,
        counts.opened,
        counts.attempts,
        counts.solved,
        counts.failed,
        counts.replayed,
        counts.joined,
        counts.stocked,
    ];
    values.extend(sums.map(number));
    values.push(SqlValue::Number(counts.cost.micros()));
    values
}

fn whose(worker: &str, project: &str, kind: &str) -> Vec<SqlValue> {
    vec![text(worker), text(project), text(kind)]
}

fn maybe<X>(field: Option<X>, value: impl FnOnce(X) -> SqlValue) -> SqlValue {
    field.map_or(SqlValue::Null, value)
}

/// A text column cannot hold a zero byte. Replacing it is harmless, because no decision reads these columns.
fn text(text: &str) -> SqlValue {
    SqlValue::Text(text.replace('\0', "\u{fffd}"))
}

fn at(moment: Timestamp) -> SqlValue {
    SqlValue::Time(time(moment.millis()))
}

fn number(number: u64) -> SqlValue {
    SqlValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn claim_id(id: ClaimId) -> SqlValue {
    number(id.number())
}

fn solve_id(id: SolveId) -> SqlValue {
    number(id.number())
}
