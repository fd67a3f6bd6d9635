//! A random schedule, performed on the model (memory) and on another store. After every step both must have given the
//! same answer, and at the end both must have the same history. A failing seed is printed.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

mod perform;
pub(crate) mod side_by_side;

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use domain::{
    budget::Budgets,
    callback::Callback,
    claim::{Allowance, Claim, NewClaim, Start},
    declarations::Guard,
    id::{ClaimId, HolderId, Nonce, SolveId, WorkerName},
    lease::Lease,
    ledger::Event,
    money::Money,
    pool::{Target, Why},
    ports::{RefillRequest, ReviveRequest},
    retry::Verdict,
    secret::Secret,
    solve::{Decision, Fact, Solve, Stage},
};
use store_tests::{PRICE, World, accepted, check, derived, named, over, refused};
use stores::Backend;

use perform::{perform, readings};

/// The model, and the schedule that another store is compared by.
pub(crate) struct Comparison {
    pub(crate) model: Backend,
    pub(crate) world: World,
    plan: Plan,
    step: usize,
    /// The holders that have not released their lease since they took it last.
    pub(crate) holders: BTreeSet<HolderId>,
}

/// A step that both stores perform.
#[derive(Clone, Debug)]
enum Act {
    Admit(Box<NewClaim>),
    Withhold(ClaimId, SolveId, Nonce),
    Fetch(ClaimId),
    Withdraw(ClaimId),
    Hold(HolderId),
    Release(HolderId),
    Lease(HolderId, usize),
    LeaseOne(HolderId, SolveId),
    Decide(Box<Lease>, Decision),
    Settle(SolveId, u32, Fact),
    Report(Box<Claim>),
    Revive(Box<ReviveRequest>),
    SetPool(Box<NewClaim>, Option<u32>),
    Refill(Box<RefillRequest>),
    Purge(SolveId),
    Callbacks(usize),
    CalledBack(Callback),
    Sweep(usize),
}

/// The state from which the next act is drawn, taken from the model's answers.
struct Plan {
    chance: fastrand::Rng,
    claims: Vec<Claim>,
    leases: Vec<Lease>,
    callbacks: Vec<Callback>,
}

/// The number of kinds of events, without `Refused` and `Refusals`, which are notes like `Reported`, and `WritesLost`.
pub(crate) const EVENTS: usize = 32;

/// Runs a comparison for each seed and returns the events that occurred.
pub(crate) async fn compare_all<F>(
    seeds: u64,
    run: impl Fn(Comparison) -> F + Copy + Send + 'static,
) -> BTreeSet<String>
where
    F: Future<Output = BTreeSet<String>>,
{
    let mut happened = BTreeSet::new();
    for seed in 0..seeds {
        let ran = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run(Comparison::new(seed)))
        });
        happened.extend(ran.await.unwrap_or_else(|_| panic!("seed {seed} differs")));
    }
    happened
}

// === impl Comparison ===

impl Comparison {
    pub(crate) fn new(seed: u64) -> Self {
        let model = stores::open("memory:").unwrap();
        let world = World::new(&model);
        Self { model, world, plan: Plan::new(seed), step: 0, holders: BTreeSet::new() }
    }

    pub(crate) fn chance(&mut self) -> &mut fastrand::Rng {
        &mut self.plan.chance
    }

    /// Performs the next act on both. An unavailable store is retried at most `again` times.
    pub(crate) async fn step(&mut self, other: &Backend, again: usize) {
        self.plan.pass_time(&self.world);
        let act = self.plan.next(&self.world);
        match act {
            Act::Hold(holder) => drop(self.holders.insert(holder)),
            Act::Release(holder) => drop(self.holders.remove(&holder)),
            _ => {}
        }
        let now = self.world.now();
        let expected = perform(&self.model, act.clone(), now, Some(&mut self.plan)).await;
        let mut answer = perform(other, act.clone(), now, None).await;
        for _ in 0..again {
            if answer.contains("Err(Unavailable") {
                answer = perform(other, act.clone(), now, None).await;
            }
        }
        assert_eq!(answer, expected, "step {}: {act:?}", self.step);
        self.step += 1;
    }

    /// Compares everything that can be read, and returns the events that occurred.
    pub(crate) async fn finish(self, other: &Backend) -> BTreeSet<String> {
        let now = self.world.now();
        let (actual, expected) = (readings(other, now).await, readings(&self.model, now).await);
        for (actual, expected) in actual.iter().zip(&expected) {
            assert_eq!(actual, expected);
        }
        assert_eq!(actual.len(), expected.len());
        check(other.records.as_ref()).await;
        let entries = other.records.entries(0, usize::MAX).await.unwrap();
        let name =
            |event: &Event| format!("{event:?}").split([' ', '{']).next().unwrap().to_owned();
        entries.iter().map(|entry| name(&entry.event)).collect()
    }
}

