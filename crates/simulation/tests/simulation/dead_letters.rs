//! Dead letters that are revived, in virtual time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    claim::{Allowance, Claim, ClaimState},
    dead_letter::DeadLetterClass,
    id::{SolveId, WorkerName},
    ledger::Event,
    money::Money,
    ports::{DeadLetterFilter, Scope},
    time::Timestamp,
};
use engine::{BulkRequest, ClaimRequest, DeadLetterSelection, Revived, Slots};
use simulator::{Call, Fault};

use simulation::stage::{Stage, claim_request, open, open_with, seconds, served, story};

fn bulk(which: DeadLetterSelection) -> BulkRequest {
    BulkRequest {
        which,
        by: Actor::process(WorkerName::new("admin").unwrap()),
        rate: 10,
        dry_run: false,
        allowances: BTreeMap::from([(WorkerName::new("w").unwrap(), Allowance::default())]),
    }
}

async fn dead_letters(stage: &Stage) -> Vec<SolveId> {
    let open = DeadLetterFilter::open(Scope::All, 10_000);
    let found = stage.backend.records.dead_letters(open).await.unwrap().items;
    found.into_iter().map(|dead_letter| dead_letter.id).collect()
}

/// Ten equal dead letters make one attempt; different keys make one each.
#[test]
fn dead_letters_are_revived_in_bulk_at_their_rate_and_once() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(20);
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 30);
        for n in 0..20 {
            open(&engine, &format!("k{n}")).await;
        }
        for _ in 0..10 {
            open_with(&engine, ClaimRequest { key: None, fresh: true, ..claim_request("") }).await;
        }
        stage.pass(seconds(10)).await;
        assert_eq!((dead_letters(&stage).await.len(), stage.paid()), (30, 0));
        let open = DeadLetterFilter::open(Scope::All, 100);
        let dry =
            BulkRequest { dry_run: true, ..bulk(DeadLetterSelection::Matching(open.clone())) };
        let would = engine.revive(&dry).await.unwrap();
        assert!(would.items.iter().all(|(_, revived)| *revived == Revived::Would));
        assert_eq!((would.items.len(), dead_letters(&stage).await.len()), (30, 30));
        let half = bulk(DeadLetterSelection::Ids(dead_letters(&stage).await.split_off(15)));
        let alone = engine.revive(&half).await.unwrap();
        let moments = revived_at(&stage).await;
        let within = |eleven: &[Timestamp]| eleven[10].since(eleven[0]) < seconds(1);
        assert!(!moments.windows(11).any(within), "more than 10 within a second: {moments:?}");
        // The rate applies per call; a dead letter in two calls is revived once.
        let rest = bulk(DeadLetterSelection::Matching(open));
        let (first, second) = tokio::join!(engine.revive(&rest), engine.revive(&rest));
        let both = first.unwrap().items.into_iter().chain(second.unwrap().items);
        let items = alone.items.into_iter().chain(both);
        let opened = items.filter(|(_, revived)| matches!(revived, Revived::Opened(_))).count();
        assert_eq!(opened, 21, "twenty keys, and one for the ten equal ones");
        stage.pass(seconds(60)).await;
        assert_eq!((stage.paid(), dead_letters(&stage).await.len()), (21, 0));
        assert_eq!((moments.len(), revived_at(&stage).await.len()), (15, 30), "each once");
        // A worker that repeats its claim with the same key gets the answer.
        served(&engine, open_again(&engine, "k3").await, Duration::ZERO).await;
    });
}

async fn revived_at(stage: &Stage) -> Vec<Timestamp> {
    let entries = stage.entries().await.into_iter();
    let revived = entries.filter(|entry| matches!(entry.event, Event::Revived { .. }));
    revived.map(|entry| entry.at).collect()
}

async fn open_again(engine: &engine::Engine, key: &str) -> domain::id::ClaimId {
    let admitted = engine.claim(claim_request(key)).await.unwrap();
    assert!(admitted.replayed);
    match admitted.outcome {
        engine::Outcome::Served { claim, .. } => claim.id,
        other => panic!("{other:?}"),
    }
}

fn keyless() -> ClaimRequest {
    ClaimRequest { key: None, ..claim_request("") }
}

