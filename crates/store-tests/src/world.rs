//! The context of a case: a store, a clock that only the case moves, and short methods for the steps of a claim.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::{
    actor::{Actor, ActorRole},
    challenge::{Challenge, ChallengeParts, Kind},
    claim::{Admission, Allowance, Claim, Delivery, Door, KeyRule, NewClaim},
    dead_letter::DeadLetter,
    fingerprint::{Fingerprint, Identity, KeyHash},
    id::{ClaimId, HolderId, Nonce, Project, SolveId, TaskId, WorkerName},
    lease::{Holder, Lease},
    ledger::{Entry, Event},
    money::Money,
    ports::{
        Advanced, Archive, History, LeaseRequest, Records, Revival, ReviveRequest, Scope, Settled,
        Store, SweepRequest, Swept,
    },
    retry::Verdict,
    secret::Secret,
    site::PageUrl,
    solve::{Decision, Fact, Policy, Refused, Solve, Solved},
    time::Timestamp,
    token::{Answer, TokenLifetime},
};

use stores::Backend;

/// A store under test, and its clock.
#[derive(Clone, Debug)]
pub struct World {
    pub store: Arc<dyn Store>,
    pub records: Arc<dyn Records>,
    pub archive: Arc<dyn Archive>,
    now: Arc<AtomicU64>,
    drawn: Arc<AtomicU64>,
    leases: Arc<Mutex<BTreeMap<SolveId, Lease>>>,
}

/// The price of a solve.
pub const PRICE: Money = Money::from_micros(1_000);

/// The holder that leases when a case does not name one.
const DRIVER: u64 = 1_000_000;
const NOON: u64 = 1_794_700_800_000 + 12 * 3_600_000;

impl World {
    pub fn new(backend: &Backend) -> Self {
        Self::on(backend.store.clone(), backend.records.clone(), backend.archive.clone())
    }

    /// For the unit tests of `stores`, whose `Backend` is another type than ours.
    pub fn on(store: Arc<dyn Store>, records: Arc<dyn Records>, archive: Arc<dyn Archive>) -> Self {
        Self {
            store,
            records,
            archive,
            now: Arc::new(AtomicU64::new(NOON)),
            drawn: Arc::default(),
            leases: Arc::default(),
        }
    }

    /// The same clock and ids on another connection: a second gateway.
    #[must_use]
    pub fn through(&self, backend: &Backend) -> Self {
        Self {
            store: backend.store.clone(),
            records: backend.records.clone(),
            archive: backend.archive.clone(),
            ..self.clone()
        }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    pub fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub fn pass_days(&self, days: u64) {
        self.pass(days * 86_400);
    }

    /// Advances the clock by one millisecond.
    pub fn tick(&self) {
        self.now.fetch_add(1, Ordering::SeqCst);
    }

    fn draw(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::SeqCst) + 1
    }

    // === claims ===

    /// A new claim for an exclusive kind, which never shares a solve.
    pub fn turnstile(&self, sitekey: &str) -> NewClaim {
        let pageurl = Some(PageUrl::parse("https://shop.example.com/login").unwrap());
        let draft =
            ChallengeParts { sitekey: Some(sitekey.into()), pageurl, ..ChallengeParts::default() };
        self.claim(Challenge::new(Kind::Turnstile, draft).unwrap())
    }

    /// A new claim for an image; equal images share a solve.
    pub fn image(&self, bytes: &[u8]) -> NewClaim {
        let files = BTreeMap::from([("body".to_owned(), bytes.to_vec())]);
        self.claim(
            Challenge::new(Kind::Image, ChallengeParts { files, ..ChallengeParts::default() })
                .unwrap(),
        )
    }

    fn claim(&self, challenge: Challenge) -> NewClaim {
        let n = self.draw();
        NewClaim {
            id: ClaimId::from_number(100_000_000_000_000 + n),
            solve: SolveId::from_number(200_000_000_000_000 + n),
            worker: worker("ann"),
            project: Project::new("shop").unwrap(),
            door: Door::V1,
            fingerprint: Fingerprint::of(&challenge, Identity::default()),
            challenge: Arc::new(challenge),
            basis: "own shop".into(),
            key: KeyRule::Own,
            deadline: self.now().plus(Duration::from_secs(120)),
            price: Some(PRICE),
            allowance: Allowance::default(),
            account: Allowance::default(),
            policy: Policy::default(),
            collect: false,
            callback_url: None,
            soonest: self.now(),
            revives: None,
            reopens_after: None,
            reopened: 0,
            start: None,
        }
    }

    pub async fn admit(&self, new: NewClaim) -> Admission {
        self.store.admit(new, self.now()).await.unwrap()
    }

    /// Admits a claim that must open a solve.
    pub async fn open(&self, new: NewClaim) -> Claim {
        match self.admit(new).await {
            Admission::Opened(claim) => claim,
            other => panic!("expected a new solve, got {other:?}"),
        }
    }

    /// The current state of a claim.
    pub async fn find(&self, claim: &Claim) -> Claim {
        self.store.find_claim(claim.id).await.unwrap().unwrap()
    }

