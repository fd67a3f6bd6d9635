//! Polling with the real engine in virtual time: the lag until a solved task is found, the number of calls, and the
//! provider's limits.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    challenge::{Challenge, ChallengeParts, Kind},
    id::{AttemptName, TaskId},
    ledger::{Entry, Event},
    money::Money,
    time::Timestamp,
};
use engine::{ClaimRequest, LearnedConfig, Slots};
use simulator::{BehaviourConfig, Call, Fault, pace::SolveTime};

use simulation::stage::{Stage, claim_request, open_with, seconds, served, story};

/// Learned polling of a provider with these solve times.
fn learned(time: SolveTime) -> Stage {
    let mut behaviour = BehaviourConfig::new(11);
    behaviour.bans = true;
    behaviour.solve_times = BTreeMap::from([(Kind::Turnstile, time)]);
    let mut stage = Stage::with(behaviour);
    stage.config.slots = Slots::Fixed(20_000);
    stage.config.prices = BTreeMap::from([(Kind::Turnstile, Money::from_micros(1000))]).into();
    stage.config.polling = LearnedConfig::default().into();
    stage
}

/// Each claim has its own challenge, so that none is served from stock.
fn own_challenge(n: usize) -> ClaimRequest {
    own_challenge_of("key", n)
}

fn own_challenge_of(sitekey: &str, n: usize) -> ClaimRequest {
    let pageurl = claim_request("").challenge.pageurl().cloned();
    let draft = ChallengeParts {
        sitekey: Some(format!("{sitekey}-{n}")),
        pageurl,
        ..ChallengeParts::default()
    };
    ClaimRequest {
        challenge: Challenge::new(Kind::Turnstile, draft).unwrap(),
        ..claim_request(&format!("k{n}"))
    }
}

/// The cost of finding the tasks.
#[derive(Debug)]
struct Found {
    calls: f64,
    lag: Duration,
}

/// The time that each found task had been ready.
fn lags(stage: &Stage, entries: &[Entry]) -> Vec<Duration> {
    let accepted = stage.account.ledger().accepted.into_iter();
    let ready: BTreeMap<_, _> = accepted.map(|task| (task.task, task.ready_at)).collect();
    let lag = |entry: &Entry| match &entry.event {
        Event::Ready { task, .. } => ready[task].map(|ready| entry.at.since(ready)),
        _ => None,
    };
    entries.iter().filter_map(lag).collect()
}

/// Claims that arrive at random at this rate per second, measured after a warm-up.
async fn found(stage: &Stage, rate: f64, solves: usize) -> Found {
    const WARM: usize = 100;
    let engine = stage.gateway(1).await;
    let mut rng = fastrand::Rng::with_seed(5);
    let mut before = None;
    for n in 0.. {
        let so_far = stage.account.with(|behaviour| behaviour.ledger().answered.len());
        if so_far >= WARM && before.is_none() {
            before = Some(stage.account.ledger().poll_calls);
        }
        if so_far >= WARM + solves {
            break;
        }
        open_with(&engine, own_challenge(n)).await;
        stage.pass(Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate)).await;
    }
    let calls = stage.account.ledger().poll_calls - before.unwrap();
    let lags = lags(stage, &stage.entries().await);
    let measured = lags.len() - WARM;
    #[expect(clippy::cast_precision_loss, reason = "counts of a test")]
    let calls = calls as f64 / measured as f64;
    Found { calls, lag: lags[WARM..].iter().sum::<Duration>() / u32::try_from(measured).unwrap() }
}

