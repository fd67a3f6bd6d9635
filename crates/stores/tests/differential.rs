//! The same schedule gives the same answers and the same history on every store: memory is the model, the embedded store
//! is closed and opened in between. A failing seed is printed.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, fmt::Debug, path::Path, time::Duration};

use domain::{
    callback::Callback,
    claim::{Admission, Allowance, Claim, Delivery, NewClaim},
    id::{HolderId, Nonce, SolveId, WorkerName},
    lease::{Holder, Lease},
    ledger::Event,
    pool::{Level, StandingOrder, Target, Why},
    ports::{
        ClaimFilter, DeadLetterFilter, LeaseAsk, Note, Refill, Revival, Revive, Scope, StoreError,
        SweepAsk, TotalsAsk,
    },
    retry::Verdict,
    secret::Secret,
    solve::{Decision, Fact, Solve, Stage},
    time::{Day, Timestamp},
};
use stores::{
    Backend,
    conformance::{World, accepted, check, derived, named, over, refused},
};

const STEPS: usize = 300;
const SEEDS: u64 = 32;

/// One thing that is asked of both stores.
#[derive(Clone, Debug)]
enum Act {
    Admit(Box<NewClaim>),
    Fetch(domain::id::ClaimId),
    Withdraw(domain::id::ClaimId),
    Hold(HolderId),
    Release(HolderId),
    Lease(HolderId, usize),
    Decide(Box<Lease>, Decision),
    Tell(SolveId, u32, Fact),
    Report(Box<Claim>),
    Revive(Box<Revive>),
    SetPool(Box<NewClaim>, Option<u32>),
    Refill(Box<Refill>),
    Purge(SolveId),
    Callbacks(usize),
    CalledBack(Callback),
    Sweep(usize),
}

/// What the schedule remembers, from the model's answers.
struct Plan {
    chance: fastrand::Rng,
    claims: Vec<Claim>,
    leases: Vec<Lease>,
    callbacks: Vec<Callback>,
}

fn embedded(dir: &Path) -> Backend {
    stores::open(&format!("embedded:{}", dir.display())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_schedule_gives_the_same_history() {
    let mut happened = BTreeSet::new();
    for seed in 0..SEEDS {
        let run = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(compare(seed))
        });
        happened.extend(run.await.unwrap_or_else(|_| panic!("seed {seed} differs")));
    }
    // Every event there is but `Refused`, which is a note like `Reported`: the schedules reach everything.
    assert_eq!(happened.len(), 29, "{happened:?}");
}

/// Runs a schedule on both; the result is what happened in it.
async fn compare(seed: u64) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let model = stores::open("memory:").unwrap();
    let world = World::new(&model);
    let mut other = embedded(dir.path());
    let mut plan = Plan {
        chance: fastrand::Rng::with_seed(seed),
        claims: Vec::new(),
        leases: Vec::new(),
        callbacks: Vec::new(),
    };
    for step in 0..STEPS {
        if plan.chance.u8(..) < 8 {
            drop(other);
            other = embedded(dir.path());
            forget_holders(&model, &world).await;
        }
        plan.pass_time(&world);
        let act = plan.next(&world);
        let expected = perform(&model, act.clone(), world.now(), Some(&mut plan)).await;
        let answer = perform(&other, act.clone(), world.now(), None).await;
        assert_eq!(answer, expected, "step {step}: {act:?}");
    }
    assert_eq!(readings(&other, world.now()).await, readings(&model, world.now()).await);
    check(other.records.as_ref()).await;
    let entries = other.records.entries(0, usize::MAX).await.unwrap();
    let name = |event: &Event| format!("{event:?}").split([' ', '{']).next().unwrap().to_owned();
    entries.iter().map(|entry| name(&entry.event)).collect()
}

/// The embedded store knows at once that the holders of its last life are dead. The model learns it by a hold that ends.
async fn forget_holders(model: &Backend, world: &World) {
    for number in 1..=3 {
        let holder = Holder { id: HolderId::from_number(number), until: Timestamp::default() };
        model.store.hold(holder, world.now()).await.unwrap();
    }
}

// === the schedule ===