    pub async fn fetch(&self, claim: &Claim) -> Delivery {
        self.store.deliver(claim.id, self.now()).await.unwrap().unwrap()
    }

    pub async fn withdraw(&self, claim: &Claim) -> Claim {
        self.store.withdraw(claim.id, None, self.now()).await.unwrap().unwrap().claim
    }

    pub async fn sweep(&self) -> Swept {
        self.store.sweep(SweepRequest::plain(1000), self.now()).await.unwrap()
    }

    /// Sweeps a store whose history is in an archive.
    pub async fn sweep_archived(&self, archive: &dyn Archive) -> Swept {
        let last = archive.archived().await.unwrap().map(Box::new);
        let ask = SweepRequest { history: History::Archived(last), ..SweepRequest::plain(1000) };
        self.store.sweep(ask, self.now()).await.unwrap()
    }

    /// Copies everything that the archive does not have yet, `limit` entries at a time.
    pub async fn copy_to_archive(&self, archive: &dyn Archive, limit: usize) {
        loop {
            let after = archive.archived().await.unwrap();
            let batch = self.records.archive_batch(after, limit).await.unwrap();
            if batch.entries.is_empty() {
                return;
            }
            assert!(archive.archive(batch).await.unwrap());
        }
    }

    // === the driver ===

    /// A holder whose lease lasts for fifteen seconds.
    pub async fn holder(&self, number: u64) -> HolderId {
        let id = HolderId::from_number(number);
        let until = self.now().plus(LeaseRequest::TERM);
        self.store.hold(Holder::apart(id, until)).await.unwrap();
        id
    }

    pub async fn lease(&self, holder: HolderId) -> Vec<Lease> {
        self.lease_some(holder, 1000).await
    }

    pub async fn lease_some(&self, holder: HolderId, limit: usize) -> Vec<Lease> {
        self.store.lease(LeaseRequest::any(holder, limit), self.now()).await.unwrap()
    }

    /// The lease of a claim's solve. The driver leases everything there is.
    pub async fn lease_of(&self, claim: &Claim) -> Lease {
        self.lease_of_solve(claim.solve.unwrap()).await
    }

    pub async fn decide(&self, lease: &Lease, decision: Decision) -> Result<Solve, Refused> {
        match self.store.advance(lease, decision, self.now()).await.unwrap() {
            Advanced::Done(solve) => Ok(solve),
            Advanced::Refused(refused) => Err(refused),
        }
    }

    pub async fn intend(&self, lease: &Lease) -> Result<Solve, Refused> {
        let nonce = Nonce::from_number(self.draw());
        self.decide(lease, Decision::Intend { guard: domain::declarations::Guard::open(), nonce })
            .await
    }

    pub async fn authorise(&self, lease: &Lease) -> Result<Solve, Refused> {
        self.decide(
            lease,
            Decision::Authorise { guard: domain::declarations::Guard::open(), due: self.now() },
        )
        .await
    }

    pub async fn settle(&self, solve: SolveId, attempt: u32, fact: Fact) -> Settled {
        self.store.settle(solve, attempt, fact, self.now()).await.unwrap()
    }

    /// Leases, writes the intent, and settles that the provider accepted it as task `name`.
    pub async fn submit(&self, claim: &Claim, name: &str) -> Lease {
        let lease = self.lease_of(claim).await;
        let solve = self.intend(&lease).await.unwrap();
        let settled = self.settle(solve.id, solve.attempt, accepted(name)).await;
        assert!(settled.fresh);
        Lease { solve: settled.solve, ..lease }
    }

    /// Leases, writes the intent, and settles that the reply was lost.
    pub async fn lose_reply(&self, claim: &Claim) -> Lease {
        let lease = self.lease_of(claim).await;
        let solve = self.intend(&lease).await.unwrap();
        let lost = Fact::ReplyLost { why: "reset".into(), due: self.now() };
        let settled = self.settle(solve.id, solve.attempt, lost).await;
        Lease { solve: settled.solve, ..lease }
    }

    /// An answer that is ready now.
    pub fn solved(&self, name: &str) -> Fact {
        self.solved_at(name, self.now())
    }

    /// An answer that may have been ready since `ready_lower`. It is valid for 250 s and handed out for 240 s.
    pub fn solved_at(&self, name: &str, ready_lower: Timestamp) -> Fact {
        let answer =
            Answer { text: Secret::new(format!("token-{name}")), is_json: false, extras: None };
        let life = TokenLifetime::new(Duration::from_secs(300), Duration::from_secs(50)).unwrap();
        let cost = Some(PRICE);
        Fact::Solved(Solved { task: task(name), answer, ready_lower, life, cost, polls: 3 })
    }

    /// Opens a claim and settles its solve as solved.
    pub async fn serve(&self, new: NewClaim, name: &str) -> Claim {
        let claim = self.open(new).await;
        self.submit(&claim, name).await;
        let settled = self.settle(claim.solve.unwrap(), 1, self.solved(name)).await;
        assert_eq!(settled.ended, [claim.id]);
        self.find(&claim).await
    }

