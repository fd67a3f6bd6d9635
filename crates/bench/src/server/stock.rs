//! Fills the stock: claims that were taken back after the money had left.

use domain::{
    lease::Lease,
    ports::{Chance, Clock, Store},
    solve::Origin,
};
use solvegate::exit::Failure;

use crate::{
    challenges::challenge,
    fixtures::claims::{StoreFiller, together},
};

/// Puts `count` tokens into the stock of the benches' challenge.
pub(super) async fn fill(
    store: &dyn Store,
    clock: &dyn Clock,
    chance: &dyn Chance,
    count: usize,
) -> Result<(), Failure> {
    let filler = StoreFiller::start(store, clock, chance).await?;
    together((0..count).map(async |_| filler.open(challenge()?).await.map(drop))).await?;
    // All are on their way before the first is taken back, and all are taken back before the first is solved: a
    // token goes to whoever waits, and only when nobody does to the stock.
    let leases = filler.intend().await?;
    together(leases.iter().map(|lease| take_back(&filler, lease))).await?;
    together(leases.iter().map(async |lease| {
        filler.accept(lease).await?;
        filler.solve(lease).await
    }))
    .await
}

async fn take_back(filler: &StoreFiller<'_>, lease: &Lease) -> Result<(), Failure> {
    match lease.solve.origin {
        Origin::Claim(claim) => filler.take_back(claim).await,
        Origin::Revived { .. } | Origin::Refill | Origin::Orphan(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use domain::ports::Records as _;
    use stores::StoreAdapter;

    use super::*;
    use solvegate::{chance::SystemChance, clock::SystemClock};

    #[tokio::test]
    async fn every_token_ends_in_stock() {
        let (store, clock) = (StoreAdapter::in_memory(), SystemClock::start());
        let chance = SystemChance::start().unwrap();
        fill(&store, &clock, &chance, 2001).await.unwrap();
        let levels = store.stock_levels(clock.now()).await.unwrap();
        assert_eq!(levels.iter().map(|level| level.usable).collect::<Vec<_>>(), [2001]);
    }
}
