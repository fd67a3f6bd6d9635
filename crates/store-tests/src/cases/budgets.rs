//! Money is reserved before an attempt, settled with what was charged, and released when nothing was.

use std::{sync::Arc, time::Duration};

use domain::{
    budget::{Allowance, Amount, BudgetScope, BudgetUse, Budgets},
    claim::{Admission, Claim, ClaimState, Source},
    declarations::{Declarations, Guard},
    id::{HolderId, Nonce},
    lease::Lease,
    money::Money,
    pool::{Level, PoolId, Target, Why},
    ports::{RefillRequest, Revival},
    retry::{Verdict, own},
    site::Site,
    solve::{Decision, Fact, Refused, Solve, Solved, Stage},
    time::Day,
};

use super::{concurrency::all_at_once, pools::pool};
use crate::{
    PRICE, World,
    world::{accepted, over, refused, worker},
};

const AGAIN: Verdict =
    Verdict::Again { due: domain::time::Timestamp::from_millis(0), counted: true };

fn micros(amount: i64) -> Money {
    Money::from_micros(amount)
}

/// The sums of ann's month, in which every case begins.
async fn used(world: &World) -> BudgetUse {
    used_by(world, &BudgetScope::Worker(worker("ann"))).await
}

async fn used_by(world: &World, scope: &BudgetScope) -> BudgetUse {
    let spending = world.records.spending(world.now().day()).await.unwrap();
    spending.books.get(scope).cloned().unwrap_or_default().month
}

async fn used_on(world: &World, day: Day) -> BudgetUse {
    let spending = world.records.spending(day).await.unwrap();
    let books = spending.books.get(&BudgetScope::Worker(worker("ann"))).cloned();
    books.unwrap_or_default().day(day)
}

fn amounts(sums: &BudgetUse) -> [(u64, i64); 4] {
    [sums.reserved, sums.settled, sums.released, sums.outstanding()]
        .map(|Amount { solves, cost }| (solves, cost.micros()))
}

fn solves(most: u64) -> Allowance {
    Allowance { solves_per_day: Some(most), ..Allowance::default() }
}

/// What a gateway carries into the store when ann has this budget.
fn guard(own: Allowance, account: Allowance) -> Guard {
    let site = Site::new("shop.example.com".parse().unwrap(), "own shop");
    let declared = Declarations { sites: vec![site], ..Declarations::default() };
    let budgets = Budgets { account, workers: [(worker("ann"), own)].into(), ..Budgets::default() };
    Guard::new(Arc::new(declared)).with_budgets(Arc::new(budgets))
}

async fn intend(world: &World, lease: &Lease, own: Allowance) -> Result<Solve, Refused> {
    let nonce = Nonce::from_number(world.fresh_solve().number());
    let guard = guard(own, Allowance::default());
    world.decide(lease, Decision::Intend { nonce, guard }).await
}

async fn authorise(world: &World, lease: &Lease, own: Allowance) -> Result<Solve, Refused> {
    let guard = guard(own, Allowance::default());
    world.decide(lease, Decision::Authorise { guard, due: world.now() }).await
}

fn solved_for(world: &World, name: &str, cost: Option<Money>) -> Fact {
    match world.solved(name) {
        Fact::Solved(solved) => Fact::Solved(Solved { cost, ..solved }),
        other => other,
    }
}

// === one attempt ===

pub(super) async fn what_is_reserved_is_settled_with_the_real_price(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    assert_eq!(amounts(&used(&world).await), [(1, 1000), (0, 0), (0, 0), (1, 1000)]);
    world.submit(&claim, "t1").await;
    assert_eq!(amounts(&used(&world).await)[3], (1, 1000), "the intent reserves nothing more");
    world.settle(claim.solve.unwrap(), 1, solved_for(&world, "t1", Some(micros(1700)))).await;
    let sums = used(&world).await;
    assert_eq!(amounts(&sums), [(1, 1000), (1, 1000), (0, 0), (0, 0)]);
    assert_eq!(sums.used(), Amount { solves: 1, cost: micros(1700) });
    // The same fact again changes nothing.
    world.settle(claim.solve.unwrap(), 1, solved_for(&world, "t1", Some(micros(1700)))).await;
    assert_eq!(used(&world).await, sums);
}

