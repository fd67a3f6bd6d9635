//! The daily sums: where the claims of a day stand, what they cost and what was saved. After every case of the suite the sums
//! are compared with a walk over the claims and the ledger (`check` in this crate).

use domain::{
    claim::{Admission, Claim, ClaimState, Source},
    ledger::{Counts, Outcomes},
    money::Money,
    pool::Level,
    ports::TotalsFilter,
    retry::Verdict,
    solve::{Decision, Fact, Solved},
    time::Day,
};

use super::pools::{pool, refill};
use crate::{
    PRICE, World,
    world::{accepted, named, over},
};

const NONE: Outcomes =
    Outcomes { claims: 0, served: 0, failed: 0, lapsed: 0, withdrawn: 0, waiting: 0 };

async fn of_day(world: &World, day: Day, worker: Option<&str>) -> Counts {
    let ask = TotalsFilter { scope: domain::ports::Scope::All, from: day, to: day };
    let mut sum = Counts::default();
    for total in world.records.totals(ask).await.unwrap() {
        if worker.is_none_or(|worker| total.worker.as_str() == worker) {
            sum.add(&total.counts);
        }
    }
    sum
}

async fn today(world: &World) -> Counts {
    of_day(world, world.now().day(), None).await
}

fn at_cost(world: &World, name: &str, cost: Option<Money>) -> Fact {
    match world.solved(name) {
        Fact::Solved(solved) => Fact::Solved(Solved { cost, ..solved }),
        other => other,
    }
}

/// Has a pool of one token buy it for this price.
async fn buy_for_pool(world: &World, name: &str, cost: Option<Money>) {
    let fingerprint = pool(world, Level::Fixed(1)).await;
    world.holder(1).await;
    let id = refill(world, 1, fingerprint, 1).await.opened[0];
    let lease = world.lease_of_solve(id).await;
    let solve = world.intend(&lease).await.unwrap();
    world.settle(id, solve.attempt, accepted(name)).await;
    world.settle(id, solve.attempt, at_cost(world, name, cost)).await;
}

async fn take(world: &World) -> Claim {
    match world.admit(world.turnstile("a")).await {
        Admission::Stocked(claim) => claim,
        other => panic!("expected a token of the stock, got {other:?}"),
    }
}

// === outcomes ===

pub(super) async fn every_claim_is_in_exactly_one_outcome(world: World) {
    world.open(world.turnstile("waits")).await;
    let served = world.serve(world.turnstile("s"), "t1").await;
    world.fetch(&served).await;
    world.fail(world.turnstile("f"), "ERROR_PAGEURL").await;
    let withdrawn = world.open(world.turnstile("w")).await;
    world.withdraw(&withdrawn).await;
    let mut short = world.turnstile("l");
    short.deadline = world.now().plus(std::time::Duration::from_secs(30));
    world.open(short).await;
    world.pass(31);
    world.sweep().await;
    let expected =
        Outcomes { claims: 5, served: 1, failed: 1, lapsed: 1, withdrawn: 1, waiting: 1 };
    assert_eq!(today(&world).await.outcomes(), expected);
}

pub(super) async fn a_repeated_request_is_no_claim_of_its_own(world: World) {
    let mut new = world.turnstile("a");
    new.key = named(&new, "k");
    let repeat = || {
        let mut again = world.turnstile("a");
        again.key = new.key;
        world.admit(again)
    };
    let claim = world.open(new.clone()).await;
    assert!(matches!(repeat().await, Admission::Replayed(_)));
    world.fail_solve(&claim, "ERROR_PAGEURL").await;
    assert!(matches!(repeat().await, Admission::Replayed(_)));
    let counts = today(&world).await;
    assert_eq!(counts.outcomes(), Outcomes { claims: 1, failed: 1, ..NONE });
    // The second one brought nothing, so it saved nothing.
    assert_eq!((counts.replayed, counts.savings(), counts.saved), (2, 1, PRICE));
}

