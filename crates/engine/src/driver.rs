//! Step 2 of a claim: lease what is due, step each, bounded concurrency. No caller's request drives a solve.
//! One loop owns all solves of this process; steps run beside it and hand their solve back. Before: admit.rs.
//! After: submit.rs, poll.rs.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::{LeaseAsk, StoreError},
    solve::{AMBIGUOUS_WAIT, Fact, Stage},
    time::Timestamp,
};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use crate::{Inner, keeper, pace::Pace, poll, submit};

/// A solve this process moves, and what it knows about it that the store need not know.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// Polls of the current task.
    pub(crate) polls: u32,
    /// When the last question left that was answered "not ready".
    pub(crate) not_ready: Option<Timestamp>,
    /// Whether it occupies one of the provider's threads.
    slot: bool,
}

/// What a step leaves.
pub(crate) enum Then {
    /// Look at it again at that time.
    At(Timestamp, Box<Held>),
    /// It is not ours any more, or over.
    Gone,
    /// The store may or may not have taken a decision: ask it afresh what we hold.
    Unsure,
}

enum Done {
    Leased { result: Result<Vec<Lease>, StoreError>, afresh: bool },
    Stepped { then: Then, had_slot: bool, was_submit: bool, epoch: u64 },
}

struct Driver {
    inner: Arc<Inner>,
    /// Held solves by the time they are to be looked at.
    agenda: BTreeMap<(Timestamp, SolveId), Box<Held>>,
    /// Solves that wait for a slot, oldest first.
    queue: BTreeMap<(Timestamp, SolveId), Box<Held>>,
    steps: JoinSet<Done>,
    pace: Pace,
    slots_used: usize,
    submits_running: usize,
    leasing: bool,
    lease_at: Timestamp,
    /// A reply of the store was lost: everything is given back and leased afresh.
    unsure: bool,
    /// Rises whenever everything was given back; what was handed out before does not count any more.
    epoch: u64,
    /// The pace holds submissions back until then.
    pace_until: Timestamp,
    /// When the account's breaker wants to be asked again.
    breaker_until: Timestamp,
    drain_until: Option<Timestamp>,
}

/// Without a hint, the store is asked for due work this often.
const LEASE_EVERY: Duration = Duration::from_secs(1);
const LEASE_LIMIT: usize = 1000;
const MOST_STEPS: usize = 2048;

/// Runs until drained; then gives up the process's lease.
pub(crate) async fn run(inner: Arc<Inner>) {
    let now = inner.now();
    let mut driver = Driver {
        agenda: BTreeMap::new(),
        queue: BTreeMap::new(),
        steps: JoinSet::new(),
        pace: Pace::new(inner.config.submits_per_second, now),
        slots_used: 0,
        submits_running: 0,
        leasing: false,
        lease_at: now,
        unsure: false,
        epoch: 0,
        pace_until: now,
        breaker_until: now,
        drain_until: None,
        inner: Arc::clone(&inner),
    };
    while !driver.is_drained() {
        driver.start_steps();
        let look = driver.next_look();
        tokio::select! {
            biased;
            Some(done) = driver.steps.join_next() => driver.take(done),
            () = inner.wake.notified() => driver.lease_at = inner.now(),
            () = inner.ports.clock.sleep_until(look) => {}
        }
    }
    driver.steps.abort_all();
    if let Err(error) = inner.ports.store.release(inner.holder, inner.now()).await {
        tracing::error!(%error, "the process's lease could not be given up; others wait for its end");
    }
    inner.done.send_replace(true);
}

/// Leases what is due. An unsure process gives everything back first, all but the submissions under way.
async fn lease(inner: &Inner, afresh: bool) -> Result<Vec<Lease>, StoreError> {
    if afresh {
        inner.ports.store.release(inner.holder, inner.now()).await?;
        keeper::renew(inner).await?;
    }
    let ask = LeaseAsk { holder: inner.holder, limit: LEASE_LIMIT };
    inner.ports.store.lease(ask, inner.now()).await
}

