//! The books of the budgets. The price of an attempt is reserved in the decision that may lead to it, settled by the fact that
//! ends it, and released when its solve ends without one. An attempt that was certainly not charged leaves its reservation to
//! the next.
//!
//! Workers and pools always have books, so that a budget that is configured later knows what was used before; `rows` says in
//! which rows. The account's books, which every gateway would write at every spend, exist only while its budget is limited:
//! they begin with the sum of the others, and from then on all gateways keep them.

mod rows;

pub(crate) use rows::books;

use domain::{
    budget::{Allowance, BudgetBook, BudgetScope, BudgetUse, LimitReached, Reservation},
    declarations::{Guard, POOL},
    fingerprint::Fingerprint,
    id::{SolveId, WorkerName},
    ledger::{Counts, Event},
    money::Money,
    pool::PoolId,
    ports::StoreError,
    retry::own,
    solve::{Solve, Stage},
    time::Day,
};

use crate::{
    Result,
    schema::tables::{Solves, Spending, Stocked},
    tx::{TypedRead, TypedWrite},
};

use super::context::DecisionCtx;

/// Who buys, and within which limits.
pub(crate) struct Buyer {
    pub(crate) scope: BudgetScope,
    pub(crate) own: Allowance,
    pub(crate) account: Allowance,
}

/// How an attempt ended, as far as money is concerned.
enum Ending {
    /// The provider said what it charged, or that it does not say.
    Charged(Option<Money>),
    /// It may have been charged, and nobody will say so.
    GivenUp,
}

// === impl Buyer ===

impl Buyer {
    /// The buyer of a solve, within the budgets that a decision carries.
    pub(crate) fn of(solve: &Solve, guard: &Guard) -> Self {
        let budgets = guard.budgets();
        let scope = scope_of(&solve.worker, &solve.fingerprint);
        let own = match scope {
            BudgetScope::Pool(_) => budgets.of_pool(&solve.fingerprint),
            BudgetScope::Worker(_) | BudgetScope::Account => budgets.of_worker(&solve.worker),
        };
        Self { scope, own, account: budgets.account }
    }
}

/// The budget that pays for work of this worker. Refills are bought in the name of [`POOL`].
pub(crate) fn scope_of(worker: &WorkerName, fingerprint: &Fingerprint) -> BudgetScope {
    if worker.as_str() == POOL {
        BudgetScope::Pool(PoolId::of(fingerprint))
    } else {
        BudgetScope::Worker(worker.clone())
    }
}

// === limits ===

/// The limit that one more attempt at this price would exceed. After a server lost writes, a gateway that restores its books
/// late takes the larger sums, and what was reserved until then would be lost in them. So nothing is, where a limit holds.
pub(crate) fn exceeded(
    ctx: &DecisionCtx<'_>,
    buyer: &Buyer,
    price: Option<Money>,
) -> Result<Option<LimitReached>> {
    if ctx.tx.is_doubtful() && (buyer.own.is_limited() || buyer.account.is_limited()) {
        let why = "it lost writes a moment ago; nothing is bought from a budget until every gateway has restored its books (20 s)";
        return Err(StoreError::unavailable(ctx.tx.backend(), why));
    }
    let today = ctx.now.day();
    let reached = |allowance: &Allowance, book: &BudgetBook, scope: &BudgetScope| {
        let (limit, until) = allowance.exceeded(book, today, price)?;
        Some(LimitReached { scope: scope.clone(), limit, until })
    };
    if buyer.own.is_limited()
        && let book = rows::own_sum(ctx.tx, &buyer.scope, today)?
        && let Some(reached) = reached(&buyer.own, &book, &buyer.scope)
    {
        return Ok(Some(reached));
    }
    if !buyer.account.is_limited() {
        return Ok(None);
    }
    let book = rows::account_sum(ctx.tx, today)?;
    Ok(reached(&buyer.account, &book, &BudgetScope::Account))
}

/// Whether the worker's budget has room for a token of the stock. One that others left over is free.
pub(crate) fn may_take(
    ctx: &DecisionCtx<'_>,
    stocked: &Stocked,
    buyer: &Buyer,
    price: Option<Money>,
) -> Result<bool> {
    let own = Buyer { scope: buyer.scope.clone(), own: buyer.own, account: Allowance::default() };
    Ok(!is_of_pool(stocked) || exceeded(ctx, &own, stocked.token.cost.or(price))?.is_none())
}

/// Whether a pool has paid for the token and no claim has had it yet.
pub(crate) fn is_of_pool(stocked: &Stocked) -> bool {
    stocked.worker.as_str() == POOL
}

// === bookings ===

/// Reserves one attempt for the solve. The caller has checked the limits.
pub(crate) fn reserve(ctx: &mut DecisionCtx<'_>, buyer: &Buyer, solve: &mut Solve) -> Result<()> {
    let (day, price) = (ctx.now.day(), solve.price);
    if buyer.account.is_limited() {
        rows::open_account(ctx.tx, day)?;
    }
    if buyer.own.is_limited() {
        rows::join_lanes(ctx.tx, &buyer.scope, day)?;
    }
    solve.reservations.open = Some(Reservation { day, price });
    book(ctx, &buyer.scope, day, |sums| sums.reserve(price))
}

