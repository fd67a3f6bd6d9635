//! Standing orders, feedback on margins, and memos.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    claim::{Admission, Allowance, Claim, ClaimState},
    fingerprint::Fingerprint,
    id::{HolderId, Project, SolveId, WorkerName},
    ledger::Event,
    pool::{Expectation, Level, Pool, StandingOrder, Target, Why},
    ports::{Note, PoolState, RefillRequest, Refilled},
    solve::{Decision, Fact, Stage},
};

use super::concurrency::all_at_once;
use crate::world::{PRICE, World, token_of};

pub(super) async fn pool(world: &World, level: Level) -> Fingerprint {
    let new = world.turnstile("a");
    let order = StandingOrder {
        challenge: new.challenge,
        worker: WorkerName::new("pool").unwrap(),
        project: Project::new("pool").unwrap(),
        basis: "own shop".into(),
        level,
        most: 50,
        waste: 100,
        is_declared: true,
    };
    world.store.set_pool(new.fingerprint, Some(order), None, world.now()).await.unwrap();
    new.fingerprint
}

async fn state(world: &World) -> PoolState {
    world.records.pools(world.now()).await.unwrap().remove(0)
}

pub(super) async fn refill(world: &World, holder: u64, pool: Fingerprint, level: u32) -> Refilled {
    let names = (0..level.max(20)).map(|_| world.fresh_solve()).collect();
    refill_as(world, HolderId::from_number(holder), pool, level, names).await
}

async fn refill_as(
    world: &World,
    holder: HolderId,
    pool: Fingerprint,
    level: u32,
    solves: Vec<SolveId>,
) -> Refilled {
    let ask = RefillRequest {
        pool,
        holder,
        target: Target { level, why: Why::HitTarget },
        solves,
        wanted_until: world.now().plus(Duration::from_secs(60)),
        price: Some(PRICE),
        budget: Allowance::default(),
        account: Allowance::default(),
    };
    world.store.refill(ask, world.now()).await.unwrap()
}

/// Opens a pool of one token, and orders that token.
pub(super) async fn order_one(world: &World) {
    let fingerprint = pool(world, Level::Fixed(1)).await;
    let holder = world.holder(1).await;
    refill_as(world, holder, fingerprint, 1, vec![world.fresh_solve()]).await;
}

/// Submits an order and settles it as solved.
async fn bring(world: &World, id: SolveId, name: &str) {
    let lease = world.lease_of_solve(id).await;
    let solve = world.intend(&lease).await.unwrap();
    world.settle(id, solve.attempt, crate::accepted(name)).await;
    world.settle(id, solve.attempt, world.solved(name)).await;
}

pub(super) async fn a_standing_order_is_kept_and_changed(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.open(world.turnstile("a")).await;
    let before: Pool = state(&world).await.pool;
    assert_eq!((before.arrived, before.hits), (1, 0));
    pool(&world, Level::Fixed(3)).await;
    let changed = state(&world).await.pool;
    assert_eq!((changed.order.level, changed.arrived), (Level::Fixed(3), 1));
    world.store.set_pool(fingerprint, None, None, world.now()).await.unwrap();
    assert!(world.records.pools(world.now()).await.unwrap().is_empty());
}

pub(super) async fn a_pool_orders_what_it_is_short_of_and_no_more(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    let first = refill(&world, 1, fingerprint, 3).await;
    assert_eq!((first.is_controller, first.opened.len()), (true, 3));
    assert!(
        refill(&world, 1, fingerprint, 3).await.opened.is_empty(),
        "orders count before they are sent"
    );
    bring(&world, first.opened[0], "t1").await;
    assert!(refill(&world, 1, fingerprint, 3).await.opened.is_empty());
    let now = state(&world).await;
    assert_eq!((now.stock.len(), now.coming, now.waiting, now.pool.ordered), (1, 2, 0, 3));
    let Admission::Stocked(_) = world.admit(world.turnstile("a")).await else { panic!("no stock") };
    assert_eq!(refill(&world, 1, fingerprint, 3).await.opened.len(), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Ordered { .. })).await, 4);
}

