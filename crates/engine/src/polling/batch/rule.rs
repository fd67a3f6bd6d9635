//! When to poll many tasks in one call (`ids=`). Waiting costs lag and calling costs a call; the best moment is when the
//! accumulated lag is worth one call (the rule of the economic order quantity).

use std::time::Duration;

use super::super::as_float;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BatchTask {
    /// Its age at the last "not ready"; zero if it was not polled yet.
    pub(crate) polled_at: Duration,
    /// Since it was sent.
    pub(crate) age: Duration,
    /// The number of claims that wait for it, or a fraction of one for stock.
    pub(crate) weight: f64,
    /// Not polled before this age: hardly any of its family is faster (`Timing::q01`).
    pub(crate) from: Duration,
}

/// The cost and limits of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BatchRule {
    /// The cost of a call, in seconds that one claim's token lies undetected.
    pub(crate) cost: f64,
    pub(crate) min_gap: Duration,
    /// A call polls at most this many tasks.
    pub(crate) most_ids: usize,
}

/// The longest wait for a call, whatever was learned.
const LONGEST: Duration = Duration::from_secs(15);
/// At this many tokens a second a call costs twice as much, and at last four times. With a constant cost, calls would grow
/// with the root of the traffic; providers count calls, and tasks wait less in a busy hour anyway.
const BUSY: f64 = 2.15;
const MOST_BUSY: f64 = 4.0;
/// With more tasks than this, a sample stands for all.
const SAMPLE: usize = 512;
const FIRST_STEP: f64 = 0.1;
const STEP_GROWS: f64 = 1.15;

// === impl BatchRule ===

impl Default for BatchRule {
    fn default() -> Self {
        Self { cost: 0.4, min_gap: Duration::from_millis(500), most_ids: 100 }
    }
}

impl BatchRule {
    /// How long from now until the next call, the last one having been `since_call` ago. `chance(i, age)` is the
    /// chance that task `i` is ready by that age, given that it was not at its last poll.
    pub(crate) fn next_call(
        &self,
        tasks: &[BatchTask],
        since_call: Duration,
        chance: impl Fn(usize, Duration) -> f64,
    ) -> Duration {
        let least = self.min_gap.saturating_sub(since_call);
        let stride = tasks.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<(usize, &BatchTask)> = tasks.iter().enumerate().step_by(stride).collect();
        let stands_for = as_float(tasks.len()) / as_float(sample.len().max(1));
        let undetected = |ahead: f64| {
            let each = sample.iter().map(|(i, task)| {
                let age = task.age.saturating_add(Duration::from_secs_f64(ahead));
                if age < task.from { 0.0 } else { task.weight * chance(*i, age) }
            });
            each.sum::<f64>() * stands_for
        };
        let past =
            sample.iter().map(|(i, task)| task.weight * piled_up(task, |age| chance(*i, age)));
        let rate = undetected(1.0) - undetected(0.0);
        let cost = self.cost * (1.0 + (rate / BUSY).powi(2)).min(MOST_BUSY);
        let missing = cost - past.sum::<f64>() * stands_for;
        least.max(when_reached(missing, undetected)).min(LONGEST)
    }

    /// The tasks to poll now: those old enough, the likeliest first, as many as a call may carry.
    pub(crate) fn choose(
        &self,
        tasks: &[BatchTask],
        chance: impl Fn(usize, Duration) -> f64,
    ) -> Vec<usize> {
        let eligible = tasks.iter().enumerate().filter(|(_, task)| task.age >= task.from);
        let mut ranked: Vec<(f64, usize)> =
            eligible.map(|(i, task)| (task.weight * chance(i, task.age), i)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, i)| i).take(self.most_ids).collect()
    }
}