pub(super) async fn an_unknown_charge_counts_at_list_price(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    world.settle(claim.solve.unwrap(), 1, solved_for(&world, "t1", None)).await;
    let sums = used(&world).await;
    assert_eq!((sums.used().cost, sums.unknown), (PRICE, 1));
}

pub(super) async fn what_was_certainly_not_charged_is_released(world: World) {
    let budget = solves(1);
    let open = |sitekey: &'static str| {
        let mut new = world.turnstile(sitekey);
        new.allowance = budget;
        world.open(new)
    };
    // Refused for good, withdrawn, lapsed: each leaves room for the next.
    let claim = open("a").await;
    world.fail_solve(&claim, "ERROR_PAGEURL").await;
    let claim = open("b").await;
    world.withdraw(&claim).await;
    let claim = open("c").await;
    world.pass(121);
    world.sweep().await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Lapsed);
    assert_eq!(amounts(&used(&world).await), [(3, 3000), (0, 0), (3, 3000), (0, 0)]);
    open("d").await;
}

pub(super) async fn a_refused_submission_keeps_its_reservation_for_the_retry(world: World) {
    let mut new = world.turnstile("a");
    new.allowance = solves(1);
    let claim = world.open(new).await;
    for attempt in 1..=3 {
        let lease = world.lease_of(&claim).await;
        assert_eq!(intend(&world, &lease, solves(1)).await.unwrap().attempt, attempt);
        let fact = refused("ERROR_NO_SLOT_AVAILABLE", AGAIN);
        world.settle(claim.solve.unwrap(), attempt, fact).await;
        let mut other = world.turnstile("b");
        other.allowance = solves(1);
        assert!(matches!(world.admit(other).await, Admission::OverBudget(_)));
    }
    assert_eq!(amounts(&used(&world).await), [(1, 1000), (0, 0), (0, 0), (1, 1000)]);
}

// === further attempts ===

pub(super) async fn retries_count_and_stop_at_the_limit(world: World) {
    let mut new = world.turnstile("a");
    new.allowance = solves(2);
    let claim = world.open(new).await;
    let id = claim.solve.unwrap();
    for attempt in 1..=2 {
        let lease = world.lease_of(&claim).await;
        let solve = intend(&world, &lease, solves(2)).await.unwrap();
        assert_eq!((solve.stage, solve.attempt), (Stage::Intent, attempt));
        world.settle(id, attempt, accepted(&format!("t{attempt}"))).await;
        world.settle(id, attempt, over("ERROR_CAPTCHA_UNSOLVABLE", AGAIN)).await;
    }
    assert_eq!(amounts(&used(&world).await), [(2, 2000), (2, 2000), (0, 0), (0, 0)]);
    let lease = world.lease_of(&claim).await;
    let ended = intend(&world, &lease, solves(2)).await.unwrap();
    assert_eq!((ended.stage, ended.attempt), (Stage::Failed, 2), "nothing was sent");
    let claim = world.find(&claim).await;
    let code = claim.code.clone().unwrap();
    assert_eq!((claim.state, code.as_str()), (ClaimState::Failed, own::BUDGET_EXCEEDED));
    assert_eq!(world.dead_letter(&claim).await.code.as_str(), own::BUDGET_EXCEEDED);
    // On the next day there is room again.
    world.pass_days(1);
    let mut revive = world.revive(&claim);
    revive.allowances.insert(worker("ann"), solves(2));
    let back = world.store.revive(revive, world.now()).await.unwrap();
    assert!(matches!(back, Revival::Back(Admission::Opened(_))), "{back:?}");
}

pub(super) async fn a_task_that_cost_nothing_gives_its_money_back(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    let free = Fact::TaskOver {
        code: "ERROR_CAPTCHA_UNSOLVABLE".into(),
        verdict: Verdict::GiveUp,
        cost: Some(Money::ZERO),
        polls: 1,
    };
    world.settle(claim.solve.unwrap(), 1, free).await;
    assert_eq!(used(&world).await.used(), Amount { solves: 1, cost: Money::ZERO });
}

