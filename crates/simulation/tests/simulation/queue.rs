//! The queue for the provider's slots, in virtual time: slots known, learned and changing; fair shares; claims that
//! cannot be answered in time.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    claim::ClaimState,
    id::{Nonce, SolveId},
    ledger::{Entry, Event},
    ports::Scope,
    time::Timestamp,
};
use engine::{ClaimRefusal, Outcome, Slots};
use simulator::{BehaviourConfig, Call, Fault};

use simulation::stage::{
    Stage, claim_request, claim_request_as, open, open_with, seconds, served, story,
};

/// One attempt: its worker, the time of its intent, and when its slot was free again.
struct SlotTurn {
    worker: String,
    from: Timestamp,
    to: Timestamp,
}

/// All attempts of a run, from the ledger.
fn turns(entries: &[Entry]) -> Vec<SlotTurn> {
    let mut out: BTreeMap<SolveId, Timestamp> = BTreeMap::new();
    let mut turns = Vec::new();
    for entry in entries {
        let Some(solve) = entry.solve else { continue };
        match &entry.event {
            Event::Intent { .. } => drop(out.insert(solve, entry.at)),
            Event::Ready { .. } | Event::NotAccepted { .. } | Event::TaskOver { .. } => {
                let from = out.remove(&solve).unwrap();
                turns.push(SlotTurn { worker: entry.worker.to_string(), from, to: entry.at });
            }
            _ => {}
        }
    }
    turns
}

/// Slot time within a span, of one worker or of all.
fn slot_time(turns: &[SlotTurn], worker: Option<&str>, from: Timestamp, to: Timestamp) -> Duration {
    let within = |turn: &&SlotTurn| worker.is_none_or(|worker| turn.worker == worker);
    let clipped = |turn: &SlotTurn| turn.to.min(to).since(turn.from.max(from).min(to));
    turns.iter().filter(within).map(clipped).sum()
}

/// The maximum number of tasks the provider worked on at once, without those it cannot solve.
fn most_at_once(stage: &Stage) -> usize {
    let accepted = stage.account.ledger().accepted;
    let at_work = |at: Timestamp| {
        let busy = |task: &&simulator::ledger::Accepted| {
            task.at <= at && task.ready_at.is_some_and(|ready| at < ready)
        };
        accepted.iter().filter(busy).count()
    };
    accepted.iter().map(|task| at_work(task.at)).max().unwrap_or(0)
}

fn refusals(entries: &[Entry]) -> Vec<Timestamp> {
    let no_slot = |entry: &&Entry| matches!(&entry.event, Event::NotAccepted { code, .. } if code.as_str() == "ERROR_NO_SLOT_AVAILABLE");
    entries.iter().filter(no_slot).map(|entry| entry.at).collect()
}

/// Requirement 1. `scripts/bench slots` prints the same numbers.
#[test]
fn five_threads_are_shared_fairly_and_never_idle() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(3).solving_in(seconds(8));
        behaviour.threads = Some(5);
        behaviour.captchaai = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Auto;
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        let start = stage.clock.now();
        let mut ids = Vec::new();
        for n in 0..450 {
            ids.push(open_with(&engine, claim_request_as("greedy", &format!("g{n}"))).await);
        }
        for n in 0..50 {
            let worker = ["a", "b", "c"][n % 3];
            ids.push(open_with(&engine, claim_request_as(worker, &format!("{worker}{n}"))).await);
        }
        stage.pass(seconds(1200)).await;
        for id in ids {
            let claim = engine.find_claim(&Scope::All, id).await.unwrap();
            assert!(claim.token.is_some(), "{claim:?}");
        }
        let entries = stage.entries().await;
        assert_eq!(refusals(&entries), [], "the limit is known");
        assert!(most_at_once(&stage) <= 5, "{}", most_at_once(&stage));
        let turns = turns(&entries);
        for worker in ["a", "b", "c", "greedy"] {
            // All four wait until the first of the small workers starts its last attempt.
            let last = |worker: &str| {
                turns
                    .iter()
                    .filter(|turn| turn.worker == worker)
                    .map(|turn| turn.from)
                    .max()
                    .unwrap()
            };
            let until = last("a").min(last("b")).min(last("c"));
            let share = slot_time(&turns, Some(worker), start, until).as_secs_f64()
                / slot_time(&turns, None, start, until).as_secs_f64();
            assert!((0.225..=0.275).contains(&share), "{worker}: {share}");
        }
        let last = turns.iter().map(|turn| turn.from).max().unwrap();
        let busy = slot_time(&turns, None, start, last).as_secs_f64();
        let idle = 1.0 - busy / (5.0 * last.since(start).as_secs_f64());
        assert!(idle <= 0.02, "slots were idle for {:.1} %", idle * 100.0);
        eprintln!("slots idle while claims wait: {:.2} %", idle * 100.0);
    });
}

