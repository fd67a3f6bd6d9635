//! The schedule with the least `cost · polls + lag` for a distribution, and for the polls that are left.
//!
//! Computed exactly, backwards from the end: the best next poll depends only on the task's age and on how many polls are
//! left. After a later poll the best next poll is never earlier, so divide and conquer over the ages takes `n log n`
//! steps (a totally monotone matrix).

use super::{
    cells::{CELLS, EDGES, locate},
    curve::Curve,
};

/// The age of the next poll, for every age and number of polls left.
#[derive(Debug)]
pub(super) struct Plan {
    /// With one poll left, with two, ...; for each edge the age of the next poll.
    layers: Vec<Vec<f32>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlanTerms {
    /// The cost of a poll, in seconds of one task's lag.
    pub(super) cost: f64,
    /// The least time between polls, in seconds.
    pub(super) min_gap: f64,
    pub(super) most: usize,
}

/// The last poll, in seconds: a little before the provider drops the task.
pub(super) const END: f64 = 590.0;
/// With more polls left than this, one more makes no difference.
const LAYERS: usize = 24;

struct Layer<'a> {
    ages: &'a [f64],
    /// The chance that a task is ready by each age.
    by: &'a [f64],
    /// For each edge: the loss after an unsuccessful poll there, with one poll less, plus the time undetected up to it.
    after: Vec<f64>,
    least: Vec<usize>,
    best: Vec<usize>,
}

// === impl Plan ===

impl Plan {
    pub(super) fn of(curve: &Curve, terms: PlanTerms) -> Self {
        let by = &curve.by;
        let undetected = undetected(by);
        let end = locate(END).0;
        let least = |edge: usize| (locate(EDGES[edge] + terms.min_gap).0 + 1).min(end);
        let least: Vec<usize> = (0..=end).map(least).collect();
        let mut layers: Vec<Vec<f32>> = vec![];
        let mut lost = vec![0.0; end + 1];
        for left in 1..=terms.most.clamp(1, LAYERS) {
            let after = lost.iter().zip(&undetected).map(|(lost, time)| lost + time).collect();
            let mut layer =
                Layer { ages: &*EDGES, by, after, least: least.clone(), best: vec![end; end + 1] };
            if left > 1 {
                layer.solve((0, end), (0, end));
            }
            lost = (0..=end).map(|edge| layer.lost(edge, &undetected, terms.cost)).collect();
            layers.push((0..=end).map(|edge| layer.next(edge)).collect());
        }
        Self { layers }
    }

    /// The age of the next poll after an unsuccessful one at `age`, or of the first with `age` zero.
    pub(super) fn next(&self, age: f64, left: u32) -> f64 {
        let left = usize::try_from(left).unwrap_or(LAYERS).clamp(1, self.layers.len());
        let layer = &self.layers[left - 1];
        let (edge, part) = locate(age);
        let at = |edge: usize| f64::from(layer[edge.min(layer.len() - 1)]);
        at(edge) + part * (at(edge + 1) - at(edge))
    }
}

/// The mean time, in seconds, that an unpolled task has been ready by each edge.
fn undetected(by: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut times = vec![0.0];
    times.extend((1..CELLS).map(|edge| {
        sum += f64::midpoint(by[edge - 1], by[edge]) * (EDGES[edge] - EDGES[edge - 1]);
        sum
    }));
    times
}

// === impl Layer ===

impl Layer<'_> {
    /// The loss of polling at `edge` and then at `next`, without the terms that do not depend on `next`.
    fn value(&self, edge: usize, next: usize) -> f64 {
        self.after[next] - self.by[edge] * self.ages[next]
    }

    /// Finds the best next poll for the edges `from..=to`, which lies in `low..=high`.
    fn solve(&mut self, (from, to): (usize, usize), (low, high): (usize, usize)) {
        let middle = usize::midpoint(from, to);
        let first = low.max(self.least[middle]).min(high);
        let (by, mut best, mut least) = (self.by[middle], first, f64::INFINITY);
        let nexts = self.after[first..=high].iter().zip(&self.ages[first..=high]);
        for (next, (after, age)) in (first..).zip(nexts) {
            let value = after - by * age;
            if value < least {
                (best, least) = (next, value);
            }
        }
        self.best[middle] = best;
        if from < middle {
            self.solve((from, middle - 1), (low, best));
        }
        if middle < to {
            self.solve((middle + 1, to), (best, high));
        }
    }

    fn lost(&self, edge: usize, undetected: &[f64], cost: f64) -> f64 {
        let end = self.best.len() - 1;
        if edge == end {
            return 0.0;
        }
        let passed = undetected[edge] - self.by[edge] * self.ages[edge];
        cost * (1.0 - self.by[edge]) + self.value(edge, self.best[edge]) - passed
    }

    /// The age of the best next poll, interpolated by a parabola through the neighbouring edges.
    #[expect(clippy::cast_possible_truncation, reason = "an age in seconds needs no more digits")]
    fn next(&self, edge: usize) -> f32 {
        let best = self.best[edge];
        let end = self.best.len() - 1;
        if best <= self.least[edge] || best >= end {
            return self.ages[best] as f32;
        }
        let [a, b, c] = [self.ages[best - 1], self.ages[best], self.ages[best + 1]];
        let down = (self.value(edge, best - 1) - self.value(edge, best)) / (b - a);
        let up = (self.value(edge, best + 1) - self.value(edge, best)) / (c - b);
        let bend = (down + up).max(f64::MIN_POSITIVE);
        // The slopes are those at the middles of the two cells; it is zero in between.
        let (left, right) = (f64::midpoint(a, b), f64::midpoint(b, c));
        (left + (right - left) * (down / bend).clamp(0.0, 1.0)) as f32
    }
}
