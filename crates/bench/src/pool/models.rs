//! Alternatives for the same claims, calculated without an engine, as the reference models do: the reference policy,
//! the pool of the tutorials, and a policy that knows every arrival beforehand.

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

/// A simplified provider and stock: claims wait in order, the token that expires first is used first, and a token is
/// found as soon as it is ready, without polls.
struct ModelStock {
    chance: fastrand::Rng,
    due: BinaryHeap<Reverse<ModelEvent>>,
    under_way: usize,
    /// The times at which the tokens were ready, the oldest first.
    stock: VecDeque<f64>,
    waiting: VecDeque<f64>,
    outcome: DayOutcome,
}

/// An event, ordered by its time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ModelEvent {
    at: f64,
    what: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum EventKind {
    Arrival,
    Order,
    Ready,
    /// The oldest token in stock may have expired.
    Expiry,
}

/// The clairvoyant policy orders early enough for this share of solves to be ready in time.
const IN_TIME: f64 = 0.999;

/// The reference policy: the rate of the last twelve arrivals, 95 % hits, a limit on waste, and the escrow.
pub(super) fn reference(work: &Workload, seed: u64) -> DayOutcome {
    let mut policy = Reference::default();
    let mut model = ModelStock::open(work, seed);
    while let Some(ModelEvent { at, what }) = model.next() {
        if what == EventKind::Arrival {
            policy.arrive(at);
        }
        let before = (model.outcome.served.len(), model.outcome.died.len());
        model.serve(at, what);
        (before.0..model.outcome.served.len()).for_each(|_| policy.served());
        (before.1..model.outcome.died.len()).for_each(|_| policy.died());
        while model.under_way < model.waiting.len() {
            model.order(at);
        }
        while policy.wants(at, model.stock.len() + model.under_way - model.waiting.len()) {
            model.order(at);
        }
    }
    model.outcome
}

/// Starts a solve for every claim, early enough that it is ready when the claim arrives.
pub(super) fn clairvoyant(work: &Workload, seed: u64) -> DayOutcome {
    let mut model = ModelStock::open(work, seed);
    let ahead = SOLVES.quantile(IN_TIME);
    for at in &work.arrivals {
        model.due.push(Reverse(ModelEvent { at: at - ahead, what: EventKind::Order }));
    }
    while let Some(ModelEvent { at, what }) = model.next() {
        model.serve(at, what);
    }
    // A token bought for a claim counts with that claim.
    model.outcome.bought.clone_from(&work.arrivals);
    model.outcome
}

// === impl ModelStock ===

impl ModelStock {
    fn open(work: &Workload, seed: u64) -> Self {
        let arrival = |at: &f64| Reverse(ModelEvent { at: *at, what: EventKind::Arrival });
        Self {
            chance: fastrand::Rng::with_seed(!seed),
            due: work.arrivals.iter().map(arrival).collect(),
            under_way: 0,
            stock: VecDeque::new(),
            waiting: VecDeque::new(),
            outcome: DayOutcome::default(),
        }
    }

    fn next(&mut self) -> Option<ModelEvent> {
        self.due.pop().map(|Reverse(due)| due)
    }

    fn serve(&mut self, at: f64, what: EventKind) {
        match what {
            EventKind::Order => self.order(at),
            EventKind::Arrival => match self.stock.pop_front() {
                Some(ready) => self.hand_over(at, at, ready),
                None => self.waiting.push_back(at),
            },
            EventKind::Ready => {
                self.under_way -= 1;
                if let Some(arrived) = self.waiting.pop_front() {
                    self.hand_over(arrived, at, at);
                } else {
                    self.stock.push_back(at);
                    self.due.push(Reverse(ModelEvent { at: at + LIFE, what: EventKind::Expiry }));
                }
            }
            EventKind::Expiry => {
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
        self.due.push(Reverse(ModelEvent { at: ready, what: EventKind::Ready }));
    }
}

// === impl ModelEvent ===

impl Eq for ModelEvent {}

impl PartialOrd for ModelEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ModelEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::workload::Day, *};

    /// The results of the reference model: 86.6 % and 0.9 s at one in 20 s, 98.0 % at one a second.
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