pub(super) async fn orders_are_bounded_by_the_waste_allowed(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    assert_eq!(refill(&world, 1, fingerprint, 40).await.opened.len(), 10);
    assert!(refill(&world, 1, fingerprint, 40).await.opened.is_empty());
    let fixed = pool(&world, Level::Fixed(15)).await;
    assert_eq!(refill(&world, 1, fixed, 15).await.opened.len(), 5, "a fixed level is kept");
}

pub(super) async fn served_tokens_earn_new_orders(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    let mut tokens = 0;
    for _ in 0..20 {
        tokens += 1;
        world.serve(world.turnstile("a"), &format!("t{tokens}")).await;
    }
    world.holder(1).await;
    assert_eq!(
        refill(&world, 1, fingerprint, 40).await.opened.len(),
        12,
        "ten, and a tenth of twenty"
    );
    for (n, solve) in world.active_refills().await.into_iter().enumerate() {
        world.holder(1).await;
        bring(&world, solve, &format!("r{n}")).await;
    }
    world.pass(600);
    world.sweep().await;
    let wasted = state(&world).await.pool;
    assert_eq!((wasted.wasted, wasted.served), (12, 20));
    world.holder(1).await;
    assert!(refill(&world, 1, fingerprint, 40).await.opened.is_empty(), "the allowance is used up");
}

/// Between its expiry and the sweep that counts it, a token does not block orders, and is replaced only once.
pub(super) async fn dead_tokens_count_as_wasted_before_they_are_swept(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    for (n, solve) in refill(&world, 1, fingerprint, 8).await.opened.into_iter().enumerate() {
        bring(&world, solve, &format!("t{n}")).await;
    }
    world.pass(600);
    world.holder(1).await;
    assert_eq!(refill(&world, 1, fingerprint, 8).await.opened.len(), 2, "eight of ten are dead");
    world.sweep().await;
    let wasted = state(&world).await.pool.wasted;
    assert_eq!(wasted, 8);
    assert!(refill(&world, 1, fingerprint, 8).await.opened.is_empty());
}

pub(super) async fn a_refill_serves_the_waiting_claim_or_the_next(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    let order = refill(&world, 1, fingerprint, 1).await.opened[0];
    let waiting = world.open(world.turnstile("a")).await;
    bring(&world, order, "t1").await;
    let served = world.find(&waiting).await;
    assert_eq!((served.state, token_of(&served)), (ClaimState::Served, Some("token-t1")));
    assert_eq!(served.cost, Some(PRICE), "the claim bears the cost of the token");
    let active = world.records.active(domain::ports::Scope::All, 9).await.unwrap();
    assert!(active.is_empty(), "its own solve was not sent and is not needed");
    let pool = state(&world).await.pool;
    assert_eq!((pool.served, pool.hits, pool.cost), (1, 0, PRICE));
}

pub(super) async fn one_living_holder_controls_a_pool(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    world.holder(2).await;
    assert!(!refill(&world, 9, fingerprint, 1).await.is_controller, "this holder is unknown");
    assert!(refill(&world, 1, fingerprint, 1).await.is_controller);
    assert!(!refill(&world, 2, fingerprint, 5).await.is_controller);
    assert_eq!(state(&world).await.coming, 1);
}

pub(super) async fn a_dead_controller_is_replaced(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    refill(&world, 1, fingerprint, 2).await;
    world.pass(16);
    world.holder(2).await;
    let taken = refill(&world, 2, fingerprint, 3).await;
    assert_eq!(
        (taken.is_controller, taken.opened.len()),
        (true, 1),
        "what the dead one ordered counts"
    );
    world.holder(1).await;
    assert!(!refill(&world, 1, fingerprint, 9).await.is_controller);
}

