//! The guard at spend time: a site or a worker is withdrawn at every step of a solve's life.

use std::{collections::HashSet, sync::Arc, time::Duration};

use domain::{
    budget::Allowance,
    challenge::{Challenge, ChallengeParts, Kind},
    claim::ClaimState,
    declarations::{Declarations, Images, KnownWorkers, WorkerScope},
    id::{Project, WorkerName},
    ledger::{Entry, Event},
    pool::Level,
    retry::own,
    site::Site,
    time::Day,
};
use engine::{ClaimRequest, PoolWish, Slots};
use simulation::stage::{Stage, claim_request, claim_request_as, open_with, seconds, story};
use simulator::{Call, Fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawn {
    /// The site, for everybody.
    Site,
    /// The worker `gone`; `stays` goes on.
    Worker,
}

/// The declarations of the stage, for two workers.
fn declared(stage: &Stage, workers: &[&str]) -> Arc<Declarations> {
    let scope = |name: &&str| (WorkerName::new(*name).unwrap(), WorkerScope::FULL);
    let workers = KnownWorkers::Listed(workers.iter().map(scope).collect());
    Declarations { workers, ..(*stage.config.declarations).clone() }.into()
}

fn without(stage: &Stage, withdrawn: Withdrawn) -> Arc<Declarations> {
    match withdrawn {
        Withdrawn::Site => {
            let all = declared(stage, &["gone", "stays"]);
            Declarations { sites: Vec::new(), ..(*all).clone() }.into()
        }
        Withdrawn::Worker => declared(stage, &["stays"]),
    }
}

/// Six claims and one slot, with a refusal, a lost reply and a task without an answer on the way. Returns the number of
/// entries at the withdrawal, and all entries at the end.
async fn run(
    mut stage: Stage,
    withdrawn: Withdrawn,
    after: Duration,
    restarts: bool,
) -> (usize, Vec<Entry>) {
    stage.config.slots = Slots::Fixed(1);
    stage.config.declarations = declared(&stage, &["gone", "stays"]);
    stage.fault(Call::Submit, Fault::Drop, 1);
    stage.fault(Call::Submit, Fault::code("ERROR_NO_SLOT_AVAILABLE"), 3);
    stage.fault(Call::Poll, Fault::code("ERROR_CAPTCHA_UNSOLVABLE"), 2);
    let mut engine = stage.gateway(1).await;
    for n in 0..3 {
        for worker in ["gone", "stays"] {
            open_with(&engine, claim_request_as(worker, &format!("k{n}"))).await;
        }
    }
    stage.pass(after).await;
    let left = without(&stage, withdrawn);
    let before = stage.entries().await.len();
    if restarts {
        engine.crash();
        stage.config.declarations = left;
        engine = stage.gateway(2).await;
    } else {
        engine.set_declarations(left);
    }
    stage.pass(seconds(300)).await;
    drop(engine);
    (before, stage.entries().await)
}

/// Whether the entry permits an attempt that is paid for.
fn spends(entry: &Entry) -> bool {
    matches!(entry.event, Event::Intent { .. } | Event::Authorised { .. })
}

/// How many solves had an attempt before they ended because they were no longer declared: they waited for a retry, or for
/// the decision about a lost reply.
fn stopped_before_retry(entries: &[Entry]) -> usize {
    let is_stopped = |entry: &&Entry| matches!(&entry.event, Event::Failed { code } if code.as_str() == own::SITE_NOT_DECLARED);
    let tried: HashSet<_> = entries.iter().filter(|entry| spends(entry)).map(|e| e.solve).collect();
    entries.iter().filter(is_stopped).filter(|entry| tried.contains(&entry.solve)).count()
}

/// Returns how many solves were stopped before a retry.
fn check(withdrawn: Withdrawn, after: Duration, restarts: bool) -> usize {
    let mut stopped = 0;
    story(async |stage| {
        let (before, entries) = run(stage, withdrawn, after, restarts).await;
        let is_stopped =
            |entry: &&Entry| withdrawn == Withdrawn::Site || entry.worker.as_str() == "gone";
        stopped = stopped_before_retry(&entries);
        let late = entries[before..].iter().filter(is_stopped).filter(|entry| spends(entry));
        assert_eq!(late.count(), 0, "{withdrawn:?} after {after:?}, restart: {restarts}");
        let letters = entries[before..].iter().filter(is_stopped);
        let letters = letters.filter(|entry| matches!(entry.event, Event::DeadLettered { .. }));
        assert_eq!(letters.count(), 0, "{withdrawn:?} after {after:?}, restart: {restarts}");
        let served = |name: &str| {
            let mine = entries.iter().filter(|entry| entry.worker.as_str() == name);
            mine.filter(|entry| matches!(entry.event, Event::Allotted { .. })).count()
        };
        if withdrawn == Withdrawn::Worker {
            assert_eq!(served("stays"), 3, "{after:?}, restart: {restarts}");
        }
        let forbidden = entries.iter().filter(|entry| {
            matches!(&entry.event, Event::Ended { state: ClaimState::Failed, code: Some(code) }
                if code.as_str() == own::SITE_NOT_DECLARED)
        });
        let claims = if withdrawn == Withdrawn::Site { 6 } else { 3 };
        let ended = forbidden.count() + served("gone");
        let others = if withdrawn == Withdrawn::Site { served("stays") } else { 0 };
        assert_eq!(ended + others, claims, "{withdrawn:?} after {after:?}, restart: {restarts}");
    });
    stopped
}

/// I29. Half a second apart, from the first submission to the last answer.
#[test]
fn a_withdrawn_site_is_not_paid_for_at_any_step() {
    let steps = (0..120).map(|half_seconds| Duration::from_millis(500 * half_seconds + 1));
    let retries: usize = steps.map(|after| check(Withdrawn::Site, after, false)).sum();
    assert!(retries > 10, "only {retries} retries waited at a withdrawal");
}

#[test]
fn a_withdrawn_worker_is_not_paid_for_at_any_step() {
    let steps = (0..120).map(|half_seconds| Duration::from_millis(500 * half_seconds + 1));
    let retries: usize = steps.map(|after| check(Withdrawn::Worker, after, false)).sum();
    assert!(retries > 10, "only {retries} retries waited at a withdrawal");
}

#[test]
fn a_gateway_that_starts_without_the_declaration_pays_for_nothing_that_waits() {
    for seconds in 0..30 {
        check(Withdrawn::Site, Duration::from_millis(2000 * seconds + 1), true);
        check(Withdrawn::Worker, Duration::from_millis(2000 * seconds + 1), true);
    }
}

/// Tokens that a pool ordered wait for their retries: the first reply is lost, and the provider is busy for a while.
async fn refills(mut stage: Stage, after: Duration, restarts: bool) -> (usize, Vec<Entry>) {
    stage.config.slots = Slots::Fixed(6);
    stage.config.pools = vec![PoolWish {
        challenge: claim_request("").challenge,
        project: Project::new("pool").unwrap(),
        level: Level::Fixed(6),
        most: 6,
        waste: 100,
        budget: Allowance::default(),
    }];
    stage.fault(Call::Submit, Fault::Drop, 1);
    stage.fault(Call::Submit, Fault::code("ERROR_NO_SLOT_AVAILABLE"), 40);
    let mut engine = stage.gateway(1).await;
    stage.pass(after).await;
    let before = stage.entries().await.len();
    let left = without(&stage, Withdrawn::Site);
    if restarts {
        engine.crash();
        stage.config.declarations = left;
        engine = stage.gateway(2).await;
    } else {
        engine.set_declarations(left);
    }
    stage.pass(seconds(300)).await;
    drop(engine);
    (before, stage.entries().await)
}

#[test]
fn a_refill_of_a_withdrawn_site_is_not_paid_for_at_any_step() {
    let mut waited = 0;
    for step in 0..60 {
        for restarts in [false, true] {
            story(async |stage| {
                let after = Duration::from_millis(1000 * step + 1);
                let (before, entries) = refills(stage, after, restarts).await;
                let late = entries[before..].iter().filter(|entry| spends(entry)).count();
                assert_eq!(late, 0, "after {after:?}, restart: {restarts}");
                let ended = |entry: &&Entry| matches!(&entry.event, Event::Failed { code } if code.as_str() == own::SITE_NOT_DECLARED);
                waited += entries[before..].iter().filter(ended).count();
            });
        }
    }
    assert!(waited > 30, "only {waited} refills waited at a withdrawal");
}

fn picture(number: u8) -> ClaimRequest {
    let files = [("body".to_owned(), vec![b'G', b'I', b'F', number])].into();
    let parts = ChallengeParts { files, ..ChallengeParts::default() };
    let challenge = Challenge::new(Kind::Image, parts).unwrap();
    ClaimRequest { challenge, ..claim_request(&format!("k{number}")) }
}

/// A declaration ends at midnight while claims wait for a slot.
async fn ends_today(
    mut stage: Stage,
    declare: impl Fn(Day) -> Declarations,
    claim: impl Fn(u8) -> ClaimRequest,
) {
    let today = stage.clock.now().day();
    stage.config.declarations = declare(today).into();
    stage.config.slots = Slots::Fixed(1);
    stage.config.deadline = seconds(600);
    stage.pass(today.end().minus(seconds(20)).since(stage.clock.now())).await;
    let engine = stage.gateway(1).await;
    for n in 0..10 {
        open_with(&engine, claim(n)).await;
    }
    stage.pass(seconds(120)).await;
    let entries = stage.entries().await;
    let late = entries.iter().filter(|entry| spends(entry) && entry.at.day() > today);
    assert_eq!(late.count(), 0);
    let is_forbidden = |entry: &&Entry| matches!(&entry.event, Event::Ended { code: Some(code), .. } if code.as_str() == own::SITE_NOT_DECLARED);
    let ended = entries.iter().filter(is_forbidden).count();
    assert!(ended >= 5 && ended + stage.paid() == 10, "{ended} ended, {} paid", stage.paid());
    assert_eq!(stage.dead_letters().await, 0);
}

#[test]
fn a_site_that_ends_while_claims_wait_stops_them() {
    let declare = |today| {
        let site = Site::new("shop.example.com".parse().unwrap(), "ends today");
        let sites = vec![Site { expires: Some(today), ..site }];
        Declarations { sites, ..Declarations::default() }
    };
    story(async |stage| {
        ends_today(stage, declare, |number| claim_request(&format!("k{number}"))).await;
    });
}

#[test]
fn a_declaration_of_images_that_ends_while_pictures_wait_stops_them() {
    let declare = |today| {
        let images = Images { expires: Some(today), ..Images::new("ends today") };
        Declarations { images: Some(images), ..Declarations::default() }
    };
    story(async |stage| ends_today(stage, declare, picture).await);
}
