//! Delivers the ends of claims to their callback addresses: at least once, signed, with retries for a day. Deliveries that
//! are under way or queued when the process dies are tried again by the next one.
//!
//! The store hands callbacks out in the order they are due and puts each off to its next try. So that a dead receiver
//! does not delay all others, the outbox takes everything due at once and queues it per receiver. Ten thousand callbacks
//! that nobody accepts delay the others by two seconds: as long as reading them from the store takes.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::{
    callback::{Callback, Notice},
    claim::{Claim, ClaimState, Delivery},
    ports::{StoreError, Webhook},
    time::Timestamp,
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::Notify;

use crate::Shared;

/// The hint that a claim with a callback may have ended.
#[derive(Debug, Default)]
pub(crate) struct OutboxHints {
    ended: Notify,
    /// Somebody uses callbacks, so every end of a claim is a hint.
    in_use: AtomicBool,
}

/// One queue of callbacks per receiver, so that a slow or dead receiver delays no other. Receivers take turns.
#[derive(Debug, Default)]
struct ReceiverQueues {
    queues: BTreeMap<String, ReceiverQueue>,
    /// The receiver of the last delivery; the next one in order has its turn.
    last: String,
    delivering: usize,
    waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryResult {
    Delivered,
    Failed,
    /// Nothing was sent: the callback is out of date, or the store did not answer.
    Skipped,
}

#[derive(Debug, Default)]
struct ReceiverQueue {
    waiting: VecDeque<Callback>,
    delivering: usize,
    /// The last delivery failed.
    failing: bool,
}

/// How many callbacks one read takes from the store.
const PAGE: usize = 500;
/// How many are taken within one [`EVERY`], because each costs the store a write.
const MAX_TAKEN: usize = 10 * PAGE;
/// Without a hint, the outbox is read this often.
const EVERY: Duration = Duration::from_secs(1);
/// Deliveries at once, to all receivers together.
const MAX_DELIVERIES: usize = 64;
/// Deliveries at once to one receiver.
const MAX_EACH: usize = 4;
/// Callbacks queued in memory. The store hands out the rest at their next try.
const MAX_WAITING: usize = 10_000;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut receivers = ReceiverQueues::default();
    let mut deliveries = FuturesUnordered::new();
    let (mut has_more, mut taken, mut began) = (true, 0, shared.now());
    loop {
        let now = shared.now();
        if now.since(began) >= EVERY {
            (has_more, taken, began) = (true, 0, now);
            receivers.drop_due(now.plus(EVERY));
        }
        if has_more && taken < MAX_TAKEN {
            let due = take_due(&shared).await;
            // After a full page there may be more.
            has_more = due.len() == PAGE;
            taken += due.len();
            queue(&mut receivers, due);
        }
        while let Some((receiver, callback)) = receivers.next() {
            let shared = &shared;
            deliveries.push(async move { (receiver, deliver(shared, &callback).await) });
        }
        let wait = if has_more && taken < MAX_TAKEN { Duration::ZERO } else { EVERY };
        tokio::select! {
            biased;
            Some((receiver, end)) = deliveries.next() => receivers.finish(&receiver, end),
            () = shared.maintenance.outbox.ended.notified() => has_more = true,
            more = shared.pause(began.plus(wait).since(shared.now())) => if !more { return },
        }
    }
}

fn queue(receivers: &mut ReceiverQueues, due: Vec<Callback>) {
    let deferred =
        due.into_iter().map(|callback| receivers.push(callback)).filter(|kept| !kept).count();
    if deferred > 0 {
        tracing::warn!(deferred, "callback queue full, deferring to the next retry");
    }
}

async fn take_due(shared: &Shared) -> Vec<Callback> {
    match shared.record_store_health(shared.ports.store.callbacks(PAGE, shared.now()).await) {
        Ok(callbacks) => {
            if !callbacks.is_empty() {
                shared.maintenance.outbox.in_use.store(true, Ordering::Relaxed);
            }
            callbacks
        }
        Err(error) => {
            tracing::error!(%error, "failed to read the callback outbox");
            Vec::new()
        }
    }
}