/// A step panicked. What it knew is gone: an attempt it may have sent is ambiguous, and its solve is leased afresh.
async fn panicked(inner: &Inner, solve: SolveId, attempt: u32, was_submit: bool) -> Then {
    tracing::error!(%solve, attempt, "a step panicked");
    if was_submit {
        inner.breaker.learned_nothing(inner.now());
        let due = inner.now().plus(AMBIGUOUS_WAIT);
        inner
            .settle(solve, attempt + 1, Fact::ReplyLost { why: "the step panicked".into(), due })
            .await;
    }
    Then::Unsure
}

// === impl Driver ===

impl Driver {
    fn start_steps(&mut self) {
        let now = self.inner.now();
        self.start_lease(now);
        self.start_due(now);
        self.start_submits(now);
        self.inner.health.set_load(self.slots_used, self.queue.len());
    }

    fn start_lease(&mut self, now: Timestamp) {
        if self.leasing || now < self.lease_at || self.inner.is_draining() {
            return;
        }
        // Claims that lapsed take their unsent solves with them: the store has ended those.
        self.queue.retain(|_, held| now < held.lease.solve.wanted_until);
        self.leasing = true;
        self.lease_at = now.plus(LEASE_EVERY);
        let afresh = std::mem::take(&mut self.unsure);
        let inner = Arc::clone(&self.inner);
        self.steps.spawn(async move {
            let result = lease(&inner, afresh).await;
            inner.noted(&result);
            Done::Leased { result, afresh }
        });
    }