impl Plan {
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
            0..27 => Act::Admit(Box::new(self.new_claim(world))),
            30..40 => self.claim().map_or(Act::Sweep(9), |claim| Act::Fetch(claim.id)),
            40..45 => self.claim().map_or(Act::Sweep(9), |claim| Act::Withdraw(claim.id)),
            45..52 => Act::Hold(self.holder()),
            52..53 => Act::Release(self.holder()),
            53..62 => Act::Lease(self.holder(), self.chance.usize(1..5)),
            62..78 => self.decide(world),
            78..95 => self.tell(world),
            27..30 | 95 | 97 => self.letter(world),
            96 => self.claim().map_or(Act::Sweep(9), |one| Act::Report(Box::new(one))),
            98 if self.chance.bool() => self.pool(world),
            98 => self.callbacks(),
            _ => Act::Sweep(self.chance.usize(1..20)),
        }
    }

    fn letter(&mut self, world: &World) -> Act {
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
        Act::Refill(Box::new(Refill {
            pool: new.fingerprint,
            holder: self.holder(),
            target,
            solves: (0..3).map(|_| world.fresh_solve()).collect(),
            wanted_until: world.now().plus(Duration::from_secs(60)),
            price: None,
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
            0 => named(&new, &format!("k{}", self.chance.u8(0..6))),
            1 => derived(&new, self.chance.u64(0..2) * 60),
            _ => new.key,
        };
        if self.chance.u8(0..3) == 0 {
            new.callback_url = Some(Secret::new("https://hooks.example.com/"));
        }
        if self.chance.u8(0..8) == 0 {
            new.allowance = Allowance { solves_per_day: Some(5), cost_per_day: None };
        }
        if let (0, Some(claim)) = (self.chance.u8(0..20), self.claim()) {
            new.id = claim.id;
        }
        new
    }

    fn lease(&mut self) -> Option<Lease> {
        // Mostly the latest: old ones are refused.
        let latest = self.leases.len().saturating_sub(8);
        let all = self.chance.u8(0..5) == 0;
        let from = if all { 0 } else { latest };
        self.chance.choice(&self.leases[from..]).cloned()
    }

    /// Where a leased solve stands now.
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
                Decision::Intend { nonce: Nonce::from_number(self.chance.u64(1..)) }
            }
            (3..8, true) => Decision::Authorise { due: world.now() },
            (9, false) => {
                let soonest = lease.solve.wanted_until.plus(Duration::from_millis(1));
                let trouble = self.chance.bool().then(|| "ERROR_ZERO_BALANCE".into());
                Decision::Lapse { soonest, trouble }
            }
            _ => Decision::WriteOff,
        };
        Act::Decide(Box::new(lease), decision)
    }

    fn tell(&mut self, world: &World) -> Act {
        let Some(lease) = self.lease() else { return Act::Hold(self.holder()) };
        // Mostly about the attempt under way; sometimes about one that was, or never was.
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
        Act::Tell(lease.solve.id, attempt, fact)
    }
}

// === both stores ===

/// Asks one store; the answer is compared as text, which shows everything but secrets.
async fn perform(on: &Backend, act: Act, now: Timestamp, plan: Option<&mut Plan>) -> String {
    let store = &on.store;
    match act {
        Act::Admit(new) => {
            let answer = store.admit(*new, now).await;
            if let (Some(plan), Ok(Admission::Opened(claim) | Admission::Stocked(claim))) =
                (plan, &answer)
            {
                plan.claims.push(claim.clone());
            }
            said(&answer)
        }
        Act::Fetch(id) => {
            let answer = store.deliver(id, now).await;
            let token = match &answer {
                Ok(Some(Delivery::Token(claim))) => stores::conformance::token_of(claim),
                Ok(Some(Delivery::Expired(_) | Delivery::Nothing(_)) | None) | Err(_) => None,
            };
            format!("{token:?} {answer:?}")
        }
        Act::Withdraw(id) => said(&store.withdraw(id, now).await),
        Act::Hold(id) => {
            said(&store.hold(Holder { id, until: now.plus(LeaseAsk::TERM) }, now).await)
        }
        Act::Release(id) => said(&store.release(id, now).await),
        Act::Lease(holder, limit) => {
            let answer = store.lease(LeaseAsk { holder, limit }, now).await;
            if let (Some(plan), Ok(leases)) = (plan, &answer) {
                plan.leases.extend(leases.iter().cloned());
            }
            said(&answer)
        }
        Act::Decide(lease, decision) => {
            let answer = store.advance(&lease, decision, now).await;
            if let (Some(plan), Ok(Ok(solve))) = (plan, &answer) {
                plan.learn(solve);
            }
            said(&answer)
        }
        Act::Tell(solve, attempt, fact) => {
            let answer = store.settle(solve, attempt, fact, now).await;
            if let (Some(plan), Ok(settled)) = (plan, &answer) {
                plan.learn(&settled.solve);
            }
            said(&answer)
        }
        Act::Revive(_)
        | Act::SetPool(..)
        | Act::Refill(_)
        | Act::Purge(_)
        | Act::Callbacks(_)
        | Act::CalledBack(_) => by_people(on, act, now, plan).await,
        Act::Report(claim) => said(&store.note(bad_report(*claim), now).await),
        Act::Sweep(limit) => {
            let trouble = (limit % 2 == 1).then(|| "ERROR_ZERO_BALANCE".into());
            said(&store.sweep(SweepAsk { limit, trouble }, now).await)
        }
    }
}

