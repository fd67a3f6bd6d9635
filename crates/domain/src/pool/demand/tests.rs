//! What `auto` pools achieve, in virtual time: hits and waste against the bars, beside simpler policies.

mod trial;

use std::time::Duration;

use super::*;
use trial::{Dice, Fixed, Policy, Reference, Setup, Trial, Workload};

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;

fn smooth(rate: f64, end: f64) -> Workload {
    let mut dice = Dice(11);
    let mut arrivals = vec![dice.gap(rate)];
    while arrivals.last().is_some_and(|at| *at < end) {
        arrivals.push(arrivals[arrivals.len() - 1] + dice.gap(rate));
    }
    Workload { arrivals, end }
}

fn burst(arrivals: &mut Vec<f64>, dice: &mut Dice, from: f64, length: f64, rate: f64) {
    let mut at = from + dice.gap(rate);
    while at < from + length {
        arrivals.push(at);
        at += dice.gap(rate);
    }
}

/// Ten minutes at 0.5/s every hour, for a day.
fn periodic() -> Workload {
    let (mut arrivals, mut dice) = (Vec::new(), Dice(16));
    for hour in 0..24 {
        burst(&mut arrivals, &mut dice, f64::from(hour) * HOUR, 600.0, 0.5);
    }
    Workload { arrivals, end: DAY }
}

/// Bursts of 1 minute to `longest` minutes at 0.1 to 2/s, with 5 to 120 minutes between them, for `days`.
fn random(longest: f64, days: f64, seed: u64) -> Workload {
    let (mut arrivals, mut dice) = (Vec::new(), Dice(seed));
    let mut from = dice.between(300.0, 7_200.0);
    while from < days * DAY {
        let length = dice.between(60.0, longest * 60.0);
        let rate = dice.between(0.1_f64.ln(), 2.0_f64.ln()).exp();
        burst(&mut arrivals, &mut dice, from, length, rate);
        from += length + dice.between(300.0, 7_200.0);
    }
    Workload { arrivals, end: days * DAY }
}

/// From nothing at midnight to 1/s at noon.
fn diurnal() -> Workload {
    let mut dice = Dice(15);
    let mut arrivals = smooth(1.0, DAY).arrivals;
    arrivals.retain(|at| dice.unit() < 0.5 - 0.5 * (std::f64::consts::TAU * at / DAY).cos());
    Workload { arrivals, end: DAY }
}

/// Claims that come alone, one in ten minutes.
fn lone() -> Workload {
    smooth(1.0 / 600.0, 7.0 * DAY)
}

fn setups(waste: f64) -> impl Iterator<Item = Setup> {
    let solves = [(8.0, 0.3), (15.0, 0.5), (35.0, 0.3), (35.0, 0.5)];
    let lives = [70.0, 100.0, 240.0];
    solves.into_iter().flat_map(move |(median, sigma)| {
        lives.into_iter().map(move |life| Setup { median, sigma, life, waste })
    })
}

fn auto(work: &Workload, setup: &Setup) -> Trial {
    Trial::run(work, setup, &mut Demand::default())
}

fn print(name: &str, policy: &str, setup: &Setup, trial: &Trial) {
    eprintln!(
        "{name:<16} {policy:<10} solves {:>2.0} s ±{:.1}, life {:>3.0} s: {:>6.2} % hits, {:>5.2} % waste, {:.3} bought, {:>5.2} s wait",
        setup.median,
        setup.sigma,
        setup.life,
        trial.hit(),
        trial.waste(),
        trial.cost(),
        trial.wait(),
    );
}

#[test]
fn explore() {
    let works: Vec<(&str, Workload)> = vec![
        ("1 per 20 s", smooth(0.05, 2.0 * DAY)),
        ("0.2/s", smooth(0.2, DAY)),
        ("1/s", smooth(1.0, DAY / 2.0)),
        ("2/s", smooth(2.0, DAY / 2.0)),
        ("diurnal", diurnal()),
        ("periodic", periodic()),
        ("random 1-20", random(20.0, 7.0, 17)),
        ("random 1-5", random(5.0, 7.0, 18)),
        ("lone", lone()),
    ];
    for w in [0.1, 0.2] {
        for (name, work) in &works {
            for setup in setups(w) {
                print(name, &format!("auto {w}"), &setup, &auto(work, &setup));
            }
        }
    }
}
