//! Hints within one process: a bell per claim that somebody listens for, and nothing for the others.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    id::ClaimId,
    ports::{Doorbell, Ear},
};
use tokio::sync::Notify;

/// Rings for claims within this process.
pub struct LocalDoorbell {
    shards: Arc<[Shard]>,
}

type Shard = Mutex<HashMap<ClaimId, Bell>>;

/// One claim's bell, there as long as somebody listens.
struct Bell {
    notify: Arc<Notify>,
    ears: usize,
}

/// Takes its ear away when the listener is done or gone.
struct Seat {
    shards: Arc<[Shard]>,
    claim: ClaimId,
}

/// Claims hardly ever wait for each other's lock.
const SHARDS: usize = 64;

// === impl LocalDoorbell ===

impl LocalDoorbell {
    /// A doorbell nobody listens to yet.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// How many claims somebody listens for.
    pub fn listened_for(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).len()).sum()
    }
}

impl Default for LocalDoorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalDoorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalDoorbell").finish_non_exhaustive()
    }
}

impl Doorbell for LocalDoorbell {
    fn ring(&self, claim: ClaimId) {
        // Woken outside the lock: there may be thousands of them.
        let bell = shard(&self.shards, claim).get(&claim).map(|bell| Arc::clone(&bell.notify));
        if let Some(notify) = bell {
            notify.notify_waiters();
        }
    }

    fn listen(&self, claim: ClaimId) -> Ear {
        let mut bells = shard(&self.shards, claim);
        let bell =
            bells.entry(claim).or_insert_with(|| Bell { notify: Arc::new(Notify::new()), ears: 0 });
        bell.ears += 1;
        let rung = Arc::clone(&bell.notify).notified_owned();
        let seat = Seat { shards: Arc::clone(&self.shards), claim };
        Box::pin(async move {
            let _seat = seat;
            rung.await;
        })
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        let mut bells = shard(&self.shards, self.claim);
        if let Some(bell) = bells.get_mut(&self.claim) {
            bell.ears -= 1;
            if bell.ears == 0 {
                bells.remove(&self.claim);
            }
        }
    }
}

fn shard(shards: &[Shard], claim: ClaimId) -> MutexGuard<'_, HashMap<ClaimId, Bell>> {
    // The last three digits are the fingerprint's shard, the same for all claims of one challenge.
    let spread = claim.number() / 1000 + claim.number();
    let index = usize::try_from(spread % SHARDS as u64).unwrap_or(0);
    locked(&shards[index])
}

/// Nothing that holds the lock can panic half way.
fn locked(shard: &Shard) -> MutexGuard<'_, HashMap<ClaimId, Bell>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn claim(n: u64) -> ClaimId {
        ClaimId::from_number(n)
    }

    #[test]
    fn an_ear_hears_what_rings_after_it_exists() {
        let doorbell = LocalDoorbell::new();
        doorbell.ring(claim(1));
        let ear = doorbell.listen(claim(1));
        let other = doorbell.listen(claim(2));
        doorbell.ring(claim(1));
        assert!(ear.now_or_never().is_some());
        assert!(other.now_or_never().is_none());
    }

    #[test]
    fn a_ring_nobody_listened_for_is_lost() {
        let doorbell = LocalDoorbell::new();
        doorbell.ring(claim(1));
        assert!(doorbell.listen(claim(1)).now_or_never().is_none());
    }

    #[test]
    fn thousands_hear_one_bell_and_leave_nothing_behind() {
        let doorbell = LocalDoorbell::new();
        let ears: Vec<_> = (0..5000).map(|_| doorbell.listen(claim(7))).collect();
        let gone: Vec<_> = (0..5000).map(|n| doorbell.listen(claim(n))).collect();
        drop(gone);
        assert_eq!(doorbell.listened_for(), 1);
        doorbell.ring(claim(7));
        assert!(ears.into_iter().all(|ear| ear.now_or_never().is_some()));
        assert_eq!(doorbell.listened_for(), 0);
    }
}
