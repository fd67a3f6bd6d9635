//! What a row's columns show of its body, for people and their queries. No rule reads them, and no token, proxy or callback
//! address is among them.

use domain::{
    id::{ClaimId, SolveId},
    ports::StoreError,
    time::Timestamp,
};

use crate::{
    codec::read_row,
    tables::{
        Archived, Authorised, Callbacks, Challenges, Claims, DeadLetters, Holders, Keys, Margins,
        Pages, Pools, Solves, Spending, Stock, Table, Tasks, Totals,
    },
};

use super::{
    NAME,
    cells::{Cell, time},
};

/// The shown columns of a row, in the order of its sheet.
pub(super) fn shown(key: &[u8], bytes: &[u8]) -> Result<Vec<Cell>, StoreError> {
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
                first.map_or(Cell::Null, |entry| number(entry.seq)),
                first.map_or(Cell::Null, |entry| at(entry.at)),
                number(page.len() as u64),
            ]
        }
        Totals::TAG => total(&row::<Totals>(key, bytes)?),
        Spending::TAG => {
            let spent = row::<Spending>(key, bytes)?;
            vec![number(spent.opened), Cell::Number(spent.listed.micros())]
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

fn claim(claim: &domain::claim::Claim) -> Vec<Cell> {
    let mut cells = whose(claim.worker.as_str(), claim.project.as_str(), claim.kind.name());
    cells.extend([
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
        maybe(claim.cost, |cost| Cell::Number(cost.micros())),
    ]);
    cells
}

fn solve(solve: &domain::solve::Solve) -> Vec<Cell> {
    let mut cells = whose(solve.worker.as_str(), solve.project.as_str(), solve.kind.name());
    cells.extend([
        text(solve.stage.name()),
        maybe(solve.holder, |holder| text(&holder.to_string())),
        maybe(solve.task.as_ref(), |task| text(task.as_str())),
        number(solve.attempt.into()),
        at(solve.opened_at),
        at(solve.due),
        maybe(solve.ended_at, at),
    ]);
    cells
}

fn dead_letter(letter: &domain::dead_letter::DeadLetter) -> Vec<Cell> {
    let mut cells = whose(letter.worker.as_str(), letter.project.as_str(), letter.kind.name());
    cells.extend([
        text(letter.code.as_str()),
        number(letter.attempts.into()),
        maybe(letter.cost, |cost| Cell::Number(cost.micros())),
        at(letter.died_at),
        maybe(letter.closed.as_ref(), |closed| at(closed.at)),
    ]);
    cells
}

fn total(total: &domain::ledger::Total) -> Vec<Cell> {
    let counts = &total.counts;
    let mut cells = whose(total.worker.as_str(), total.project.as_str(), total.kind.name());
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
    cells.extend(sums.map(number));
    cells.push(Cell::Number(counts.cost.micros()));
    cells
}

fn whose(worker: &str, project: &str, kind: &str) -> Vec<Cell> {
    vec![text(worker), text(project), text(kind)]
}

fn maybe<X>(value: Option<X>, cell: impl FnOnce(X) -> Cell) -> Cell {
    value.map_or(Cell::Null, cell)
}

/// A text column holds no zero byte; what is shown is not what is decided by.
fn text(text: &str) -> Cell {
    Cell::Text(text.replace('\0', "\u{fffd}"))
}

fn at(moment: Timestamp) -> Cell {
    Cell::Time(time(moment.millis()))
}

fn number(number: u64) -> Cell {
    Cell::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn claim_id(id: ClaimId) -> Cell {
    number(id.number())
}

fn solve_id(id: SolveId) -> Cell {
    number(id.number())
}