    /// Puts a token into stock, by a claim that is served and then withdrawn.
    pub async fn stock(&self, new: NewClaim, name: &str) {
        let claim = self.serve(new, name).await;
        self.withdraw(&claim).await;
    }

    // === pools ===

    pub fn fresh_solve(&self) -> SolveId {
        SolveId::from_number(500_000_000_000_000 + self.draw())
    }

    /// The lease of a solve without claims, held by the driver.
    pub async fn lease_of_solve(&self, id: SolveId) -> Lease {
        let driver = self.holder(DRIVER).await;
        let taken = self.lease(driver).await;
        let mut leases = self.leases.lock().unwrap();
        leases.extend(taken.into_iter().map(|lease| (lease.solve.id, lease)));
        leases.get(&id).unwrap().clone()
    }

    /// Active solves without claims.
    pub async fn active_refills(&self) -> Vec<SolveId> {
        let active = self.records.active(Scope::All, 1000).await.unwrap();
        active.into_iter().filter(|solve| solve.claims.is_empty()).map(|solve| solve.id).collect()
    }

    // === dead letters ===

    /// Opens a claim whose solve fails.
    pub async fn fail(&self, new: NewClaim, code: &str) -> Claim {
        let claim = self.open(new).await;
        self.fail_solve(&claim, code).await;
        self.find(&claim).await
    }

    /// Settles that the provider refused the claim's solve for good.
    pub async fn fail_solve(&self, claim: &Claim, code: &str) {
        let lease = self.lease_of(claim).await;
        let solve = self.intend(&lease).await.unwrap();
        self.settle(solve.id, solve.attempt, refused(code, Verdict::GiveUp)).await;
    }

    /// The request that revives the dead letter of a failed claim.
    pub fn revive(&self, claim: &Claim) -> ReviveRequest {
        let (a, b) = (self.draw(), self.draw());
        let fresh = |n| ClaimId::from_number(300_000_000_000_000 + n);
        ReviveRequest {
            letter: claim.solve.unwrap(),
            by: admin(),
            claims: vec![fresh(a), fresh(b)],
            solve: SolveId::from_number(400_000_000_000_000 + a),
            basis: "own shop, second try".into(),
            deadline: self.now().plus(Duration::from_secs(120)),
            price: Some(PRICE),
            allowances: ["ann", "bob"].map(|name| (worker(name), Allowance::default())).into(),
            account: Allowance::default(),
            policy: Policy::default(),
        }
    }

    /// Revives the dead letter of a failed claim.
    pub async fn bring_back(&self, claim: &Claim) -> Revival {
        self.store.revive(self.revive(claim), self.now()).await.unwrap()
    }

    /// Revives a dead letter, which must open a new solve.
    pub async fn reopen(&self, claim: &Claim) -> Claim {
        match self.bring_back(claim).await {
            Revival::Back(Admission::Opened(claim)) => claim,
            other => panic!("expected a new solve, got {other:?}"),
        }
    }

    /// The dead letter of a claim's solve.
    pub async fn dead_letter(&self, claim: &Claim) -> DeadLetter {
        self.records.dead_letter(claim.solve.unwrap()).await.unwrap().unwrap()
    }

    // === the ledger ===

    pub async fn entries(&self) -> Vec<Entry> {
        self.records.entries(0, usize::MAX).await.unwrap()
    }

    /// Counts the entries whose event matches.
    pub async fn count(&self, says: fn(&Event) -> bool) -> usize {
        self.entries().await.iter().filter(|entry| says(&entry.event)).count()
    }
}

pub(super) fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

/// An admin at another machine.
pub fn admin() -> Actor {
    let address = Some([192, 0, 2, 7].into());
    Actor { name: worker("admin"), role: ActorRole::Operator, address }
}

pub fn task(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

/// The provider accepted the submission as a task.
pub fn accepted(name: &str) -> Fact {
    Fact::Accepted { task: task(name), sent_at: Timestamp::from_millis(NOON) }
}

/// The provider refused the submission.
pub fn refused(code: &str, verdict: Verdict) -> Fact {
    Fact::NotAccepted { code: code.into(), verdict }
}

/// The task ended without an answer, at full price.
pub fn over(code: &str, verdict: Verdict) -> Fact {
    Fact::TaskOver { code: code.into(), verdict, cost: Some(PRICE), polls: 2 }
}

/// A key chosen by the worker.
pub fn named(new: &NewClaim, key: &str) -> KeyRule {
    KeyRule::Named(KeyHash::named(&new.worker, key).unwrap())
}

/// A key derived from the parameters, valid for `window` seconds.
pub fn derived(new: &NewClaim, window: u64) -> KeyRule {
    let hash = KeyHash::derived(&new.worker, &new.fingerprint);
    KeyRule::Derived { hash, window: Duration::from_secs(window) }
}

pub fn token_of(claim: &Claim) -> Option<&str> {
    claim.token.as_ref().map(|token| token.answer.text.expose())
}