/// Requirement 1. Warm means a hundred solves, as for single polls; calls during the warm-up do not count. The lag
/// includes the network, 5 to 60 ms each way, and the minimum gap of 1 s between a reply and the next poll of a task.
#[test]
fn batch_polls_find_tasks_quickly_with_few_calls() {
    let time = |median, sigma| SolveTime { median: seconds(median), sigma };
    for (rate, time, calls) in [
        (1.0, time(15, 0.5), 1.1),
        (1.0, time(35, 0.5), 1.1),
        (1.0, time(10, 0.3), 1.1),
        (2.0, time(15, 0.5), 0.6),
        (5.0, time(15, 0.5), 0.3),
    ] {
        story(async |_| {
            let found = found(&learned(time), rate, 2000).await;
            eprintln!("{rate}/s of {time:?}: {found:.3?}");
            assert!(found.calls <= calls, "{rate}/s of {time:?}: {found:?}");
            assert!(found.lag <= Duration::from_millis(600), "{rate}/s of {time:?}: {found:?}");
        });
    }
}

// === the provider's limits ===

/// The provider's record of a run.
#[derive(Debug)]
struct ProviderRecord {
    tasks: usize,
    calls: u64,
    /// The number of polls of the task polled most, alone or in batches.
    most_polls: usize,
    /// The shortest gap between two polls of a task.
    least_gap: Duration,
    /// The most submissions within three seconds.
    most_submits: usize,
    most_in_flight: u32,
}

fn provider_record(stage: &Stage, most_in_flight: u32) -> ProviderRecord {
    let polls = stage.provider.polls.lock().unwrap().clone();
    let mut times: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (task, at) in polls {
        times.entry(task).or_default().push(at);
    }
    let gaps = times.values().flat_map(|times| times.windows(2).map(|two| two[1].since(two[0])));
    let submits = stage.provider.submits.lock().unwrap().clone();
    let within = |(n, from): (usize, &Timestamp)| {
        submits[n..].partition_point(|at| at.since(*from) < seconds(3))
    };
    ProviderRecord {
        tasks: stage.paid(),
        calls: stage.account.ledger().poll_calls,
        most_polls: times.values().map(Vec::len).max().unwrap_or_default(),
        least_gap: gaps.min().unwrap_or_default(),
        most_submits: submits.iter().enumerate().map(within).max().unwrap_or_default(),
        most_in_flight,
    }
}

/// Twenty submissions a second, seven eighths of them never answered: they stay for ten minutes, until more than ten
/// thousand are in flight at once. The provider bans offenders, and must ban nobody.
async fn ten_thousand(stage: &mut Stage) -> ProviderRecord {
    const CLAIMS: usize = 13_000;
    stage.config.deadline = seconds(700);
    stage.config.most_queued = CLAIMS;
    let engine = stage.gateway(1).await;
    let mut most_in_flight = 0;
    for n in 0..CLAIMS {
        let never = if n % 8 == 0 { "key" } else { "never-ready" };
        open_with(&engine, own_challenge_of(never, n)).await;
        if n % 20 == 19 {
            stage.pass(seconds(1)).await;
            most_in_flight = most_in_flight.max(engine.threads().working);
            let ledger = stage.account.with(|behaviour| {
                (behaviour.ledger().poll_calls, behaviour.ledger().accepted.len())
            });
            assert!(ledger.0 <= 20 * u64::try_from(ledger.1).unwrap() + 1200, "{ledger:?}");
        }
    }
    stage.pass(seconds(700)).await;
    assert_eq!(engine.threads().working, 0, "all are over");
    assert_eq!(engine.account_trouble(), None);
    assert_eq!(stage.account.ledger().refused, BTreeMap::new());
    let entries = stage.entries().await;
    let served = |entry: &&Entry| matches!(entry.event, Event::Ready { .. });
    assert_eq!(entries.iter().filter(served).count(), CLAIMS.div_ceil(8), "and none is missed");
    provider_record(stage, most_in_flight)
}

