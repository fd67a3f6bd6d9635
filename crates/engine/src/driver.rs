//! Step 2 of a claim: lease what is due, step each, bounded concurrency. No caller's request drives a solve.
//! One loop owns all solves of this process; steps run beside it and hand their solve back. Before: admit.rs.
//! After: submit.rs, poll.rs.

mod leases;
mod round;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::StoreError,
    solve::{AMBIGUOUS_WAIT, Fact, Stage},
    time::Timestamp,
};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use crate::{
    Inner,
    afloat::Afloat,
    breaker::Reach,
    budget::RetryBudget,
    held::{Held, Sent, Then, Turn},
    pace::Pace,
    poll,
    rounds::Tally,
    submit, together,
};

use leases::{lease, release};

pub(crate) use round::round;

enum Done {
    Leased {
        result: Result<Vec<Lease>, StoreError>,
        afresh: bool,
    },
    Stepped {
        then: Then,
        step: Step,
    },
    /// Tasks that were asked for together.
    Together(Vec<(Then, Step)>),
}

/// What a step was started with.
#[derive(Clone, Debug)]
struct Step {
    solve: SolveId,
    attempt: u32,
    had_slot: bool,
    turn: Option<Turn>,
    is_submit: bool,
    epoch: u64,
}

struct Driver {
    inner: Arc<Inner>,
    /// Tasks that are asked for together.
    afloat: Afloat,
    /// All other held solves, by the time they are to be looked at.
    agenda: BTreeMap<(Timestamp, SolveId), Box<Held>>,
    steps: JoinSet<Done>,
    pace: Pace,
    retries: RetryBudget,
    submits_running: usize,
    /// This solve is driven and no other.
    only: Option<SolveId>,
    leasing: bool,
    lease_at: Timestamp,
    /// A reply of the store was lost: everything is given back and leased afresh.
    unsure: bool,
    /// Submissions that ended while everything is given back: the store did not give them back.
    meanwhile: Option<BTreeSet<SolveId>>,
    /// All there was to lease is leased: only then it is known which slots are taken.
    knows_all: bool,
    /// When what waits is looked through for what has no chance any more.
    hopeless_at: Timestamp,
    /// Rises whenever everything was given back; what was handed out before does not count any more.
    epoch: u64,
    /// What waits for a slot is looked at again then; not at all while only a freed slot helps.
    submit_at: Option<Timestamp>,
    drain_until: Option<Timestamp>,
    tally: Tally,
}

/// Without a hint, the store is asked for due work this often.
const LEASE_EVERY: Duration = Duration::from_secs(1);
const LEASE_LIMIT: usize = 1000;
/// What we asked for and do not have any more is remembered for so long, and not much of it.
const REMEMBERED: Duration = Duration::from_secs(5);
const MOST_GONE: usize = 100;
const MOST_STEPS: usize = 2048;

/// Runs until drained; then gives up the process's lease.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut driver = Driver::new(&inner, None);
    while !driver.is_drained() {
        driver.start_steps();
        driver.wait().await;
    }
    driver.steps.abort_all();
    release(&inner).await;
    inner.done.send_replace(true);
}

/// A step panicked. What it knew is gone: an attempt it may have sent is ambiguous, and its solve is leased afresh.
async fn panicked(inner: &Inner, step: &Step) -> Then {
    let Step { solve, attempt, is_submit, .. } = *step;
    tracing::error!(%solve, attempt, "solve step panicked");
    if is_submit {
        inner.breakers.missed(Reach::Lost, inner.now(), inner.now());
        let due = inner.now().plus(AMBIGUOUS_WAIT);
        inner
            .settle(solve, attempt + 1, Fact::ReplyLost { why: "the step panicked".into(), due })
            .await;
    }
    Then::Unsure
}

// === impl Driver ===

impl Driver {
    fn new(inner: &Arc<Inner>, only: Option<SolveId>) -> Self {
        let now = inner.now();
        Self {
            afloat: Afloat::default(),
            agenda: BTreeMap::new(),
            steps: JoinSet::new(),
            pace: Pace::new(inner.config.submits_per_second),
            retries: RetryBudget::new(now),
            submits_running: 0,
            only,
            leasing: false,
            lease_at: now,
            unsure: false,
            meanwhile: None,
            knows_all: false,
            hopeless_at: now,
            epoch: 0,
            submit_at: None,
            drain_until: None,
            tally: Tally::default(),
            inner: Arc::clone(inner),
        }
    }