/// What people and receivers do.
async fn by_people(on: &Backend, act: Act, now: Timestamp, plan: Option<&mut Plan>) -> String {
    let store = &on.store;
    match act {
        Act::Revive(ask) => {
            let answer = store.revive(*ask, now).await;
            if let (Some(plan), Ok(Revival::Back(Admission::Opened(claim)))) = (plan, &answer) {
                plan.claims.push(claim.clone());
            }
            said(&answer)
        }
        Act::Purge(letter) => {
            said(&store.purge(letter, WorkerName::new("admin").unwrap(), now).await)
        }
        Act::Callbacks(limit) => {
            let answer = store.callbacks(limit, now).await;
            if let (Some(plan), Ok(callbacks)) = (plan, &answer) {
                plan.callbacks.extend(callbacks.iter().cloned());
            }
            said(&answer)
        }
        Act::CalledBack(callback) => said(&store.called_back(&callback, now).await),
        Act::SetPool(new, level) => {
            let order = StandingOrder {
                challenge: new.challenge,
                worker: new.worker,
                project: new.project,
                basis: new.basis,
                level: level.map_or(Level::Auto, Level::Fixed),
                most: 20,
                waste: 100,
                is_declared: true,
            };
            let order = (level != Some(0)).then_some(order);
            said(&store.set_pool(new.fingerprint, order, now).await)
        }
        Act::Refill(ask) => said(&store.refill(*ask, now).await),
        other => panic!("{other:?}"),
    }
}

fn bad_report(claim: Claim) -> Note {
    Note {
        claim: Some(claim.id),
        worker: claim.worker,
        project: claim.project,
        kind: Some(claim.kind),
        event: Event::Reported { good: false },
    }
}

fn said<T: Debug>(answer: &Result<T, StoreError>) -> String {
    // An error names its backend; that is the one difference there may be.
    format!("{answer:?}").replace("embedded", "memory")
}

/// Everything both can be asked for at the end.
async fn readings(on: &Backend, now: Timestamp) -> Vec<String> {
    let records = &on.records;
    let entries = records.entries(0, usize::MAX).await;
    let filter = ClaimFilter {
        scope: Scope::All,
        sitekey: None,
        kind: None,
        state: None,
        project: None,
        from: None,
        limit: usize::MAX,
    };
    let open = DeadLetterFilter::open(Scope::All, usize::MAX);
    let letters = DeadLetterFilter { closed: true, ..open };
    let (from, to) = (Day::from_number(0), Day::from_number(u32::MAX));
    let history = records.history(filter).await;
    let mut all = vec![
        said(&entries),
        said(&records.dead_letters(letters).await),
        said(&records.active(Scope::All, 999).await),
        said(&records.totals(TotalsAsk { scope: Scope::All, from, to }).await),
        said(&records.stock_levels(now).await),
        said(&records.spending(now.day()).await),
        said(&records.pools(now).await),
        said(&records.margins().await),
    ];
    for claim in history.unwrap().items {
        all.push(said(&records.explain(claim.id).await));
        all.push(format!("{claim:?} {:?}", claim.token));
    }
    all
}
