//! Chance and a store that can be slow, away, or lose its replies: the outside of one simulated gateway.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use domain::{
    callback::{Callback, Notice},
    claim::{Admission, Claim, Delivery, KeyRule, NewClaim},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, SolveId, TaskId, WorkerName},
    lease::{Holder, Lease},
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        AddressRefused, BatchRefused, Chance, Clock, Courier, Fault, Feedback, LeaseAsk, NotTold,
        Note, Parcel, Poll, Polled, Provider, Refill, Refilled, Revival, Revive, Settled, Store,
        StoreError, Submission, SweepAsk, Swept, Threads, Withdrawal,
    },
    retry::{Code, Verdict, own},
    solve::{Decision, Fact, Refused, Solve, Solved, Stage},
    time::Timestamp,
};

use crate::monitor::Monitor;

/// Chance from a seed.
#[derive(Debug)]
pub struct SeededChance(Mutex<fastrand::Rng>);

impl SeededChance {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Chance for SeededChance {
    fn draw(&self) -> u64 {
        self.0.lock().unwrap().u64(..)
    }
}

/// A process that is paused passes no call in or out.
#[derive(Debug, Default)]
pub struct Gate {
    paused_until: AtomicU64,
    /// The store cannot be reached.
    pub cut: AtomicBool,
}

impl Gate {
    pub fn pause(&self, until: Timestamp) {
        self.paused_until.store(until.millis(), Ordering::SeqCst);
    }

    async fn pass(&self, clock: &dyn Clock) {
        let until = Timestamp::from_millis(self.paused_until.load(Ordering::SeqCst));
        if clock.now() < until {
            clock.sleep_until(until).await;
        }
    }
}

/// How badly the way to the store behaves, and a bug that may be planted in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreWeather {
    /// Milliseconds, at most.
    pub latency: u64,
    /// Of a thousand calls, so many fail before they arrive.
    pub unreached: u32,
    /// Of a thousand calls, so many are carried out and their reply is lost.
    pub reply_lost: u32,
}

/// Bugs the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Bytes leave without a durable intent.
    NoIntent,
    /// A dead holder's intent is put back into the queue.
    LeaseEndAuthorises,
    /// The task id is thrown away when the gateway is busy.
    ForgetsTask,
    /// A lost reply counts as "not sent".
    LostMeansNotSent,
    /// Keys are ignored: same challenge, same token.
    IgnoresKeys,
    /// A token's life is counted anew when it is stored, as when the whole list's expiry is pushed on.
    RenewsTokens,
    /// A poll that failed counts as a task that ended.
    PollFaultEndsTask,
    /// A retry goes out at once.
    RetriesAtOnce,
    /// A callback leaves the outbox when it is tried, not when it is taken.
    TellsOnce,
}

/// The shared store as one gateway reaches it.
pub struct FarStore {
    pub monitor: Arc<Monitor>,
    pub life: Arc<Life>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub gate: Arc<Gate>,
    pub weather: Mutex<StoreWeather>,
    pub rng: Mutex<fastrand::Rng>,
    pub bug: Option<Bug>,
}

impl fmt::Debug for FarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FarStore")
    }
}

fn away() -> StoreError {
    StoreError::Unavailable { backend: "simulated", source: "cut off".into() }
}

impl FarStore {
    async fn way(&self) {
        let latency = self.weather.lock().unwrap().latency;
        let length = Duration::from_millis(self.rng.lock().unwrap().u64(0..=latency));
        self.clock.sleep_until(self.clock.now().plus(length)).await;
        self.gate.pass(&*self.clock).await;
    }

    fn strikes(&self, of_thousand: u32) -> bool {
        self.rng.lock().unwrap().u32(0..1000) < of_thousand
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.way().await;
        let weather = *self.weather.lock().unwrap();
        if self.gate.cut.load(Ordering::SeqCst) || self.strikes(weather.unreached) {
            return Err(away());
        }
        let result = call.await;
        self.monitor.check_new_entries().await;
        self.way().await;
        if self.gate.cut.load(Ordering::SeqCst) || self.strikes(weather.reply_lost) {
            return Err(away());
        }
        result
    }

