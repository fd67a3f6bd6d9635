//! One queue of callbacks per receiver, so that a slow or dead receiver delays no other. Receivers take turns.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use domain::{callback::Callback, time::Timestamp};

/// Deliveries at once, to all receivers together.
const MAX_DELIVERIES: usize = 64;
/// Deliveries at once to one receiver.
const MAX_EACH: usize = 4;
/// Callbacks queued in memory. The store hands out the rest at their next try.
const MAX_WAITING: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct ReceiverQueues {
    queues: BTreeMap<String, ReceiverQueue>,
    /// The receiver of the last delivery; the next one in order has its turn.
    last: String,
    delivering: usize,
    waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryResult {
    /// The receiver accepted it.
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

// === impl ReceiverQueues ===

impl ReceiverQueues {
    /// Queues a callback. When too many wait, the longest queue loses its last one; `false` if one was lost.
    pub(super) fn push(&mut self, callback: Callback) -> bool {
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
    pub(super) fn next(&mut self) -> Option<(String, Callback)> {
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

    pub(super) fn finish(&mut self, receiver: &str, result: DeliveryResult) {
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
    pub(super) fn drop_due(&mut self, until: Timestamp) {
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
