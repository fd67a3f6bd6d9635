//! Reads the claims of waiting callers again, once a second and all at once: notifications may be lost, and a reading for each
//! of thousands of callers would be most of the store's work. Called by fetch.rs.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use domain::{claim::Claim, id::ClaimId, ports::StoreError, time::Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Shared;

/// The callers that wait for the next reading.
#[derive(Debug, Default)]
pub(crate) struct Rereads(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// When the first of them has waited for a second.
    due: Timestamp,
    callers: Vec<(ClaimId, oneshot::Sender<Found>)>,
}

/// A claim as the store has it.
type Found = Result<Option<Claim>, StoreError>;

/// Waiting callers read again after this at the latest.
const EVERY: Duration = Duration::from_secs(1);
/// Claims in one reading, so that it takes a small part of the store's second.
const MOST: usize = 1000;

/// Returns the claim as it is read with the others, within a second.
pub(super) async fn reread(shared: &Arc<Shared>, id: ClaimId) -> Found {
    let (due, mut answer) = shared.rereads.join(id, shared.now());
    let answered = tokio::select! {
        biased;
        answered = &mut answer => answered,
        () = shared.ports.clock.sleep_until(due) => {
            // The first caller that wakes up reads for all. It may go away meanwhile, so a task does it.
            let callers = shared.rereads.take_due(shared.now());
            if !callers.is_empty() {
                shared.tasks.spawn(read_for(Arc::clone(shared), callers));
            }
            answer.await
        }
    };
    match answered {
        Ok(found) => found,
        // The task was aborted.
        Err(_) => shared.ports.store.find_claim(id).await,
    }
}

async fn read_for(shared: Arc<Shared>, callers: Vec<(ClaimId, oneshot::Sender<Found>)>) {
    let mut by_claim: BTreeMap<ClaimId, Vec<oneshot::Sender<Found>>> = BTreeMap::new();
    for (id, answer) in callers {
        if !answer.is_closed() {
            by_claim.entry(id).or_default().push(answer);
        }
    }
    let ids: Vec<ClaimId> = by_claim.keys().copied().collect();
    for page in ids.chunks(MOST) {
        let found = shared.ports.store.find_claims(page.to_vec()).await;
        let claims = found.map(|claims| {
            claims.into_iter().map(|claim| (claim.id, claim)).collect::<BTreeMap<_, _>>()
        });
        for id in page {
            let claim = claims.as_ref().map(|claims| claims.get(id).cloned());
            for answer in by_claim.remove(id).into_iter().flatten() {
                // A caller that is gone needs no answer.
                drop(answer.send(claim.clone().map_err(Clone::clone)));
            }
        }
    }
}

// === impl Rereads ===

impl Rereads {
    fn join(&self, id: ClaimId, now: Timestamp) -> (Timestamp, oneshot::Receiver<Found>) {
        let (answer, found) = oneshot::channel();
        let mut waiting = self.0.lock();
        if waiting.callers.is_empty() {
            waiting.due = now.plus(EVERY);
        }
        waiting.callers.push((id, answer));
        (waiting.due, found)
    }

    /// The callers whose reading is due; none, if another caller reads for them already.
    fn take_due(&self, now: Timestamp) -> Vec<(ClaimId, oneshot::Sender<Found>)> {
        let mut waiting = self.0.lock();
        if now < waiting.due {
            return Vec::new();
        }
        mem::take(&mut waiting.callers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn callers_who_wait_at_the_same_time_share_one_reading_a_second() {
        let rereads = Rereads::default();
        let callers: Vec<_> = (0..1000)
            .map(|n| rereads.join(ClaimId::from_number(n % 300), at(5_000 + n / 2)))
            .collect();
        // Nobody waits longer than a second, whenever they came.
        assert!(callers.iter().all(|(due, _)| *due == at(6_000)));
        assert!(rereads.take_due(at(5_999)).is_empty());
        assert_eq!(rereads.take_due(at(6_000)).len(), 1000);
        assert!(rereads.take_due(at(6_000)).is_empty(), "one of them reads for all");
        let (due, _answer) = rereads.join(ClaimId::from_number(1), at(6_002));
        assert_eq!(due, at(7_002));
    }
}
