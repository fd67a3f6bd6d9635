//! Fits a distribution of solve times to the observations.
//!
//! Polls only show intervals, and the schedule that produces the intervals is made from their own fit, so taking middles
//! or ends would bias the fit towards the schedule. Instead, each interval's weight is spread over its cells by the
//! current fit, and the fit is renewed from that until it is stable (expectation maximisation). First comes a lognormal
//! with a thin tail for outliers, then the cells themselves, so that families with several speeds are learned too.

use super::{
    super::as_float,
    cells::{CELLS, EDGES, LAST, LOGS, WIDTH},
    curve::Curve,
};

/// One task's observation: it took longer than the first edge and not longer than the second. `CELLS` is infinity.
pub(super) type Interval = (u16, u16);

#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// With the tail, so that no task is ever certain to be ready.
    pub(super) curve: Curve,
    /// Without the tail: the usual solve times.
    pub(super) usual: Curve,
    shape: Shape,
}

/// A lognormal and a tail: a few tasks take anything up to ten minutes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    mean: f64,
    sigma: f64,
    tail: f64,
}

/// The prior: a median of 20 s, with the weight of five tasks.
const PRIOR_MEAN: f64 = 2.995_732;
const PRIOR_SIGMA: f64 = 0.6;
const PRIOR_WORTH: f64 = 5.0;
/// After this many tasks the prior has half its weight.
const PRIOR_FADES: f64 = 10.0;
const SIGMAS: (f64, f64) = (0.06, 1.5);
/// The prior of the tail: one task in two hundred, with the weight of twenty.
const TAIL: f64 = 0.005;
const TAIL_WORTH: f64 = 20.0;
const TAILS: (f64, f64) = (0.001, 0.5);
const ROUNDS: usize = 20;
/// The weight of the lognormal beside the cells, in tasks.
const SHAPE_WORTH: f64 = 100.0;
const CELL_ROUNDS: usize = 2;
const CELL_ROUNDS_IN_DOUBT: usize = 5;
/// Cells fit the observations better than the lognormal by this much even when the lognormal is right.
const SLACK: f64 = 9.0;
/// With this much more the lognormal has half its weight.
const DOUBT: f64 = 5.0;
/// The smallest chance a lognormal is trusted with.
const LEAST_CHANCE: f64 = 1e-9;

// === impl Fit ===

/// The assumption before any observation.
impl Default for Fit {
    fn default() -> Self {
        Shape { mean: PRIOR_MEAN, sigma: PRIOR_SIGMA, tail: TAIL }.into_fit(&[])
    }
}

impl Fit {
    /// Fits recent observations, starting from the fit before.
    pub(super) fn of(seen: &[Interval], before: &Self) -> Self {
        if seen.is_empty() {
            return Self::default();
        }
        let mut shape = before.shape;
        for _ in 0..ROUNDS {
            let better = shape.better(seen);
            let moved = (better.mean - shape.mean).abs() + (better.sigma - shape.sigma).abs();
            shape = better;
            if moved < 1e-3 {
                break;
            }
        }
        shape.into_fit(seen)
    }
}

// === impl Shape ===

impl Shape {
    fn lognormal(&self) -> Vec<f64> {
        let scale = WIDTH / (self.sigma * std::f64::consts::TAU.sqrt());
        let height = |log: &f64| {
            let deviation = (log - self.mean) / self.sigma;
            (1.0 - self.tail) * scale * (-0.5 * deviation * deviation).exp()
        };
        LOGS.iter().map(height).collect()
    }

    /// Even on the logarithms, from the middle of the lognormal on; as much again has no end.
    fn add_tail(&self, lognormal: &[f64]) -> Vec<f64> {
        let from = EDGES.partition_point(|edge| *edge < self.mean.exp()).min(LAST - 1);
        let each = self.tail / as_float(CELLS - from);
        let tail =
            |(cell, weight): (usize, &f64)| if cell < from { *weight } else { weight + each };
        lognormal.iter().enumerate().map(tail).collect()
    }

    /// One round of expectation maximisation.
    fn better(&self, seen: &[Interval]) -> Self {
        let lognormal = self.lognormal();
        let whole = sums(self.add_tail(&lognormal).into_iter());
        let moment =
            |power: i32| sums(lognormal.iter().zip(LOGS.iter()).map(|(w, x)| w * x.powi(power)));
        let moments = [moment(0), moment(1), moment(2)];
        let mut sum = [0.0; 3];
        for (from, to) in seen.iter().map(|(from, to)| (usize::from(*from), usize::from(*to))) {
            let chance = whole[to] - whole[from];
            if chance < LEAST_CHANCE {
                let middle = f64::midpoint(LOGS[from], LOGS[to - 1]);
                sum = [sum[0] + 1.0, sum[1] + middle, sum[2] + middle * middle];
                continue;
            }
            for (sum, moment) in sum.iter_mut().zip(&moments) {
                *sum += (moment[to] - moment[from]) / chance;
            }
        }
        Self::from_moments(sum, as_float(seen.len()))
    }

