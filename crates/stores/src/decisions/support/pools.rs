//! A pool's stock and its counters. Decisions count arrivals, hits and waste as they happen.

use std::ops::RangeInclusive;

use domain::{
    challenge::Sharing, fingerprint::Fingerprint, id::SolveId, ledger::Event, money::Money,
    pool::Pool, time::Timestamp, token::MIN_LEFT,
};

use crate::{
    Result,
    schema::keys::{CompoundKey, Key, starting_with},
    schema::tables::{Expiries, Pools, Spare, Stock, Stocked, Table},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::context::DecisionCtx;

// === stock ===

/// The key of a token in stock, in the order in which tokens expire.
pub(crate) type StockPlace = <Expiries as Table>::Key;

/// Until when each usable token in stock can be delivered, soonest first.
pub(crate) fn usable(
    tx: &dyn ReadTx,
    fingerprint: Fingerprint,
    now: Timestamp,
) -> Result<Vec<Timestamp>> {
    let rows = tx.scan::<Stock>(usable_range(fingerprint, now), Order::Rising, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, until, _), _)| until).collect())
}

/// The keys of the tokens in stock that have enough time left to be delivered.
pub(crate) fn usable_range(
    fingerprint: Fingerprint,
    now: Timestamp,
) -> RangeInclusive<<Stock as Table>::Key> {
    (fingerprint, now.plus(MIN_LEFT), SolveId::least())..=CompoundKey::most_of(fingerprint)
}

/// Removes a token from stock, if it is there.
pub(crate) fn take_stock(tx: &mut dyn WriteTx, place: StockPlace) -> Result<Option<Stocked>> {
    let (usable_until, fingerprint, solve) = place;
    tx.take::<Expiries>(&place)?;
    tx.take::<Stock>(&(fingerprint, usable_until, solve))
}

/// Removes a token that nobody may get from stock. Returns the number of wasted tokens: an exclusive one is wasted, a shared
/// answer served the claims that wanted it.
pub(crate) fn discard(ctx: &mut DecisionCtx<'_>, place: StockPlace) -> Result<usize> {
    match take_stock(ctx.tx, place)? {
        Some(stocked) if stocked.kind.sharing() == Sharing::Exclusive => {
            ctx.record(&stocked, Event::Wasted { task: stocked.token.task.clone() });
            count_wasted(ctx, place.1)?;
            Ok(1)
        }
        Some(_) | None => Ok(0),
    }
}

/// The number of solves in progress whose token goes to stock.
pub(crate) fn coming(tx: &dyn ReadTx, fingerprint: Fingerprint) -> Result<usize> {
    Ok(tx.scan::<Spare>(starting_with(fingerprint), Order::Rising, usize::MAX)?.len())
}

// === counters ===

/// Counts a claim that was admitted; `hit` when it was served from stock.
pub(crate) fn count_arrival(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    hit: bool,
) -> Result<()> {
    let now = ctx.now;
    update(ctx.tx, fingerprint, |pool| {
        pool.arrive(hit, now);
        pool.served += u64::from(hit);
    })
}

/// Counts a token that expired unassigned.
pub(crate) fn count_wasted(ctx: &mut DecisionCtx<'_>, fingerprint: Fingerprint) -> Result<()> {
    update(ctx.tx, fingerprint, |pool| pool.wasted += 1)
}

/// Counts what a token cost.
pub(crate) fn count_cost(
    ctx: &mut DecisionCtx<'_>,
    fingerprint: Fingerprint,
    cost: Option<Money>,
) -> Result<()> {
    update(ctx.tx, fingerprint, |pool| match cost {
        Some(cost) => pool.cost = pool.cost + cost,
        None => pool.cost_unknown += 1,
    })
}

/// Changes the pool of a challenge. Most challenges have none.
pub(crate) fn update(
    tx: &mut dyn WriteTx,
    fingerprint: Fingerprint,
    change: impl FnOnce(&mut Pool),
) -> Result<()> {
    let Some(mut pool) = tx.get::<Pools>(&fingerprint)? else { return Ok(()) };
    change(&mut pool);
    tx.put::<Pools>(fingerprint, pool)
}
