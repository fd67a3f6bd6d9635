//! Pauses in virtual time: nothing is submitted while one is in force, nothing is lost, and work goes on afterwards.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::{Actor, ActorRole},
    admin_action::AdminAction,
    claim::{Allowance, ClaimState},
    declarations::{Declarations, KnownWorkers, WorkerScope},
    id::WorkerName,
    ledger::{Entry, Event},
    pause::PauseScope,
    ports::{DeadLetterFilter, PauseResult, Scope},
    retry::own,
    solve::Stage as SolveStage,
};
use engine::{BulkRequest, DeadLetterSelection, Engine, Slots};
use simulation::stage::{
    Stage, claim_request, claim_request_as, open, open_with, seconds, served, story,
};
use simulator::{Call, Fault};

fn operator() -> Actor {
    let name = WorkerName::new("night-shift").unwrap();
    Actor { name, role: ActorRole::Operator, address: None }
}

async fn set(engine: &Engine, scope: &PauseScope, paused: bool) {
    let done = engine.set_pause(scope.clone(), paused, operator()).await.unwrap();
    assert!(matches!(done, PauseResult::Done { is_new: true, .. }), "{done:?}");
}

fn scopes() -> [PauseScope; 3] {
    let worker = PauseScope::Worker(WorkerName::new("w").unwrap());
    [PauseScope::Everything, PauseScope::site("shop.example.com").unwrap(), worker]
}

fn count(entries: &[Entry], matches: impl Fn(&Event) -> bool) -> usize {
    entries.iter().filter(|entry| matches(&entry.event)).count()
}

fn spends(event: &Event) -> bool {
    matches!(event, Event::Intent { .. } | Event::Authorised { .. })
}

/// The entries between the pause and the resume.
fn while_paused(entries: &[Entry]) -> &[Entry] {
    let at = |matches: fn(&AdminAction) -> bool| {
        entries
            .iter()
            .position(|entry| {
                matches!(&entry.event, Event::Administered { action, .. } if matches(action))
            })
            .expect("it is in the ledger")
    };
    let from = at(|action| matches!(action, AdminAction::Paused { .. }));
    &entries[from..at(|action| matches!(action, AdminAction::Resumed { .. }))]
}

/// Six claims and one slot, with a lost reply and a refusal on the way, paused at a moment for a minute.
async fn pause_for_a_minute(mut stage: Stage, scope: PauseScope, after: Duration, restarts: bool) {
    stage.config.slots = Slots::Fixed(1);
    stage.config.deadline = seconds(600);
    stage.fault(Call::Submit, Fault::Drop, 1);
    stage.fault(Call::Submit, Fault::code("ERROR_NO_SLOT_AVAILABLE"), 1);
    let mut engine = stage.gateway(1).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(open(&engine, &format!("k{n}")).await);
    }
    stage.pass(after).await;
    set(&engine, &scope, true).await;
    if restarts {
        engine.crash();
        engine = stage.gateway(2).await;
    }
    stage.pass(seconds(60)).await;
    set(&engine, &scope, false).await;
    for id in ids {
        served(&engine, id, seconds(600)).await;
    }
    let entries = stage.entries().await;
    let spent = count(while_paused(&entries), spends);
    assert_eq!(spent, 0, "{scope} after {after:?}, restart: {restarts}");
}

/// I29. Half a second apart, from the first submission to the last answer.
#[test]
fn nothing_is_submitted_while_paused_at_any_step_and_all_is_served_afterwards() {
    for half_seconds in 0..110 {
        for scope in scopes() {
            story(async |stage| {
                let after = Duration::from_millis(500 * half_seconds + 1);
                pause_for_a_minute(stage, scope, after, false).await;
            });
        }
    }
}

#[test]
fn a_pause_outlasts_a_crash() {
    for step in 0..25 {
        for scope in scopes() {
            story(async |stage| {
                let after = Duration::from_millis(2000 * step + 1);
                pause_for_a_minute(stage, scope, after, true).await;
            });
        }
    }
}

