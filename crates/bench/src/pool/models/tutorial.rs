//! The pool found in tutorials: one thread that refills a list, one token after the other, and polls every 5 s; a list
//! whose expiry every push extends; and claims that take a token or solve for themselves. For `models`.

use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque};

use super::{
    super::{
        LIFETIME, SOLVES,
        outcome::{DayOutcome, Served},
        workload::Workload,
    },
    EventKind, ModelEvent,
};

const SIZE: usize = 5;
/// The whole list expires this long after the last push.
const LIST_LIVES: f64 = 80.0;
const PAUSE: f64 = 2.0;
const POLLS_EVERY: f64 = 5.0;

/// One process with that pool, until the counted time is over.
pub(in super::super) fn tutorial(work: &Workload, seed: u64) -> DayOutcome {
    let mut chance = fastrand::Rng::with_seed(!seed);
    let mut solve = || {
        let time = SOLVES.solve_time().draw(&mut chance).as_secs_f64();
        (time / POLLS_EVERY).ceil() * POLLS_EVERY
    };
    let arrival = |at: &f64| Reverse(ModelEvent { at: *at, what: EventKind::Arrival });
    let mut due: BinaryHeap<Reverse<ModelEvent>> = work.arrivals.iter().map(arrival).collect();
    due.push(Reverse(ModelEvent { at: 0.0, what: EventKind::Order }));
    let (mut list, mut dies_at, mut outcome) = (VecDeque::new(), 0.0, DayOutcome::default());
    while let Some(Reverse(ModelEvent { at, what })) =
        due.pop().filter(|due| due.0.at < work.counted.end)
    {
        if at >= dies_at {
            outcome.died.extend(list.drain(..).map(|_: f64| dies_at));
        }
        match what {
            EventKind::Order if list.len() < SIZE => {
                outcome.bought.push(at);
                let ready = at + solve();
                due.push(Reverse(ModelEvent { at: ready, what: EventKind::Ready }));
                due.push(Reverse(ModelEvent { at: ready + PAUSE, what: EventKind::Order }));
            }
            EventKind::Order => due.push(Reverse(ModelEvent { at: at + PAUSE, what })),
            EventKind::Ready => {
                list.push_back(at);
                dies_at = at + LIST_LIVES;
            }
            EventKind::Arrival => {
                let (ready, at) = if let Some(ready) = list.pop_front() {
                    (ready, (at, at))
                } else {
                    outcome.bought.push(at);
                    let found = at + solve();
                    (found, (at, found))
                };
                let left = ready + LIFETIME - at.1;
                outcome.served.push(Served { arrived: at.0, at: at.1, left });
            }
            EventKind::Expiry => {}
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::{super::super::workload::Day, *};

    /// The results of the reference model: 83.7 % hits at one in 20 s, 4.6 % at one a second, and 2,334 tokens bought
    /// in a day without demand.
    #[test]
    fn it_does_what_the_reference_model_says() {
        for (rate, hours, hits) in [(0.05, 48.0, 83.7), (1.0, 2.0, 4.6)] {
            let work = Workload::of(Day::Smooth { rate, hours }, 48, 5);
            let counted = tutorial(&work, 5).count(&work.counted);
            assert!((counted.hits - hits).abs() < 2.0, "{rate}: {counted:?}");
        }
        let silent = Workload { arrivals: Vec::new(), counted: 0.0..86_400.0 };
        let bought = tutorial(&silent, 5).bought.len();
        assert!((2_200..2_450).contains(&bought), "{bought}");
    }
}
