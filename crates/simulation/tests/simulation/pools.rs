//! Pools, learned polling and pingbacks with the real engine, in virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    actor::Actor,
    budget::Allowance,
    claim::{ClaimState, Source},
    id::{AttemptName, Project, WorkerName},
    ledger::{Entry, Event},
    money::Money,
    pool::{Expectation, FREE_WASTE, Level},
    ports::{PoolState, Scope},
};
use engine::{Engine, LearnedConfig, Outcome, PoolWish, Slots};
use simulator::BehaviourConfig;

use simulation::stage::{Stage, claim_request, open, open_with, seconds, served, story};

fn wish(level: Level) -> PoolWish {
    PoolWish {
        challenge: claim_request("").challenge,
        project: Project::new("pool").unwrap(),
        level,
        most: 30,
        waste: 100,
        budget: Allowance::default(),
    }
}

async fn state(engine: &Engine) -> PoolState {
    engine.pools().await.unwrap().remove(0)
}

fn ordered(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| matches!(entry.event, Event::Ordered { .. })).count()
}

/// The waste allowance holds, whatever happens.
async fn check_allowance(engine: &Engine) {
    let pool = state(engine).await.pool;
    let allowed = FREE_WASTE + pool.announced + pool.served / 10;
    assert!(pool.wasted <= allowed, "{} wasted of {allowed}", pool.wasted);
}

#[test]
fn a_fixed_pool_is_filled_and_serves_at_once() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Fixed(3))];
        let engine = stage.gateway(1).await;
        stage.pass(seconds(15)).await;
        assert_eq!((state(&engine).await.stock.len(), stage.paid()), (3, 3));
        let outcome = engine.claim(claim_request("a")).await.unwrap().outcome;
        let Outcome::Served { claim, source } = outcome else { panic!("{outcome:?}") };
        // A pool's token costs the claim that it serves.
        let paid = claim.token.as_ref().unwrap().cost;
        assert!(paid.is_some_and(|paid| paid > Money::ZERO), "{paid:?}");
        assert_eq!((source, claim.cost), (Source::Stock, paid));
        stage.pass(seconds(15)).await;
        assert_eq!((state(&engine).await.stock.len(), stage.paid()), (3, 4));
    });
}

#[test]
fn a_pool_no_longer_declared_is_closed() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Fixed(1))];
        let engine = stage.gateway(1).await;
        stage.pass(seconds(5)).await;
        engine.drain().await;
        stage.config.pools.clear();
        let second = stage.gateway(2).await;
        stage.pass(seconds(5)).await;
        assert!(second.pools().await.unwrap().is_empty());
    });
}

/// Steady demand is met from stock; after it stops, so does the buying.
#[test]
fn an_auto_pool_follows_the_demand_and_scales_to_nothing() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Auto)];
        stage.config.slots = Slots::Fixed(60);
        let engine = stage.gateway(1).await;
        stage.pass(seconds(3600)).await;
        assert_eq!(stage.paid(), 0, "there was no demand");
        let mut hits = 0;
        for n in 0..600 {
            let outcome = engine.claim(claim_request(&format!("k{n}"))).await.unwrap().outcome;
            let hit = matches!(outcome, Outcome::Served { .. });
            hits += usize::from(hit && n >= 100);
            check_allowance(&engine).await;
            stage.pass(seconds(1)).await;
        }
        assert!(hits >= 475, "{hits} of 500 found a token");
        let before = stage.paid();
        stage.pass(seconds(86_400)).await;
        let after = stage.paid() - before;
        assert!(after <= 23, "{after} tokens bought in a silent day");
        check_allowance(&engine).await;
        eprintln!("{hits} of 500 hits, {before} bought for 600, {after} in a silent day");
    });
}

/// I22: no refill is submitted while a claim waits for a slot.
#[test]
fn refills_yield_to_claims() {
    story(async |mut stage| {
        stage.config.slots = Slots::Fixed(2);
        stage.config.deadline = seconds(600);
        stage.config.pools = vec![wish(Level::Fixed(6))];
        let engine = stage.gateway(1).await;
        stage.pass(seconds(1)).await;
        for n in 0..20 {
            let mut other = claim_request(&format!("k{n}"));
            other.challenge = challenge("other");
            engine.claim(other).await.unwrap();
        }
        stage.pass(seconds(300)).await;
        let entries = stage.entries().await;
        let mut refills = BTreeSet::new();
        let mut waiting = 0_i32;
        for entry in &entries {
            match &entry.event {
                Event::Ordered { .. } => drop(refills.insert(entry.solve)),
                Event::Opened { .. } => waiting += 1,
                Event::Intent { .. } if refills.contains(&entry.solve) => {
                    assert_eq!(waiting, 0, "a refill was sent while {waiting} waited");
                }
                Event::Intent { attempt: 1, .. } => waiting -= 1,
                _ => {}
            }
        }
        assert!(ordered(&entries) >= 6);
    });
}