    fn from_moments([weight, first, second]: [f64; 3], seen: f64) -> Self {
        let prior = PRIOR_WORTH / (1.0 + seen / PRIOR_FADES);
        let all = weight + prior;
        let mean = (first + prior * PRIOR_MEAN) / all;
        let prior_square = PRIOR_SIGMA * PRIOR_SIGMA + PRIOR_MEAN * PRIOR_MEAN;
        let variance = (second + prior * prior_square) / all - mean * mean;
        let tail = (seen - weight + TAIL * TAIL_WORTH) / (seen + TAIL_WORTH);
        Self {
            mean,
            sigma: variance.max(0.0).sqrt().clamp(SIGMAS.0, SIGMAS.1),
            tail: tail.clamp(TAILS.0, TAILS.1),
        }
    }

    fn into_fit(self, seen: &[Interval]) -> Fit {
        let lognormal = self.lognormal();
        let base = self.add_tail(&lognormal);
        let mut cells = self.cells(seen, &base, SHAPE_WORTH);
        // If the cells fit better than chance explains, the distribution is no lognormal and the cells get more weight.
        let better = likelihood(seen, &cells) - likelihood(seen, &base) - SLACK;
        if better > 0.0 {
            cells = self.cells(seen, &base, SHAPE_WORTH / (1.0 + better / DOUBT));
        }
        // The usual part of a cell is the lognormal's share of it. Far below a narrow lognormal both are zero.
        let part = |(cell, (lognormal, base)): (&f64, (&f64, &f64))| {
            if *base > 0.0 { cell * lognormal / base } else { 0.0 }
        };
        let usual: Vec<f64> = cells.iter().zip(lognormal.iter().zip(&base)).map(part).collect();
        Fit { curve: Curve::new(&cells), usual: Curve::new(&usual), shape: self }
    }

    /// The observed cells, mixed with a shape that has the weight of `worth` tasks.
    fn cells(&self, seen: &[Interval], base: &[f64], worth: f64) -> Vec<f64> {
        let count = as_float(seen.len());
        let trust = worth / SHAPE_WORTH;
        let reach = (0.2 + 0.3 * trust) * self.sigma * count.max(1.0).powf(-0.2) / WIDTH;
        let rounds = if trust < 1.0 { CELL_ROUNDS_IN_DOUBT } else { CELL_ROUNDS };
        let mut cells = base.to_vec();
        for _ in 0..rounds {
            let found = smooth(&spread(seen, &cells), reach);
            let mix = |(found, base): (&f64, &f64)| (found + worth * base) / (count + worth);
            cells = found.iter().zip(base).map(mix).collect();
        }
        cells
    }
}

/// The log likelihood of the observations.
fn likelihood(seen: &[Interval], cells: &[f64]) -> f64 {
    let whole = sums(cells.iter().copied());
    let all = whole[CELLS];
    let chance =
        |(from, to): &Interval| (whole[usize::from(*to)] - whole[usize::from(*from)]) / all;
    seen.iter().map(|interval| chance(interval).max(LEAST_CHANCE).ln()).sum()
}

/// Prefix sums, with the total at the end.
fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    sums.extend(values.map(|value| {
        sum += value;
        sum
    }));
    sums
}

/// Spreads each interval's weight of one over its cells in proportion to `cells`.
fn spread(seen: &[Interval], cells: &[f64]) -> Vec<f64> {
    let whole = sums(cells.iter().copied());
    let mut steps = vec![0.0; CELLS + 1];
    for (from, to) in seen.iter().map(|(from, to)| (usize::from(*from), usize::from(*to))) {
        let each = 1.0 / (whole[to] - whole[from]).max(LEAST_CHANCE);
        steps[from] += each;
        steps[to] -= each;
    }
    let densities = sums(steps.into_iter());
    cells.iter().zip(&densities[1..]).map(|(cell, density)| cell * density.max(0.0)).collect()
}

/// Smooths the cells with a Gaussian of width `reach`. The last cell, which has no end, stays as it is.
fn smooth(cells: &[f64], reach: f64) -> Vec<f64> {
    let taps: Vec<f64> = (0..CELLS)
        .map(|distance| (-0.5 * (as_float(distance) / reach.max(0.1)).powi(2)).exp())
        .take_while(|tap| *tap > 1e-3)
        .collect();
    let whole = taps[0] + 2.0 * taps[1..].iter().sum::<f64>();
    let mut smooth = vec![0.0; CELLS];
    for (cell, weight) in cells.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        if cell == LAST {
            smooth[LAST] += weight;
            continue;
        }
        for (distance, tap) in taps.iter().enumerate() {
            let part = weight * tap / whole;
            smooth[cell.saturating_sub(distance)] += part;
            if distance > 0 {
                smooth[(cell + distance).min(LAST - 1)] += part;
            }
        }
    }
    smooth
}