pub(super) async fn a_claim_is_counted_on_the_day_it_was_made(world: World) {
    let evening = world.now().day();
    world.pass(evening.end().since(world.now()).as_secs() - 10);
    let claim = world.open(world.turnstile("a")).await;
    assert_eq!(today(&world).await.outcomes(), Outcomes { claims: 1, waiting: 1, ..NONE });
    world.pass(20);
    assert_ne!(world.now().day(), evening);
    world.submit(&claim, "t1").await;
    world.settle(claim.solve.unwrap(), 1, world.solved("t1")).await;
    let closed = of_day(&world, evening, None).await;
    assert_eq!(closed.outcomes(), Outcomes { claims: 1, served: 1, ..NONE });
    // The money is counted on the day on which it was spent.
    assert_eq!((closed.cost, today(&world).await.cost), (Money::ZERO, PRICE));
    assert_eq!(today(&world).await.outcomes(), NONE);
}

pub(super) async fn a_token_that_was_given_back_served_nobody(world: World) {
    let claim = world.serve(world.turnstile("a"), "t1").await;
    world.withdraw(&claim).await;
    assert_eq!(today(&world).await.outcomes(), Outcomes { claims: 1, withdrawn: 1, ..NONE });
    let second = take(&world).await;
    assert_eq!((second.cost, today(&world).await.savings()), (Some(Money::ZERO), 1));
    world.withdraw(&second).await;
    let counts = today(&world).await;
    assert_eq!(counts.outcomes(), Outcomes { claims: 2, withdrawn: 2, ..NONE });
    assert_eq!((counts.savings(), counts.saved_if_known()), (0, Some(Money::ZERO)));
}

pub(super) async fn a_revived_claim_that_ends_at_once_is_counted(world: World) {
    let dead = world.fail(world.turnstile("a"), "ERROR_PAGEURL").await;
    world.stock(world.turnstile("a"), "t1").await;
    world.bring_back(&dead).await;
    let expected = Outcomes { claims: 3, failed: 1, withdrawn: 2, ..NONE };
    assert_eq!(today(&world).await.outcomes(), expected);
}

// === tokens of pools ===

pub(super) async fn the_cost_of_a_pools_token_moves_to_the_claim(world: World) {
    buy_for_pool(&world, "t1", Some(PRICE)).await;
    let day = world.now().day();
    assert_eq!(of_day(&world, day, Some("pool")).await.net_cost(), PRICE);
    let claim = take(&world).await;
    assert_eq!((claim.source, claim.cost), (Some(Source::Stock), Some(PRICE)));
    let (pool, ann) =
        (of_day(&world, day, Some("pool")).await, of_day(&world, day, Some("ann")).await);
    assert_eq!((pool.net_cost(), ann.net_cost()), (Money::ZERO, PRICE));
    // It was paid for, so nothing was saved.
    let all = today(&world).await;
    assert_eq!((all.net_cost(), all.savings(), all.saved), (PRICE, 0, Money::ZERO));
    // Given back, it is what ann left over: the next claim has it for nothing.
    world.withdraw(&claim).await;
    let next = take(&world).await;
    let all = today(&world).await;
    assert_eq!((next.cost, all.net_cost(), all.savings()), (Some(Money::ZERO), PRICE, 1));
    assert_eq!(all.saved_if_known(), Some(PRICE));
}

pub(super) async fn an_unknown_cost_moves_too(world: World) {
    buy_for_pool(&world, "t1", None).await;
    let claim = take(&world).await;
    assert_eq!(claim.cost, None);
    let day = world.now().day();
    let (pool, ann) =
        (of_day(&world, day, Some("pool")).await, of_day(&world, day, Some("ann")).await);
    assert_eq!((pool.unknown_costs(), ann.unknown_costs()), (0, 1));
    assert_eq!((ann.cost_if_known(), today(&world).await.costed()), (None, 1));
}