fn challenge(sitekey: &str) -> domain::challenge::Challenge {
    let draft = domain::challenge::ChallengeParts {
        sitekey: Some(sitekey.into()),
        pageurl: claim_request("").challenge.pageurl().cloned(),
        ..domain::challenge::ChallengeParts::default()
    };
    domain::challenge::Challenge::new(domain::challenge::Kind::Turnstile, draft).unwrap()
}

#[test]
fn account_trouble_stops_the_buying() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Fixed(5))];
        stage.account.with(|behaviour| behaviour.set_balance(Money::ZERO));
        let engine = stage.gateway(1).await;
        stage.pass(seconds(600)).await;
        assert!(engine.account_trouble().is_some());
        let submits = stage.provider.submits.lock().unwrap().len();
        assert!(submits <= 16, "{submits} submissions into an empty account");
        stage.account.with(|behaviour| behaviour.set_balance(Money::from_micros(1_000_000)));
        stage.pass(seconds(200)).await;
        assert_eq!(state(&engine).await.stock.len(), 5);
    });
}

/// A pool that cannot keep up raises an alert.
#[test]
fn a_starving_pool_raises_an_alert() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Fixed(3))];
        stage.config.slots = Slots::Fixed(1);
        stage.config.deadline = seconds(600);
        stage.config.alerts = Some(engine::Alerts {
            url: domain::secret::Secret::new("https://ops.example.com/"),
            dead_letters: 10,
            cooldown: seconds(900),
        });
        let engine = stage.gateway(1).await;
        stage.pass(seconds(60)).await;
        assert!(stage.receiver.got.lock().unwrap().is_empty(), "a full pool raises no alert");
        for n in 0..40 {
            engine.claim(claim_request(&format!("k{n}"))).await.unwrap();
        }
        stage.pass(seconds(60)).await;
        let delivered_callbacks = stage.receiver.got.lock().unwrap();
        let what: Vec<_> =
            delivered_callbacks.iter().map(|(_, notice)| notice.what.as_str()).collect();
        assert_eq!(what, ["alert.pool_starving"]);
    });
}

/// Four processes, one pool; its controller dies.
#[test]
fn four_gateways_order_as_one_and_a_dead_controller_is_replaced() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Fixed(4))];
        let mut gateways = Vec::new();
        for seed in 1..=4 {
            gateways.push(stage.gateway(seed).await);
        }
        stage.pass(seconds(20)).await;
        assert_eq!((stage.paid(), state(&gateways[0]).await.stock.len()), (4, 4));
        for _ in 0..3 {
            let engine = gateways.remove(0);
            engine.crash();
        }
        let left = &gateways[0];
        for n in 0..4 {
            left.claim(claim_request(&format!("k{n}"))).await.unwrap();
        }
        stage.pass(seconds(15 + 2 + 12)).await;
        let now = state(left).await;
        assert_eq!(now.stock.len() + now.coming, 4, "taken over within the lease");
        assert_eq!(stage.paid(), 8);
    });
}

#[test]
fn announced_demand_is_ready_when_it_comes() {
    story(async |mut stage| {
        stage.config.pools = vec![wish(Level::Auto)];
        stage.config.slots = Slots::Fixed(30);
        let engine = stage.gateway(1).await;
        stage.pass(seconds(2)).await;
        let id = state(&engine).await.pool.id();
        let at = stage.clock.now().plus(seconds(300));
        let by = Actor::process(WorkerName::new("admin").unwrap());
        engine.expect(id, Expectation { left: 12, at }, by).await.unwrap();
        stage.pass(seconds(200)).await;
        assert_eq!(stage.paid(), 0, "too early");
        stage.pass(seconds(101)).await;
        for n in 0..12 {
            let outcome = engine.claim(claim_request(&format!("k{n}"))).await.unwrap().outcome;
            assert!(matches!(outcome, Outcome::Served { .. }), "{n}: {outcome:?}");
        }
        stage.pass(seconds(600)).await;
        check_allowance(&engine).await;
    });
}

fn learned(stage: &mut Stage) {
    let config = LearnedConfig { min_gap: seconds(1), ..LearnedConfig::default() };
    stage.config.polling = config.into();
}