// === impl Plan ===

impl Plan {
    fn new(seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        Self { chance, claims: Vec::new(), leases: Vec::new(), callbacks: Vec::new() }
    }

    fn pass_time(&mut self, world: &World) {
        match self.chance.u8(0..100) {
            0..60 => {}
            60..90 => world.tick(),
            90..96 => world.pass(self.chance.u64(1..20)),
            96..99 => world.pass(self.chance.u64(20..200)),
            _ => world.pass_days(self.chance.u64(1..40)),
        }
    }

    fn next(&mut self, world: &World) -> Act {
        match self.chance.u8(0..100) {
            0..25 => Act::Admit(Box::new(self.new_claim(world))),
            25..27 => self.withhold(),
            30..40 => self.claim().map_or(Act::Sweep(9), |claim| Act::Fetch(claim.id)),
            40..45 => self.claim().map_or(Act::Sweep(9), |claim| Act::Withdraw(claim.id)),
            45..52 => Act::Hold(self.holder()),
            52..53 => Act::Release(self.holder()),
            53..62 => Act::Lease(self.holder(), self.chance.usize(1..5)),
            62..78 => self.decide(world),
            78..93 => self.settle(world),
            27..30 | 95 => self.dead_letter(world),
            96 => self.claim().map_or(Act::Sweep(9), |one| Act::Report(Box::new(one))),
            93..95 | 97 => self.pool(world),
            98 => self.callbacks(),
            _ => Act::Sweep(self.chance.usize(1..20)),
        }
    }

    fn dead_letter(&mut self, world: &World) -> Act {
        let dead = self.claims.iter().filter(|claim| claim.solve.is_some());
        match self.chance.choice(dead.collect::<Vec<_>>()) {
            Some(claim) if self.chance.u8(0..5) == 0 => Act::Purge(claim.solve.unwrap()),
            Some(claim) => Act::Revive(Box::new(world.revive(claim))),
            None => Act::Sweep(9),
        }
    }

    fn pool(&mut self, world: &World) -> Act {
        let new = world.turnstile(["a", "b"][self.chance.usize(0..2)]);
        if self.chance.u8(0..3) == 0 {
            let level = self.chance.bool().then(|| self.chance.u32(0..5));
            return Act::SetPool(Box::new(new), level);
        }
        let target = Target { level: self.chance.u32(0..6), why: Why::HitTarget };
        let (budget, account) = limits(new.solve.number());
        Act::Refill(Box::new(RefillRequest {
            pool: new.fingerprint,
            holder: self.holder(),
            target,
            solves: (0..3).map(|_| world.fresh_solve()).collect(),
            wanted_until: world.now().plus(Duration::from_secs(60)),
            price: Some(PRICE),
            budget,
            account,
        }))
    }

    fn callbacks(&mut self) -> Act {
        match self.callbacks.pop() {
            Some(callback) if self.chance.bool() => Act::CalledBack(callback),
            Some(_) | None => Act::Callbacks(self.chance.usize(1..5)),
        }
    }

    fn holder(&mut self) -> HolderId {
        HolderId::from_number(self.chance.u64(1..=3))
    }

    fn claim(&mut self) -> Option<Claim> {
        self.chance.choice(&self.claims).cloned()
    }

    fn new_claim(&mut self, world: &World) -> NewClaim {
        let site = ["a", "b"][self.chance.usize(0..2)];
        let mut new = match self.chance.u8(0..4) {
            0 => world.image(site.as_bytes()),
            _ => world.turnstile(site),
        };
        new.worker = WorkerName::new(["ann", "bob"][self.chance.usize(0..2)]).unwrap();
        new.deadline = world.now().plus(Duration::from_secs(self.chance.u64(5..300)));
        new.collect = self.chance.bool();
        new.key = match self.chance.u8(0..3) {
            0 => {
                let number = self.chance.u8(0..6);
                let window = Duration::from_secs(5 * u64::from(number));
                new.reopens_after = (number > 0).then_some(window);
                named(&new, &format!("k{number}"))
            }
            1 => derived(&new, self.chance.u64(0..2) * 60),
            _ => new.key,
        };
        if self.chance.u8(0..3) == 0 {
            new.callback_url = Some(Secret::new("https://hooks.example.com/"));
        }
        if self.chance.u8(0..8) == 0 {
            (new.allowance, new.account) = limits(new.id.number());
        }
        if let (0, Some(claim)) = (self.chance.u8(0..20), self.claim()) {
            new.id = claim.id;
        }
        if self.chance.u8(0..3) == 0 {
            let nonce = Nonce::from_number(self.chance.u64(1..));
            new.start = Some(Start { holder: self.holder(), nonce, guard: guard(FREE) });
        }
        new
    }