/// Requirement 6.
#[test]
fn ten_thousand_in_flight_asked_for_one_by_one_stay_inside_the_rules() {
    story(async |_| {
        let mut stage = learned(SolveTime { median: seconds(250), sigma: 0.1 });
        stage.config.batches = false;
        let provider_record = ten_thousand(&mut stage).await;
        eprintln!("one by one: {provider_record:?}");
        assert!(provider_record.most_in_flight >= 10_000, "{provider_record:?}");
        assert!(
            provider_record.most_polls <= 20 && provider_record.least_gap >= seconds(1),
            "{provider_record:?}"
        );
        assert!(provider_record.most_submits <= 60, "{provider_record:?}");
    });
}

/// Requirement 6. A provider counts calls, so a task may be in more than twenty batches.
#[test]
fn ten_thousand_in_flight_polled_in_batches_stay_inside_the_rules() {
    story(async |_| {
        let mut stage = learned(SolveTime { median: seconds(250), sigma: 0.1 });
        let provider_record = ten_thousand(&mut stage).await;
        eprintln!("in batches: {provider_record:?}");
        assert!(provider_record.most_in_flight >= 10_000, "{provider_record:?}");
        assert!(
            provider_record.calls <= 20 * u64::try_from(provider_record.tasks).unwrap(),
            "{provider_record:?}"
        );
        assert!(
            provider_record.least_gap >= seconds(1) && provider_record.most_submits <= 60,
            "{provider_record:?}"
        );
    });
}

/// A provider that answers every poll with a fault, for longer than it keeps a task.
#[test]
fn polls_without_results_stay_inside_the_rules_too() {
    story(async |_| {
        let mut stage = learned(SolveTime::exactly(seconds(20)));
        stage.config.batches = false;
        stage.config.deadline = seconds(300);
        let engine = stage.gateway(1).await;
        stage.fault(Call::Poll, Fault::Status(502), 1_000_000);
        for n in 0..1000 {
            open_with(&engine, own_challenge(n)).await;
        }
        stage.pass(seconds(700)).await;
        let polls = stage.provider.polls.lock().unwrap().len();
        eprintln!("{polls} polls without results for {} tasks", stage.paid());
        assert_eq!(stage.paid(), 1000);
        assert!(polls <= 20 * 1000 + 1200, "{polls}");
    });
}

// === pingbacks ===

fn attempt(entries: &[Entry]) -> AttemptName {
    let name = entries.iter().find_map(|entry| match entry.event {
        Event::Intent { attempt, nonce, .. } => {
            Some(AttemptName { solve: entry.solve.unwrap(), attempt, nonce })
        }
        _ => None,
    });
    name.unwrap()
}

/// Repeated pingbacks cause few polls: none for ended or unknown tasks, and a bounded number for others.
#[test]
fn repeated_pingbacks_cost_hardly_any_polls() {
    story(async |_| {
        let mut stage = learned(SolveTime::exactly(seconds(8)));
        stage.config.pingback = true;
        let engine = stage.gateway(1).await;
        let other = stage.gateway(2).await;
        let id = open_with(&engine, own_challenge(1)).await;
        stage.pass(seconds(2)).await;
        let name = attempt(&stage.entries().await);
        let task = stage.account.ledger().accepted[0].task.clone();
        let polls = || stage.provider.polls.lock().unwrap().len();
        for _ in 0..100 {
            other.pingback(name, task.clone()).await;
        }
        assert_eq!(polls(), 0, "another process has it, and knows the task");
        for _ in 0..100 {
            other.pingback(name, TaskId::new("9").unwrap()).await;
        }
        assert!(polls() <= 3, "{} about an unknown task", polls());
        for _ in 0..10 {
            engine.pingback(name, task.clone()).await;
            stage.pass(Duration::from_millis(100)).await;
        }
        assert!(polls() <= 5, "{} within a second: a task's own gap holds", polls());
        stage.pass(seconds(6)).await;
        engine.pingback(name, task.clone()).await;
        served(&engine, id, seconds(3)).await;
        let before = polls();
        for _ in 0..100 {
            engine.pingback(name, task.clone()).await;
        }
        stage.pass(seconds(60)).await;
        assert_eq!(polls(), before, "it is over");
    });
}