async fn deliver(shared: &Shared, callback: &Callback) -> DeliveryResult {
    let claim = match find(shared, callback).await {
        Ok(Some(claim)) if callback.announces(&claim) => claim,
        // The claim has ended in another way since; that end has a callback of its own.
        Ok(Some(_) | None) => return DeliveryResult::Skipped,
        Err(error) => {
            tracing::error!(claim = %callback.claim, %error, "failed to build callback");
            return DeliveryResult::Skipped;
        }
    };
    let webhook = Webhook {
        worker: Some(claim.worker.clone()),
        id: callback.message_id(),
        url: callback.url.expose().to_owned(),
        notice: Notice::of_claim(claim, shared.now()),
    };
    if let Err(why) = shared.ports.webhooks.send(&webhook).await {
        let tries = callback.tries;
        tracing::warn!(claim = %callback.claim, tries, %why, next = %callback.due, "callback delivery failed, retrying with backoff");
        return DeliveryResult::Failed;
    }
    if let Err(error) = shared.ports.store.called_back(callback, shared.now()).await {
        tracing::error!(claim = %callback.claim, %error, "callback delivered but not recorded, it will be sent again");
    }
    DeliveryResult::Delivered
}

/// Reads the claim. A token that is sent along counts as handed out.
async fn find(shared: &Shared, callback: &Callback) -> Result<Option<Claim>, StoreError> {
    if let Some(ended) = &callback.ended {
        return Ok(Some(Claim::clone(ended)));
    }
    if callback.state != ClaimState::Served {
        return shared.ports.store.find_claim(callback.claim).await;
    }
    let delivery = shared.ports.store.deliver(callback.claim, shared.now()).await?;
    Ok(delivery.map(|delivery| match delivery {
        Delivery::Token(claim) | Delivery::Expired(claim) | Delivery::Nothing(claim) => claim,
    }))
}

// === impl OutboxHints ===

impl OutboxHints {
    /// A claim with a callback was admitted.
    pub(crate) fn record_use(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Claims have ended; some of them may have a callback.
    pub(crate) fn record_end(&self) {
        if self.in_use.load(Ordering::Relaxed) {
            self.ended.notify_one();
        }
    }
}

// === impl ReceiverQueues ===

impl ReceiverQueues {
    /// Queues a callback. When too many wait, the longest queue loses its last one; `false` if one was lost.
    fn push(&mut self, callback: Callback) -> bool {
        let receiver = callback.receiver();
        let full = self.waiting >= MAX_WAITING;
        if full {
            let own = self.queues.get(&receiver).map_or(0, |queue| queue.waiting.len());
            let longest = self.queues.values_mut().max_by_key(|queue| queue.waiting.len());
            let Some(longest) = longest.filter(|longest| longest.waiting.len() > own) else {
                return false;
            };
            longest.waiting.pop_back();
            self.waiting -= 1;
        }
        self.queues.entry(receiver).or_default().waiting.push_back(callback);
        self.waiting += 1;
        !full
    }

    /// The next callback and its receiver; `None` while enough deliveries are under way.
    fn next(&mut self) -> Option<(String, Callback)> {
        if self.delivering >= MAX_DELIVERIES {
            return None;
        }
        let after = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(self.last.as_str()));
        let mut round =
            self.queues.range::<str, _>(after).chain(self.queues.range::<str, _>(before));
        let receiver = round.find(|(_, queue)| queue.may_deliver())?.0.clone();
        let queue = self.queues.get_mut(&receiver)?;
        let callback = queue.waiting.pop_front()?;
        queue.delivering += 1;
        self.delivering += 1;
        self.waiting -= 1;
        self.last.clone_from(&receiver);
        Some((receiver, callback))
    }

    fn finish(&mut self, receiver: &str, result: DeliveryResult) {
        self.delivering -= 1;
        let Some(queue) = self.queues.get_mut(receiver) else { return };
        queue.delivering -= 1;
        queue.failing = match result {
            DeliveryResult::Delivered => false,
            DeliveryResult::Failed => true,
            DeliveryResult::Skipped => queue.failing,
        };
        if queue.is_idle() {
            self.queues.remove(receiver);
        }
    }

    /// Drops callbacks that have waited until their next try: the store hands them out again.
    fn drop_due(&mut self, until: Timestamp) {
        self.queues.retain(|_, queue| {
            queue.waiting.retain(|callback| callback.due > until);
            !queue.is_idle()
        });
        self.waiting = self.queues.values().map(|queue| queue.waiting.len()).sum();
    }
}

// === impl ReceiverQueue ===

