//! `bench slots`, the late worker: one worker has queued 130 claims for five threads; another one arrives a second later. Its
//! share of the slot time is compared with half.

use std::time::Duration;

use domain::{
    id::{BadName, WorkerName},
    ledger::{Entry, Event},
    time::Timestamp,
};
use engine::{EngineConfig, FixedPolling, Slots};
use simulator::BehaviourConfig;
use solvegate::exit::{Exit, Failure};

use crate::{
    challenges::declared,
    cli::RunOptions,
    report::{Bar, Figure, Report},
    requests::HOST,
    slot_usage::{SlotUsage, Span},
    virtual_gateway::{VirtualGateway, in_virtual_time},
};

/// The results of one run.
#[derive(Clone, Copy, Debug)]
struct LateWorker {
    /// Its slot time in its first ten seconds, divided by half of all.
    share: f64,
    /// Seconds until its first token.
    first: f64,
    /// Seconds until its twentieth.
    twentieth: f64,
}

const THREADS: usize = 5;
const SOLVE_TIME: Duration = Duration::from_millis(600);
const FIRST_POLL: Duration = Duration::from_millis(500);
const POLL_EVERY: Duration = Duration::from_millis(200);
const QUEUED: usize = 130;
/// More than it gets served, so that it waits all the time.
const OF_LATE: usize = 130;
const LATE_BY: Duration = Duration::from_secs(1);
const WATCHED: Duration = Duration::from_secs(10);

const SLOTS: [(&str, Slots); 2] =
    [("slots = \"auto\"", Slots::Auto), ("slots = 5", Slots::Fixed(THREADS))];
/// In percent of a fair share.
const UNFAIR: Bar = Bar::AtMost { bar: 10.0, stretch: 5.0 };

pub(crate) async fn add_to(report: &mut Report, rounds: RunOptions) -> Result<(), Failure> {
    for (name, slots) in SLOTS {
        let mut results = Vec::new();
        for seed in 1..=u64::from(rounds.rounds) {
            results.push(in_virtual_time(async move || play(seed, slots).await).await?);
        }
        let figure = |what: &str, unit, of: &dyn Fn(&LateWorker) -> f64| {
            Figure::new(format!("late worker, {name}: {what}"), unit, results.iter().map(of))
        };
        report.add(figure("share in its first 10 s / fair", "", &|run| run.share));
        let off = |run: &LateWorker| (run.share - 1.0).abs() * 100.0;
        report.add(figure("furthest from a fair share", "%", &off).held_to(UNFAIR));
        report.add(figure("first token after", "s", &|run| run.first));
        report.add(figure("20 tokens after", "s", &|run| run.twentieth));
    }
    Ok(())
}

async fn play(seed: u64, slots: Slots) -> Result<LateWorker, Failure> {
    // The learned schedule would first have to learn that these tasks are quick.
    let polling =
        FixedPolling { first: FIRST_POLL, interval: POLL_EVERY, min_gap: POLL_EVERY, most: 60 };
    let config = EngineConfig {
        declarations: declared(&[HOST])?,
        slots,
        polling: polling.into(),
        ..EngineConfig::default()
    };
    let service = BehaviourConfig {
        threads: Some(u32::try_from(THREADS).expect("a few")),
        captchaai: true,
        bans: true,
        ..BehaviourConfig::new(seed)
    };
    let gateway = VirtualGateway::start(service.solving_in(SOLVE_TIME), config).await?;
    let [early, late] = ["early", "late"].map(WorkerName::new);
    let name = |name: Result<WorkerName, BadName>| name.map_err(Failure::of(Exit::Failed));
    let (early, late) = (name(early)?, name(late)?);
    for number in 0..QUEUED {
        gateway.claim_and_wait(&early, number).await?;
    }
    gateway.pass(LATE_BY).await;
    let arrived = gateway.now();
    for number in QUEUED..QUEUED + OF_LATE {
        gateway.claim_and_wait(&late, number).await?;
    }
    gateway.pass(2 * WATCHED).await;
    let entries = gateway.entries().await?;
    let span = Span { from: arrived, to: arrived.plus(WATCHED) };
    let share = SlotUsage::of(&entries, gateway.now()).share(&late, span) * 2.0;
    let tokens = tokens_of(&late, &entries);
    let after = |n: usize| {
        let at = tokens.get(n).copied();
        at.map_or(f64::NAN, |at: Timestamp| at.since(arrived).as_secs_f64())
    };
    Ok(LateWorker { share, first: after(0), twentieth: after(19) })
}

/// When each token of the worker came.
fn tokens_of(worker: &WorkerName, entries: &[Entry]) -> Vec<Timestamp> {
    let of_worker =
        |entry: &&Entry| entry.worker == *worker && matches!(entry.event, Event::Allotted { .. });
    entries.iter().filter(of_worker).map(|entry| entry.at).collect()
}
