//! Discards the exclusive tokens in stock after a server lost writes, because a token may have been delivered by a decision
//! that is lost.

use domain::{challenge::Sharing, fingerprint::Fingerprint, id::SolveId, time::Timestamp};

use crate::{
    Result,
    schema::keys::Key,
    schema::tables::{Expiries, Stock},
    tx::{Order, TypedRead, TypedWrite, WriteTx},
};

use super::support::{context::DecisionCtx, delivery, pools};

/// Where the next call continues.
pub(crate) type StockPlace = (Timestamp, Fingerprint, SolveId);

/// Discards the exclusive tokens among the next `limit` in stock. Shared answers stay. Returns how many were discarded, and
/// where to continue.
pub(crate) fn void_stock(
    tx: &mut dyn WriteTx,
    from: Option<StockPlace>,
    limit: usize,
    now: Timestamp,
) -> Result<(usize, Option<StockPlace>)> {
    let range = from.unwrap_or_else(StockPlace::least)..=StockPlace::most();
    let mut ctx = DecisionCtx::new(tx, now);
    let mut voided = 0;
    let rows = ctx.tx.scan::<Expiries>(range, Order::Rising, limit + 1)?;
    let next = rows.get(limit).map(|(key, ())| *key);
    for (key, ()) in rows.into_iter().take(limit) {
        let (usable_until, fingerprint, solve) = key;
        let at = (fingerprint, usable_until, solve);
        let Some(stocked) = ctx.tx.get::<Stock>(&at)? else { continue };
        if stocked.kind.sharing() == Sharing::Exclusive {
            ctx.tx.take::<Stock>(&at)?;
            ctx.tx.take::<Expiries>(&key)?;
            delivery::record_wasted(&mut ctx, &stocked, &stocked.token);
            pools::count_wasted(&mut ctx, fingerprint)?;
            voided += 1;
        }
    }
    ctx.finish()?;
    Ok((voided, next))
}
