//! Claim notifications within one process. A claim takes memory here only while somebody is subscribed to it.

use std::{collections::HashMap, fmt, sync::Arc};

use domain::{
    account_share::{ASKED, GIVEN},
    id::ClaimId,
    ports::{Notifier, Subscription},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Notifies subscribers within this process.
pub struct LocalNotifier {
    shards: Arc<[Shard]>,
}

type Shard = Mutex<HashMap<ClaimId, Topic>>;

/// One claim that has subscribers.
struct Topic {
    notify: Arc<Notify>,
    subscribers: usize,
}

/// Ends its subscription when it is dropped.
struct Subscriber {
    shards: Arc<[Shard]>,
    claim: ClaimId,
}

/// With this many locks, claims rarely wait for one another.
const SHARDS: usize = 64;

// === impl LocalNotifier ===

impl LocalNotifier {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// The number of claims that have subscribers. What gateways announce about shares is not about a claim.
    pub fn listened_for(&self) -> usize {
        let claims = |shard: &Shard| {
            shard.lock().keys().filter(|claim| ![ASKED, GIVEN].contains(claim)).count()
        };
        self.shards.iter().map(claims).sum()
    }
}

impl Default for LocalNotifier {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNotifier").finish_non_exhaustive()
    }
}

impl Notifier for LocalNotifier {
    fn notify(&self, claim: ClaimId) {
        let topics = shard(&self.shards, claim).lock();
        let notify = topics.get(&claim).map(|topic| Arc::clone(&topic.notify));
        // There may be thousands of subscribers, so they are woken outside the lock.
        drop(topics);
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    fn subscribe(&self, claim: ClaimId) -> Subscription {
        let mut topics = shard(&self.shards, claim).lock();
        let topic = topics
            .entry(claim)
            .or_insert_with(|| Topic { notify: Arc::new(Notify::new()), subscribers: 0 });
        topic.subscribers += 1;
        let notified = Arc::clone(&topic.notify).notified_owned();
        let subscriber = Subscriber { shards: Arc::clone(&self.shards), claim };
        Box::pin(async move {
            let _subscriber = subscriber;
            notified.await;
        })
    }
}

// === impl Subscriber ===

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut topics = shard(&self.shards, self.claim).lock();
        if let Some(topic) = topics.get_mut(&self.claim) {
            topic.subscribers -= 1;
            if topic.subscribers == 0 {
                topics.remove(&self.claim);
            }
        }
    }
}

fn shard(shards: &[Shard], claim: ClaimId) -> &Shard {
    // The last three digits are the fingerprint's shard, the same for all claims of one challenge.
    let spread = claim.number() / 1000 + claim.number();
    let index = usize::try_from(spread % SHARDS as u64).unwrap_or(0);
    &shards[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn claim(n: u64) -> ClaimId {
        ClaimId::from_number(n)
    }

    #[test]
    fn a_subscriber_receives_the_notifications_after_its_subscription() {
        let notifier = LocalNotifier::new();
        notifier.notify(claim(1));
        let subscription = notifier.subscribe(claim(1));
        let other = notifier.subscribe(claim(2));
        notifier.notify(claim(1));
        assert!(subscription.now_or_never().is_some());
        assert!(other.now_or_never().is_none());
    }

    #[test]
    fn a_notification_without_subscribers_is_lost() {
        let notifier = LocalNotifier::new();
        notifier.notify(claim(1));
        assert!(notifier.subscribe(claim(1)).now_or_never().is_none());
    }

    #[test]
    fn thousands_of_subscribers_receive_one_notification_and_leave_nothing_behind() {
        let notifier = LocalNotifier::new();
        let subscriptions: Vec<_> = (0..5000).map(|_| notifier.subscribe(claim(7))).collect();
        let gone: Vec<_> = (0..5000).map(|n| notifier.subscribe(claim(n))).collect();
        drop(gone);
        assert_eq!(notifier.listened_for(), 1);
        notifier.notify(claim(7));
        assert!(
            subscriptions.into_iter().all(|subscription| subscription.now_or_never().is_some())
        );
        assert_eq!(notifier.listened_for(), 0);
    }
}