pub(super) async fn an_authorised_attempt_needs_room_of_its_own(world: World) {
    let mut new = world.turnstile("a");
    new.allowance = solves(1);
    let claim = world.open(new).await;
    let lease = world.lose_reply(&claim).await;
    let before = world.entries().await;
    assert_eq!(authorise(&world, &lease, solves(1)).await, Err(Refused::Budget));
    assert_eq!(world.entries().await, before, "a refusal changes nothing");
    assert_eq!(amounts(&used(&world).await), [(1, 1000), (0, 0), (0, 0), (1, 1000)]);
    authorise(&world, &lease, solves(2)).await.unwrap();
    // The lost attempt may have been charged, so it counts at list price.
    let sums = used(&world).await;
    assert_eq!(amounts(&sums), [(2, 2000), (1, 1000), (0, 0), (1, 1000)]);
    assert_eq!((sums.used().solves, sums.unknown), (2, 1));
    let lease = world.lease_of(&claim).await;
    intend(&world, &lease, solves(2)).await.unwrap();
    assert_eq!(
        amounts(&used(&world).await)[0],
        (2, 2000),
        "it was reserved with its authorisation"
    );
}

pub(super) async fn an_orphan_corrects_what_was_assumed(world: World) {
    let claim = world.open(world.turnstile("a")).await;
    let lease = world.lose_reply(&claim).await;
    world.decide(&lease, Decision::WriteOff).await.unwrap();
    assert_eq!(amounts(&used(&world).await), [(1, 1000), (1, 1000), (0, 0), (0, 0)]);
    let settled = world.settle(claim.solve.unwrap(), 1, accepted("lost")).await;
    let orphan = settled.orphan.unwrap();
    world.settle(orphan, 1, solved_for(&world, "lost", Some(micros(400)))).await;
    let sums = used(&world).await;
    assert_eq!(sums.used(), Amount { solves: 1, cost: micros(400) });
    assert_eq!(sums.reserved, Amount { solves: 1, cost: PRICE }, "it is not counted twice");
}

// === periods ===

pub(super) async fn a_month_is_more_than_its_days(world: World) {
    let monthly = Allowance { solves_per_month: Some(2), ..Allowance::default() };
    let admit = || {
        let mut new = world.turnstile("a");
        new.allowance = monthly;
        world.admit(new)
    };
    let limit = world.now().day().next_month().start();
    for _ in 0..2 {
        assert!(matches!(admit().await, Admission::Opened(_)));
        world.pass_days(1);
    }
    let Admission::OverBudget(reached) = admit().await else { panic!("not refused") };
    assert_eq!((reached.limit, reached.until), ("solves_per_month", limit));
    world.pass(limit.since(world.now()).as_secs());
    assert!(matches!(admit().await, Admission::Opened(_)));
}

pub(super) async fn an_attempt_is_settled_on_the_day_it_was_reserved_for(world: World) {
    let first = world.now().day();
    // A minute before the end of the month.
    world.pass(first.next_month().start().since(world.now()).as_secs() - 60);
    let evening = world.now().day();
    let claim = world.open(world.turnstile("a")).await;
    world.pass(90);
    let morning = world.now().day();
    assert!(evening.month() != morning.month());
    world.submit(&claim, "t1").await;
    world.settle(claim.solve.unwrap(), 1, solved_for(&world, "t1", Some(micros(1200)))).await;
    assert_eq!(used_on(&world, morning).await, BudgetUse::default());
    let sums = used_on(&world, evening).await;
    assert_eq!(amounts(&sums), [(1, 1000), (1, 1000), (0, 0), (0, 0)]);
    assert_eq!(sums.used().cost, micros(1200));
}

// === pools ===

fn order(world: &World, holder: HolderId, count: usize) -> RefillRequest {
    RefillRequest {
        pool: world.turnstile("a").fingerprint,
        holder,
        target: Target { level: 3, why: Why::Fixed },
        solves: (0..count).map(|_| world.fresh_solve()).collect(),
        wanted_until: world.now().plus(Duration::from_secs(60)),
        price: Some(PRICE),
        budget: Allowance::default(),
        account: Allowance::default(),
    }
}