/// Priorities are shares.
#[test]
fn a_worker_with_three_times_the_priority_gets_three_times_the_slots() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(4);
        stage.config.deadline = seconds(3600);
        let name = |text: &str| domain::id::WorkerName::new(text).unwrap();
        stage.config.priorities = BTreeMap::from([(name("first"), 3), (name("other"), 1)]);
        let engine = stage.gateway(1).await;
        for n in 0..200 {
            open_with(&engine, claim_request_as("first", &format!("f{n}"))).await;
            open_with(&engine, claim_request_as("other", &format!("o{n}"))).await;
        }
        let start = stage.clock.now();
        stage.pass(seconds(300)).await;
        let turns = turns(&stage.entries().await);
        let share =
            |worker| slot_time(&turns, Some(worker), start, stage.clock.now()).as_secs_f64();
        let ratio = share("first") / share("other");
        assert!((2.7..=3.3).contains(&ratio), "{ratio}");
    });
}

/// Requirement 2: the number of threads is unknown and changes.
#[test]
fn unknown_threads_that_change_are_followed_with_few_refusals() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(5).solving_in(seconds(8));
        behaviour.threads = Some(5);
        behaviour.bans = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Auto;
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        for n in 0..1200 {
            open(&engine, &format!("k{n}")).await;
        }
        let mut estimates = Vec::new();
        for threads in [5, 2, 8] {
            stage.account.with(|behaviour| behaviour.set_threads(Some(threads)));
            stage.pass(seconds(600)).await;
            estimates.push(engine.threads().total);
        }
        for (estimate, threads) in estimates.iter().zip([5_u32, 2, 8]) {
            assert!(estimate.abs_diff(threads) <= 1, "{estimates:?}");
        }
        let refused = refusals(&stage.entries().await);
        let in_a_minute = |from: &Timestamp| {
            refused.iter().filter(|at| *at >= from && at.since(*from) < seconds(60)).count()
        };
        let worst = refused.iter().map(in_a_minute).max().unwrap_or(0);
        assert!(worst < 20, "{worst} refusals in a minute; 120 are a ban");
        assert!(refused.len() * 3 < stage.paid(), "{} of {}", refused.len(), stage.paid());
        assert_eq!(stage.dead_letters().await, 0, "no claim fails for lack of slots");
        assert!(engine.account_trouble().is_none(), "and the account is not banned");
        eprintln!(
            "{} refusals, {worst} in the worst minute, estimates {estimates:?}",
            refused.len()
        );
    });
}

/// CaptchaAI's "zero balance" with all threads busy is not account trouble.
#[test]
fn no_free_thread_is_not_an_empty_account() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(5).solving_in(seconds(8));
        behaviour.threads = Some(2);
        behaviour.captchaai = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Fixed(5);
        stage.config.deadline = seconds(600);
        let engine = stage.gateway(1).await;
        let mut ids = Vec::new();
        for n in 0..20 {
            ids.push(open(&engine, &format!("k{n}")).await);
        }
        stage.pass(seconds(300)).await;
        for id in ids {
            let claim = engine.find_claim(&Scope::All, id).await.unwrap();
            assert!(claim.token.is_some(), "{claim:?}");
        }
        assert!(!refusals(&stage.entries().await).is_empty());
        assert_eq!((stage.dead_letters().await, engine.account_trouble()), (0, None));
    });
}