pub(super) async fn four_holders_order_as_one(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    for holder in 1..=4 {
        world.holder(holder).await;
    }
    let all = all_at_once(40, |n| {
        let world = world.clone();
        async move { refill(&world, 1 + n % 4, fingerprint, 6).await.opened.len() }
    })
    .await;
    assert_eq!(all.iter().sum::<usize>(), 6);
    assert_eq!(state(&world).await.coming, 6);
}

pub(super) async fn tokens_of_withdrawn_claims_count_as_stock(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    world.holder(1).await;
    assert_eq!(state(&world).await.coming, 0, "a claim waits for it");
    world.withdraw(&claim).await;
    assert_eq!(state(&world).await.coming, 1);
    assert!(refill(&world, 1, fingerprint, 1).await.opened.is_empty());
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    let now = state(&world).await;
    assert_eq!((now.coming, now.stock.len()), (0, 1));
}

pub(super) async fn an_order_that_was_not_sent_in_time_leaves_nothing(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    let order = refill(&world, 1, fingerprint, 1).await.opened[0];
    world.pass(61);
    let lease = world.lease_of_solve(order).await;
    let lapse = Decision::Lapse { soonest: world.now(), trouble: None };
    assert_eq!(world.decide(&lease, lapse).await.unwrap().stage, Stage::Failed);
    assert!(world.records.dead_letter(order).await.unwrap().is_none());
    assert_eq!(state(&world).await.coming, 0);
}

pub(super) async fn a_lost_reply_of_a_refill_is_written_off(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    world.holder(1).await;
    let order = refill(&world, 1, fingerprint, 1).await.opened[0];
    let lease = world.lease_of_solve(order).await;
    let solve = world.intend(&lease).await.unwrap();
    let lost = Fact::ReplyLost { why: "reset".into(), due: world.now() };
    world.settle(order, solve.attempt, lost).await;
    assert!(world.authorise(&lease).await.is_err() || state(&world).await.coming == 0);
    assert!(world.records.dead_letter(order).await.unwrap().is_none());
}

pub(super) async fn announced_demand_may_be_bought(world: World) {
    let fingerprint = pool(&world, Level::Auto).await;
    let expectation = Expectation { left: 25, at: world.now().plus(Duration::from_secs(60)) };
    world.store.expect(fingerprint, expectation, None, world.now()).await.unwrap().unwrap();
    world.holder(1).await;
    assert_eq!(refill(&world, 1, fingerprint, 25).await.opened.len(), 25);
    let unknown = Fingerprint::from_bytes([7; 32]);
    let nothing = world.store.expect(unknown, expectation, None, world.now()).await.unwrap();
    assert!(nothing.is_none());
}

