//! The outcome of a day, of the engine or of a model: tokens bought, delivered and expired. Times are in seconds from
//! the start.

use std::ops::Range;

use crate::load::as_f64;

#[derive(Clone, Debug, Default)]
pub(super) struct DayOutcome {
    pub(super) served: Vec<Served>,
    pub(super) bought: Vec<f64>,
    /// Tokens that expired unused.
    pub(super) died: Vec<f64>,
}

/// A claim that got its token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) arrived: f64,
    pub(super) at: f64,
    /// The remaining lifetime of the token; below zero the site refuses it.
    pub(super) left: f64,
}

/// Totals over the counted time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Claims answered at once, in percent.
    pub(super) hits: f64,
    /// Mean wait in seconds.
    pub(super) wait: f64,
    /// Tokens that expired unused, in percent of those bought.
    pub(super) waste: f64,
    /// Tokens bought per token served.
    pub(super) cost: f64,
    pub(super) bought: f64,
}

/// Tokens that may expire unused before any was served.
const FREE_WASTE: u64 = domain::pool::FREE_WASTE;

// === impl DayOutcome ===

impl DayOutcome {
    /// Totals over this time; a claim belongs to the time of its arrival.
    pub(super) fn count(&self, when: &Range<f64>) -> Counted {
        let within =
            |times: &[f64]| as_f64(times.iter().filter(|at| when.contains(at)).count() as u64);
        let claims: Vec<f64> = self
            .served
            .iter()
            .filter(|served| when.contains(&served.arrived))
            .map(|served| served.at - served.arrived)
            .collect();
        let served = as_f64(claims.len() as u64);
        let hits = as_f64(claims.iter().filter(|wait| **wait <= 0.0).count() as u64);
        let bought = within(&self.bought);
        Counted {
            hits: 100.0 * hits / served,
            wait: claims.iter().sum::<f64>() / served,
            // Without claims only the number of tokens bought is meaningful.
            waste: if served > 0.0 { 100.0 * within(&self.died) / bought } else { f64::NAN },
            cost: bought / served,
            bought,
        }
    }

    /// Tokens delivered with less remaining lifetime than this, over the whole day.
    pub(super) fn handed_over_below(&self, left: f64) -> f64 {
        as_f64(self.served.iter().filter(|served| served.left < left).count() as u64)
    }

    /// How many more tokens might have expired unused, at the worst moment of the day, within the bound: a free
    /// allowance plus `waste` per token served.
    pub(super) fn worst_margin(&self, waste: f64) -> f64 {
        let mut served: Vec<f64> = self.served.iter().map(|served| served.at).collect();
        let mut died = self.died.clone();
        served.sort_by(f64::total_cmp);
        died.sort_by(f64::total_cmp);
        // The margin shrinks only when a token expires.
        let margin = |(before, at): (usize, &f64)| {
            let by_then = served.partition_point(|served| served < at);
            as_f64(FREE_WASTE) + waste * as_f64(by_then as u64) - as_f64(before as u64 + 1)
        };
        died.iter().enumerate().map(margin).fold(as_f64(FREE_WASTE), f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arrived: f64, at: f64) -> Served {
        Served { arrived, at, left: 20.0 - at }
    }

    #[test]
    fn only_what_lies_in_the_time_is_counted() {
        let outcome = DayOutcome {
            served: vec![served(1.0, 1.0), served(5.0, 5.0), served(6.0, 10.0)],
            bought: vec![0.0, 2.0, 3.0, 4.0, 9.0],
            died: vec![1.0, 8.0],
        };
        let counted = outcome.count(&(2.0..9.0));
        assert_eq!((counted.hits, counted.wait), (50.0, 2.0));
        assert_eq!((counted.bought, counted.cost), (3.0, 1.5));
        assert!((counted.waste - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!((outcome.handed_over_below(0.0), outcome.handed_over_below(11.0)), (0.0, 1.0));
    }

    #[test]
    fn the_worst_margin_is_at_a_death_and_can_be_broken() {
        let mut outcome = DayOutcome { died: vec![1.0; 4], ..DayOutcome::default() };
        assert!((outcome.worst_margin(0.5) - 6.0).abs() < 1e-9);
        // Later served tokens restore the margin; those served at the same moment do not count yet.
        outcome.served = vec![served(0.0, 2.0), served(0.0, 3.0)];
        outcome.died.push(3.0);
        assert!((outcome.worst_margin(0.5) - 5.5).abs() < 1e-9);
        outcome.died.extend([1.5; 8]);
        assert!(outcome.worst_margin(0.5) < 0.0);
    }
}