    /// Until a step is done, a hint comes, or it is time to look again.
    async fn wait(&mut self) {
        let look = self.next_look();
        let inner = Arc::clone(&self.inner);
        tokio::select! {
            biased;
            Some(done) = self.steps.join_next() => self.take(done),
            () = inner.wake.notified() => self.lease_at = inner.now(),
            () = inner.ports.clock.sleep_until(look) => {}
        }
    }

    fn start_steps(&mut self) {
        let now = self.inner.now();
        self.start_lease(now);
        self.start_nudged(now);
        self.start_due(now);
        self.start_calls(now);
        self.submit_at = self.start_submits(now);
        self.inner.health.set_load(self.inner.places.used(), self.inner.queue().len());
    }

    fn start_lease(&mut self, now: Timestamp) {
        if self.leasing || now < self.lease_at || self.inner.is_draining() {
            return;
        }
        if now >= self.hopeless_at {
            self.let_go_of_hopeless(now);
            self.hopeless_at = now.plus(LEASE_EVERY);
        }
        self.leasing = true;
        self.lease_at = now.plus(LEASE_EVERY);
        let afresh = std::mem::take(&mut self.unsure);
        self.meanwhile = afresh.then(BTreeSet::new);
        let (inner, only) = (Arc::clone(&self.inner), self.only);
        self.steps.spawn(async move {
            let result = lease(&inner, only, afresh).await;
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
                Stage::Queued => self.enqueue(held),
                Stage::Submitted | Stage::Overdue => self.step(held, false, poll::poll),
                Stage::Ambiguous => self.step(held, false, submit::resolve),
                Stage::Intent | Stage::Ready | Stage::Failed => {}
            }
        }
    }

    /// The provider has called back about these: they are looked at now, or as soon as they may be. Calls that are
    /// repeated again and again do not use up a task's polls.
    fn start_nudged(&mut self, now: Timestamp) {
        let polling = Arc::clone(&self.inner.config.polling);
        for id in self.inner.take_nudges() {
            let Some(sent) = self.inner.sent().get(&id).copied() else { continue };
            let found = sent.next.and_then(|at| self.agenda.remove(&(at, id)));
            let Some(mut held) = found.or_else(|| self.afloat.remove(id)) else { continue };
            let soonest = sent.polled.map_or(now, |(at, _)| now.max(at.plus(polling.min_gap())));
            if held.polls < polling.most() / 2 {
                held.not_before = held.not_before.min(soonest);
            }
            let at = held.not_before;
            if let Some(sent) = self.inner.sent().get_mut(&id) {
                sent.next = Some(at);
            }
            self.agenda.insert((at, id), held);
        }
    }

    /// Asks for many tasks in one call, when it is worth one.
    fn start_calls(&mut self, now: Timestamp) {
        for lot in self.afloat.due(&self.inner, now) {
            let steps: Vec<Step> = lot.iter().map(|held| Step::of(held, self.epoch)).collect();
            let inner = Arc::clone(&self.inner);
            let running = AssertUnwindSafe(together::poll_together(Arc::clone(&inner), lot));
            self.steps.spawn(async move {
                let thens = match running.catch_unwind().await {
                    Ok(thens) if thens.len() == steps.len() => thens,
                    Ok(_) | Err(_) => {
                        tracing::error!("batch poll panicked");
                        steps.iter().map(|_| Then::Unsure).collect()
                    }
                };
                Done::Together(thens.into_iter().zip(steps).collect())
            });
        }
    }

    fn step<F>(&mut self, held: Box<Held>, is_submit: bool, step: fn(Arc<Inner>, Box<Held>) -> F)
    where
        F: Future<Output = Then> + Send + 'static,
    {
        let started = Step { is_submit, ..Step::of(&held, self.epoch) };
        let inner = Arc::clone(&self.inner);
        self.submits_running += usize::from(is_submit);
        let running = AssertUnwindSafe(step(Arc::clone(&self.inner), held)).catch_unwind();
        self.steps.spawn(async move {
            let then = match running.await {
                Ok(then) => then,
                Err(_) => panicked(&inner, &started).await,
            };
            Done::Stepped { then, step: started }
        });
    }

