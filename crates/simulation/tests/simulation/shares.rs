//! Three gateways on one store and one account with the provider's bans, in virtual time: they share the slots and the
//! submissions a second, and one that is killed in the middle is soon replaced.

use std::time::Duration;

use domain::{retry::Code, time::Timestamp};
use engine::{ClaimRequest, Engine, Slots};
use simulation::stage::{Stage, claim_request, open_with, seconds, story};
use simulator::BehaviourConfig;

const CLAIMS: usize = 900;
/// A gateway is dead after a lease, and its tasks and shares are taken over within four seconds.
const TAKEOVER: Duration = Duration::from_secs(19);

fn stage(threads: Option<u32>, solve_time: u64) -> Stage {
    let mut behaviour = BehaviourConfig::new(5).solving_in(seconds(solve_time));
    (behaviour.bans, behaviour.captchaai, behaviour.threads) = (true, threads.is_some(), threads);
    let mut stage = Stage::with(behaviour);
    stage.config.deadline = seconds(7200);
    stage
}

async fn start(stage: &Stage) -> Vec<Engine> {
    let mut gateways = Vec::new();
    for seed in 1..=3 {
        gateways.push(stage.gateway(seed).await);
        stage.pass(Duration::from_millis(700)).await;
    }
    gateways
}

/// Claims at the gateways in turn, one every few milliseconds, so that each gateway leases its own.
async fn load(stage: &Stage, gateways: &[Engine], claims: usize, every_millis: u64) {
    for n in 0..claims {
        open_with(&gateways[n % gateways.len()], claim_request(&format!("c{n}"))).await;
        stage.pass(Duration::from_millis(every_millis)).await;
    }
}

/// How many tasks the provider worked on at some time.
fn at_work(stage: &Stage, at: Timestamp) -> usize {
    let tasks = stage.account.ledger().accepted;
    tasks.iter().filter(|t| t.at <= at && t.ready_at.is_none_or(|ready| at < ready)).count()
}

fn most_at_once(stage: &Stage) -> usize {
    let tasks = stage.account.ledger().accepted;
    tasks.iter().map(|task| at_work(stage, task.at)).max().unwrap_or(0)
}

/// Submissions a second, on the average.
fn rate(stage: &Stage, from: Timestamp, to: Timestamp) -> f64 {
    let submits = stage.provider.submits.lock().unwrap();
    let count = submits.iter().filter(|at| from <= **at && **at < to).count();
    f64::from(u32::try_from(count).unwrap()) / to.since(from).as_secs_f64()
}

fn refused(stage: &Stage) -> Vec<(Code, u64)> {
    stage.account.ledger().refused.into_iter().collect()
}

#[test]
fn the_slots_of_an_account_are_never_exceeded_and_those_of_a_killed_gateway_are_used_again() {
    story(async |_| {
        let mut stage = stage(Some(6), 4);
        stage.config.slots = Slots::Auto;
        let gateways = start(&stage).await;
        load(&stage, &gateways, CLAIMS, 33).await;
        stage.pass(seconds(30)).await;
        let before = stage.paid();
        stage.pass(seconds(30)).await;
        let full = stage.paid() - before;
        // Six threads for a good four seconds each are about 42 tasks; two thirds of that are 28.
        assert!(full > 35, "all slots are used: {full}");
        for gateway in &gateways {
            assert!(gateway.threads().working > 0, "everybody has a share");
        }
        gateways[1].crash();
        stage.pass(TAKEOVER).await;
        let from = stage.clock.now();
        stage.pass(seconds(60)).await;
        let tasks = stage.account.ledger().accepted;
        let after = tasks.iter().filter(|task| from <= task.at).count();
        assert!(after > 70, "the dead gateway's share is used: {after}");
        assert_eq!(most_at_once(&stage), 6);
        assert_eq!(refused(&stage), []);
    });
}

