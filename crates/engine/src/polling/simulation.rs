//! Runs the schedules against tasks with random solve times, without an engine. Compares lag and polls with the optimum,
//! which is computed here independently (an even grid of tenths of a second, from the true distribution, any number of
//! polls).
#![expect(clippy::cast_precision_loss, reason = "counts of a test")]

use std::{sync::Arc, time::Duration};

use domain::challenge::Kind;

use super::{
    batch::rule::{BatchRule, BatchTask},
    *,
};

/// Solve times: lognormals (median in seconds, sigma), each as likely as the others.
type Truth<'a> = &'a [(f64, f64)];

/// The six of coordination.md §4.2.
const TRUTHS: [[(f64, f64); 1]; 6] =
    [[(8.0, 0.3)], [(8.0, 0.5)], [(15.0, 0.3)], [(15.0, 0.5)], [(35.0, 0.3)], [(35.0, 0.5)]];

struct Dice(u64);

/// Polls and lag of a schedule, per task.
#[derive(Clone, Copy, Debug, Default)]
struct Achieved {
    polls: f64,
    lag: f64,
}

// === impl Dice ===

impl Dice {
    /// Splitmix.
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn time(&mut self, truth: Truth<'_>) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        let which = usize::try_from(self.draw() >> 32).unwrap() % truth.len();
        truth[which].0 * (truth[which].1 * normal).exp()
    }
}

// === the true distribution ===

/// The chance of a standard normal below `z` (Abramowitz and Stegun 7.1.26).
fn normal_by(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = terms.iter().fold(0.0, |sum, term| t * (sum + term));
    0.5 * (1.0 + (1.0 - sum * (-x * x).exp()).copysign(z))
}

fn by(truth: Truth<'_>, age: f64) -> f64 {
    let one = |(median, sigma): &(f64, f64)| normal_by((age / median).ln() / sigma);
    if age <= 0.0 { 0.0 } else { truth.iter().map(one).sum::<f64>() / truth.len() as f64 }
}

/// `count` times that represent the distribution.
fn quantiles(truth: Truth<'_>, count: usize) -> Vec<f64> {
    let quantile = |part: f64| {
        let (mut low, mut high) = (0.0, 2000.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if by(truth, middle) < part { low = middle } else { high = middle }
        }
        low
    };
    (0..count).map(|i| quantile((i as f64 + 0.5) / count as f64)).collect()
}

fn mean(truth: Truth<'_>) -> f64 {
    let sum: f64 = truth.iter().map(|(median, sigma)| median * (sigma * sigma / 2.0).exp()).sum();
    sum / truth.len() as f64
}

/// The best schedules, those with the fewest polls first: exact, backwards from the end, for one price of a poll after
/// the other.
fn optimum(truth: Truth<'_>) -> Vec<Achieved> {
    let end = if truth.iter().any(|(median, _)| *median > 20.0) { 2400 } else { 1200 };
    let by: Vec<f64> = (0..=end).map(|i| by(truth, i as f64 * 0.1)).collect();
    let mut area = vec![0.0; end + 1];
    for i in 1..=end {
        area[i] = area[i - 1] + 0.05 * (by[i] + by[i - 1]);
    }
    (0..15).rev().map(|i| optimum_at(0.1 * 1.3_f64.powi(i), &by, &area)).collect()
}

fn optimum_at(cost: f64, by: &[f64], area: &[f64]) -> Achieved {
    let end = by.len() - 1;
    let undetected = |i: usize, j: usize| area[j] - area[i] - by[i] * 0.1 * (j - i) as f64;
    let (mut lost, mut next) = (vec![0.0; end + 1], vec![end; end + 1]);
    for i in (0..end).rev() {
        let latest = if i == 0 { end } else { end.min(i + 150) };
        let values = (end.min(i + 10)..=latest).map(|j| (undetected(i, j) + lost[j], j));
        let (least, j) = values.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        next[i] = j;
        lost[i] = least + cost * (1.0 - by[i]);
    }
    let (mut i, mut achieved) = (0, Achieved::default());
    while i < end {
        achieved.polls += 1.0 - by[i];
        achieved.lag += undetected(i, next[i]);
        i = next[i];
    }
    achieved
}

// === what schedules achieve ===

fn family() -> Family {
    Family { kind: Kind::Turnstile, proxied: false }
}

fn learned() -> Arc<Polling> {
    LearnedConfig::default().into()
}

/// Polls a task until it is ready.
fn run(polling: &Polling, time: f64, dice: &mut Dice) -> (Achieved, Observation) {
    let (mut age, mut after) = (Duration::ZERO, Duration::ZERO);
    for polls in 0..polling.most {
        let jitter = dice.draw();
        age += polling.next(&PollQuery { family: &family(), polls, age, waiting: 1, jitter });
        if age.as_secs_f64() >= time {
            let achieved = Achieved { polls: f64::from(polls + 1), lag: age.as_secs_f64() - time };
            return (achieved, Observation::Ready { after, by: age });
        }
        after = age;
    }
    panic!("a task that took {time} s was given up at {age:?}");
}