impl ReceiverQueue {
    /// A failing receiver gets one delivery at a time until it accepts one.
    fn may_deliver(&self) -> bool {
        let most = if self.failing { 1 } else { MAX_EACH };
        !self.waiting.is_empty() && self.delivering < most
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.delivering == 0
    }
}

#[cfg(test)]
mod tests {
    use domain::{claim::ClaimState, id::ClaimId, secret::Secret};

    use super::*;

    fn callback(host: &str, number: u64) -> Callback {
        Callback {
            claim: ClaimId::from_number(number),
            url: Secret::new(format!("https://{host}/{number}")),
            state: ClaimState::Served,
            tries: 1,
            since: Timestamp::default(),
            due: Timestamp::from_millis(number),
            reopened: 0,
            ended: None,
            later: Vec::new(),
        }
    }

    /// Queues `count` callbacks for a host; returns how many caused no loss.
    fn push(receivers: &mut ReceiverQueues, host: &str, count: u64) -> usize {
        (1..=count).filter(|number| receivers.push(callback(host, *number))).count()
    }

    /// The receivers of all deliveries that may start now.
    fn start_all(receivers: &mut ReceiverQueues) -> Vec<String> {
        std::iter::from_fn(|| receivers.next().map(|(receiver, _)| receiver)).collect()
    }

    #[test]
    fn a_receiver_gets_four_deliveries_at_once_and_all_together_sixty_four() {
        let mut receivers = ReceiverQueues::default();
        push(&mut receivers, "a", 100);
        assert_eq!(start_all(&mut receivers), ["https://a"; 4]);
        push(&mut receivers, "b", 1);
        assert_eq!(
            start_all(&mut receivers),
            ["https://b"],
            "a receiver that comes later does not wait"
        );
        for n in 0..100 {
            push(&mut receivers, &format!("c{n}"), 1);
        }
        assert_eq!(start_all(&mut receivers).len(), 59);
        receivers.finish("https://b", DeliveryResult::Delivered);
        assert_eq!(start_all(&mut receivers).len(), 1);
    }

    #[test]
    fn receivers_take_turns() {
        let mut receivers = ReceiverQueues::default();
        for host in ["a", "b", "c"] {
            push(&mut receivers, host, 2);
        }
        let round = ["https://a", "https://b", "https://c"];
        assert_eq!(start_all(&mut receivers), [round, round].concat());
    }

    #[test]
    fn a_failing_receiver_gets_one_delivery_at_a_time_until_it_accepts_one() {
        let mut receivers = ReceiverQueues::default();
        push(&mut receivers, "a", 100);
        assert_eq!(start_all(&mut receivers).len(), 4);
        for _ in 0..4 {
            receivers.finish("https://a", DeliveryResult::Failed);
        }
        assert_eq!(start_all(&mut receivers).len(), 1);
        receivers.finish("https://a", DeliveryResult::Skipped);
        assert_eq!(start_all(&mut receivers).len(), 1);
        receivers.finish("https://a", DeliveryResult::Delivered);
        assert_eq!(start_all(&mut receivers).len(), 4);
    }

    #[test]
    fn when_too_many_wait_the_longest_queue_loses_its_last() {
        let mut receivers = ReceiverQueues::default();
        assert_eq!(push(&mut receivers, "a", 10_001), MAX_WAITING);
        assert_eq!(push(&mut receivers, "b", 3), 0, "each puts one of the others off");
        let length = |receivers: &ReceiverQueues, of: &str| receivers.queues[of].waiting.len();
        assert_eq!(
            (length(&receivers, "https://a"), length(&receivers, "https://b")),
            (MAX_WAITING - 3, 3)
        );
        assert_eq!(receivers.waiting, MAX_WAITING);
    }

    #[test]
    fn callbacks_that_the_store_hands_out_again_are_dropped() {
        let mut receivers = ReceiverQueues::default();
        push(&mut receivers, "a", 6);
        push(&mut receivers, "b", 3);
        receivers.drop_due(Timestamp::from_millis(4));
        assert_eq!((receivers.waiting, receivers.queues.len()), (2, 1));
        assert_eq!(receivers.next().unwrap().1.claim, ClaimId::from_number(5));
        receivers.next().unwrap();
        receivers.finish("https://a", DeliveryResult::Delivered);
        receivers.finish("https://a", DeliveryResult::Delivered);
        assert!(receivers.queues.is_empty(), "nothing is left of a receiver that is done");
    }
}
