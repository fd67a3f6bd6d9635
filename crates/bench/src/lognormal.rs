//! Lognormal solve times, like those of real providers. Written by hand because `rand_distr` has no distribution
//! function and no quantiles, only random numbers.

use std::time::Duration;

use simulator::pace::SolveTime;

use crate::load::as_f64;

/// Half of the times are below the median; sigma is the standard deviation of their logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogNormal {
    /// In seconds.
    pub(crate) median: f64,
    pub(crate) sigma: f64,
}

// === impl LogNormal ===

impl LogNormal {
    /// As the simulator draws them.
    pub(crate) fn solve_time(self) -> SolveTime {
        SolveTime { median: Duration::from_secs_f64(self.median), sigma: self.sigma }
    }

    /// The same shape, slower by a factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, ..self }
    }

    /// The probability that a solve is ready at this age.
    pub(crate) fn by(self, age: f64) -> f64 {
        if age <= 0.0 { 0.0 } else { normal_by((age / self.median).ln() / self.sigma) }
    }

    pub(crate) fn mean(self) -> f64 {
        self.median * (self.sigma * self.sigma / 2.0).exp()
    }

    /// The time below which this share of the solves stays.
    pub(crate) fn quantile(self, part: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.median * (8.0 * self.sigma).exp());
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if self.by(middle) < part { low = middle } else { high = middle }
        }
        low
    }

    /// Evenly spaced quantiles, which represent the distribution.
    pub(crate) fn quantiles(self, count: u64) -> Vec<f64> {
        let part = |n: u64| (as_f64(n) + 0.5) / as_f64(count);
        (0..count).map(|n| self.quantile(part(n))).collect()
    }
}

impl std::fmt::Display for LogNormal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} s, sigma {}", self.median, self.sigma)
    }
}

/// The standard normal distribution function (Abramowitz and Stegun 7.1.26).
fn normal_by(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = terms.iter().fold(0.0, |sum, term| t * (sum + term));
    0.5 * (1.0 + (1.0 - sum * (-x * x).exp()).copysign(z))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_where_the_chance_is() {
        let times = LogNormal { median: 15.0, sigma: 0.5 };
        assert!((times.by(15.0) - 0.5).abs() < 1e-6);
        assert!((times.quantile(0.99) - 15.0 * (2.326_35_f64 * 0.5).exp()).abs() < 0.01);
        assert!((times.times(1.5).quantile(0.5) - 22.5).abs() < 1e-4);
    }
}
