//! The schedules against tasks whose times are drawn, without an engine: lag and polls beside the optimum, which is
//! reckoned here on its own (an even grid of tenths of a second, from the true distribution).

use std::time::Duration;

use domain::challenge::Kind;

use super::*;

/// Solve times of coordination.md §4.2: lognormal, median in seconds and sigma.
const DISTRIBUTIONS: [(f64, f64); 6] =
    [(8.0, 0.3), (8.0, 0.5), (15.0, 0.3), (15.0, 0.5), (35.0, 0.3), (35.0, 0.5)];

struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn time(&mut self, (median, sigma): (f64, f64)) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

fn normal_by(z: f64) -> f64 {
    // Abramowitz and Stegun 7.1.26.
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254829592
            + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let erf = 1.0 - poly * (-x * x).exp();
    0.5 * (1.0 + erf.copysign(z))
}

/// Evenly spaced quantiles of the distribution.
fn quantiles((median, sigma): (f64, f64), count: usize) -> Vec<f64> {
    let z = |part: f64| {
        let (mut low, mut high) = (-6.0, 6.0);
        for _ in 0..50 {
            let middle = f64::midpoint(low, high);
            if normal_by(middle) < part { low = middle } else { high = middle }
        }
        low
    };
    (0..count).map(|i| median * (sigma * z((i as f64 + 0.5) / count as f64)).exp()).collect()
}

/// Polls and lag of the best schedules, for a poll cost each; fewest polls first.
fn optimum((median, sigma): (f64, f64)) -> Vec<(f64, f64)> {
    let n = if median > 20.0 { 2000 } else { 1200 };
    let by: Vec<f64> = (0..=n)
        .map(|i| if i == 0 { 0.0 } else { normal_by((i as f64 * 0.1 / median).ln() / sigma) })
        .collect();
    let mut area = vec![0.0; n + 1];
    for i in 1..=n {
        area[i] = area[i - 1] + 0.05 * (by[i] + by[i - 1]);
    }
    let best = |cost: f64| {
        let (mut lost, mut next) = (vec![0.0; n + 1], vec![n; n + 1]);
        for i in (0..n).rev() {
            let top = if i == 0 { n } else { n.min(i + 150) };
            let value = |j: usize| area[j] + lost[j] - by[i] * 0.1 * j as f64;
            let j = (n.min(i + 10)..=top).min_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap();
            lost[i] = value(j) - area[i] + by[i] * 0.1 * i as f64 + cost * (1.0 - by[i]);
            next[i] = j;
        }
        let (mut i, mut polls, mut lag) = (0, 0.0, 0.0);
        while i < n {
            let j = next[i];
            polls += 1.0 - by[i];
            lag += area[j] - area[i] - by[i] * 0.1 * (j - i) as f64;
            i = j;
        }
        (polls, lag)
    };
    (0..36).rev().map(|i| best(0.03 * 1.2f64.powi(i))).collect()
}

fn lag_at(optimum: &[(f64, f64)], polls: f64) -> f64 {
    let right = optimum.partition_point(|point| point.0 < polls).clamp(1, optimum.len() - 1);
    let ((p, l), (q, m)) = (optimum[right - 1], optimum[right]);
    let part = (polls.ln() - p.ln()) / (q.ln() - p.ln());
    (l.ln() + part * (m.ln() - l.ln())).exp()
}

/// Fixed polling whatever the interval: the lag at that many polls.
fn fixed_at(mean: f64, polls: f64) -> f64 {
    0.5 * mean / (polls - 0.5)
}

fn family() -> Family {
    Family { kind: Kind::Turnstile, proxied: false }
}

/// Polls a task until it is found, or to the end.
fn run(polling: &dyn Polling, time: f64, dice: &mut Dice) -> (f64, f64, Seen) {
    let (mut age, mut last) = (Duration::ZERO, Duration::ZERO);
    for polls in 0..polling.most() {
        let jitter = dice.draw();
        age += polling.next(&PollAsk { family: &family(), polls, age, waiting: 1, jitter });
        if age.as_secs_f64() >= time {
            let seen = Seen::Ready { after: last, by: age };
            return (f64::from(polls + 1), age.as_secs_f64() - time, seen);
        }
        last = age;
    }
    (f64::from(polling.most()), 0.0, Seen::NotWithin(last))
}

fn measure(polling: &dyn Polling, times: &[f64], dice: &mut Dice) -> (f64, f64) {
    let runs: Vec<_> = times.iter().map(|time| run(polling, *time, dice)).collect();
    let count = runs.len() as f64;
    (runs.iter().map(|r| r.0).sum::<f64>() / count, runs.iter().map(|r| r.1).sum::<f64>() / count)
}

