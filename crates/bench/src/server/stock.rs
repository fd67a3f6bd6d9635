//! Fills the stock with the tokens of claims that were withdrawn after submission.

use domain::{
    lease::Lease,
    ports::{Chance, Clock, Store},
    solve::Origin,
};
use solvegate::exit::Failure;

use crate::{
    challenges::challenge,
    fixtures::claims::{StoreFiller, concurrently},
};

/// Puts `count` tokens into the stock of the benches' challenge.
pub(super) async fn fill(
    store: &dyn Store,
    clock: &dyn Clock,
    chance: &dyn Chance,
    count: usize,
) -> Result<(), Failure> {
    let filler = StoreFiller::start(store, clock, chance).await?;
    concurrently((0..count).map(async |_| filler.open(challenge()?).await.map(drop))).await?;
    // All are submitted before the first is withdrawn, and all are withdrawn before the first is solved: a token goes
    // to a waiting claim if there is one, and only otherwise to the stock.
    let leases = filler.intend().await?;
    concurrently(leases.iter().map(|lease| withdraw(&filler, lease))).await?;
    concurrently(leases.iter().map(async |lease| {
        filler.accept(lease).await?;
        filler.solve(lease).await
    }))
    .await
}

async fn withdraw(filler: &StoreFiller<'_>, lease: &Lease) -> Result<(), Failure> {
    match lease.solve.origin {
        Origin::Claim(claim) => filler.withdraw(claim).await,
        Origin::Revived { .. } | Origin::Refill | Origin::Orphan(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        ledger::{Entry, Event},
        ports::Records as _,
    };
    use stores::StoreAdapter;

    use super::*;
    use solvegate::{chance::SystemChance, clock::SystemClock};

    #[tokio::test]
    async fn every_token_ends_in_stock() {
        let (store, clock) = (StoreAdapter::in_memory(), SystemClock::start());
        let chance = SystemChance::start().unwrap();
        fill(&store, &clock, &chance, 2001).await.unwrap();
        let entries = store.entries(0, usize::MAX).await.unwrap();
        let is_banked = |entry: &&Entry| matches!(entry.event, Event::Banked { .. });
        assert_eq!(entries.iter().filter(is_banked).count(), 2001);
    }
}