    fn withhold(&mut self) -> Act {
        match self.lease().map(|lease| lease.solve) {
            Some(Solve { id, nonce: Some(nonce), claims, .. }) => {
                let claim = claims.first().copied().unwrap_or(ClaimId::from_number(id.number()));
                Act::Withhold(claim, id, nonce)
            }
            Some(Solve { nonce: None, .. }) | None => Act::Withhold(
                ClaimId::from_number(7),
                SolveId::from_number(7),
                Nonce::from_number(7),
            ),
        }
    }

    fn lease(&mut self) -> Option<Lease> {
        // Mostly a recent one, because old ones are refused.
        let latest = self.leases.len().saturating_sub(8);
        let all = self.chance.u8(0..5) == 0;
        let from = if all { 0 } else { latest };
        self.chance.choice(&self.leases[from..]).cloned()
    }

    /// Updates the leased solve.
    fn learn(&mut self, solve: &Solve) {
        let held = self.leases.iter_mut().filter(|lease| lease.fence == solve.fence);
        for lease in held.filter(|lease| lease.solve.id == solve.id) {
            lease.solve = solve.clone();
        }
    }

    fn decide(&mut self, world: &World) -> Act {
        let Some(lease) = self.lease() else { return Act::Hold(self.holder()) };
        let ambiguous = lease.solve.stage == Stage::Ambiguous;
        let decision = match (self.chance.u8(0..10), ambiguous) {
            (0..3, _) | (3..9, false) => {
                let number = self.chance.u64(1..);
                Decision::Intend { guard: guard(number), nonce: Nonce::from_number(number) }
            }
            (3..8, true) => {
                let guard = guard(lease.solve.id.number());
                Decision::Authorise { guard, due: world.now() }
            }
            (9, false) => {
                let soonest = lease.solve.wanted_until.plus(Duration::from_millis(1));
                let trouble = self.chance.bool().then(|| "ERROR_ZERO_BALANCE".into());
                Decision::Lapse { soonest, trouble }
            }
            _ => Decision::WriteOff,
        };
        Act::Decide(Box::new(lease), decision)
    }

    fn settle(&mut self, world: &World) -> Act {
        let Some(lease) = self.lease() else { return Act::Hold(self.holder()) };
        // Mostly about the current attempt, sometimes about an earlier one or one that was never made.
        let odd = self.chance.u8(0..5) == 0;
        let attempt = if odd { self.chance.u32(1..4) } else { lease.solve.attempt };
        let due = world.now().plus(Duration::from_secs(self.chance.u64(0..10)));
        let verdict = match self.chance.u8(0..3) {
            0 => Verdict::GiveUp,
            _ => Verdict::Again { due, counted: self.chance.bool() },
        };
        let known = format!("t{}-{attempt}", lease.solve.id);
        let fact = match self.chance.u8(0..20) {
            0..7 => accepted(&known),
            7 => accepted("t-of-another"),
            8..15 => world.solved(&known),
            15 => world.solved_at(&known, world.now().minus(Duration::from_secs(235))),
            16 => refused("ERROR_NO_SLOT_AVAILABLE", verdict),
            17 => over("ERROR_CAPTCHA_UNSOLVABLE", verdict),
            _ => Fact::ReplyLost { why: "reset".into(), due },
        };
        Act::Settle(lease.solve.id, attempt, fact)
    }
}

/// A number without limits.
const FREE: u64 = 7;

/// Limits of a worker or a pool, and of the account. Some have none.
fn limits(number: u64) -> (Allowance, Allowance) {
    let cost = |solves: i64| Some(Money::from_micros(PRICE.micros() * solves));
    let free = Allowance::default();
    match number % 8 {
        0 => (Allowance { solves_per_day: Some(5), ..free }, free),
        1 => (Allowance { cost_per_day: cost(6), ..free }, free),
        2 => (Allowance { solves_per_month: Some(9), cost_per_month: cost(12), ..free }, free),
        3 => (free, Allowance { solves_per_day: Some(15), ..free }),
        4 => (
            Allowance { cost_per_month: cost(20), ..free },
            Allowance { cost_per_day: cost(12), ..free },
        ),
        _ => (free, free),
    }
}

/// What a gateway carries into a decision about an attempt.
fn guard(number: u64) -> Guard {
    // Mostly none, so that schedules do not stop at them.
    let (own, account) = limits(if number.is_multiple_of(4) { number / 4 } else { FREE });
    let workers = ["ann", "bob"].map(|name| (WorkerName::new(name).unwrap(), own)).into();
    Guard::open().with_budgets(Arc::new(Budgets { account, workers, ..Budgets::default() }))
}
