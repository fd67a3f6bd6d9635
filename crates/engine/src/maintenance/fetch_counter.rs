//! Counts the fetches of tokens that were handed out before, and writes the counts once a second. A worker may poll a served
//! claim without end, so such a fetch costs no write of its own. A crash loses the counts of the last second and nothing else.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::id::ClaimId;
use parking_lot::Mutex;

use crate::Shared;

#[derive(Debug, Default)]
pub(crate) struct FetchCounter(Mutex<BTreeMap<ClaimId, u64>>);

const EVERY: Duration = Duration::from_secs(1);
/// The claims of one write.
const BATCH: usize = 200;
/// While the store is unavailable, fetches of more claims than this are not counted.
const MAX_CLAIMS: usize = 10_000;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let goes_on = shared.pause(EVERY).await;
        write(&shared).await;
        if !goes_on {
            return;
        }
    }
}

async fn write(shared: &Shared) {
    let counter = &shared.maintenance.fetches;
    let fetched: Vec<_> = std::mem::take(&mut *counter.0.lock()).into_iter().collect();
    for batch in fetched.chunks(BATCH) {
        if let Err(error) = shared.ports.store.count_fetches(batch.to_vec()).await {
            tracing::warn!(%error, "failed to write the number of repeated fetches");
            for (claim, fetches) in batch {
                counter.add(*claim, *fetches);
            }
        }
    }
}

// === impl FetchCounter ===

impl FetchCounter {
    pub(crate) fn count(&self, claim: ClaimId) {
        self.add(claim, 1);
    }

    fn add(&self, claim: ClaimId, fetches: u64) {
        let mut counts = self.0.lock();
        if counts.len() < MAX_CLAIMS || counts.contains_key(&claim) {
            *counts.entry(claim).or_default() += fetches;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_counted_claims_is_bounded() {
        let counter = FetchCounter::default();
        for number in 0..20_000 {
            counter.count(ClaimId::from_number(number));
            counter.count(ClaimId::from_number(7));
        }
        let counts = counter.0.lock();
        assert_eq!((counts.len(), counts[&ClaimId::from_number(7)]), (MAX_CLAIMS, 20_001));
    }
}