async fn claimed(engine: &engine::Engine, ask: ClaimRequest) -> Claim {
    match engine.claim(ask).await.unwrap().outcome {
        engine::Outcome::Waiting { claim, .. } | engine::Outcome::Served { claim, .. } => claim,
        other => panic!("{other:?}"),
    }
}

/// Forty revived dead letters wait for one slot, five minutes of work; a live claim is served at once.
#[test]
fn live_claims_do_not_wait_behind_equal_dead_letters() {
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
        assert_eq!(dead_letters(&stage).await.len(), 41);
        let all = DeadLetterSelection::Matching(DeadLetterFilter::open(Scope::All, 100));
        let done = engine.revive(&BulkRequest { rate: 1000, ..bulk(all) }).await.unwrap();
        assert_eq!(done.items.len(), 41);
        stage.pass(seconds(30)).await;
        // Newest first: these two are the last in the queue.
        for request in [keyless(), claim_request("k0")] {
            let claim = claimed(&engine, request).await;
            assert!(claim.deadline <= stage.clock.now().plus(stage.config.deadline), "{claim:?}");
            served(&engine, claim.id, seconds(40)).await;
        }
        stage.pass(seconds(600)).await;
        let active = stage.backend.records.active(Scope::All, 99).await.unwrap();
        assert_eq!((stage.paid(), active.len()), (41, 0), "one attempt for each, all the same");
    });
}

/// Revived dead letters that were not submitted yet.
async fn dead_letters_waiting(stage: &Stage) -> usize {
    let revived = revived_at(stage).await;
    assert!(revived[20].since(revived[0]) >= seconds(1), "one after the other: {revived:?}");
    let submits = stage.provider.submits.lock().unwrap();
    revived.len() - submits.iter().filter(|at| **at >= revived[0]).count()
}

/// A revived claim that becomes live neither waits for the driver's next pass nor gets an estimate behind all dead
/// letters.
#[test]
fn a_dead_letter_wanted_now_is_sent_now() {
    for request in [keyless(), claim_request("k0")] {
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
            let all = DeadLetterSelection::Matching(DeadLetterFilter::open(Scope::All, 100));
            engine.revive(&BulkRequest { rate: 10, ..bulk(all) }).await.unwrap();
            stage.pass(Duration::from_millis(6_300)).await;
            let before_it = dead_letters_waiting(&stage).await;
            assert!(before_it >= 16, "{before_it}");
            let claimed_at = stage.clock.now();
            let outcome = engine.claim(request).await.unwrap().outcome;
            let engine::Outcome::Waiting { claim, eta } = outcome else { panic!("{outcome:?}") };
            assert!(
                eta <= seconds(20),
                "in two slots, behind all dead letters, it would be a minute: {eta:?}"
            );
            stage.pass(Duration::from_millis(20)).await;
            let leased = stage.backend.store.find_solve(claim.solve.unwrap()).await.unwrap();
            assert!(leased.unwrap().holder.is_some(), "{:?}", stage.clock.now().since(claimed_at));
            served(&engine, claim.id, seconds(40)).await;
        });
    }
}

/// Nobody fetches the token of a dead letter without key and callback, so it goes to any claim for the same challenge.
#[test]
fn a_revival_nobody_waits_for_is_paid_once_and_not_wasted() {
    // Before it is submitted, while it is at the provider, when its token is ready.
    for after in [0, 3, 40] {
        story(async |stage| {
            let engine = stage.gateway(1).await;
            stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
            open_with(&engine, keyless()).await;
            stage.pass(seconds(5)).await;
            let all = BulkRequest {
                rate: 1000,
                ..bulk(DeadLetterSelection::Ids(dead_letters(&stage).await))
            };
            let done = engine.revive(&all).await.unwrap();
            assert!(matches!(done.items[0].1, Revived::Opened(_)), "{done:?}");
            stage.pass(seconds(after)).await;
            let claim = claimed(&engine, claim_request("another")).await;
            served(&engine, claim.id, seconds(30)).await;
            stage.pass(seconds(600)).await;
            let wasted =
                |entry: &domain::ledger::Entry| matches!(entry.event, Event::Wasted { .. });
            assert_eq!((stage.paid(), stage.entries().await.iter().any(wasted)), (1, false));
        });
    }
}

