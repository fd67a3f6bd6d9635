//! A distribution of solve times: chances, quantiles and the mean.

use std::time::Duration;

use super::cells::{CELLS, EDGES, LAST, locate};

/// The chance that a task is ready by the age of each edge.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) by: Vec<f64>,
}

// === impl Curve ===

impl Curve {
    /// From the weight of each cell; the weights need not add up to one.
    pub(super) fn new(weights: &[f64]) -> Self {
        debug_assert_eq!(weights.len(), CELLS);
        let whole: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let by = weights.iter().map(|weight| {
            let before = sum;
            sum += weight / whole;
            before
        });
        Self { by: by.collect() }
    }

    /// The chance that a task is ready by that age, in seconds.
    pub(super) fn by(&self, age: f64) -> f64 {
        let (edge, part) = locate(age);
        if edge == LAST {
            return self.by[LAST];
        }
        self.by[edge] + part * (self.by[edge + 1] - self.by[edge])
    }

    /// The chance that a task is ready by `age`, given that it was not at `polled_at`.
    pub(super) fn chance(&self, polled_at: Duration, age: Duration) -> f64 {
        let before = self.by(polled_at.as_secs_f64());
        let left = (1.0 - before).max(1e-12);
        ((self.by(age.as_secs_f64()) - before) / left).clamp(0.0, 1.0)
    }

    /// The age by which that part of all tasks is ready.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let edge = self.by.partition_point(|by| *by < part);
        match edge {
            0 => 0.0,
            CELLS => EDGES[LAST],
            edge => {
                let (low, high) = (self.by[edge - 1], self.by[edge]);
                let within = (part - low) / (high - low).max(f64::MIN_POSITIVE);
                let (from, to) = (EDGES[edge - 1], EDGES[edge]);
                from + within.clamp(0.0, 1.0) * (to - from)
            }
        }
    }

    /// The mean solve time. Tasks beyond the last edge count with the last edge.
    pub(super) fn mean(&self) -> f64 {
        let pairs = self.by.windows(2).zip(EDGES.windows(2));
        pairs.map(|(by, edge)| (1.0 - f64::midpoint(by[0], by[1])) * (edge[1] - edge[0])).sum()
    }
}
