//! What is told outside of any request, and dead letters brought back, in virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    callback::Told,
    claim::{Allowance, Claim, ClaimState},
    id::{SolveId, WorkerName},
    ledger::Event,
    money::Money,
    ports::{DeadLetterFilter, Scope},
    secret::Secret,
    time::Timestamp,
};
use engine::{Alerts, Ask, Bulk, Revived, Slots, Which};
use simulator::{Call, Fault};

use simulation::stage::{Stage, ask, open, open_with, seconds, served, story};

fn with_callback(key: &str) -> Ask {
    Ask { callback_url: Some(Secret::new("https://hooks.example.com/x")), ..ask(key) }
}

fn bulk(which: Which) -> Bulk {
    Bulk {
        which,
        by: WorkerName::new("admin").unwrap(),
        rate: 10,
        dry_run: false,
        allowances: BTreeMap::from([(WorkerName::new("w").unwrap(), Allowance::default())]),
    }
}

async fn letters(stage: &Stage) -> Vec<SolveId> {
    let open = DeadLetterFilter::open(Scope::All, 10_000);
    let found = stage.backend.records.dead_letters(open).await.unwrap().items;
    found.into_iter().map(|letter| letter.id).collect()
}

/// What must hold, 6.
#[test]
fn a_receiver_that_is_down_for_an_hour_gets_every_callback() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.receiver.is_down.store(true, Ordering::SeqCst);
        let mut ids = Vec::new();
        for n in 0..20 {
            if n % 4 == 0 {
                stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
            }
            ids.push(open_with(&engine, with_callback(&format!("k{n}"))).await);
            stage.pass(seconds(1)).await;
        }
        stage.pass(seconds(3600)).await;
        assert!(stage.receiver.got.lock().unwrap().is_empty());
        // Another process has to go on with it.
        engine.crash();
        let _second = stage.gateway(2).await;
        stage.receiver.is_down.store(false, Ordering::SeqCst);
        stage.pass(seconds(31 * 60)).await;
        let got = stage.receiver.got.lock().unwrap().clone();
        let tried = stage.receiver.tried.lock().unwrap().clone();
        for id in ids {
            let own = |message: &str| message.starts_with(&format!("msg_{id}_"));
            let received: Vec<_> = got.iter().filter(|(message, _)| own(message)).collect();
            assert_eq!(received.len(), 1, "claim {id}");
            let mut names: Vec<_> = tried.iter().filter(|message| own(message)).collect();
            assert!((5..=14).contains(&names.len()), "{} tries in an hour", names.len());
            names.dedup();
            assert_eq!(names.len(), 1, "the same id at every try");
        }
        stage.pass(seconds(7200)).await;
        assert_eq!(stage.receiver.got.lock().unwrap().len(), 20, "once taken, never told again");
    });
}

/// The token comes with the callback, at once, and counts as delivered.
#[test]
fn a_callback_brings_the_token_at_once() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let id = open_with(&engine, with_callback("a")).await;
        stage.pass(seconds(12)).await;
        let got = stage.receiver.got.lock().unwrap().clone();
        assert_eq!(got.len(), 1);
        let notice = &got[0].1;
        assert_eq!(notice.what, "solve.served");
        let Told::Claim(told) = &notice.data else { panic!("{notice:?}") };
        let token = told.token.as_ref().unwrap().text.expose();
        assert_eq!(token, served(&engine, id, Duration::ZERO).await);
        let claim = engine.look(&Scope::All, id).await.unwrap();
        let lag = claim.delivered_at.unwrap().since(claim.ended_at.unwrap());
        assert!(lag <= Duration::from_millis(50), "{lag:?}");
    });
}

/// Ten equal letters are one attempt; different keys are one each.
#[test]
fn letters_come_back_in_bulk_at_their_rate_and_once() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(20);
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 30);
        for n in 0..20 {
            open(&engine, &format!("k{n}")).await;
        }
        for _ in 0..10 {
            open_with(&engine, Ask { key: None, fresh: true, ..ask("") }).await;
        }
        stage.pass(seconds(10)).await;
        assert_eq!((letters(&stage).await.len(), stage.paid()), (30, 0));
        let open = DeadLetterFilter::open(Scope::All, 100);
        let dry = Bulk { dry_run: true, ..bulk(Which::Matching(open.clone())) };
        let would = engine.revive(&dry).await.unwrap();
        assert!(would.items.iter().all(|(_, revived)| *revived == Revived::Would));
        assert_eq!((would.items.len(), letters(&stage).await.len()), (30, 30));
        let half = bulk(Which::Ids(letters(&stage).await.split_off(15)));
        let alone = engine.revive(&half).await.unwrap();
        let moments = revived_at(&stage).await;
        let within = |eleven: &[Timestamp]| eleven[10].since(eleven[0]) < seconds(1);
        assert!(!moments.windows(11).any(within), "more than 10 within a second: {moments:?}");
        // The rate is a call's own; twice at once is once.
        let rest = bulk(Which::Matching(open));
        let (first, second) = tokio::join!(engine.revive(&rest), engine.revive(&rest));
        let both = first.unwrap().items.into_iter().chain(second.unwrap().items);
        let items = alone.items.into_iter().chain(both);
        let opened = items.filter(|(_, revived)| matches!(revived, Revived::Opened(_))).count();
        assert_eq!(opened, 21, "twenty keys, and one for the ten equal ones");
        stage.pass(seconds(60)).await;
        assert_eq!((stage.paid(), letters(&stage).await.len()), (21, 0));
        assert_eq!((moments.len(), revived_at(&stage).await.len()), (15, 30), "each once");
        // The worker that asks again under its key gets the answer.
        served(&engine, open_again(&engine, "k3").await, Duration::ZERO).await;
    });
}