/// Seconds the task has already been ready for, on average, since its last poll (Simpson's rule).
fn piled_up(task: &BatchTask, chance: impl Fn(Duration) -> f64) -> f64 {
    let from = task.polled_at.max(task.from);
    let Some(length) = task.age.checked_sub(from).filter(|length| !length.is_zero()) else {
        return 0.0;
    };
    let at = |quarters: u32| chance(from + length * quarters / 4);
    (at(0) + 4.0 * at(1) + 2.0 * at(2) + 4.0 * at(3) + at(4)) * length.as_secs_f64() / 12.0
}

/// When the integral of `undetected` over time reaches `missing`.
fn when_reached(missing: f64, undetected: impl Fn(f64) -> f64) -> Duration {
    let (mut missing, mut time, mut step) = (missing, 0.0, FIRST_STEP);
    let mut now = if missing > 0.0 { undetected(0.0) } else { 0.0 };
    while missing > 0.0 && time < LONGEST.as_secs_f64() {
        let then = undetected(time + step);
        let piled = f64::midpoint(now, then) * step;
        if piled >= missing {
            return Duration::from_secs_f64(time + step * missing / piled);
        }
        (missing, now, time, step) = (missing - piled, then, time + step, step * STEP_GROWS);
    }
    Duration::from_secs_f64(time)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn task(polled_at: u64, age: u64) -> BatchTask {
        let seconds = Duration::from_secs;
        BatchTask {
            polled_at: seconds(polled_at),
            age: seconds(age),
            weight: 1.0,
            from: seconds(5),
        }
    }

    /// Ready at any moment after the last poll, one in twenty a second.
    fn steady(tasks: &[BatchTask]) -> impl Fn(usize, Duration) -> f64 {
        |i, age| 1.0 - (-0.05 * age.saturating_sub(tasks[i].polled_at).as_secs_f64()).exp()
    }

    #[test]
    fn a_lone_task_is_polled_when_its_expected_lag_is_worth_a_call() {
        let (rule, tasks) = (BatchRule::default(), [task(10, 10)]);
        let wait = rule.next_call(&tasks, Duration::ZERO, steady(&tasks)).as_secs_f64();
        // wait − (1 − e^(−wait/20))·20 = cost: about √(2·cost·20), and a little more.
        let lag = wait - 20.0 * (1.0 - (-0.05 * wait).exp());
        assert!((lag - 0.4).abs() < 0.01, "{wait} s, {lag} s");
    }

    #[test]
    fn more_tasks_are_polled_sooner_but_calls_keep_their_gap() {
        let rule = BatchRule::default();
        let wait = |count| {
            let tasks = vec![task(10, 10); count];
            rule.next_call(&tasks, Duration::ZERO, steady(&tasks))
        };
        assert!(wait(1) > wait(4) && wait(4) > wait(16));
        assert_eq!(wait(5000), rule.min_gap);
        assert_eq!(wait(0), LONGEST);
    }

    #[test]
    fn accumulated_lag_leads_to_a_call_at_once() {
        let tasks = [task(0, 60)];
        let wait = BatchRule::default().next_call(&tasks, Duration::MAX, steady(&tasks));
        assert_eq!(wait, Duration::ZERO);
    }

    #[test]
    fn a_call_polls_the_likeliest_tasks_and_none_too_young() {
        let mut tasks: Vec<BatchTask> = (0..300).map(|i| task(10, 11 + i)).collect();
        tasks.push(task(0, 4));
        let chosen = BatchRule::default().choose(&tasks, steady(&tasks));
        assert_eq!(chosen, (200..300).rev().collect::<Vec<_>>());
        assert_eq!(BatchRule::default().choose(&[task(0, 4)], |_, _| 1.0), Vec::<usize>::new());
    }

    #[test]
    fn ten_thousand_tasks_cost_no_more_computation_than_a_sample() {
        let tasks = vec![task(0, 5); 10_000];
        let evaluated = Cell::new(0);
        let never = |_, _| {
            evaluated.set(evaluated.get() + 1);
            0.0
        };
        assert_eq!(BatchRule::default().next_call(&tasks, Duration::MAX, never), LONGEST);
        assert!(evaluated.get() < 20_000, "{}", evaluated.get());
    }
}
