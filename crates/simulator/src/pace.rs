//! Solve times and prices of the simulated provider by kind. Used by `behaviour`.

use std::{f64::consts::TAU, time::Duration};

use domain::{challenge::Kind, money::Money};

/// A lognormal distribution of solve times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolveTime {
    pub median: Duration,
    /// The standard deviation of the logarithm; with 0 every task takes exactly the median.
    pub sigma: f64,
}

/// The maximum: real providers give up after five minutes.
pub const LONGEST: Duration = Duration::from_secs(300);

const SPREAD: f64 = 0.3;

// === impl SolveTime ===

impl SolveTime {
    pub const fn around(median: Duration) -> Self {
        Self { median, sigma: SPREAD }
    }

    pub const fn exactly(median: Duration) -> Self {
        Self { median, sigma: 0.0 }
    }

    /// Short times for trying things out: a second or two.
    pub fn pleasant(kind: &Kind) -> Self {
        Self::around(Duration::from_millis(if kind.is_pageless() { 900 } else { 1_600 }))
    }

    /// Times measured at real providers.
    pub fn realistic(kind: &Kind) -> Self {
        let seconds = match kind {
            Kind::RecaptchaV2 => 60,
            Kind::CloudflareChallenge => 90,
            Kind::RecaptchaV3 | Kind::Image | Kind::TextQuestion => 5,
            Kind::Turnstile | Kind::Grid | Kind::Coordinates | Kind::Bls | Kind::Rotate => 10,
            Kind::Hcaptcha
            | Kind::Geetest
            | Kind::GeetestV4
            | Kind::Funcaptcha
            | Kind::Other(_) => 20,
        };
        Self::around(Duration::from_secs(seconds))
    }

    pub fn draw(&self, rng: &mut fastrand::Rng) -> Duration {
        // Box-Muller; 1 - u is in (0, 1], so the logarithm exists.
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        let normal = (-2.0 * u.ln()).sqrt() * (TAU * v).cos();
        let factor = (self.sigma * normal).exp().clamp(0.05, 20.0);
        self.median.mul_f64(factor).min(LONGEST)
    }
}

/// The price of one task at a provider that charges per task.
pub fn price(kind: &Kind) -> Money {
    Money::from_micros(match kind {
        Kind::Image | Kind::TextQuestion => 700,
        Kind::RecaptchaV2 => 1_000,
        Kind::Grid | Kind::Coordinates | Kind::Bls | Kind::Rotate => 1_200,
        Kind::RecaptchaV3 | Kind::Turnstile | Kind::CloudflareChallenge => 1_450,
        Kind::Hcaptcha | Kind::Geetest | Kind::GeetestV4 | Kind::Funcaptcha | Kind::Other(_) => {
            2_990
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_tasks_take_less_than_the_median() {
        let mut rng = fastrand::Rng::with_seed(7);
        let time = SolveTime::realistic(&Kind::RecaptchaV2);
        let drawn: Vec<Duration> = (0..4_000).map(|_| time.draw(&mut rng)).collect();
        let below = drawn.iter().filter(|t| **t < time.median).count();
        assert!((1_850..2_150).contains(&below), "{below}");
        assert!(drawn.iter().all(|t| *t <= LONGEST));
    }

    #[test]
    fn without_spread_every_task_takes_the_median() {
        let mut rng = fastrand::Rng::with_seed(7);
        let time = SolveTime::exactly(Duration::from_secs(3));
        assert!((0..50).all(|_| time.draw(&mut rng) == time.median));
    }
}