async fn revived_at(stage: &Stage) -> Vec<Timestamp> {
    let entries = stage.entries().await.into_iter();
    let revived = entries.filter(|entry| matches!(entry.event, Event::Revived { .. }));
    revived.map(|entry| entry.at).collect()
}

async fn open_again(engine: &engine::Engine, key: &str) -> domain::id::ClaimId {
    let admitted = engine.claim(ask(key)).await.unwrap();
    assert!(admitted.replayed);
    match admitted.outcome {
        engine::Outcome::Served { claim, .. } => claim.id,
        other => panic!("{other:?}"),
    }
}

fn keyless() -> Ask {
    Ask { key: None, ..ask("") }
}

async fn claimed(engine: &engine::Engine, ask: Ask) -> Claim {
    match engine.claim(ask).await.unwrap().outcome {
        engine::Outcome::Waiting { claim, .. } | engine::Outcome::Served { claim, .. } => claim,
        other => panic!("{other:?}"),
    }
}

/// Forty revived letters wait for one slot, five minutes' work; who comes now is served now.
#[test]
fn live_claims_do_not_wait_behind_equal_letters() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(1);
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 41);
        open_with(&engine, keyless()).await;
        stage.pass(seconds(1)).await;
        for n in 0..40 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(120)).await;
        assert_eq!(letters(&stage).await.len(), 41);
        let all = Which::Matching(DeadLetterFilter::open(Scope::All, 100));
        let done = engine.revive(&Bulk { rate: 1000, ..bulk(all) }).await.unwrap();
        assert_eq!(done.items.len(), 41);
        stage.pass(seconds(30)).await;
        // Newest first: these two are the last in the queue.
        for asked in [keyless(), ask("k0")] {
            let claim = claimed(&engine, asked).await;
            assert!(claim.deadline <= stage.clock.now().plus(stage.config.deadline), "{claim:?}");
            served(&engine, claim.id, seconds(40)).await;
        }
        stage.pass(seconds(600)).await;
        let active = stage.backend.records.active(Scope::All, 99).await.unwrap();
        assert_eq!((stage.paid(), active.len()), (41, 0), "one attempt for each, all the same");
    });
}

/// Revived letters that were not sent yet.
async fn letters_waiting(stage: &Stage) -> usize {
    let revived = revived_at(stage).await;
    assert!(revived[20].since(revived[0]) >= seconds(1), "one after the other: {revived:?}");
    let submits = stage.provider.submits.lock().unwrap();
    revived.len() - submits.iter().filter(|at| **at >= revived[0]).count()
}

/// What was brought back and is wanted now does not wait for the driver's next look, nor is it told that it stands behind
/// all letters.
#[test]
fn a_letter_wanted_now_is_sent_now() {
    for asked in [keyless(), ask("k0")] {
        story(async |mut stage| {
            stage.config.slots = Slots::Fixed(2);
            let engine = stage.gateway(1).await;
            stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 21);
            open_with(&engine, keyless()).await;
            stage.pass(seconds(1)).await;
            for n in 0..20 {
                open(&engine, &format!("k{n}")).await;
            }
            stage.pass(seconds(120)).await;
            let all = Which::Matching(DeadLetterFilter::open(Scope::All, 100));
            engine.revive(&Bulk { rate: 10, ..bulk(all) }).await.unwrap();
            stage.pass(Duration::from_millis(6_300)).await;
            let before_it = letters_waiting(&stage).await;
            assert!(before_it >= 16, "{before_it}");
            let claimed_at = stage.clock.now();
            let outcome = engine.claim(asked).await.unwrap().outcome;
            let engine::Outcome::Waiting { claim, eta } = outcome else { panic!("{outcome:?}") };
            assert!(
                eta <= seconds(20),
                "in two slots, behind all letters, it would be a minute: {eta:?}"
            );
            stage.pass(Duration::from_millis(20)).await;
            let leased = stage.backend.store.find_solve(claim.solve.unwrap()).await.unwrap();
            assert!(leased.unwrap().holder.is_some(), "{:?}", stage.clock.now().since(claimed_at));
            served(&engine, claim.id, seconds(40)).await;
        });
    }
}