#[test]
fn explore() {
    for truth in DISTRIBUTIONS {
        let optimum = optimum(truth);
        let times = quantiles(truth, 1000);
        let mean = truth.0 * (truth.1 * truth.1 / 2.0).exp();
        let mut ratios = vec![];
        let (mut firsts, mut all_polls, mut all_lag, mut fixed) = (vec![], 0.0, 0.0, 0.0);
        for seed in 100..140 {
            let mut dice = Dice(seed);
            let polling = LearnedPolling::new(LearnedConfig::default());
            let (mut polls, mut lag) = (0.0, 0.0);
            for _ in 0..100 {
                let time = dice.time(truth);
                let (p, l, seen) = run(&polling, time, &mut dice);
                polls += p / 100.0;
                lag += l / 100.0;
                polling.learn(&family(), seen);
            }
            firsts.push(lag / fixed_at(mean, polls));
            let (polls, lag) = measure(&polling, &times, &mut dice);
            all_polls += polls / 40.0;
            all_lag += lag / 40.0;
            fixed += lag / fixed_at(mean, polls) / 40.0;
            ratios.push(lag / lag_at(&optimum, polls));
        }
        let avg = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        let max = |v: &[f64]| v.iter().copied().fold(0.0, f64::max);
        eprintln!(
            "{truth:?} polls {all_polls:.2} lag {all_lag:.2} ratio {:.3} max {:.3} vs fixed {fixed:.2} | first {:.3} max {:.3}",
            avg(&ratios),
            max(&ratios),
            avg(&firsts),
            max(&firsts)
        );
    }
}

#[test]
fn drifting() {
    for truth in DISTRIBUTIONS {
        for factor in [1.5, 0.6, 3.0] {
            let after = (truth.0 * factor, truth.1);
            let optimum = optimum(after);
            let times = quantiles(after, 500);
            let marks = [0, 20, 30, 40, 60, 80, 100, 150, 200, 300];
            let mut sums = vec![0.0; marks.len()];
            let mut worst = vec![0.0f64; marks.len()];
            for seed in 0..8 {
                let mut dice = Dice(seed * 77);
                let polling = LearnedPolling::new(LearnedConfig::default());
                for _ in 0..400 {
                    let time = dice.time(truth);
                    polling.learn(&family(), run(&polling, time, &mut dice).2);
                }
                for k in 0..=300 {
                    if let Some(m) = marks.iter().position(|m| *m == k) {
                        let (polls, lag) = measure(&polling, &times, &mut dice);
                        let r = lag / lag_at(&optimum, polls);
                        sums[m] += r / 8.0;
                        worst[m] = worst[m].max(r);
                    }
                    let time = dice.time(after);
                    polling.learn(&family(), run(&polling, time, &mut dice).2);
                }
            }
            eprintln!("drift {truth:?} x{factor} {:.2?} worst {:.2?}", sums, worst);
        }
    }
}

#[test]
fn speed() {
    let mut dice = Dice(5);
    let polling = LearnedPolling::new(LearnedConfig::default());
    for _ in 0..400 {
        let time = dice.time((15.0, 0.5));
        polling.learn(&family(), run(&polling, time, &mut dice).2);
    }
    #[allow(clippy::disallowed_methods)]
    let start = std::time::Instant::now();
    for _ in 0..16 * 50 {
        polling.learn(
            &family(),
            Seen::Ready { after: Duration::from_secs(13), by: Duration::from_secs(16) },
        );
    }
    let a = start.elapsed() / 50;
    let start = std::time::Instant::now();
    for _ in 0..16 * 50 {
        polling.learn(
            &family(),
            Seen::Ready { after: Duration::from_secs(13), by: Duration::from_secs(16) },
        );
        for waiting in [0, 1, 2, 4, 8] {
            polling.next(&PollAsk {
                family: &family(),
                polls: 0,
                age: Duration::ZERO,
                waiting,
                jitter: 3,
            });
        }
    }
    let b = start.elapsed() / 50 / 5;
    let start = std::time::Instant::now();
    let mut s = 0.0;
    for i in 0..10000 {
        s += polling.chance_ready(
            &family(),
            Duration::from_secs(10),
            Duration::from_millis(10000 + i),
        );
    }
    eprintln!("refit {a:?} plan {b:?} chance {:?} {s}", start.elapsed() / 10000);
}
