//! The ports of one simulated gateway: randomness, and a store and a provider that can be slow, unreachable, or lose
//! replies.

mod provider;
mod receiver;

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
    account_share::Standing,
    actor::Actor,
    admin_action::AdminAction,
    callback::Callback,
    challenge::Challenge,
    claim::{Admission, Claim, Delivery, KeyRule, NewClaim, Repeats},
    fingerprint::Fingerprint,
    id::{ClaimId, HolderId, Nonce, SolveId, TaskId},
    lease::{Holder, Lease},
    money::Money,
    pause::Pauses,
    pool::{Expectation, Pool, StandingOrder},
    ports::{
        Advanced, Chance, Clock, LeaseRequest, Note, PauseRequest, PauseResult, RefillRequest,
        Refilled, Revival, ReviveRequest, ServerTime, Settled, Store, StoreError, SweepRequest,
        Swept, Withdrawal,
    },
    retry::{Code, Verdict, own},
    solve::{Decision, Fact, Solve, Solved, Stage},
    time::Timestamp,
};

use stores::Timing;

use crate::monitor::Monitor;

pub use crate::bug::Bug;

pub use provider::RemoteProvider;
pub use receiver::Receiver;

/// Randomness from a seed.
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

/// Holds back all calls of a paused process.
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

/// The faults of the connection to the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFaults {
    /// Maximum, in milliseconds.
    pub latency: u64,
    /// Per thousand calls: those that take seconds on their way.
    pub slow: u32,
    /// Per thousand calls: those that fail before they reach the store.
    pub unreached: u32,
    /// Per thousand calls: those that are carried out and whose reply is lost.
    pub reply_lost: u32,
}

/// How long a slow call is under way at most, in milliseconds: long enough for a submission to end and its task to be polled.
const SLOW: u64 = 15_000;

/// The shared store as one gateway reaches it.
pub struct RemoteStore {
    pub monitor: Arc<Monitor>,
    pub life: Arc<Life>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Follows the clock, and compares it with the wall clock of the server.
    pub timing: Timing,
    pub wall: Arc<dyn Clock>,
    pub gate: Arc<Gate>,
    /// The same for all gateways.
    pub store_faults: Arc<Mutex<StoreFaults>>,
    pub rng: Mutex<fastrand::Rng>,
    pub bug: Option<Bug>,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FarStore")
    }
}

fn unavailable() -> StoreError {
    StoreError::unavailable("simulated", "cut off")
}

impl RemoteStore {
    async fn network_delay(&self) {
        let StoreFaults { latency, slow, .. } = *self.store_faults.lock().unwrap();
        let latency = if slow > 0 && self.happens(slow) { SLOW } else { latency };
        let length = Duration::from_millis(self.rng.lock().unwrap().u64(0..=latency));
        self.clock.sleep_until(self.clock.now().plus(length)).await;
        self.gate.pass(&*self.clock).await;
    }

    fn happens(&self, of_thousand: u32) -> bool {
        self.rng.lock().unwrap().u32(0..1000) < of_thousand
    }

    /// A call that needs the right time.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.timing.check()?;
        self.pass(call).await
    }

    async fn pass<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.network_delay().await;
        let store_faults = *self.store_faults.lock().unwrap();
        if self.gate.cut.load(Ordering::SeqCst) || self.happens(store_faults.unreached) {
            return Err(unavailable());
        }
        let result = call.await;
        self.monitor.check_new_entries().await;
        self.network_delay().await;
        if self.gate.cut.load(Ordering::SeqCst) || self.happens(store_faults.reply_lost) {
            return Err(unavailable());
        }
        result
    }

    /// Records how long the engine wants to wait.
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

    /// Queues the intents of a dead holder again, which leads to a blind resubmission.
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
impl Store for RemoteStore {
    async fn admit(&self, mut claim: NewClaim, now: Timestamp) -> Result<Admission, StoreError> {
        if let Some(bug) = self.bug {
            bug.distort(&mut claim);
        }
        // As for a decision: what is withdrawn by now must not be started.
        let is_withdrawn = self.monitor.is_withdrawn();
        let admitted = self.call(self.store.admit(claim.clone(), now)).await;
        if let (true, Ok(Admission::Started(_, lease))) = (is_withdrawn, &admitted) {
            self.monitor.check_declared(&lease.solve);
        }
        let admission = admitted?;
        let Admission::Replayed(failed) = &admission else { return Ok(admission) };
        if self.bug != Some(Bug::ForgetsFailures) || !failed.may_have_paid {
            return Ok(admission);
        }
        claim.key = KeyRule::Own;
        self.call(self.store.admit(claim, now)).await
    }