/// A freed slot is used at once.
#[test]
fn a_freed_slot_is_used_within_milliseconds() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        stage.config.deadline = seconds(600);
        let engine = stage.gateway(1).await;
        for n in 0..10 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(200)).await;
        let turns = turns(&stage.entries().await);
        assert_eq!(turns.len(), 10);
        for pair in turns.windows(2) {
            let gap = pair[1].from.since(pair[0].to);
            assert!(gap <= Duration::from_millis(5), "{gap:?}");
        }
    });
}

/// An estimate comes from measured times and grows with the queue.
#[test]
fn a_waiting_claim_gets_an_estimate_from_measured_times() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(2);
        stage.config.deadline = seconds(600);
        let engine = stage.gateway(1).await;
        for n in 0..4 {
            let id = open(&engine, &format!("warm-{n}")).await;
            served(&engine, id, seconds(100)).await;
        }
        let mut etas = Vec::new();
        for n in 0..20 {
            let outcome = engine.claim(claim_request(&format!("k{n}"))).await.unwrap().outcome;
            let Outcome::Waiting { eta, claim } = outcome else { panic!("{outcome:?}") };
            etas.push((claim.id, eta, stage.clock.now()));
            stage.pass(Duration::from_millis(10)).await;
        }
        for (n, (id, eta, asked)) in etas.into_iter().enumerate() {
            served(&engine, id, seconds(600)).await;
            let took = stage.clock.now().since(asked);
            let off = took.as_secs_f64() - eta.as_secs_f64();
            assert!(off.abs() <= 10.0, "claim {n}: said {eta:?}, took {took:?}");
        }
    });
}

/// The claim is refused at once instead of lapsing at its deadline, and nothing is paid.
#[test]
fn a_claim_that_cannot_make_its_deadline_is_refused_at_once() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(2);
        let engine = stage.gateway(1).await;
        for n in 0..20 {
            let id = open(&engine, &format!("warm-{n}")).await;
            served(&engine, id, seconds(100)).await;
        }
        let paid = stage.paid();
        let mut hasty = claim_request("hasty");
        hasty.deadline = Some(seconds(5));
        let refused = engine.claim(hasty).await.unwrap_err();
        assert!(matches!(refused, ClaimRefusal::TooLate { .. }), "{refused}");
        // A claim that could have been answered, had there been a slot, lapses when it no longer can.
        for n in 0..6 {
            open(&engine, &format!("busy-{n}")).await;
        }
        stage.pass(Duration::from_millis(100)).await;
        let mut late = claim_request_as("other", "late");
        late.deadline = Some(seconds(12));
        let asked = stage.clock.now();
        let id = open_with(&engine, late).await;
        let outcome = engine.fetch(&Scope::All, id, seconds(60)).await.unwrap();
        let answered = stage.clock.now().since(asked);
        match outcome {
            Outcome::Lapsed(claim) => {
                assert!(answered < seconds(8), "answered after {answered:?}");
                assert_eq!(claim.code.unwrap().as_str(), "DEADLINE");
            }
            Outcome::Served { .. } => panic!("there was a slot for it after all"),
            other => panic!("{other:?}"),
        }
        stage.pass(seconds(60)).await;
        assert_eq!(stage.paid(), paid + 6);
    });
}

/// A claim withdrawn while it waits for a slot costs nothing, and the claims behind it move up.
#[test]
fn a_claim_withdrawn_in_the_queue_is_never_submitted() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        let engine = stage.gateway(1).await;
        let first = open(&engine, "a").await;
        stage.pass(Duration::from_millis(500)).await;
        let second = open(&engine, "b").await;
        let third = open(&engine, "c").await;
        engine.withdraw(&Scope::All, second, None).await.unwrap();
        served(&engine, first, seconds(60)).await;
        served(&engine, third, seconds(60)).await;
        stage.pass(seconds(60)).await;
        assert_eq!(stage.paid(), 2);
    });
}

