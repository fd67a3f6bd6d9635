//! The rows of the books. The book of a budget for a month is one row that all gateways keep, or it has a row for each lane
//! (`lanes`), so that gateways that buy for one worker do not conflict:
//!
//! - Without a limit, a gateway books in its own lane.
//! - With a limit, the gateways must conflict, because each has to see what the others have reserved. The first reservation
//!   under a limit begins the one row. The lanes of before stay, and count.
//! - Once there is the one row, all book in it until the month ends, also those whose configuration has no limit.

use std::collections::BTreeMap;

use domain::{
    budget::{BudgetBook, BudgetScope},
    id::WorkerName,
    time::Day,
};

use crate::{
    Result,
    decisions::support::lanes,
    schema::keys::{Key, Text},
    schema::tables::Spending,
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

/// The first day of the month, and the name of the budget or of a lane of it.
type BookKey = (Day, Text);

const ACCOUNT: &str = "account/";
const WORKER: &str = "worker/";
const A_POOL: &str = "pool/";

/// The key of the row that all gateways keep.
pub(super) fn key_of(scope: &BudgetScope, day: Day) -> BookKey {
    (day.month(), Text::new(&name_of(scope)))
}

fn name_of(scope: &BudgetScope) -> String {
    match scope {
        BudgetScope::Account => ACCOUNT.to_owned(),
        BudgetScope::Worker(name) => format!("{WORKER}{name}"),
        BudgetScope::Pool(id) => format!("{A_POOL}{id}"),
    }
}

/// Whose books a row has. The names of workers have no slash, so rows of releases before 0.2.0 are not mistaken for books.
fn scope_in(name: &Text) -> Option<BudgetScope> {
    let name = name.as_str();
    if name == ACCOUNT {
        return Some(BudgetScope::Account);
    }
    if let Some(pool) = name.strip_prefix(A_POOL) {
        return lanes::without_lane(pool).parse().ok().map(BudgetScope::Pool);
    }
    let worker = lanes::without_lane(name.strip_prefix(WORKER)?);
    WorkerName::new(worker).ok().map(BudgetScope::Worker)
}

// === workers and pools ===

/// The row of all gateways, if there is one. A worker's first one begins with what an earlier release counted on the day.
fn whole_book(tx: &dyn ReadTx, scope: &BudgetScope, day: Day) -> Result<Option<BudgetBook>> {
    if let Some(book) = tx.get::<Spending>(&key_of(scope, day))? {
        return Ok(Some(book));
    }
    let earlier = match scope {
        BudgetScope::Worker(name) => tx.get::<Spending>(&(day, Text::new(name.as_str())))?,
        BudgetScope::Pool(_) | BudgetScope::Account => None,
    };
    Ok(earlier.map(|row| carried_over(&row, day)))
}

/// The row in which this gateway books.
pub(super) fn own_lane(
    tx: &dyn WriteTx,
    scope: &BudgetScope,
    day: Day,
) -> Result<(BookKey, BudgetBook)> {
    if let Some(book) = whole_book(tx, scope, day)? {
        return Ok((key_of(scope, day), book));
    }
    let lane = (day.month(), lanes::name_in(tx.sum_lane(), &name_of(scope)));
    let book = tx.get::<Spending>(&lane)?.unwrap_or_default();
    Ok((lane, book))
}

/// The book of a worker or a pool: the row of all gateways and all lanes.
pub(super) fn own_sum(tx: &dyn ReadTx, scope: &BudgetScope, day: Day) -> Result<BudgetBook> {
    let mut sum = whole_book(tx, scope, day)?.unwrap_or_default();
    let (least, most) = lanes::above_zero(&name_of(scope)).into_inner();
    let lanes = (day.month(), least)..=(day.month(), most);
    for (_, lane) in tx.scan::<Spending>(lanes, Order::Rising, usize::MAX)? {
        sum.add(&lane);
    }
    Ok(sum)
}

/// Begins the row of all gateways, unless there is one.
pub(super) fn join_lanes(tx: &mut dyn WriteTx, scope: &BudgetScope, day: Day) -> Result<()> {
    let key = key_of(scope, day);
    if tx.has::<Spending>(&key)? {
        return Ok(());
    }
    let book = whole_book(tx, scope, day)?.unwrap_or_default();
    tx.put::<Spending>(key, book)
}

/// The books that follow from a row of a release before 0.2.0: all it counted is spent.
fn carried_over(row: &BudgetBook, day: Day) -> BudgetBook {
    let opened = row.month.reserved;
    let mut book = BudgetBook::default();
    book.book(day, |sums| {
        (sums.reserved, sums.settled, sums.charged) = (opened, opened, opened.cost);
    });
    book
}

// === the account ===

/// Opens the books of the account, unless they are open.
pub(super) fn open_account(tx: &mut dyn WriteTx, day: Day) -> Result<()> {
    let account = key_of(&BudgetScope::Account, day);
    if tx.has::<Spending>(&account)? {
        return Ok(());
    }
    let sum = account_sum(tx, day)?;
    tx.put::<Spending>(account, sum)
}

/// The account's books, or what all workers and pools bought in the month as long as these are not open.
pub(super) fn account_sum(tx: &dyn ReadTx, day: Day) -> Result<BudgetBook> {
    if let Some(book) = tx.get::<Spending>(&key_of(&BudgetScope::Account, day))? {
        return Ok(book);
    }
    let mut sum = BudgetBook::default();
    for book in books(tx, day)?.values() {
        sum.add_bought(book);
    }
    Ok(sum)
}

/// The books of a day's month, with what an earlier release counted on the day.
pub(crate) fn books(tx: &dyn ReadTx, day: Day) -> Result<BTreeMap<BudgetScope, BudgetBook>> {
    let on = |day: Day| {
        (day, Text::least())..=(Day::from_number(day.number().saturating_add(1)), Text::least())
    };
    let mut books: BTreeMap<BudgetScope, BudgetBook> = BTreeMap::new();
    for ((_, name), lane) in tx.scan::<Spending>(on(day.month()), Order::Rising, usize::MAX)? {
        if let Some(scope) = scope_in(&name) {
            books.entry(scope).or_default().add(&lane);
        }
    }
    for ((_, name), row) in tx.scan::<Spending>(on(day), Order::Rising, usize::MAX)? {
        let Ok(worker) = WorkerName::new(name.as_str()) else { continue };
        let scope = BudgetScope::Worker(worker);
        if !tx.has::<Spending>(&key_of(&scope, day))? {
            books.entry(scope).or_default().add(&carried_over(&row, day));
        }
    }
    Ok(books)
}