/// Polls `tasks` tasks and learns from each, seeing no more than the polls show.
fn live(polling: &Polling, truth: Truth<'_>, tasks: usize, dice: &mut Dice) -> Achieved {
    let runs = (0..tasks).map(|_| {
        let time = dice.time(truth);
        let (achieved, seen) = run(polling, time, dice);
        polling.memory.learn(&family(), seen);
        achieved
    });
    average(&runs.collect::<Vec<_>>())
}

fn measure(polling: &Polling, times: &[f64], dice: &mut Dice) -> Achieved {
    let runs = times.iter().map(|time| run(polling, *time, dice).0);
    average(&runs.collect::<Vec<_>>())
}

fn average(runs: &[Achieved]) -> Achieved {
    let sum = |part: fn(&Achieved) -> f64| runs.iter().map(part).sum::<f64>() / runs.len() as f64;
    Achieved { polls: sum(|run| run.polls), lag: sum(|run| run.lag) }
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Achieved {
    /// Its lag relative to that of the best schedule with as many polls.
    fn beside(&self, optimum: &[Self]) -> f64 {
        let right = optimum.partition_point(|best| best.polls < self.polls);
        let right = right.clamp(1, optimum.len() - 1);
        let (few, many) = (optimum[right - 1], optimum[right]);
        let part = (self.polls / few.polls).ln() / (many.polls / few.polls).ln();
        self.lag / (few.lag * (many.lag / few.lag).powf(part))
    }

    /// Its lag relative to that of polling at the even interval that takes as many polls.
    fn beside_fixed(&self, truth: Truth<'_>) -> f64 {
        self.lag / (0.5 * mean(truth) / (self.polls - 0.5))
    }
}

// === the bars ===

#[test]
fn after_a_hundred_solves_the_lag_is_near_the_optimum_for_as_many_polls() {
    for truth in &TRUTHS {
        let (optimum, times) = (optimum(truth), quantiles(truth, 4000));
        let (mut ratios, mut first, mut fixed) = (vec![], vec![], vec![]);
        for seed in 0..8 {
            let (mut dice, polling) = (Dice(seed), learned());
            first.push(live(&polling, truth, 100, &mut dice).beside_fixed(truth));
            let achieved = measure(&polling, &times, &mut dice);
            ratios.push(achieved.beside(&optimum));
            fixed.push(achieved.beside_fixed(truth));
        }
        let means = [mean_of(&ratios), mean_of(&fixed), mean_of(&first)];
        eprintln!("{truth:?}: beside the optimum, beside fixed, first hundred {means:.3?}");
        assert!(means[0] <= 1.1, "{truth:?}: {ratios:.3?}");
        assert!(means[1] <= 0.85, "{truth:?}: {fixed:.3?}");
        assert!(means[2] <= 1.0, "{truth:?}: {first:.3?}");
        assert!(ratios.iter().all(|ratio| *ratio <= 1.25), "{truth:?}: {ratios:.3?}");
        assert!(first.iter().all(|ratio| *ratio <= 1.2), "{truth:?}: {first:.3?}");
    }
}

/// Compared with a schedule that never knew another speed; and with the optimum, except for 52 s: the optimum takes any
/// number of polls, and with twenty even the schedule that never knew another speed stays a tenth above it.
#[test]
fn a_provider_that_became_slower_or_faster_is_learned_again() {
    for (truth, factor) in [(0, 1.5), (1, 1.5), (2, 1.5), (3, 1.5), (4, 1.5), (5, 1.5), (3, 0.6)] {
        let truth = &TRUTHS[truth];
        let now = [(truth[0].0 * factor, truth[0].1)];
        let (optimum, times) = (optimum(&now), quantiles(&now, 4000));
        let (mut fresh, mut again) = (vec![], vec![]);
        for seed in 0..4 {
            let (mut dice, polling) = (Dice(seed), learned());
            live(&polling, truth, 400, &mut dice);
            live(&polling, &now, 100, &mut dice);
            again.push(measure(&polling, &times, &mut dice).beside(&optimum));
            let polling = learned();
            live(&polling, &now, 400, &mut dice);
            fresh.push(measure(&polling, &times, &mut dice).beside(&optimum));
        }
        let (fresh, again) = (mean_of(&fresh), mean_of(&again));
        eprintln!(
            "{truth:?} ×{factor}: after 100 solves {again:.3}, never another speed {fresh:.3}"
        );
        assert!(again <= 1.1 * fresh, "{truth:?} ×{factor}: {again:.3} {fresh:.3}");
        assert!(again <= 1.1 || now[0].0 > 50.0, "{truth:?} ×{factor}: {again:.3}");
    }
}

#[test]
fn a_family_with_two_speeds_is_learned_too() {
    let truth = [(5.0, 0.2), (40.0, 0.2)];
    let (optimum, times) = (optimum(&truth), quantiles(&truth, 4000));
    let mut ratios = vec![];
    for seed in 0..8 {
        let (mut dice, polling) = (Dice(seed), learned());
        live(&polling, &truth, 300, &mut dice);
        ratios.push(measure(&polling, &times, &mut dice).beside(&optimum));
    }
    eprintln!("two speeds: {ratios:.3?}");
    assert!(mean_of(&ratios) <= 1.2, "{ratios:.3?}");
}

#[test]
fn the_fit_is_not_biased_towards_the_schedule() {
    for truth in &TRUTHS {
        let mut errors = vec![];
        for seed in 0..6 {
            let (mut dice, polling) = (Dice(seed), learned());
            live(&polling, truth, 500, &mut dice);
            let timing = polling.memory.timing(&family());
            assert_eq!(timing.seen, 500);
            errors.push((timing.mean.as_secs_f64() / mean(truth)).ln());
            assert!(by(truth, timing.q01.as_secs_f64()) < 0.05, "{truth:?}: {timing:?}");
            assert!(by(truth, timing.q99.as_secs_f64()) > 0.95, "{truth:?}: {timing:?}");
        }
        eprintln!("{truth:?}: {errors:.3?}");
        assert!(mean_of(&errors).abs() < 0.03, "{truth:?}: {errors:.3?}");
    }
}

// === many in one call ===

struct SimulatedTask {
    sent: f64,
    time: f64,
    polled_at: Duration,
}

fn batch_tasks(in_flight: &[SimulatedTask], now: f64, from: Duration) -> Vec<BatchTask> {
    let task = |task: &SimulatedTask| BatchTask {
        polled_at: task.polled_at,
        age: Duration::from_secs_f64(now - task.sent),
        weight: 1.0,
        from,
    };
    in_flight.iter().map(task).collect()
}

/// Calls and lag per task, once the first tasks have been learned from.
fn live_in_batches(rate: f64, truth: Truth<'_>, tasks: usize) -> Achieved {
    const WARM: usize = 150;
    let (polling, rule, mut dice) = (learned(), BatchRule::default(), Dice(7));
    let (mut now, mut called, mut arrival) = (0.0, -1.0, 0.0);
    let (mut sent, mut found, mut calls, mut lag) = (0, 0, 0, 0.0);
    let mut in_flight: Vec<SimulatedTask> = vec![];
    while found < WARM + tasks {
        let from = polling.memory.timing(&family()).q01;
        let seen = batch_tasks(&in_flight, now, from);
        let chance = |i: usize, age| polling.memory.chance_ready(&family(), seen[i].polled_at, age);
        let wait = rule.next_call(&seen, Duration::from_secs_f64(now - called), chance);
        let call = now + wait.as_secs_f64();
        if arrival <= call {
            now = arrival;
            in_flight.push(SimulatedTask {
                sent: now,
                time: dice.time(truth),
                polled_at: Duration::ZERO,
            });
            sent += 1;
            arrival += -dice.unit().ln() / rate;
            continue;
        }
        now = call;
        let seen = batch_tasks(&in_flight, now, from);
        let chance = |i: usize, age| polling.memory.chance_ready(&family(), seen[i].polled_at, age);
        let mut chosen = rule.choose(&seen, chance);
        assert!(chosen.len() <= rule.most_ids);
        assert!(now - called >= 0.5 - 1e-6, "calls at {called} and {now}");
        called = now;
        calls += usize::from(found >= WARM && !chosen.is_empty());
        chosen.sort_unstable();
        for i in chosen.into_iter().rev() {
            let ready = in_flight[i].sent + in_flight[i].time;
            if ready > now {
                in_flight[i].polled_at = seen[i].age;
                continue;
            }
            polling
                .memory
                .learn(&family(), Observation::Ready { after: seen[i].polled_at, by: seen[i].age });
            lag += if found >= WARM { now - ready } else { 0.0 };
            found += 1;
            in_flight.swap_remove(i);
        }
    }
    assert!(sent >= found);
    let measured = (found - WARM) as f64;
    Achieved { polls: calls as f64 / measured, lag: lag / measured }
}

#[test]
fn many_in_one_call_take_fewer_calls_and_less_lag() {
    for (rate, truth, calls) in
        [(1.0, 15.0, 1.1), (2.0, 15.0, 0.6), (1.0, 35.0, 1.1), (5.0, 15.0, 0.4)]
    {
        let achieved = live_in_batches(rate, &[(truth, 0.5)], 2000);
        eprintln!("{rate}/s of {truth} s: {achieved:.3?}");
        assert!(achieved.polls <= calls && achieved.lag <= 0.6, "{rate}/s: {achieved:?}");
    }
}