/// A claim that joins a queued solve keeps it alive past the first claim's deadline.
#[test]
fn a_queued_solve_goes_on_for_a_claim_that_joined_it() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        let images = Some(domain::declarations::Images::new("simulated pictures"));
        stage.config.declarations =
            domain::declarations::Declarations { images, ..Default::default() }.into();
        let picture = |key: &str, deadline| {
            let files = BTreeMap::from([("body".to_owned(), vec![7; 200])]);
            let draft = domain::challenge::ChallengeParts { files, ..Default::default() };
            let kind = domain::challenge::Kind::Image;
            let mut ask = claim_request(key);
            ask.challenge = domain::challenge::Challenge::new(kind, draft).unwrap();
            ask.deadline = Some(seconds(deadline));
            ask
        };
        // The account is empty: nothing is submitted for a while.
        stage.account.with(|behaviour| behaviour.set_balance(domain::money::Money::ZERO));
        let engine = stage.gateway(1).await;
        let hasty = open_with(&engine, picture("hasty", 20)).await;
        let patient = open_with(&engine, picture("patient", 600)).await;
        stage.pass(seconds(60)).await;
        assert_eq!(engine.find_claim(&Scope::All, hasty).await.unwrap().state, ClaimState::Lapsed);
        stage.account.with(|b| b.set_balance(domain::money::Money::from_micros(1_000_000)));
        served(&engine, patient, seconds(300)).await;
    });
}

/// I22 under failures: refusals, lost replies and unsolvable tasks release their slots.
#[test]
fn no_slot_is_lost_to_failures() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(3);
        stage.config.deadline = seconds(600);
        let engine = stage.gateway(1).await;
        for fault in [
            Fault::Drop,
            Fault::Unreachable,
            Fault::Unsolvable,
            Fault::code("ERROR_NO_SLOT_AVAILABLE"),
            Fault::code("ERROR_PAGEURL"),
            Fault::Garbage,
        ] {
            stage.fault(Call::Submit, fault, 3);
        }
        for n in 0..60 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(500)).await;
        assert_eq!(engine.threads().working, 0);
        let turns = turns_by_nonce(&stage.entries().await);
        assert!(turns > 60, "{turns}");
        assert!(most_at_once(&stage) <= 3);
    });
}

fn turns_by_nonce(entries: &[Entry]) -> usize {
    let intent = |entry: &Entry| match entry.event {
        Event::Intent { nonce, .. } => Some(nonce),
        _ => None,
    };
    entries.iter().filter_map(intent).collect::<std::collections::BTreeSet<Nonce>>().len()
}

/// A burst of refusals counts once.
#[test]
fn a_burst_of_refusals_does_not_stop_everything() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(3).solving_in(seconds(8));
        behaviour.threads = Some(5);
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Fixed(50);
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        for n in 0..100 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(60)).await;
        assert!(stage.paid() >= 20, "{} tasks in a minute with five threads", stage.paid());
    });
}

/// After a restart the occupied slots are known before anything is submitted.
#[test]
fn a_restart_with_a_long_queue_is_not_refused() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(3).solving_in(seconds(60));
        behaviour.threads = Some(5);
        behaviour.captchaai = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Auto;
        stage.config.deadline = seconds(3600);
        stage.config.drain_grace = Duration::ZERO;
        let engine = stage.gateway(1).await;
        for n in 0..1500 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(10)).await;
        engine.drain().await;
        let _second = stage.gateway(2).await;
        stage.pass(seconds(40)).await;
        assert_eq!(refusals(&stage.entries().await), []);
    });
}

/// A claim of a quick kind behind a long queue is not refused because slow kinds take long.
#[test]
fn a_slow_kind_behind_quick_ones_is_not_too_late() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        for n in 0..25 {
            let id = open(&engine, &format!("warm-{n}")).await;
            served(&engine, id, seconds(100)).await;
        }
        for n in 0..30 {
            open(&engine, &format!("k{n}")).await;
        }
        let patient =
            engine::ClaimRequest { deadline: Some(seconds(400)), ..claim_request("patient") };
        assert!(engine.claim(patient).await.is_ok());
    });
}