/// A worker that is no longer configured gets nothing, and the response says so.
#[test]
fn a_dead_letter_of_a_removed_worker_stays_dead() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open(&engine, "a").await;
        stage.pass(seconds(5)).await;
        let ids = dead_letters(&stage).await;
        for dry_run in [true, false] {
            let gone = BulkRequest {
                allowances: BTreeMap::new(),
                dry_run,
                ..bulk(DeadLetterSelection::Ids(ids.clone()))
            };
            let done = engine.revive(&gone).await.unwrap();
            let Revived::Refused(why) = &done.items[0].1 else { panic!("{done:?}") };
            assert!(why.contains("not configured"), "{why}");
        }
        assert_eq!((dead_letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// When account trouble lasts longer than the deadline of a revived dead letter, the dead letter is open again.
#[test]
fn a_dead_letter_revived_into_an_empty_account_is_not_lost() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open_with(&engine, keyless()).await;
        stage.pass(seconds(5)).await;
        let ids = dead_letters(&stage).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        engine.revive(&bulk(DeadLetterSelection::Ids(ids.clone()))).await.unwrap();
        assert_eq!(dead_letters(&stage).await, []);
        stage.pass(seconds(25 * 3600)).await;
        assert_eq!((dead_letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// The account was empty for longer than any claim could wait. Afterwards all of them are revived, each for one price.
#[test]
fn an_account_that_was_empty_for_longer_than_the_deadline_loses_no_claim() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(5);
        let engine = stage.gateway(1).await;
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
        for key in &keys {
            open(&engine, key).await;
            stage.pass(seconds(20)).await;
        }
        stage.pass(seconds(300)).await;
        let (failed, lapsed) = (DeadLetterClass::Failed, DeadLetterClass::Lapsed);
        assert_eq!(
            (stage.dead_letters_of(failed).await, stage.dead_letters_of(lapsed).await),
            (0, 30)
        );
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000)));
        let filter =
            DeadLetterFilter { class: Some(lapsed), ..DeadLetterFilter::open(Scope::All, 100) };
        let done = engine.revive(&bulk(DeadLetterSelection::Matching(filter))).await.unwrap();
        let opened = |(_, revived): &&(SolveId, Revived)| matches!(revived, Revived::Opened(_));
        assert_eq!(done.items.iter().filter(opened).count(), 30, "{done:?}");
        stage.pass(seconds(200)).await;
        for key in &keys {
            served(&engine, open_again(&engine, key).await, Duration::ZERO).await;
        }
        assert_eq!((stage.paid(), dead_letters(&stage).await), (30, vec![]));
    });
}

/// A dead letter for a page that is no longer declared is not revived.
#[test]
fn a_dead_letter_for_a_page_no_longer_declared_stays_dead() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        stage.fault(Call::Submit, Fault::code("ERROR_PAGEURL"), 1);
        open(&engine, "a").await;
        stage.pass(seconds(5)).await;
        engine.set_declarations(Arc::default());
        let ids = dead_letters(&stage).await;
        let done = engine.revive(&bulk(DeadLetterSelection::Ids(ids.clone()))).await.unwrap();
        assert!(matches!(&done.items[0].1, Revived::Refused(_)), "{done:?}");
        assert_eq!((dead_letters(&stage).await, stage.paid()), (ids, 0));
    });
}

/// A dead letter whose task is still in flight waits for that task and is not paid again.
#[test]
fn a_revived_claim_waits_for_its_own_task() {
    story(async |stage| {
        let engine = stage.gateway(1).await;
        let hasty = ClaimRequest { deadline: Some(seconds(4)), ..claim_request("hasty") };
        let id = open_with(&engine, hasty).await;
        stage.pass(seconds(6)).await;
        assert_eq!(engine.find_claim(&Scope::All, id).await.unwrap().state, ClaimState::Lapsed);
        let ids = dead_letters(&stage).await;
        let done = engine.revive(&bulk(DeadLetterSelection::Ids(ids))).await.unwrap();
        let Revived::Joined(back) = done.items[0].1 else { panic!("{done:?}") };
        served(&engine, back, seconds(60)).await;
        assert_eq!(stage.paid(), 1);
    });
}