    fn take(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Leased { result, afresh }) => self.take_leases(result, afresh),
            Ok(Done::Stepped { then, step }) => self.take_step(then, step),
            Ok(Done::Together(all)) => {
                for (then, step) in all {
                    self.take_step(then, step);
                }
            }
            Err(error) => {
                tracing::error!(%error, "failed to lease due solves");
                self.leasing = false;
            }
        }
    }

    fn take_step(&mut self, then: Then, step: Step) {
        if step.is_submit {
            self.submits_running -= 1;
            self.inner.places.submitted();
            self.tally.submitted += 1;
        } else if step.had_slot {
            self.inner.places.give_back();
            self.tally.polled += 1;
            self.tally.over += usize::from(matches!(then, Then::Gone));
        }
        let mut goes_on = false;
        match then {
            // A submission under way is never given back; anything else may be leased afresh already.
            Then::At(at, held) if step.epoch == self.epoch => {
                if let Some(meanwhile) = self.meanwhile.as_mut().filter(|_| step.is_submit) {
                    meanwhile.insert(step.solve);
                }
                goes_on = self.keep(at, held);
            }
            Then::At(at, held) if step.is_submit && !self.holds(step.solve) => {
                goes_on = self.keep(at, held);
            }
            Then::At(..) | Then::Gone => {}
            Then::Unsure => self.unsure = true,
        }
        if !goes_on {
            self.end_turn(step.turn);
            if step.epoch == self.epoch {
                self.let_go(step.solve);
            }
        }
    }

    /// Whether the solve was leased afresh while its submission was under way.
    fn holds(&self, id: SolveId) -> bool {
        self.afloat.values().any(|held| held.lease.solve.id == id)
            || self.agenda.keys().any(|(_, held)| *held == id)
            || self.inner.queue().has(id)
    }

    /// We do not have it any more; should it come back in a moment, we know when we asked for it last.
    fn let_go(&self, id: SolveId) {
        let now = self.inner.now();
        let mut sent = self.inner.sent();
        if let Some(gone) = sent.get_mut(&id) {
            gone.next = None;
        }
        let recent = |one: &Sent| one.polled.is_some_and(|(at, _)| now.since(at) < REMEMBERED);
        if sent.len() > 2 * self.agenda.len() + MOST_GONE {
            sent.retain(|_, one| one.next.is_some() || recent(one));
        }
    }

    /// Looks at it again at that time; `true` when it occupies a slot until then.
    fn keep(&mut self, at: Timestamp, mut held: Box<Held>) -> bool {
        let solve = &held.lease.solve;
        if solve.stage.is_final() {
            return false;
        }
        let out = matches!(solve.stage, Stage::Submitted | Stage::Overdue);
        held.slot = out;
        if out {
            if !self.is_newest(at, &held) {
                return false;
            }
            self.inner.places.occupy();
        } else {
            held.turn = None;
        }
        held.not_before = at;
        if out && self.inner.asks_together(&held.lease.solve.kind, self.inner.now()) {
            held.worth_asking_from = self.inner.config.polling.timing(&held.family).q01;
            self.afloat.insert(&self.inner, held);
        } else {
            self.agenda.insert((at, held.lease.solve.id), held);
        }
        out
    }

    /// A task is in one hand only, also when its lease was lost and taken again: the newer lease stays, and what the
    /// older one kept is dropped.
    fn is_newest(&mut self, at: Timestamp, held: &Held) -> bool {
        let (solve, fence) = (&held.lease.solve, held.lease.fence);
        let sent_at = solve.accepted_at.unwrap_or(solve.opened_at);
        let mut all = self.inner.sent();
        let first = Sent { at: sent_at, polled: None, next: None, fence };
        let sent = all.entry(solve.id).or_insert(first);
        if sent.fence > fence {
            return false;
        }
        let older = sent.next.filter(|_| sent.fence < fence);
        *sent = Sent { at: sent_at, next: Some(at), fence, ..*sent };
        drop(all);
        let stale = older.and_then(|at| {
            self.agenda.remove(&(at, solve.id)).or_else(|| self.afloat.remove(solve.id))
        });
        if let Some(stale) = stale {
            self.inner.places.give_back();
            self.end_turn(stale.turn);
        }
        true
    }

    fn next_look(&mut self) -> Timestamp {
        let now = self.inner.now();
        let mut look = if self.leasing { now.plus(LEASE_EVERY) } else { self.lease_at };
        if let Some(at) = self.afloat.next_call(&self.inner, now) {
            look = look.min(at);
        }
        if let Some(((at, _), _)) = self.agenda.first_key_value() {
            look = look.min(*at);
        }
        if let Some(at) = self.submit_at {
            look = look.min(at);
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
        let mut out = self.agenda.values().map(AsRef::as_ref).chain(self.afloat.values());
        let may_finish = now < until && out.any(wanted);
        let running = if now < until { !self.steps.is_empty() } else { self.submits_running > 0 };
        !running && !may_finish
    }
}

impl Step {
    fn of(held: &Held, epoch: u64) -> Self {
        let solve = &held.lease.solve;
        let (had_slot, turn) = (held.slot, held.turn.clone());
        Self { solve: solve.id, attempt: solve.attempt, had_slot, turn, is_submit: false, epoch }
    }
}