/// Requirement 1: at one solve a second, with batch polls.
#[test]
fn batch_polls_find_tasks_quickly_with_few_calls() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(11);
        behaviour.realistic = true;
        let mut stage = Stage::with(behaviour);
        stage.config.slots = Slots::Fixed(100);
        let price = Money::from_micros(1000);
        stage.config.prices = BTreeMap::from([(domain::challenge::Kind::Turnstile, price)]).into();
        learned(&mut stage);
        let engine = stage.gateway(1).await;
        for n in 0..600 {
            // Each claim has its own challenge, so that none is served from stock.
            let mut own = claim_request(&format!("k{n}"));
            own.challenge = challenge(&format!("key-{n}"));
            open_with(&engine, own).await;
            stage.pass(seconds(1)).await;
        }
        stage.pass(seconds(300)).await;
        let (ledger, entries) = (stage.account.ledger(), stage.entries().await);
        let ready = |entry: &&Entry| matches!(entry.event, Event::Ready { .. });
        let lags = entries.iter().filter(ready).skip(100).map(|entry| {
            let Event::Ready { task, .. } = &entry.event else { unreachable!() };
            entry.at.since(ledger.task(task).unwrap().ready_at.unwrap())
        });
        let lags: Vec<Duration> = lags.collect();
        let mean = lags.iter().sum::<Duration>() / u32::try_from(lags.len()).unwrap();
        let calls = ledger.poll_calls;
        eprintln!("{calls} calls for 600 solves, {mean:?} mean lag");
        assert!(calls <= 660, "{calls} calls for 600 solves");
        assert!(mean <= Duration::from_millis(600), "{mean:?}");
    });
}

/// A provider without batch polls is polled one by one, and not probed again after a restart.
#[test]
fn a_provider_without_batch_polls_is_polled_one_by_one() {
    story(async |_| {
        let mut behaviour = BehaviourConfig::new(11).solving_in(seconds(8));
        behaviour.batch = false;
        let mut stage = Stage::with(behaviour);
        learned(&mut stage);
        let engine = stage.gateway(1).await;
        for n in 0..10 {
            open(&engine, &format!("k{n}")).await;
        }
        stage.pass(seconds(60)).await;
        assert_eq!(stage.paid(), 10);
        let entries = stage.entries().await;
        assert_eq!(entries.iter().filter(|e| matches!(e.event, Event::Ready { .. })).count(), 10);
        assert!(!stage.backend.store.memos("together/").await.unwrap().is_empty());
        engine.drain().await;
        assert!(!stage.backend.store.memos("polling/").await.unwrap().is_empty(), "times are kept");
    });
}

/// A pingback is a hint: the engine polls the task at once.
#[test]
fn a_pingback_brings_the_token_without_waiting_for_the_net() {
    story(async |mut stage| {
        learned(&mut stage);
        stage.config.pingback = true;
        let engine = stage.gateway(1).await;
        let id = open(&engine, "a").await;
        stage.pass(seconds(9)).await;
        assert!(
            stage.provider.polls.lock().unwrap().is_empty(),
            "nothing is polled before the schedule"
        );
        let name = attempt(&stage.entries().await);
        let task = stage.account.ledger().accepted[0].task.clone();
        engine.pingback(name, task).await;
        served(&engine, id, seconds(1)).await;
        assert_eq!(stage.provider.polls.lock().unwrap().len(), 1, "confirmed once");
    });
}

/// The reply was lost; the pingback names the task, and nothing is paid again.
#[test]
fn a_pingback_resolves_a_lost_reply() {
    story(async |mut stage| {
        learned(&mut stage);
        stage.config.pingback = true;
        let engine = stage.gateway(1).await;
        stage.account.plan(
            simulator::Planned::next(simulator::Call::Submit, simulator::Fault::Drop).accepted(),
        );
        let id = open(&engine, "a").await;
        stage.pass(Duration::from_millis(1500)).await;
        let name = attempt(&stage.entries().await);
        let task = stage.account.ledger().accepted[0].task.clone();
        engine.pingback(name, task).await;
        served(&engine, id, seconds(200)).await;
        assert_eq!(stage.paid(), 1);
        assert_eq!(engine.find_claim(&Scope::All, id).await.unwrap().state, ClaimState::Served);
    });
}

fn attempt(entries: &[Entry]) -> AttemptName {
    let name = entries.iter().find_map(|entry| match entry.event {
        Event::Intent { attempt, nonce, .. } => {
            Some(AttemptName { solve: entry.solve.unwrap(), attempt, nonce })
        }
        _ => None,
    });
    name.unwrap()
}