/// A pool with three tokens in stock, each of which cost 800.
async fn filled(world: &World) -> BudgetScope {
    let fingerprint = pool(world, Level::Fixed(3)).await;
    let holder = world.holder(1).await;
    let opened = world.store.refill(order(world, holder, 3), world.now()).await.unwrap().opened;
    for (n, id) in opened.into_iter().enumerate() {
        let lease = world.lease_of_solve(id).await;
        world.intend(&lease).await.unwrap();
        let name = format!("p{n}");
        world.settle(id, 1, accepted(&name)).await;
        world.settle(id, 1, solved_for(world, &name, Some(micros(800)))).await;
    }
    BudgetScope::Pool(PoolId::of(&fingerprint))
}

pub(super) async fn a_token_of_a_pool_counts_for_the_worker_that_gets_it(world: World) {
    let pool = filled(&world).await;
    let mut served = 0;
    for n in 0..25 {
        let mut new = world.turnstile("a");
        new.allowance = solves(1);
        match world.admit(new).await {
            Admission::Stocked(claim) => {
                served += 1;
                assert_eq!((n, claim.source), (0, Some(Source::Stock)));
            }
            Admission::OverBudget(reached) => assert_eq!(reached.limit, "solves_per_day"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(served, 1);
    assert_eq!(used(&world).await.used(), Amount { solves: 1, cost: micros(800) });
    assert_eq!(used_by(&world, &pool).await.used(), Amount { solves: 3, cost: micros(2400) });
    // It moved from the pool to the worker; the account paid once.
    let account = used_by(&world, &BudgetScope::Account).await.used();
    assert_eq!(account, Amount { solves: 3, cost: micros(2400) });
}

pub(super) async fn a_budget_of_money_holds_for_tokens_of_a_pool(world: World) {
    filled(&world).await;
    let most = Allowance { cost_per_day: Some(micros(1700)), ..Allowance::default() };
    for n in 0..3 {
        let mut new = world.turnstile("a");
        new.allowance = most;
        let admission = world.admit(new).await;
        assert_eq!(matches!(admission, Admission::Stocked(_)), n < 2, "{admission:?}");
    }
}

pub(super) async fn a_token_that_others_left_is_free(world: World) {
    world.stock(world.turnstile("a"), "t1").await;
    let before = used(&world).await;
    let mut new = world.turnstile("a");
    new.allowance = solves(1);
    assert!(matches!(world.admit(new).await, Admission::Stocked(_)), "although one was used");
    assert_eq!(used(&world).await, before);
}

pub(super) async fn a_refill_that_a_claim_was_waiting_for_takes_the_place_of_its_own_attempt(
    world: World,
) {
    let fingerprint = pool(&world, Level::Fixed(1)).await;
    let holder = world.holder(1).await;
    let opened = world.store.refill(order(&world, holder, 1), world.now()).await.unwrap().opened;
    let mut new = world.turnstile("a");
    new.allowance = solves(1);
    let claim: Claim = world.open(new).await;
    let lease = world.lease_of_solve(opened[0]).await;
    world.intend(&lease).await.unwrap();
    world.settle(opened[0], 1, accepted("p")).await;
    world.settle(opened[0], 1, solved_for(&world, "p", Some(micros(800)))).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
    let sums = used(&world).await;
    assert_eq!(amounts(&sums), [(1, 1000), (0, 0), (1, 1000), (0, 0)]);
    assert_eq!(sums.used(), Amount { solves: 1, cost: micros(800) });
    let pool = used_by(&world, &BudgetScope::Pool(PoolId::of(&fingerprint))).await;
    assert_eq!(pool.used().cost, micros(800));
}

/// The failed attempt was paid, and so was the token: the worker had both.
pub(super) async fn a_refill_that_comes_after_a_failed_attempt_counts_beside_it(world: World) {
    pool(&world, Level::Fixed(1)).await;
    let holder = world.holder(1).await;
    let opened = world.store.refill(order(&world, holder, 1), world.now()).await.unwrap().opened;
    let claim = world.open(world.turnstile("a")).await;
    world.submit(&claim, "t1").await;
    world.settle(claim.solve.unwrap(), 1, over("ERROR_CAPTCHA_UNSOLVABLE", AGAIN)).await;
    let lease = world.lease_of_solve(opened[0]).await;
    world.intend(&lease).await.unwrap();
    world.settle(opened[0], 1, accepted("p")).await;
    world.settle(opened[0], 1, solved_for(&world, "p", Some(micros(800)))).await;
    assert_eq!(world.find(&claim).await.state, ClaimState::Served);
    let sums = used(&world).await;
    assert_eq!(amounts(&sums), [(1, 1000), (1, 1000), (0, 0), (0, 0)]);
    assert_eq!(sums.used(), Amount { solves: 2, cost: micros(1800) });
    let mut next = world.turnstile("b");
    next.allowance = solves(2);
    assert!(matches!(world.admit(next).await, Admission::OverBudget(_)));
}

pub(super) async fn a_pool_orders_no_more_than_its_budget(world: World) {
    pool(&world, Level::Fixed(3)).await;
    let holder = world.holder(1).await;
    let two = Allowance { cost_per_month: Some(micros(2500)), ..Allowance::default() };
    let ask = RefillRequest { budget: two, ..order(&world, holder, 3) };
    let refilled = world.store.refill(ask, world.now()).await.unwrap();
    assert_eq!((refilled.is_controller, refilled.opened.len()), (true, 2));
}

// === the account ===

pub(super) async fn the_account_pays_for_everything(world: World) {
    let account = solves(3);
    world.open(world.turnstile("a")).await;
    // Configured later in the day: what was opened before counts.
    let admit = |name: &'static str| {
        let mut new = world.turnstile("a");
        (new.account, new.worker) = (account, worker(name));
        world.admit(new)
    };
    assert!(matches!(admit("bob").await, Admission::Opened(_)));
    pool(&world, Level::Fixed(3)).await;
    let holder = world.holder(1).await;
    let ask = RefillRequest { account, ..order(&world, holder, 3) };
    assert_eq!(world.store.refill(ask, world.now()).await.unwrap().opened.len(), 1);
    let Admission::OverBudget(reached) = admit("ann").await else { panic!("not refused") };
    assert_eq!((reached.scope, reached.limit), (BudgetScope::Account, "solves_per_day"));
}

/// A gateway without the budget keeps the account's books, too, once they are open.
pub(super) async fn the_account_is_the_sum_of_its_workers_and_pools(world: World) {
    let mut first = world.turnstile("a");
    first.account = solves(100);
    let claim = world.open(first).await;
    let mut bob = world.turnstile("b");
    bob.worker = worker("bob");
    let other = world.open(bob).await;
    world.submit(&claim, "t1").await;
    world.settle(claim.solve.unwrap(), 1, solved_for(&world, "t1", Some(micros(1300)))).await;
    world.withdraw(&other).await;
    filled(&world).await;
    world.admit(world.turnstile("a")).await;
    let account = used_by(&world, &BudgetScope::Account).await;
    let mut sum = BudgetUse::default();
    let spending = world.records.spending(world.now().day()).await.unwrap();
    for (scope, book) in &spending.books {
        if *scope != BudgetScope::Account {
            sum.add_bought(&book.month);
        }
    }
    assert_eq!(account, sum);
    assert_eq!(account.reserved.solves, 5);
}

/// Twenty callers of five workers at once, on one budget of the account.
pub(super) async fn callers_of_several_workers_share_the_account(world: World) {
    let admissions = all_at_once(20, |n| {
        let mut new = world.turnstile(&format!("s{n}"));
        let name = ["ann", "bob", "cat", "dan", "eve"][usize::try_from(n).unwrap() % 5];
        (new.account, new.worker) = (solves(3), worker(name));
        let world = world.clone();
        async move { world.admit(new).await }
    })
    .await;
    let opened = admissions.iter().filter(|result| matches!(result, Admission::Opened(_)));
    assert_eq!(opened.count(), 3);
    let account = used_by(&world, &BudgetScope::Account).await;
    assert_eq!(account.reserved.solves, 3);
}