    async fn withhold_start(
        &self,
        claim: ClaimId,
        solve: SolveId,
        nonce: Nonce,
        now: Timestamp,
    ) -> Result<Option<Claim>, StoreError> {
        self.pass(self.store.withhold_start(claim, solve, nonce, now)).await
    }

    async fn find_claim(&self, id: ClaimId) -> Result<Option<Claim>, StoreError> {
        self.call(self.store.find_claim(id)).await
    }

    async fn find_claims(&self, ids: Vec<ClaimId>) -> Result<Vec<Claim>, StoreError> {
        self.call(self.store.find_claims(ids)).await
    }

    async fn find_solve(&self, id: SolveId) -> Result<Option<Solve>, StoreError> {
        self.call(self.store.find_solve(id)).await
    }

    async fn find_challenge(&self, id: SolveId) -> Result<Option<Arc<Challenge>>, StoreError> {
        self.call(self.store.find_challenge(id)).await
    }

    async fn deliver(&self, id: ClaimId, now: Timestamp) -> Result<Option<Delivery>, StoreError> {
        self.call(self.store.deliver(id, now)).await
    }

    async fn withdraw(
        &self,
        id: ClaimId,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Withdrawal>, StoreError> {
        self.call(self.store.withdraw(id, by, now)).await
    }

    async fn count_fetches(&self, fetches: Vec<(ClaimId, u64)>) -> Result<(), StoreError> {
        self.call(self.store.count_fetches(fetches)).await
    }

    async fn repeats(&self, id: ClaimId) -> Result<Repeats, StoreError> {
        self.call(self.store.repeats(id)).await
    }

    async fn compare_clock(&self) -> Result<(), StoreError> {
        let server =
            || async { Ok(Some(ServerTime { at: self.wall.now(), precision: Duration::ZERO })) };
        self.pass(self.timing.compare(server)).await
    }

    async fn hold(&self, holder: Holder) -> Result<Standing, StoreError> {
        self.call(self.store.hold(holder)).await
    }

    async fn release(&self, holder: HolderId) -> Result<(), StoreError> {
        self.pass(self.store.release(holder)).await
    }

    async fn lease(&self, ask: LeaseRequest, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
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
    ) -> Result<Advanced, StoreError> {
        if self.bug == Some(Bug::NoIntent) && matches!(decision, Decision::Intend { .. }) {
            let mut solve = lease.solve.clone();
            return Ok(match solve.decide(lease.fence, &decision, now) {
                Ok(_) => Advanced::Done(solve),
                Err(refused) => Advanced::Refused(refused),
            });
        }
        let decision = match self.bug {
            Some(bug) => bug.distort_decision(decision),
            None => decision,
        };
        // The guard of the decision was drawn up just before, so what is withdrawn by now must not pass.
        let is_withdrawn = self.monitor.is_withdrawn();
        let spends = matches!(decision, Decision::Intend { .. } | Decision::Authorise { .. });
        let result = self.call(self.store.advance(lease, decision, now)).await;
        // The store may end the solve instead, where no claim waits for it or the budget has no room.
        let goes_on = matches!(&result, Ok(Advanced::Done(after)) if !after.stage.is_final());
        if is_withdrawn && spends && goes_on {
            self.monitor.check_declared(&lease.solve);
        }
        result
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
            && self.happens(100);
        let fact = match fact {
            Fact::Solved(solved) if self.bug == Some(Bug::RenewsTokens) => {
                Fact::Solved(Solved { ready_lower: now.plus(Duration::from_secs(120)), ..solved })
            }
            other => other,
        };
        let lost = Fact::ReplyLost { why: "forgotten".into(), due: now };
        self.pass(self.store.settle(solve, attempt, if forget { lost } else { fact }, now)).await
    }

    async fn note(&self, note: Note, now: Timestamp) -> Result<bool, StoreError> {
        self.call(self.store.note(note, now)).await
    }

    async fn revive(&self, ask: ReviveRequest, now: Timestamp) -> Result<Revival, StoreError> {
        self.call(self.store.revive(ask, now)).await
    }

    async fn purge(
        &self,
        dead_letter: SolveId,
        by: Actor,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.call(self.store.purge(dead_letter, by, now)).await
    }

    async fn callbacks(&self, limit: usize, now: Timestamp) -> Result<Vec<Callback>, StoreError> {
        let mut callbacks = self.call(self.store.callbacks(limit, now)).await?;
        if self.bug == Some(Bug::DropsFailedCallbacks) {
            for callback in std::mem::take(&mut callbacks) {
                self.store.called_back(&callback, now).await?;
                callbacks.push(callback);
            }
        }
        Ok(callbacks)
    }

    async fn called_back(&self, callback: &Callback, now: Timestamp) -> Result<(), StoreError> {
        self.pass(self.store.called_back(callback, now)).await
    }

    async fn set_pool(
        &self,
        fingerprint: Fingerprint,
        order: Option<StandingOrder>,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.call(self.store.set_pool(fingerprint, order, by, now)).await
    }

    async fn expect(
        &self,
        pool: Fingerprint,
        expectation: Expectation,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Result<Option<Pool>, StoreError> {
        self.call(self.store.expect(pool, expectation, by, now)).await
    }

    async fn refill(&self, ask: RefillRequest, now: Timestamp) -> Result<Refilled, StoreError> {
        let ask = match self.bug {
            Some(bug) => bug.distort_order(ask),
            None => ask,
        };
        self.call(self.store.refill(ask, now)).await
    }

    async fn set_pause(
        &self,
        request: PauseRequest,
        now: Timestamp,
    ) -> Result<PauseResult, StoreError> {
        let set = self.store.set_pause(request.clone(), now);
        let paused = if request.paused { self.pass(set).await } else { self.call(set).await };
        if self.bug == Some(Bug::ForgetsPauses) {
            // The row of a store on which nothing was ever paused.
            self.store.set_memo("pauses", vec![0, 0]).await?;
        }
        paused
    }

    async fn pauses(&self) -> Result<Pauses, StoreError> {
        self.call(self.store.pauses()).await
    }

    async fn administer(
        &self,
        by: Actor,
        action: AdminAction,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.pass(self.store.administer(by, action, now)).await
    }

    async fn ask_balance(
        &self,
        least_gap: Duration,
        now: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        self.call(self.store.ask_balance(least_gap, now)).await
    }

    async fn record_balance(
        &self,
        number: u32,
        amount: Money,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.call(self.store.record_balance(number, amount, now)).await
    }

    async fn set_memo(&self, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.call(self.store.set_memo(name, value)).await
    }

    async fn memos(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.call(self.store.memos(prefix)).await
    }

    async fn sweep(&self, ask: SweepRequest, now: Timestamp) -> Result<Swept, StoreError> {
        self.call(self.store.sweep(ask, now)).await
    }
}

/// A failed attempt that the engine retries, as it settles it.
#[derive(Clone, Debug)]
pub struct Retry {
    pub solve: SolveId,
    pub attempt: u32,
    pub code: Code,
    pub at: Timestamp,
    pub due: Timestamp,
}

/// One process lifetime of a gateway: the tasks it received and polled, and whether it crashed.
#[derive(Debug, Default)]
pub struct Life {
    pub gateway: usize,
    /// In the gateway's own time.
    pub polls: Mutex<Vec<(TaskId, Timestamp)>>,
    pub heard: Mutex<Vec<TaskId>>,
    pub retries: Mutex<Vec<Retry>>,
    /// The `Retry-After` of each attempt.
    pub asked: Mutex<BTreeMap<(SolveId, u32), Duration>>,
    pub crashed: AtomicBool,
}