#[test]
fn a_pause_and_its_end_reach_every_gateway_within_two_seconds() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(4);
        stage.config.deadline = seconds(600);
        let (one, two) = (stage.gateway(1).await, stage.gateway(2).await);
        for (number, gateway) in [&one, &two].into_iter().enumerate() {
            for n in 0..10 {
                open(gateway, &format!("k{number}-{n}")).await;
            }
            // Each leases what it admitted.
            stage.pass(Duration::from_millis(50)).await;
        }
        stage.pass(seconds(5)).await;
        set(&one, &PauseScope::Everything, true).await;
        let began = stage.clock.now();
        stage.pass(seconds(60)).await;
        let submits = stage.provider.submits.lock().unwrap().clone();
        assert!(submits.iter().all(|at| *at <= began), "{submits:?}");
        set(&one, &PauseScope::Everything, false).await;
        let ended = stage.clock.now();
        stage.pass(seconds(2)).await;
        let resumed =
            stage.provider.submits.lock().unwrap().iter().filter(|at| **at >= ended).count();
        assert_eq!(resumed, 4, "two slots of each gateway");
    });
}

/// A paused solve costs one look a second at most, not a store call in a loop.
#[test]
fn paused_work_waits_without_being_tried_again_and_again() {
    story(async |mut stage| {
        stage.config.deadline = seconds(600);
        let engine = stage.gateway(1).await;
        set(&engine, &PauseScope::Everything, true).await;
        for n in 0..50 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(60)).await;
        let health = engine.health();
        assert_eq!((health.queued, health.in_flight), (50, 0), "the slots are free");
        assert!(health.troubles.iter().any(|line| line.contains("paused")), "{health:?}");
        assert!(health.ready, "claims are admitted");
        set(&engine, &PauseScope::Everything, false).await;
        stage.pass(seconds(60)).await;
        assert_eq!(stage.paid(), 50);
    });
}

#[test]
fn a_paused_claim_lapses_and_can_be_revived_afterwards() {
    story(async |mut stage| {
        stage.config.deadline = seconds(30);
        let engine = stage.gateway(1).await;
        set(&engine, &PauseScope::Everything, true).await;
        let id = open(&engine, "a").await;
        stage.pass(seconds(32)).await;
        let claim = engine.find_claim(&Scope::All, id).await.unwrap();
        assert_eq!((claim.state, claim.attempts), (ClaimState::Lapsed, 0));
        assert_eq!(claim.code.as_ref().unwrap().as_str(), own::PAUSED);
        let pause = engine.pause_that_stopped(&claim).expect("the answer says so");
        assert_eq!(pause.by, operator());
        set(&engine, &PauseScope::Everything, false).await;
        engine.revive(&bulk(&["w"])).await.unwrap();
        stage.pass(seconds(30)).await;
        assert_eq!(stage.paid(), 1);
    });
}

#[test]
fn a_lost_reply_is_decided_after_the_resume() {
    story(async |mut stage| {
        stage.config.deadline = seconds(300);
        stage.fault(Call::Submit, Fault::Drop, 1);
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        stage.pass(Duration::from_millis(500)).await;
        set(&engine, &PauseScope::Everything, true).await;
        stage.pass(seconds(60)).await;
        let claim = engine.find_claim(&Scope::All, id).await.unwrap();
        let solve = stage.backend.store.find_solve(claim.solve.unwrap()).await.unwrap().unwrap();
        assert_eq!(solve.stage, SolveStage::Ambiguous);
        set(&engine, &PauseScope::Everything, false).await;
        served(&engine, id, seconds(60)).await;
        assert_eq!(count(&stage.entries().await, |e| matches!(e, Event::Authorised { .. })), 1);
    });
}