#[test]
fn submissions_a_second_hold_for_all_gateways_and_no_ban_comes() {
    story(async |_| {
        let mut stage = stage(None, 2);
        stage.config.slots = Slots::Fixed(1000);
        let gateways = start(&stage).await;
        load(&stage, &gateways, 3 * CLAIMS, 3).await;
        stage.pass(seconds(40)).await;
        let full = stage.clock.now();
        assert!(rate(&stage, full.minus(seconds(20)), full) > 18.0);
        gateways[2].crash();
        stage.pass(TAKEOVER).await;
        let again = stage.clock.now();
        stage.pass(seconds(15)).await;
        let after = rate(&stage, again, stage.clock.now());
        assert!(after > 18.0, "the dead gateway's share is used: {after}");
        assert_eq!(refused(&stage), []);
    });
}

#[test]
fn a_gateway_whose_traffic_stops_gives_its_share_to_the_others() {
    story(async |_| {
        let mut stage = stage(Some(6), 4);
        stage.config.slots = Slots::Auto;
        let gateways = start(&stage).await;
        // All claims come to one gateway.
        load(&stage, &gateways[..1], 200, 1).await;
        stage.pass(seconds(20)).await;
        let from = stage.paid();
        stage.pass(seconds(60)).await;
        assert!(stage.paid() - from > 60, "{}", stage.paid() - from);
        assert_eq!((most_at_once(&stage), refused(&stage)), (6, vec![]));
    });
}

#[test]
fn a_busy_gateway_has_the_slots_of_idle_ones_after_a_second() {
    story(async |_| {
        let mut stage = stage(Some(6), 60);
        stage.config.slots = Slots::Auto;
        let gateways = start(&stage).await;
        // The work comes at any moment between two renewals of the others.
        for (round, idle_millis) in [20_300, 21_100, 22_700, 24_200].into_iter().enumerate() {
            stage.pass(Duration::from_millis(idle_millis)).await;
            for n in 0..6 {
                let request = claim_request(&format!("r{round}c{n}"));
                open_with(&gateways[round % gateways.len()], request).await;
            }
            stage.pass(Duration::from_millis(1_400)).await;
            assert_eq!(at_work(&stage, stage.clock.now()), 6, "round {round}");
            stage.pass(seconds(70)).await;
        }
        assert_eq!((most_at_once(&stage), refused(&stage)), (6, vec![]));
    });
}

#[test]
fn a_claim_is_not_refused_because_other_gateways_have_slots_now() {
    story(async |_| {
        let mut stage = stage(Some(6), 4);
        stage.config.slots = Slots::Auto;
        let gateways = start(&stage).await;
        load(&stage, &gateways, 180, 33).await;
        // Each gateway has measured how long solves take, and has two slots and a queue.
        stage.pass(seconds(60)).await;
        for n in 0..40 {
            open_with(&gateways[0], claim_request(&format!("more{n}"))).await;
        }
        stage.pass(seconds(2)).await;
        // Two slots need two minutes for the queue, and six need less than one.
        let deadline = Some(seconds(70));
        open_with(&gateways[0], ClaimRequest { deadline, ..claim_request("short") }).await;
    });
}

#[test]
fn gateways_that_outnumber_the_threads_take_turns() {
    story(async |_| {
        let mut stage = stage(Some(1), 2);
        stage.config.slots = Slots::Auto;
        let gateways = start(&stage).await;
        load(&stage, &gateways, 30, 20).await;
        stage.pass(seconds(300)).await;
        assert_eq!(stage.paid(), 30, "nobody waits for ever");
        assert_eq!((most_at_once(&stage), refused(&stage)), (1, vec![]));
    });
}

#[test]
fn a_gateway_that_drains_leaves_its_share_to_the_others() {
    story(async |_| {
        let mut stage = stage(Some(6), 30);
        stage.config.slots = Slots::Auto;
        stage.config.drain_grace = seconds(1);
        let gateways = start(&stage).await;
        load(&stage, &gateways, 60, 20).await;
        stage.pass(seconds(40)).await;
        gateways[0].drain().await;
        stage.pass(seconds(120)).await;
        assert_eq!((most_at_once(&stage), refused(&stage)), (6, vec![]));
        assert!(stage.paid() >= 24, "{}", stage.paid());
    });
}