pub(super) async fn a_thousand_takers_of_five_hundred_tokens(world: World) {
    for n in 0..500 {
        world.stock(world.turnstile(&format!("other-{n}")), &format!("x{n}")).await;
    }
    // Withdrawn claims leave tokens of the same challenge.
    let mut claims: Vec<Claim> = Vec::new();
    for n in 0..500 {
        claims.push(world.serve(world.turnstile("a"), &format!("t{n}")).await);
    }
    for claim in &claims {
        world.withdraw(claim).await;
    }
    let admissions = all_at_once(1000, |_| {
        let world = world.clone();
        async move { world.admit(world.turnstile("a")).await }
    })
    .await;
    let mut tokens = BTreeSet::new();
    let mut opened = 0;
    for admission in admissions {
        match admission {
            Admission::Stocked(claim) => {
                assert!(
                    tokens.insert(token_of(&claim).unwrap().to_owned()),
                    "a token was given twice"
                );
            }
            Admission::Opened(_) => opened += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((tokens.len(), opened), (500, 500));
}

fn report(claim: &Claim, good: bool) -> Note {
    Note {
        claim: Some(claim.id),
        worker: claim.worker.clone(),
        project: claim.project.clone(),
        kind: Some(claim.kind.clone()),
        event: Event::Reported { good },
        by: None,
    }
}

async fn used_after(world: &World, seconds: u64, name: &str) -> Claim {
    let mut new = world.turnstile("a");
    new.deadline = world.now().plus(Duration::from_secs(1000));
    let claim = world.serve(new, name).await;
    world.pass(seconds);
    world.fetch(&claim).await;
    world.find(&claim).await
}

fn life(claim: &Claim) -> Duration {
    let token = claim.token.as_ref().unwrap();
    token.usable_until.since(token.ready_lower)
}

pub(super) async fn a_token_refused_late_raises_the_margin(world: World) {
    let early = used_after(&world, 10, "t1").await;
    world.store.note(report(&early, false), world.now()).await.unwrap();
    assert!(world.records.margins().await.unwrap().is_empty(), "an early report changes nothing");
    let mut lives = Vec::new();
    for n in 0..20 {
        let late = used_after(&world, 140, &format!("late-{n}")).await;
        if token_of(&late).is_none() || late.delivered_at.is_none() {
            break;
        }
        lives.push(life(&late));
        world.store.note(report(&late, false), world.now()).await.unwrap();
    }
    assert!(lives.windows(2).all(|pair| pair[1] <= pair[0]), "{lives:?}");
    assert!(lives[1] < lives[0], "{lives:?}");
    assert!(lives.iter().all(|life| *life * 2 >= lives[0]), "never more than half: {lives:?}");
    let learned = world.records.margins().await.unwrap().remove(0);
    assert_eq!((learned.host.as_str(), learned.kind.name()), ("shop.example.com", "turnstile"));
    for n in 0..60 {
        let late = used_after(&world, 110, &format!("good-{n}")).await;
        world.store.note(report(&late, true), world.now()).await.unwrap();
    }
    let after = world.records.margins().await.unwrap().remove(0);
    assert!(after.extra < learned.extra && after.good > 0, "{after:?}");
    let elsewhere = world.serve(world.image(b"picture"), "pic").await;
    assert!(life(&elsewhere) >= Duration::from_secs(240), "other kinds are not affected");
}

pub(super) async fn a_report_counts_once(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.fetch(&claim).await;
    let reports = all_at_once(10, |n| {
        let (world, claim) = (world.clone(), claim.clone());
        async move { world.store.note(report(&claim, n % 2 == 0), world.now()).await.unwrap() }
    })
    .await;
    assert_eq!(reports.into_iter().filter(|first| *first).count(), 1);
    assert_eq!(world.count(|event| matches!(event, Event::Reported { .. })).await, 1);
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
}

pub(super) async fn memos_are_found_by_their_beginning(world: World) {
    for (name, value) in [("polling/a", 1_u8), ("polling/b", 2), ("pollings", 3), ("other", 4)] {
        world.store.set_memo(name, vec![value]).await.unwrap();
    }
    world.store.set_memo("polling/a", vec![9]).await.unwrap();
    let found = world.store.memos("polling/").await.unwrap();
    assert_eq!(found, [("polling/a".to_owned(), vec![9]), ("polling/b".to_owned(), vec![2])]);
    assert_eq!(world.store.memos("").await.unwrap().len(), 4);
}

pub(super) async fn a_pool_shows_its_usable_tokens(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let other = world.open(world.turnstile("a")).await;
    pool(&world, Level::Fixed(2)).await;
    world.submit(&claim, "t1").await;
    world.submit(&other, "t2").await;
    world.withdraw(&claim).await;
    world.withdraw(&other).await;
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    world.pass(100);
    world.settle(other.solve.unwrap(), 1, world.solved("t2")).await;
    let first_expiry = world.now().plus(Duration::from_secs(150));
    let stock = state(&world).await.stock;
    assert_eq!((stock.len(), stock.first()), (2, Some(&first_expiry)));
    assert_eq!(crate::tokens_in_stock(world.records.as_ref(), world.now()).await, 2);
    world.pass(141);
    assert_eq!(state(&world).await.stock.len(), 1);
    assert_eq!(crate::tokens_in_stock(world.records.as_ref(), world.now()).await, 1);
}
