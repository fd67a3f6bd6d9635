//! A pool's stock and its counters. Decisions count arrivals, hits and waste as they happen.

use std::ops::RangeInclusive;

use domain::{
    fingerprint::Fingerprint, id::SolveId, money::Money, pool::Pool, time::Timestamp,
    token::MIN_LEFT,
};

use crate::{
    Result,
    schema::keys::{CompoundKey, Key, starting_with},
    schema::tables::{Pools, Spare, Stock, Table},
    tx::{Order, ReadTx, TypedRead, TypedWrite, WriteTx},
};

use super::context::DecisionCtx;

// === stock ===

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

/// Counts a waiting claim that was served.
pub(crate) fn count_served(ctx: &mut DecisionCtx<'_>, fingerprint: Fingerprint) -> Result<()> {
    update(ctx.tx, fingerprint, |pool| pool.served += 1)
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