pub(super) async fn a_token_of_a_pool_that_comes_while_a_claim_waits_is_paid_by_the_claim(
    world: World,
) {
    let fingerprint = pool(&world, Level::Fixed(1)).await;
    world.holder(1).await;
    let id = refill(&world, 1, fingerprint, 1).await.opened[0];
    let waiting = world.open(world.turnstile("a")).await;
    let lease = world.lease_of_solve(id).await;
    let solve = world.intend(&lease).await.unwrap();
    world.settle(id, solve.attempt, accepted("t1")).await;
    let settled = world.settle(id, solve.attempt, world.solved("t1")).await;
    assert_eq!(settled.ended, [waiting.id]);
    let claim = world.find(&waiting).await;
    assert_eq!((claim.state, claim.cost), (ClaimState::Served, Some(PRICE)));
    assert_eq!(today(&world).await.savings(), 0);
    let ann = of_day(&world, world.now().day(), Some("ann")).await;
    assert_eq!(ann.net_cost(), PRICE);
}

// === unknown ===

pub(super) async fn an_unknown_cost_that_becomes_known_is_unknown_no_longer(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    let counts = today(&world).await;
    assert_eq!((counts.unknown_costs(), counts.costed(), counts.cost_if_known()), (1, 1, None));
    let settled = world.settle(claim.solve.unwrap(), 1, accepted("lost")).await;
    let cost = Some(Money::from_micros(400));
    world.settle(settled.orphan.unwrap(), 1, at_cost(&world, "lost", cost)).await;
    let counts = today(&world).await;
    assert_eq!((counts.unknown_costs(), counts.costed(), counts.cost_if_known()), (0, 1, cost));
}

pub(super) async fn an_attempt_of_unknown_cost_is_counted_once(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    let solve = claim.solve.unwrap();
    let Fact::TaskOver { code, verdict, polls, .. } = over("NEVER_READY", Verdict::GiveUp) else {
        panic!("another fact")
    };
    world.settle(solve, 1, Fact::TaskOver { code, verdict, polls, cost: None }).await;
    world.settle(solve, 1, at_cost(&world, "t1", None)).await;
    let counts = today(&world).await;
    assert_eq!((counts.unknown_costs(), counts.costed()), (1, 1));
}

// === savings ===

pub(super) async fn a_joined_claim_is_saved_when_it_is_served(world: World) {
    let first = world.open(world.image(b"a picture")).await;
    let Admission::Joined(second) = world.admit(world.image(b"a picture")).await else {
        panic!("not joined")
    };
    assert_eq!(today(&world).await.savings(), 0);
    world.submit(&first, "t1").await;
    let cost = Money::from_micros(700);
    world.settle(first.solve.unwrap(), 1, at_cost(&world, "t1", Some(cost))).await;
    let (first, second) = (world.find(&first).await, world.find(&second).await);
    assert_eq!((first.cost, second.cost), (Some(cost), Some(Money::ZERO)));
    let counts = today(&world).await;
    assert_eq!((counts.savings(), counts.saved), (1, cost));
}

pub(super) async fn a_joined_claim_that_fails_saves_nothing(world: World) {
    let first = world.open(world.image(b"a picture")).await;
    let Admission::Joined(_) = world.admit(world.image(b"a picture")).await else {
        panic!("not joined")
    };
    world.fail_solve(&first, "ERROR_ZERO_CAPTCHA_FILESIZE").await;
    let counts = today(&world).await;
    assert_eq!(counts.outcomes(), Outcomes { claims: 2, failed: 2, ..NONE });
    assert_eq!((counts.joined, counts.savings(), counts.saved), (1, 0, Money::ZERO));
}

pub(super) async fn solve_times_have_a_mean_and_percentiles(world: World) {
    for seconds in [10, 10, 40] {
        let claim = world.open(world.turnstile("a")).await;
        let lease = world.lease_of(&claim).await;
        let solve = world.intend(&lease).await.unwrap();
        let name = format!("t{}", solve.id);
        let sent_at = world.now();
        let task = crate::world::task(&name);
        world.settle(solve.id, 1, Fact::Accepted { task, sent_at }).await;
        world.pass(seconds);
        world.settle(solve.id, 1, world.solved(&name)).await;
    }
    let counts = today(&world).await;
    assert_eq!(counts.mean_solve_ms(), Some(20_000));
    assert_eq!(counts.times.percentile(50), Some(9_050));
    assert_eq!(counts.times.percentile(95), Some(36_203));
}
