//! The distribution behind what was seen through the polls.
//!
//! A poll only shows an interval, and the schedule that draws the intervals is made from their own fit: taking
//! middles or ends would lean towards the schedule. So each interval's weight is spread over its cells as the fit
//! says, and the fit is made again from that, until it stands (expectation and maximisation). First a lognormal with
//! a thin tail for what goes wrong, then the cells themselves, so that families with several speeds are learned too.

use super::{
    cells::{CELLS, LAST, WIDTH, as_float, edges, logs},
    curve::Curve,
};

/// What one task has shown: it took longer than the first edge and not longer than the second. `CELLS` stands for ever.
pub(super) type Interval = (u16, u16);

/// What is known of a family.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// With the tail: nothing is ever sure to be ready.
    pub(super) curve: Curve,
    /// Without the tail: what tasks usually take.
    pub(super) usual: Curve,
    shape: Shape,
}

/// A lognormal, and beside it a tail: a few tasks take anything up to ten minutes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    mean: f64,
    sigma: f64,
    tail: f64,
}

/// Before anything was seen: 20 s in the middle, as if five tasks had said so.
const PRIOR_MEAN: f64 = 2.995_732;
const PRIOR_SIGMA: f64 = 0.6;
const PRIOR_WORTH: f64 = 5.0;
/// Tasks seen until the prior is worth half as much.
const PRIOR_FADES: f64 = 10.0;
const SIGMAS: (f64, f64) = (0.06, 1.5);
/// One task in two hundred is in the tail, as if a hundred tasks had said so.
const TAIL: f64 = 0.005;
const TAIL_WORTH: f64 = 20.0;
const TAILS: (f64, f64) = (0.001, 0.5);
const ROUNDS: usize = 20;
/// The lognormal's share beside the cells, in tasks.
const SHAPE_WORTH: f64 = 100.0;
const CELL_ROUNDS: usize = 2;
const CELL_ROUNDS_OF_NO_BELL: usize = 5;
/// Cells explain what was seen better than the bell by so much even if it is one.
const SLACK: f64 = 9.0;
/// By so much more, and the bell is worth half.
const DOUBT: f64 = 5.0;
/// What a lognormal cannot be told from: less is a cell of its own.
const LEAST_CHANCE: f64 = 1e-9;

// === impl Fit ===

impl Fit {
    /// What we suppose before anything was seen.
    pub(super) fn prior() -> Self {
        Shape { mean: PRIOR_MEAN, sigma: PRIOR_SIGMA, tail: TAIL }.into_fit(&[])
    }

    /// From what was seen lately. `before` is only where to begin.
    pub(super) fn of(seen: &[Interval], before: &Self) -> Self {
        if seen.is_empty() {
            return Self::prior();
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
    fn bell(&self) -> Vec<f64> {
        let scale = WIDTH / (self.sigma * std::f64::consts::TAU.sqrt());
        let height = |log: &f64| {
            let deviation = (log - self.mean) / self.sigma;
            (1.0 - self.tail) * scale * (-0.5 * deviation * deviation).exp()
        };
        logs().iter().map(height).collect()
    }

    /// Even on the logarithms, from the middle of the bell on; as much again has no end.
    fn add_tail(&self, bell: &[f64]) -> Vec<f64> {
        let from = edges().partition_point(|edge| *edge < self.mean.exp()).min(LAST - 1);
        let each = self.tail / as_float(CELLS - from);
        let tail =
            |(cell, weight): (usize, &f64)| if cell < from { *weight } else { weight + each };
        bell.iter().enumerate().map(tail).collect()
    }

    /// One round: spreads what was seen as this shape says, and takes the shape of that.
    fn better(&self, seen: &[Interval]) -> Self {
        let bell = self.bell();
        let whole = sums(self.add_tail(&bell).into_iter());
        let moment = |power: i32| sums(bell.iter().zip(logs()).map(|(w, x)| w * x.powi(power)));
        let moments = [moment(0), moment(1), moment(2)];
        let mut sum = [0.0; 3];
        for (from, to) in seen.iter().map(|(from, to)| (usize::from(*from), usize::from(*to))) {
            let chance = whole[to] - whole[from];
            if chance < LEAST_CHANCE {
                let middle = f64::midpoint(logs()[from], logs()[to - 1]);
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
        let bell = self.bell();
        let base = self.add_tail(&bell);
        let mut cells = self.cells(seen, &base, SHAPE_WORTH);
        // What the cells explain better than chance can is no bell: then they count for more.
        let better = likelihood(seen, &cells) - likelihood(seen, &base) - SLACK;
        if better > 0.0 {
            cells = self.cells(seen, &base, SHAPE_WORTH / (1.0 + better / DOUBT));
        }
        // A cell's usual part is what the bell has of it. Far below a narrow bell there is nothing of nothing.
        let part = |(cell, (bell, base)): (&f64, (&f64, &f64))| {
            if *base > 0.0 { cell * bell / base } else { 0.0 }
        };
        let usual: Vec<f64> = cells.iter().zip(bell.iter().zip(&base)).map(part).collect();
        Fit { curve: Curve::new(&cells), usual: Curve::new(&usual), shape: self }
    }

    /// The cells as they were seen, beside a shape that is worth so many tasks.
    fn cells(&self, seen: &[Interval], base: &[f64], worth: f64) -> Vec<f64> {
        let count = as_float(seen.len());
        let trust = worth / SHAPE_WORTH;
        let reach = (0.2 + 0.3 * trust) * self.sigma * count.max(1.0).powf(-0.2) / WIDTH;
        let rounds = if trust < 1.0 { CELL_ROUNDS_OF_NO_BELL } else { CELL_ROUNDS };
        let mut cells = base.to_vec();
        for _ in 0..rounds {
            let found = smooth(&spread(seen, &cells), reach);
            let mix = |(found, base): (&f64, &f64)| (found + worth * base) / (count + worth);
            cells = found.iter().zip(base).map(mix).collect();
        }
        cells
    }
}

/// The logarithm of the chance that the tasks show just this.
fn likelihood(seen: &[Interval], cells: &[f64]) -> f64 {
    let whole = sums(cells.iter().copied());
    let all = whole[CELLS];
    let chance =
        |(from, to): &Interval| (whole[usize::from(*to)] - whole[usize::from(*from)]) / all;
    seen.iter().map(|interval| chance(interval).max(LEAST_CHANCE).ln()).sum()
}

/// The sum of all before, for each and for the end.
fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums = vec![0.0];
    sums.extend(values.map(|value| {
        sum += value;
        sum
    }));
    sums
}

/// Every interval's weight of one, over its cells as `cells` says.
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

/// Spreads each cell's weight like a bell that reaches so many cells. What has no end stays there.
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