/// Nobody comes for a letter without key and callback: its token is whoever's who wants one like it.
#[test]
fn what_was_revived_for_nobody_is_paid_once_and_not_wasted() {
    // Before it is sent, while it is at the provider, when its token is there.
    for after in [0, 3, 40] {
        story(async |stage| {
            let engine = stage.gateway(1).await;
            stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
            open_with(&engine, keyless()).await;
            stage.pass(seconds(5)).await;
            let all = Bulk { rate: 1000, ..bulk(Which::Ids(letters(&stage).await)) };
            let done = engine.revive(&all).await.unwrap();
            assert!(matches!(done.items[0].1, Revived::Opened(_)), "{done:?}");
            stage.pass(seconds(after)).await;
            let claim = claimed(&engine, ask("another")).await;
            served(&engine, claim.id, seconds(30)).await;
            stage.pass(seconds(600)).await;
            let wasted =
                |entry: &domain::ledger::Entry| matches!(entry.event, Event::Wasted { .. });
            assert_eq!((stage.paid(), stage.entries().await.iter().any(wasted)), (1, false));
        });
    }
}

/// A worker that is not configured any more gets nothing, and the answer says so.
#[test]
fn a_letter_of_a_worker_that_is_gone_stays_dead() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open(&engine, "a").await;
        stage.pass(seconds(5)).await;
        let ids = letters(&stage).await;
        for dry_run in [true, false] {
            let gone =
                Bulk { allowances: BTreeMap::new(), dry_run, ..bulk(Which::Ids(ids.clone())) };
            let done = engine.revive(&gone).await.unwrap();
            let Revived::Refused(why) = &done.items[0].1 else { panic!("{done:?}") };
            assert!(why.contains("not configured"), "{why}");
        }
        assert_eq!((letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// Account trouble for longer than a revived letter waits: it is back on the list.
#[test]
fn a_letter_revived_into_an_empty_account_is_not_lost() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open_with(&engine, keyless()).await;
        stage.pass(seconds(5)).await;
        let ids = letters(&stage).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        engine.revive(&bulk(Which::Ids(ids.clone()))).await.unwrap();
        assert_eq!(letters(&stage).await, []);
        stage.pass(seconds(25 * 3600)).await;
        assert_eq!((letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// A page that is not declared any more does not come back.
#[test]
fn a_letter_for_a_page_no_longer_declared_stays_dead() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open(&engine, "a").await;
        stage.pass(seconds(5)).await;
        engine.set_sites(Arc::default());
        let ids = letters(&stage).await;
        let done = engine.revive(&bulk(Which::Ids(ids.clone()))).await.unwrap();
        assert!(matches!(&done.items[0].1, Revived::Refused(_)), "{done:?}");
        assert_eq!((letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// Alerts: account trouble within ten seconds, budgets, dead letters; each once per cooldown.
#[test]
fn trouble_is_told_once_per_cooldown() {
    story(async |mut stage| {
        let worker = WorkerName::new("w").unwrap();
        let allowance = Allowance { solves_per_day: Some(25), cost_per_day: None };
        stage.config.alerts = Some(Alerts {
            url: Secret::new("https://ops.example.com/alerts"),
            dead_letters: 10,
            cooldown: seconds(900),
            allowances: BTreeMap::from([(worker, allowance)]),
        });
        stage.config.deadline = seconds(3600);
        let engine = stage.gateway(1).await;
        let told = || {
            let got = stage.receiver.got.lock().unwrap();
            got.iter().map(|(_, notice)| notice.what.clone()).collect::<Vec<_>>()
        };
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 11);
        for n in 0..11 {
            open(&engine, &format!("dead-{n}")).await;
        }
        stage.pass(seconds(45)).await;
        assert_eq!(told(), ["alert.dead_letters"]);
        for n in 0..9 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(45)).await;
        assert_eq!(told(), ["alert.dead_letters", "alert.budget_nearly_used"]);
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        open(&engine, "poor").await;
        stage.pass(seconds(10)).await;
        assert_eq!(told().last().map(String::as_str), Some("alert.account"));
        stage.pass(seconds(600)).await;
        assert_eq!(told().len(), 3, "no more within the cooldown: {:?}", told());
        stage.pass(seconds(900)).await;
        assert!(told().len() > 3, "and again after it");
    });
}

/// A letter whose task is still out is waited for, not paid again, also through the engine.
#[test]
fn a_lapsed_claim_is_brought_back_onto_its_own_task() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let hasty = Ask { deadline: Some(seconds(4)), ..ask("hasty") };
        let id = open_with(&engine, hasty).await;
        stage.pass(seconds(6)).await;
        assert_eq!(engine.look(&Scope::All, id).await.unwrap().state, ClaimState::Lapsed);
        let ids = letters(&stage).await;
        let done = engine.revive(&bulk(Which::Ids(ids))).await.unwrap();
        let Revived::Joined(back) = done.items[0].1 else { panic!("{done:?}") };
        served(&engine, back, seconds(60)).await;
        assert_eq!(stage.paid(), 1);
    });
}
