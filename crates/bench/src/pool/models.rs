//! What else could be done with the same claims, reckoned without an engine, as the reference models do: the reference
//! policy, the pool of the tutorials, and somebody who knows every arrival beforehand.

mod reference;
mod tutorial;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{
    LIFE, LIFETIME, SOLVES,
    outcome::{DayOutcome, Served},
    workload::Workload,
};
use reference::Reference;
pub(super) use tutorial::tutorial;

/// A shop that sells tokens: claims wait in order, the earliest expiry goes first, and nobody polls: a token is found when
/// it is ready.
struct Shop {
    chance: fastrand::Rng,
    due: BinaryHeap<Reverse<Due>>,
    under_way: usize,
    /// When each was ready, the oldest first.
    stock: VecDeque<f64>,
    waiting: VecDeque<f64>,
    outcome: DayOutcome,
}

/// Something that happens at a time. Ordered by it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Due {
    at: f64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Arrival,
    Order,
    Ready,
    /// The oldest token in stock may have died.
    Death,
}

/// Orders of the clairvoyant: so many solves of a thousand are ready in time.
const IN_TIME: f64 = 0.999;

/// The reference policy: the rate of the last twelve arrivals, 95 % hits, at most so much waste, and the escrow.
pub(super) fn reference(work: &Workload, seed: u64) -> DayOutcome {
    let mut policy = Reference::default();
    let mut shop = Shop::open(work, seed);
    while let Some(Due { at, what }) = shop.next() {
        if what == What::Arrival {
            policy.arrive(at);
        }
        let before = (shop.outcome.served.len(), shop.outcome.died.len());
        shop.serve(at, what);
        (before.0..shop.outcome.served.len()).for_each(|_| policy.served());
        (before.1..shop.outcome.died.len()).for_each(|_| policy.died());
        while shop.under_way < shop.waiting.len() {
            shop.order(at);
        }
        while policy.wants(at, shop.stock.len() + shop.under_way - shop.waiting.len()) {
            shop.order(at);
        }
    }
    shop.outcome
}

/// A solve is begun for every claim, early enough that it is ready when the claim comes.
pub(super) fn clairvoyant(work: &Workload, seed: u64) -> DayOutcome {
    let mut shop = Shop::open(work, seed);
    let ahead = SOLVES.quantile(IN_TIME);
    for at in &work.arrivals {
        shop.due.push(Reverse(Due { at: at - ahead, what: What::Order }));
    }
    while let Some(Due { at, what }) = shop.next() {
        shop.serve(at, what);
    }
    // What was bought for a claim counts with it, also for the first.
    shop.outcome.bought.clone_from(&work.arrivals);
    shop.outcome
}

// === impl Shop ===

impl Shop {
    fn open(work: &Workload, seed: u64) -> Self {
        let arrival = |at: &f64| Reverse(Due { at: *at, what: What::Arrival });
        Self {
            chance: fastrand::Rng::with_seed(!seed),
            due: work.arrivals.iter().map(arrival).collect(),
            under_way: 0,
            stock: VecDeque::new(),
            waiting: VecDeque::new(),
            outcome: DayOutcome::default(),
        }
    }

    fn next(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse(due)| due)
    }

    fn serve(&mut self, at: f64, what: What) {
        match what {
            What::Order => self.order(at),
            What::Arrival => match self.stock.pop_front() {
                Some(ready) => self.hand_over(at, at, ready),
                None => self.waiting.push_back(at),
            },
            What::Ready => {
                self.under_way -= 1;
                if let Some(arrived) = self.waiting.pop_front() {
                    self.hand_over(arrived, at, at);
                } else {
                    self.stock.push_back(at);
                    self.due.push(Reverse(Due { at: at + LIFE, what: What::Death }));
                }
            }
            What::Death => {
                if self.stock.pop_front_if(|ready| *ready + LIFE <= at).is_some() {
                    self.outcome.died.push(at);
                }
            }
        }
    }

    fn hand_over(&mut self, arrived: f64, at: f64, ready: f64) {
        self.outcome.served.push(Served { arrived, at, left: ready + LIFETIME - at });
    }

    fn order(&mut self, at: f64) {
        self.under_way += 1;
        self.outcome.bought.push(at);
        let ready = at + SOLVES.solve_time().draw(&mut self.chance).as_secs_f64();
        self.due.push(Reverse(Due { at: ready, what: What::Ready }));
    }
}

// === impl Due ===

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::workload::Day, *};

    /// What the reference model's own runs found: 86.6 % and 0.9 s at one in 20 s, 98.0 % at one a second.
    #[test]
    fn the_reference_policy_does_what_the_reference_model_says() {
        for (rate, hours, hits, wait) in [(0.05, 48.0, 86.6, 0.9), (1.0, 3.0, 98.0, 0.07)] {
            let work = Workload::of(Day::Smooth { rate, hours }, 48, 5);
            let counted = reference(&work, 5).count(&work.counted);
            assert!((counted.hits - hits).abs() < 2.0, "{rate}: {counted:?}");
            assert!((counted.wait - wait).abs() < 0.3, "{rate}: {counted:?}");
        }
    }

    #[test]
    fn who_knows_every_arrival_answers_at_once_and_wastes_nothing() {
        for day in [Day::Periodic, Day::Smooth { rate: 1.0, hours: 1.0 }] {
            let work = Workload::of(day, 24, 5);
            let outcome = clairvoyant(&work, 5);
            let counted = outcome.count(&work.counted);
            assert!(counted.hits > 99.8 && counted.wait < 0.05, "{counted:?}");
            assert_eq!((counted.cost, outcome.died.len()), (1.0, 0));
        }
    }
}
