//! Discards the exclusive tokens in stock after a server lost writes, because a token may have been delivered by a decision
//! that is lost.

use domain::{challenge::Sharing, time::Timestamp};

use crate::{
    Result,
    schema::keys::Key,
    schema::tables::{Expiries, Stock},
    tx::{Order, TypedRead, WriteTx},
};

use super::support::{
    context::DecisionCtx,
    pools::{self, StockPlace},
};

/// Discards the exclusive tokens among the next `limit` in stock. Shared answers stay. Returns how many were discarded, and
/// where to continue.
pub(crate) fn void_stock(
    tx: &mut dyn WriteTx,
    from: Option<StockPlace>,
    limit: usize,
    now: Timestamp,
) -> Result<(usize, Option<StockPlace>)> {
    let range = from.unwrap_or_else(StockPlace::least)..=StockPlace::most();
    DecisionCtx::run(tx, now, |ctx| {
        let rows = ctx.tx.scan::<Expiries>(range, Order::Rising, limit + 1)?;
        let next = rows.get(limit).map(|(key, ())| *key);
        let mut voided = 0;
        for (place, ()) in rows.into_iter().take(limit) {
            let (usable_until, fingerprint, solve) = place;
            let stocked = ctx.tx.get::<Stock>(&(fingerprint, usable_until, solve))?;
            if stocked.is_some_and(|stocked| stocked.kind.sharing() == Sharing::Exclusive) {
                voided += pools::discard(ctx, place)?;
            }
        }
        Ok((voided, next))
    })
}