#[test]
fn a_round_of_a_serverless_process_submits_nothing_while_paused() {
    story(async |stage| {
        let until = || stage.clock.now().plus(seconds(20));
        let mut first = stage.rounds(1);
        let id = open(first.engine(), "a").await;
        set(first.engine(), &PauseScope::Everything, true).await;
        let report = first.submit(id, until()).await.unwrap();
        assert_eq!((report.leased, report.submitted), (1, 0));
        let report = stage.rounds(2).run_all(until()).await.unwrap();
        assert_eq!((report.leased, report.submitted, stage.paid()), (1, 0, 0));
        set(first.engine(), &PauseScope::Everything, false).await;
        assert_eq!(stage.rounds(3).run_all(until()).await.unwrap().submitted, 1);
    });
}

#[test]
fn a_round_of_a_serverless_process_ends_what_is_no_longer_declared() {
    story(async |mut stage| {
        let until = || stage.clock.now().plus(seconds(20));
        let first = stage.rounds(1);
        let id = open(first.engine(), "a").await;
        drop(first);
        stage.config.declarations = Arc::default();
        let mut second = stage.rounds(2);
        let report = second.submit(id, until()).await.unwrap();
        assert_eq!((report.leased, stage.paid()), (1, 0));
        let claim = second.engine().find_claim(&Scope::All, id).await.unwrap();
        assert_eq!(claim.code.unwrap().as_str(), own::SITE_NOT_DECLARED);
        assert_eq!(stage.dead_letters().await, 0);
    });
}

fn bulk(workers: &[&str]) -> BulkRequest {
    let worker = |name: &&str| (WorkerName::new(*name).unwrap(), Allowance::default());
    BulkRequest {
        which: DeadLetterSelection::Matching(DeadLetterFilter::open(Scope::All, 100)),
        by: operator(),
        rate: 100,
        dry_run: false,
        allowances: workers.iter().map(worker).collect(),
    }
}

fn only(stage: &Stage, workers: &[&str]) -> Arc<Declarations> {
    let scope = |name: &&str| (WorkerName::new(*name).unwrap(), WorkerScope::FULL);
    let workers = KnownWorkers::Listed(workers.iter().map(scope).collect());
    Declarations { workers, ..(*stage.config.declarations).clone() }.into()
}

/// Dead letters of a leaked worker were revived, and its key is revoked while they wait.
#[test]
fn revived_work_of_a_revoked_worker_is_not_paid_for() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        stage.config.declarations = only(&stage, &["gone", "stays"]);
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 6);
        let engine = stage.gateway(1).await;
        for n in 0..6 {
            let worker = if n % 2 == 0 { "gone" } else { "stays" };
            open_with(&engine, claim_request_as(worker, &format!("k{n}"))).await;
        }
        stage.pass(seconds(20)).await;
        assert_eq!((stage.dead_letters().await, stage.paid()), (6, 0));
        set(&engine, &PauseScope::Everything, true).await;
        engine.revive(&bulk(&["gone", "stays"])).await.unwrap();
        stage.pass(seconds(10)).await;
        engine.set_declarations(only(&stage, &["stays"]));
        set(&engine, &PauseScope::Everything, false).await;
        stage.pass(seconds(120)).await;
        let entries = stage.entries().await;
        let paid_for = |name: &str| {
            let theirs = entries.iter().filter(|entry| entry.worker.as_str() == name);
            theirs.filter(|entry| matches!(entry.event, Event::Accepted { .. })).count()
        };
        assert_eq!((paid_for("gone"), paid_for("stays")), (0, 3));
    });
}

#[test]
fn a_worker_that_is_not_paused_is_served_while_the_other_waits() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        let engine = stage.gateway(1).await;
        set(&engine, &PauseScope::Worker(WorkerName::new("w").unwrap()), true).await;
        for n in 0..3 {
            open_with(&engine, claim_request(&format!("w{n}"))).await;
        }
        let id = open_with(&engine, claim_request_as("other", "o")).await;
        served(&engine, id, seconds(30)).await;
        assert_eq!(stage.paid(), 1);
    });
}