/// Books what the events of a solve mean for its reservations.
pub(crate) fn follow(ctx: &mut DecisionCtx<'_>, solve: &mut Solve, events: &[Event]) -> Result<()> {
    for event in events {
        if let Some((attempt, ending)) = ending(event, solve.attempt) {
            let charge = match ending {
                Ending::Charged(charge) => charge,
                Ending::GivenUp => None,
            };
            close(ctx, solve, attempt, charge)?;
        }
    }
    if solve.stage.is_final()
        && let Some(Reservation { day, price }) = solve.reservations.open.take()
    {
        book_for(ctx, solve, day, |sums| sums.release(price))?;
    }
    Ok(())
}

/// The attempt that an event ended, and how.
fn ending(event: &Event, current: u32) -> Option<(u32, Ending)> {
    if let Event::TaskOver { attempt, cost, .. } | Event::Ready { attempt, cost, .. } = event {
        return Some((*attempt, Ending::Charged(*cost)));
    }
    if let Event::Authorised { attempt, .. } | Event::WrittenOff { attempt } = event {
        return Some((*attempt, Ending::GivenUp));
    }
    // Of these, too, nobody knows whether they were charged.
    let is_shared =
        matches!(event, Event::NotAccepted { code, .. } if code.as_str() == own::DUPLICATE_TASK);
    let is_poison = matches!(event, Event::Failed { code } if code.as_str() == own::POISON);
    (is_shared || is_poison).then_some((current, Ending::GivenUp))
}

/// Settles an attempt, or corrects what was assumed about it.
fn close(
    ctx: &mut DecisionCtx<'_>,
    solve: &mut Solve,
    attempt: u32,
    charge: Option<Money>,
) -> Result<()> {
    let known = solve.reservations.assumed.iter().position(|(of, _)| *of == attempt);
    if let Some(at) = known {
        ctx.count(&(&*solve).into(), &Counts { cost_recounted: 1, ..Counts::default() });
        let Some(charge) = charge else { return Ok(()) };
        let (_, Reservation { day, price }) = solve.reservations.assumed.remove(at);
        return book_for(ctx, solve, day, |sums| sums.correct(price, charge));
    }
    let is_reserved = attempt == solve.attempt;
    let reserved = solve.reservations.open.take_if(|_| is_reserved);
    let reservation = reserved.unwrap_or(Reservation { day: ctx.now.day(), price: solve.price });
    if reserved.is_none() {
        // It was charged after all, or by a release that reserved nothing.
        book_for(ctx, solve, reservation.day, |sums| sums.reserve(reservation.price))?;
    }
    if charge.is_none() {
        solve.reservations.assumed.push((attempt, reservation));
    }
    book_for(ctx, solve, reservation.day, |sums| sums.settle(reservation.price, charge))
}

/// Counts a token of a pool against the budget of the worker that gets it.
pub(crate) fn charge_stocked(
    ctx: &mut DecisionCtx<'_>,
    worker: &WorkerName,
    day: Day,
    cost: Option<Money>,
) -> Result<()> {
    let scope = BudgetScope::Worker(worker.clone());
    change_own(ctx, &scope, day, |sums| sums.take_stocked(cost))
}

/// Counts a token of a pool that goes to a waiting claim, in place of the attempt that is still reserved for the claim, or of
/// the one that was to follow its failed attempts. Facts carry no budgets, so the latter may be one more than a budget has
/// room for. A claim whose attempt is under way has been counted; its own token goes to the stock.
pub(crate) fn charge_in_place(
    ctx: &mut DecisionCtx<'_>,
    worker: &WorkerName,
    own: Option<SolveId>,
    cost: Option<Money>,
) -> Result<()> {
    let own = own.map(|id| ctx.tx.get::<Solves>(&id)).transpose()?.flatten();
    let unsent = own.filter(|solve| solve.stage == Stage::Queued);
    let Some(Solve { reservations, price, .. }) = unsent else { return Ok(()) };
    let Reservation { day, price } =
        reservations.open.unwrap_or(Reservation { day: ctx.now.day(), price });
    charge_stocked(ctx, worker, day, cost.or(price))
}

fn book_for(
    ctx: &mut DecisionCtx<'_>,
    solve: &Solve,
    day: Day,
    change: impl Fn(&mut BudgetUse),
) -> Result<()> {
    book(ctx, &scope_of(&solve.worker, &solve.fingerprint), day, change)
}

fn book(
    ctx: &mut DecisionCtx<'_>,
    scope: &BudgetScope,
    day: Day,
    change: impl Fn(&mut BudgetUse),
) -> Result<()> {
    change_own(ctx, scope, day, &change)?;
    let account = rows::key_of(&BudgetScope::Account, day);
    match ctx.tx.get::<Spending>(&account)? {
        Some(mut book) => {
            book.book(day, change);
            ctx.tx.put::<Spending>(account, book)
        }
        None => Ok(()),
    }
}

fn change_own(
    ctx: &mut DecisionCtx<'_>,
    scope: &BudgetScope,
    day: Day,
    change: impl Fn(&mut BudgetUse),
) -> Result<()> {
    let (key, mut book) = rows::own_lane(ctx.tx, scope, day)?;
    book.book(day, change);
    ctx.tx.put::<Spending>(key, book)
}