    /// Looks at every solve whose time has come.
    fn start_due(&mut self, now: Timestamp) {
        while self.steps.len() < MOST_STEPS {
            let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) else {
                return;
            };
            let held = entry.remove();
            match held.lease.solve.stage {
                Stage::Queued => {
                    let solve = &held.lease.solve;
                    self.queue.insert((solve.opened_at, solve.id), held);
                }
                Stage::Submitted | Stage::Overdue => self.step(held, false, poll::poll),
                Stage::Ambiguous => self.step(held, false, submit::resolve),
                Stage::Intent | Stage::Ready | Stage::Failed => {}
            }
        }
    }

    /// Submits the oldest while there are slots, the account is well and the pace allows it.
    fn start_submits(&mut self, now: Timestamp) {
        while self.slots_used < self.inner.config.slots && !self.inner.is_draining() {
            if self.queue.is_empty() || now < self.pace_until || self.steps.len() >= MOST_STEPS {
                return;
            }
            if let Err(at) = self.inner.breaker.pass(now) {
                self.breaker_until = at;
                return;
            }
            if let Err(at) = self.pace.pass(now) {
                self.inner.breaker.hand_back(now);
                self.pace_until = at;
                return;
            }
            let Some((_, mut held)) = self.queue.pop_first() else { return };
            held.slot = true;
            self.slots_used += 1;
            self.step(held, true, submit::submit);
        }
    }

    fn step<F>(&mut self, held: Box<Held>, is_submit: bool, step: fn(Arc<Inner>, Box<Held>) -> F)
    where
        F: Future<Output = Then> + Send + 'static,
    {
        let (had_slot, epoch) = (held.slot, self.epoch);
        let (inner, solve, attempt) =
            (Arc::clone(&self.inner), held.lease.solve.id, held.lease.solve.attempt);
        self.submits_running += usize::from(is_submit);
        let running = AssertUnwindSafe(step(Arc::clone(&self.inner), held)).catch_unwind();
        self.steps.spawn(async move {
            let then = match running.await {
                Ok(then) => then,
                Err(_) => panicked(&inner, solve, attempt, is_submit).await,
            };
            Done::Stepped { then, had_slot, was_submit: is_submit, epoch }
        });
    }

    fn take(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Leased { result, afresh }) => self.take_leases(result, afresh),
            Ok(Done::Stepped { then, had_slot, was_submit, epoch }) => {
                self.submits_running -= usize::from(was_submit);
                self.slots_used -= usize::from(had_slot);
                match then {
                    // A submission under way is never given back; anything else may be leased afresh already.
                    Then::At(at, held) if was_submit || epoch == self.epoch => self.keep(at, held),
                    Then::At(..) | Then::Gone => {}
                    Then::Unsure => self.unsure = true,
                }
            }
            Err(error) => {
                tracing::error!(%error, "due work could not be leased");
                self.leasing = false;
            }
        }
    }

    fn take_leases(&mut self, result: Result<Vec<Lease>, StoreError>, afresh: bool) {
        self.leasing = false;
        let leases = match result {
            Ok(leases) => leases,
            Err(error) => {
                tracing::error!(%error, "due work could not be leased");
                self.unsure = true;
                return;
            }
        };
        if afresh {
            self.forget();
        }
        if leases.len() == LEASE_LIMIT {
            self.lease_at = self.inner.now();
        }
        for lease in leases {
            let polls = Held::polls_until_now(&self.inner, &lease.solve);
            let at = if lease.solve.task.is_some() { self.inner.now() } else { lease.solve.due };
            self.keep(at, Box::new(Held { lease, polls, not_ready: None, slot: false }));
        }
    }

    /// Everything was given back and what is still ours has just been leased afresh.
    fn forget(&mut self) {
        self.epoch += 1;
        self.queue.clear();
        let agenda = std::mem::take(&mut self.agenda);
        self.slots_used -= agenda.values().filter(|held| held.slot).count();
    }

    fn keep(&mut self, at: Timestamp, mut held: Box<Held>) {
        let stage = held.lease.solve.stage;
        if stage.is_final() {
            return;
        }
        held.slot = matches!(stage, Stage::Submitted | Stage::Overdue);
        self.slots_used += usize::from(held.slot);
        self.agenda.insert((at, held.lease.solve.id), held);
    }

    fn next_look(&self) -> Timestamp {
        let mut look = self.lease_at;
        if let Some(((at, _), _)) = self.agenda.first_key_value() {
            look = look.min(*at);
        }
        if !self.queue.is_empty() && self.slots_used < self.inner.config.slots {
            look = look.min(self.pace_until.max(self.breaker_until));
        }
        if let Some(until) = self.drain_until {
            look = until.min(self.inner.now().plus(LEASE_EVERY));
        }
        // Never in the past: the loop would spin.
        look.max(self.inner.now().plus(Duration::from_millis(1)))
    }

    /// Draining: submissions in flight end, paid tasks that someone waits for may finish within the grace.
    fn is_drained(&mut self) -> bool {
        if !self.inner.is_draining() {
            return false;
        }
        let now = self.inner.now();
        let until = *self.drain_until.get_or_insert(now.plus(self.inner.config.drain_grace));
        let wanted = |held: &Held| held.lease.solve.stage == Stage::Submitted;
        let may_finish = now < until && self.agenda.values().any(|held| wanted(held));
        let running = if now < until { !self.steps.is_empty() } else { self.submits_running > 0 };
        !running && !may_finish
    }
}

// === impl Held ===

impl Held {
    /// Tells the store a fact about the current attempt and goes on from what it says.
    pub(crate) async fn settle(mut self: Box<Self>, inner: &Inner, fact: Fact) -> Then {
        let accepted = matches!(fact, Fact::Accepted { .. });
        let solve = &self.lease.solve;
        let settled = inner.settle(solve.id, solve.attempt, fact).await;
        // Another holder has it; or we ourselves have leased it afresh meanwhile.
        let ours =
            settled.solve.holder == Some(inner.holder) && settled.solve.fence == self.lease.fence;
        if !ours || settled.solve.stage.is_final() {
            return Then::Gone;
        }
        self.lease.solve = settled.solve;
        if !accepted {
            return Then::at(self.lease.solve.due, self);
        }
        self.polls = 0;
        self.not_ready = None;
        let first = inner.config.polling.gap(0);
        Then::at(inner.now().plus(first), self)
    }
}

// === impl Then ===

impl Then {
    pub(crate) fn at(at: Timestamp, held: Box<Held>) -> Self {
        Self::At(at, held)
    }
}