    /// Writes down until when the engine wants to wait.
    fn note_retry(&self, solve: SolveId, attempt: u32, fact: Fact, now: Timestamp) -> Fact {
        let (Fact::NotAccepted { code, verdict } | Fact::TaskOver { code, verdict, .. }) = &fact
        else {
            return fact;
        };
        let &Verdict::Again { due, counted } = verdict else { return fact };
        let retry = Retry { solve, attempt, code: code.clone(), at: now, due };
        self.life.retries.lock().unwrap().push(retry);
        match fact {
            Fact::NotAccepted { code, .. } if self.bug == Some(Bug::RetriesAtOnce) => {
                Fact::NotAccepted { code, verdict: Verdict::Again { due: now, counted } }
            }
            other => other,
        }
    }

    /// A blind resubmission after a crash.
    async fn requeue(&self, leases: &mut [Lease], now: Timestamp) -> Result<(), StoreError> {
        for lease in leases.iter_mut().filter(|lease| lease.solve.stage == Stage::Ambiguous) {
            let verdict = Verdict::Again { due: now, counted: false };
            let fact = Fact::NotAccepted { code: own::NOT_SENT.into(), verdict };
            lease.solve =
                self.store.settle(lease.solve.id, lease.solve.attempt, fact, now).await?.solve;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FarStore {
    async fn admit(&self, mut claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        if self.bug == Some(Bug::IgnoresKeys) {
            let hash = domain::fingerprint::KeyHash::derived(&claim.worker, &claim.fingerprint);
            claim.key = KeyRule::Derived { hash, window: Duration::from_secs(60) };
        }
        self.call(self.store.admit(claim, now)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.call(self.store.find_claim(id)).await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.call(self.store.find_solve(id)).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.call(self.store.deliver(id, now)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.call(self.store.withdraw(id, now)).await
    }

    async fn hold(&self, holder: Holder, now: Timestamp) -> Result<(), StoreError> {
        self.call(self.store.hold(holder, now)).await
    }

    async fn release(&self, holder: HolderId, now: Timestamp) -> Result<(), StoreError> {
        self.call(self.store.release(holder, now)).await
    }

    async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        let mut leases = self.call(self.store.lease(ask, now)).await?;
        if self.bug == Some(Bug::LeaseEndAuthorises) {
            self.requeue(&mut leases, now).await?;
        }
        Ok(leases)
    }

    async fn advance(
        &self,
        lease: &Lease,
        decision: Decision,
        now: Timestamp,
    ) -> Result<Result<Solve, Refused>, StoreError> {
        if self.bug == Some(Bug::NoIntent) && matches!(decision, Decision::Intend { .. }) {
            let mut solve = lease.solve.clone();
            return Ok(solve.decide(lease.fence, &decision, now).map(|_| solve));
        }
        self.call(self.store.advance(lease, decision, now)).await
    }

    async fn settle(
        &self,
        solve: SolveId,
        attempt: u32,
        fact: Fact,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        let fact = self.note_retry(solve, attempt, fact, now);
        let forget = self.bug == Some(Bug::ForgetsTask)
            && matches!(fact, Fact::Accepted { .. })
            && self.strikes(100);
        let fact = match fact {
            Fact::Solved(solved) if self.bug == Some(Bug::RenewsTokens) => {
                Fact::Solved(Solved { ready_lower: now.plus(Duration::from_secs(120)), ..solved })
            }
            other => other,
        };
        let lost = Fact::ReplyLost { why: "forgotten".into(), due: now };
        self.call(self.store.settle(solve, attempt, if forget { lost } else { fact }, now)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.call(self.store.note(note, now)).await
    }

    async fn revive(&self, ask: Revive, now: Timestamp) -> Result<Revival, StoreError> {
        self.call(self.store.revive(ask, now)).await
    }

    async fn purge(
        &self,
        letter: SolveId,
        by: WorkerName,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.call(self.store.purge(letter, by, now)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        let mut callbacks = self.call(self.store.callbacks(limit, now)).await?;
        if self.bug == Some(Bug::TellsOnce) {
            for callback in std::mem::take(&mut callbacks) {
                self.store.called_back(&callback, now).await?;
                callbacks.push(callback);
            }
        }
        Ok(callbacks)
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        self.call(self.store.called_back(callback, now)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.call(self.store.set_pool(fingerprint, order, now)).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.call(self.store.expect(pool, expectation, now)).await
    }

    async fn refill(&self, ask: Refill, now: Timestamp) -> Result<Refilled, StoreError> {
        self.call(self.store.refill(ask, now)).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.call(self.store.set_memo(name, value)).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.call(self.store.memos(prefix)).await
    }

    async fn sweep(&self, ask: SweepAsk, now: Timestamp) -> Result<Swept, StoreError> {
        self.call(self.store.sweep(ask, now)).await
    }
}

/// A receiver of notices that may be down; it remembers what reached it.
#[derive(Debug, Default)]
pub struct Receiver {
    pub is_down: AtomicBool,
    pub tried: Mutex<Vec<String>>,
    pub got: Mutex<Vec<(String, Notice)>>,
}

#[async_trait]
impl Courier for Receiver {
    async fn check(&self, _: &str) -> Result<(), AddressRefused> {
        Ok(())
    }

    async fn tell(&self, parcel: &Parcel) -> Result<(), NotTold> {
        self.tried.lock().unwrap().push(parcel.id.clone());
        if self.is_down.load(Ordering::SeqCst) {
            return Err(NotTold("the receiver is down".into()));
        }
        self.got.lock().unwrap().push((parcel.id.clone(), parcel.notice.clone()));
        Ok(())
    }
}

/// A failure that is not the end, as the engine tells the store.
#[derive(Clone, Debug)]
pub struct Retry {
    pub solve: SolveId,
    pub attempt: u32,
    pub code: Code,
    pub at: Timestamp,
    pub due: Timestamp,
}

/// One life of one gateway: the tasks it heard of and asked for, and whether it died of a crash.
#[derive(Debug, Default)]
pub struct Life {
    pub gateway: usize,
    /// By its own clock.
    pub polls: Mutex<Vec<(TaskId, Timestamp)>>,
    pub heard: Mutex<Vec<TaskId>>,
    pub retries: Mutex<Vec<Retry>>,
    /// What `Retry-After` the provider asked for.
    pub asked: Mutex<BTreeMap<(SolveId, u32), Duration>>,
    pub crashed: AtomicBool,
}

/// The provider as one gateway reaches it; it notes every task id that reached that gateway.
#[derive(Debug)]
pub struct FarProvider {
    pub monitor: Arc<Monitor>,
    pub life: Arc<Life>,
    pub provider: Arc<dyn Provider>,
    pub clock: Arc<dyn Clock>,
    pub gate: Arc<Gate>,
    pub bug: Option<Bug>,
}

#[async_trait]
impl Provider for FarProvider {
    async fn submit(
        &self,
        challenge: &domain::challenge::Challenge,
        attempt: domain::id::AttemptName,
    ) -> Submission {
        self.gate.pass(&*self.clock).await;
        self.monitor.check_submission(attempt);
        let submission = self.provider.submit(challenge, attempt).await;
        self.gate.pass(&*self.clock).await;
        let (gateway, number) = (self.life.gateway, attempt.attempt);
        let what = format!("gateway {gateway} submitted {} attempt {number}", attempt.solve);
        self.monitor.tell(format!("{what}: {submission:?}"));
        match &submission {
            Submission::Accepted(task) => self.life.heard.lock().unwrap().push(task.clone()),
            Submission::Rejected { retry_after: Some(wait), .. } => {
                let name = (attempt.solve, attempt.attempt);
                self.life.asked.lock().unwrap().insert(name, *wait);
            }
            _ => {}
        }
        match submission {
            Submission::Ambiguous { why, .. } if self.bug == Some(Bug::LostMeansNotSent) => {
                Submission::NotSent(why)
            }
            other => other,
        }
    }

    async fn poll(&self, task: &TaskId) -> Polled {
        self.life.polls.lock().unwrap().push((task.clone(), self.clock.now()));
        self.gate.pass(&*self.clock).await;
        let polled = self.provider.poll(task).await;
        self.gate.pass(&*self.clock).await;
        if self.bug == Some(Bug::PollFaultEndsTask) && matches!(polled.poll, Poll::Fault(_)) {
            return Polled { poll: Poll::Code("ERROR_CAPTCHA_UNSOLVABLE".into()), price: None };
        }
        polled
    }

    async fn poll_many(&self, tasks: &[TaskId]) -> Result<Vec<Polled>, BatchRefused> {
        let now = self.clock.now();
        self.life.polls.lock().unwrap().extend(tasks.iter().map(|task| (task.clone(), now)));
        self.gate.pass(&*self.clock).await;
        let polled = self.provider.poll_many(tasks).await;
        self.gate.pass(&*self.clock).await;
        polled
    }

    async fn report(&self, task: &TaskId, feedback: Feedback) -> Result<(), Fault> {
        self.provider.report(task, feedback).await
    }

    async fn balance(&self) -> Result<domain::money::Money, Fault> {
        self.provider.balance().await
    }

    async fn threads(&self) -> Result<Threads, Fault> {
        self.provider.threads().await
    }
}
