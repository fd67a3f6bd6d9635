//! The driver: leases due solves and runs a step of each, with bounded concurrency. No caller's request drives a solve.
//! One loop owns all solves of this process; steps run beside it and hand their solve back. Before: pipeline/admit.rs.
//! After: pipeline/submit.rs, pipeline/poll.rs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::{id::SolveId, lease::Lease, ports::StoreError, solve::Stage, time::Timestamp};
use futures_util::FutureExt;
use tokio::task::{JoinError, JoinSet};

use crate::{
    Shared, Slots,
    maintenance::slot_discovery,
    pipeline::{poll, submit},
    polling::batch,
    serverless::RoundReport,
};

use super::{
    Scheduler,
    active::{ActiveSolve, Agenda, NextStep, Turn},
    declared::DeclarationFilter,
    in_flight::InFlight,
    leases::{LEASE_EVERY, LEASE_LIMIT, LeaseCycle, first_step, release},
    paused::PauseFilter,
    steps::{self, MAX_STEPS, Step, StepResult},
    submissions::{Submissions, enqueue, remove_unanswerable},
};

struct Driver {
    shared: Arc<Shared>,
    agenda: Agenda,
    steps: JoinSet<StepResult>,
    leases: LeaseCycle,
    /// The last arrival before the lease call that runs.
    arrivals_mark: u64,
    /// Claims that arrive may be submitted at once. Not in a round, which may be over then.
    accepts_starts: bool,
    submits_running: usize,
    /// When the queue is next searched for solves that cannot be answered in time.
    unanswerable_check_at: Timestamp,
    /// Rises with every resync. Steps of an earlier epoch hand back solves that may have been leased again.
    epoch: u64,
    /// Submissions that ended during the last resync. The store did not release them, so a step that was started then,
    /// such as their first poll, still hands back a solve of ours.
    kept: BTreeSet<SolveId>,
    /// When queued solves are next considered; `None` while only a freed slot helps.
    submit_at: Option<Timestamp>,
    drain_until: Option<Timestamp>,
    declared: DeclarationFilter,
    pauses: PauseFilter,
    report: RoundReport,
}

/// A round waits this long for the submit rate. Anything that takes longer is left to the next round.
const ROUND_PATIENCE: Duration = Duration::from_millis(1100);

/// Runs until drained, then gives up the process's lease.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut driver = Driver::new(&shared, None);
    driver.accepts_starts = true;
    while !driver.is_drained() {
        driver.start_steps();
        driver.wait().await;
    }
    driver.steps.abort_all();
    release(&shared).await;
    shared.scheduler.stopped.send_replace(true);
}

/// Leases what is due, or `only` the one solve, and runs steps while there is something to do now. Starts nothing from
/// `until` on; steps under way end. Then it gives up the process's lease, which the caller must have taken.
pub(crate) async fn run_round(
    shared: Arc<Shared>,
    only: Option<SolveId>,
    until: Timestamp,
) -> RoundReport {
    // The driver leases first in any case, so a hint from an earlier round is stale.
    let _: Option<()> = shared.scheduler.wake.notified().now_or_never();
    let mut driver = Driver::new(&shared, only);
    let mut knows_threads = shared.config.slots != Slots::Auto;
    loop {
        if shared.now() < until {
            driver.start_steps();
        }
        if !knows_threads && shared.scheduler.queue.lock().has_ready() {
            slot_discovery::discover(&shared).await;
            knows_threads = true;
            continue;
        }
        if driver.is_idle(until) {
            break;
        }
        driver.wait().await;
    }
    driver.forget_all_but(&BTreeSet::new());
    shared.scheduler.in_flight.release_all();
    shared.scheduler.record_load();
    let released = release(&shared).await;
    RoundReport { unsure: driver.leases.resync || !released, ..driver.report }
}

impl Driver {
    fn new(shared: &Arc<Shared>, only: Option<SolveId>) -> Self {
        let now = shared.now();
        *shared.scheduler.submissions.lock() = Submissions::new(now);
        Self {
            agenda: Agenda::default(),
            steps: JoinSet::new(),
            leases: LeaseCycle::new(only, now),
            arrivals_mark: 0,
            accepts_starts: false,
            submits_running: 0,
            unanswerable_check_at: now,
            epoch: 0,
            kept: BTreeSet::new(),
            submit_at: None,
            drain_until: None,
            declared: DeclarationFilter::new(shared, now),
            pauses: PauseFilter::new(shared),
            report: RoundReport::default(),
            shared: Arc::clone(shared),
        }
    }

    fn scheduler(&self) -> &Scheduler {
        &self.shared.scheduler
    }

    /// Waits for the end of a step, a hint, or the next due time.
    async fn wait(&mut self) {
        let at = self.next_wake();
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            biased;
            Some(result) = self.steps.join_next() => self.handle(result),
            () = shared.scheduler.starts_changed.notified() => {}
            () = shared.scheduler.wake.notified() => self.leases.next_at = shared.now(),
            () = shared.ports.clock.sleep_until(at) => {}
        }
    }

    fn next_wake(&mut self) -> Timestamp {
        let now = self.shared.now();
        let lease_at = self.leases.wake_at(now);
        let agenda_at = self.agenda.next_at(&self.shared, now);
        let first = agenda_at.into_iter().chain(self.submit_at).fold(lease_at, Timestamp::min);
        let at = match self.drain_until {
            // After the grace period only the end of a submission is waited for, which wakes the driver by itself.
            Some(until) if now < until => until.min(now.plus(LEASE_EVERY)),
            Some(_) => now.plus(LEASE_EVERY),
            None => first,
        };
        // Never in the past, or the loop would spin.
        at.max(now.plus(Duration::from_millis(1)))
    }

    /// Draining: submissions under way end, and paid tasks that somebody waits for may finish within the grace period.
    fn is_drained(&mut self) -> bool {
        if !self.scheduler().is_draining() {
            return false;
        }
        let now = self.shared.now();
        let until = *self.drain_until.get_or_insert(now.plus(self.shared.config.drain_grace));
        let wanted = |active: &ActiveSolve| active.lease.solve.stage == Stage::Submitted;
        let may_finish = now < until && self.agenda.values().any(wanted);
        let running = if now < until { !self.steps.is_empty() } else { self.submits_running > 0 };
        !self.close_starts() && !running && !may_finish
    }

    /// Whether no step is running and no submission becomes possible within the round's patience.
    fn is_idle(&self, until: Timestamp) -> bool {
        let now = self.shared.now();
        let soon = |at: Timestamp| at <= until.min(now.plus(ROUND_PATIENCE));
        self.steps.is_empty() && !(now < until && self.submit_at.is_some_and(soon))
    }

    // --- starting steps ---

    fn start_steps(&mut self) {
        let now = self.shared.now();
        self.send_started();
        self.start_lease(now);
        self.stop_undeclared(now);
        self.pauses.follow(&self.shared);
        self.agenda.bring_forward_pingbacks(&self.shared, now);
        self.start_due(now);
        for batch in self.agenda.batch.take_due(&self.shared, now) {
            self.steps.spawn(steps::poll_batch(Arc::clone(&self.shared), batch, self.epoch));
        }
        self.submit_at = self.start_submits(now);
        self.scheduler().record_load();
        let may_start = self.accepts_starts && self.may_submit() && !self.leases.resync;
        self.scheduler().submissions.lock().starts.set_open(may_start);
    }

    /// Claims that arrive are queued until the next pass: what the driver takes in now goes before them. Returns whether some
    /// are still being started.
    fn close_starts(&self) -> bool {
        let mut submissions = self.scheduler().submissions.lock();
        submissions.starts.set_open(false);
        submissions.starts.is_busy()
    }

    /// Sends what was started with its claim. The intents are durable, so nothing holds them back.
    fn send_started(&mut self) {
        let mut submissions = self.shared.scheduler.submissions.lock();
        for started in submissions.starts.take_started() {
            submissions.record_started();
            self.submits_running += 1;
            let step = Step::new(&started.active, self.epoch);
            let running = submit::send_started(Arc::clone(&self.shared), started);
            self.steps.spawn(steps::run(Arc::clone(&self.shared), step, running));
        }
    }

    fn start_lease(&mut self, now: Timestamp) {
        if !self.leases.is_due(now) || self.scheduler().is_draining() {
            return;
        }
        if self.shared.is_clock_wrong() {
            self.leases.next_at = now.plus(LEASE_EVERY);
            return;
        }
        if now >= self.unanswerable_check_at {
            for active in remove_unanswerable(self.scheduler(), now) {
                self.run_step(active, submit::lapse);
            }
            self.unanswerable_check_at = now.plus(LEASE_EVERY);
        }
        self.arrivals_mark = self.scheduler().arrivals.mark();
        let resync = self.leases.start(now);
        self.steps.spawn(steps::lease(Arc::clone(&self.shared), self.leases.only, resync));
    }

    /// Takes queued solves out when new declarations, or a new day, forbid them. The store decides again about each.
    fn stop_undeclared(&mut self, now: Timestamp) {
        if !self.declared.refresh(&self.shared, now) {
            return;
        }
        let declared = &self.declared;
        let mut queue = self.shared.scheduler.queue.lock();
        let forbidden = queue.remove_where(|active| declared.forbids(active, now));
        drop(queue);
        for active in forbidden {
            self.run_step(active, submit::forbid);
        }
    }

    fn start_due(&mut self, now: Timestamp) {
        while self.steps.len() < MAX_STEPS {
            let Some(mut active) = self.agenda.take_due(now) else { return };
            match active.lease.solve.stage {
                Stage::Queued if self.declared.forbids(&active, now) => {
                    self.run_step(active, submit::forbid);
                }
                Stage::Queued => {
                    let is_paused = self.pauses.stops(&active);
                    enqueue(self.scheduler(), active, is_paused, now);
                }
                Stage::Submitted | Stage::Overdue => self.run_step(active, poll::poll),
                Stage::Ambiguous if self.shared.is_clock_wrong() => {
                    active.not_before = now.plus(LEASE_EVERY);
                    self.agenda.insert(active);
                }
                Stage::Ambiguous => match self.pauses.hold_until(&active, now) {
                    Some(at) if !self.declared.forbids(&active, now) => {
                        active.not_before = at;
                        self.agenda.insert(active);
                    }
                    Some(_) | None => self.run_step(active, submit::decide_ambiguous),
                },
                Stage::Intent | Stage::Ready | Stage::Failed => {}
            }
        }
    }

    /// Submits queued solves while the limits allow it. Returns when time alone will allow the next.
    fn start_submits(&mut self, now: Timestamp) -> Option<Timestamp> {
        loop {
            if !self.may_submit() {
                return None;
            }
            let scheduler = &self.shared.scheduler;
            let next = scheduler.submissions.lock().next(scheduler, now);
            match next {
                Ok(active) => {
                    self.submits_running += 1;
                    self.run_step(active, submit::submit);
                }
                Err(at) => return at,
            }
        }
    }

    fn may_submit(&self) -> bool {
        let is_stopped = self.scheduler().is_draining() || self.shared.is_clock_wrong();
        !is_stopped && self.leases.knows_all && self.steps.len() < MAX_STEPS
    }

    fn run_step<F>(&mut self, active: Box<ActiveSolve>, run: fn(Arc<Shared>, Box<ActiveSolve>) -> F)
    where
        F: Future<Output = NextStep> + Send + 'static,
    {
        let step = Step::new(&active, self.epoch);
        let running = run(Arc::clone(&self.shared), active);
        self.steps.spawn(steps::run(Arc::clone(&self.shared), step, running));
    }

    // --- taking their results ---

    fn handle(&mut self, result: Result<StepResult, JoinError>) {
        self.close_starts();
        match result {
            Ok(StepResult::Leased { result, resync }) => self.take_leases(result, resync),
            Ok(StepResult::Stepped(all)) => {
                for (next, step) in all {
                    self.take_step(next, step);
                }
            }
            // Only a lease call can end like this: other steps catch their panics. The store may have leased something.
            Err(error) => {
                tracing::error!(%error, "failed to lease due solves");
                self.leases.finish();
                self.leases.resync = true;
            }
        }
    }

    fn take_leases(&mut self, result: Result<Vec<Lease>, StoreError>, resync: bool) {
        let mut submitted = self.leases.finish();
        let leases = match result {
            Ok(leases) => leases,
            Err(error) => {
                tracing::error!(%error, "failed to lease due solves");
                self.leases.resync = true;
                return;
            }
        };
        if resync {
            submitted.retain(|id| leases.iter().all(|lease| lease.solve.id != *id));
            self.forget_all_but(&submitted);
            self.kept.clone_from(&submitted);
        }
        if self.leases.record_count(leases.len()) {
            // Until now, tasks of an earlier process counted as those of other clients of the account.
            self.shared.maintenance.slot_discovery.notify_one();
            // Until now, they counted as those of a gateway that is gone.
            self.scheduler().lease.renew_soon();
        }
        if leases.len() == LEASE_LIMIT {
            self.leases.next_at = self.shared.now();
        } else if resync {
            submitted.extend(leases.iter().map(|lease| lease.solve.id));
            self.scheduler().in_flight.retain(&submitted);
        }
        self.report.leased += leases.len();
        if leases.len() < LEASE_LIMIT {
            self.scheduler().arrivals.forget_up_to(self.arrivals_mark);
        }
        for lease in leases {
            self.scheduler().arrivals.leased(lease.solve.id);
            let (at, polls) = first_step(&self.shared, &lease);
            self.schedule(at, Box::new(ActiveSolve::new(lease, polls)));
        }
    }

    fn take_step(&mut self, next: NextStep, step: Step) {
        if step.is_submit {
            self.submits_running -= 1;
            self.scheduler().slots.submitted();
            match &next {
                // It was refused before its intent.
                NextStep::At(_, active) if step.is_unsent(active) => {
                    let solve = &active.lease.solve;
                    self.shared.scheduler.submissions.lock().hand_back(solve);
                }
                NextStep::At(..) | NextStep::Released | NextStep::Resync => {
                    self.report.submitted += 1;
                }
            }
        } else if step.had_slot {
            self.scheduler().slots.give_back();
            self.report.polled += 1;
            self.report.over += usize::from(matches!(next, NextStep::Released));
        }
        let is_current = self.is_current(&step);
        let keeps_slot = match next {
            // A resync does not release a submission under way; anything else may have been leased again already.
            NextStep::At(at, active)
                if is_current || (step.is_submit && !self.drives(step.solve)) =>
            {
                if step.is_submit {
                    self.leases.record_submission(step.solve);
                }
                self.schedule(at, active)
            }
            NextStep::At(..) | NextStep::Released => false,
            NextStep::Resync => {
                self.leases.resync = true;
                false
            }
        };
        if !keeps_slot {
            let now = self.shared.now();
            self.end_turn(step.turn);
            if is_current {
                self.scheduler().in_flight.release(step.solve, self.agenda.scheduled.len(), now);
            }
        }
    }

    /// Whether the solve of a step cannot have been released since the step was started.
    fn is_current(&self, step: &Step) -> bool {
        step.epoch == self.epoch
            || (step.epoch + 1 == self.epoch && self.kept.contains(&step.solve))
    }

    fn drives(&self, id: SolveId) -> bool {
        self.agenda.values().any(|active| active.lease.solve.id == id)
            || self.scheduler().queue.lock().position(id).is_some()
    }

    /// Schedules the next step. Returns whether the solve occupies a slot until then.
    fn schedule(&mut self, at: Timestamp, mut active: Box<ActiveSolve>) -> bool {
        let solve = &active.lease.solve;
        if solve.stage.is_final() {
            return false;
        }
        let is_out = matches!(solve.stage, Stage::Submitted | Stage::Overdue);
        active.slot = is_out;
        active.not_before = at;
        if !is_out {
            active.turn = None;
            self.agenda.insert(active);
            return false;
        }
        if !self.schedule_task(&active) {
            return false;
        }
        self.scheduler().slots.occupy();
        if batch::is_enabled(&self.shared, &active.lease.solve.kind, self.shared.now()) {
            let timing = self.shared.config.polling.memory.timing(&active.family);
            active.worth_polling_from = timing.q01;
            self.agenda.batch.insert(&self.shared, active);
        } else {
            self.agenda.insert(active);
        }
        true
    }

    /// Makes sure that a task is scheduled once, also when its lease was lost and taken again: the newer lease stays.
    fn schedule_task(&mut self, active: &ActiveSolve) -> bool {
        let (id, at) = (active.lease.solve.id, active.not_before);
        let fence = active.lease.fence;
        let new = InFlight { sent_at: active.sent_at(), polled: None, next: Some(at), fence };
        let Ok(older) = self.scheduler().in_flight.schedule(id, new) else { return false };
        let stale = older.and_then(|at| self.agenda.take(id, Some(at)));
        if let Some(stale) = stale {
            self.scheduler().slots.give_back();
            self.end_turn(stale.turn);
        }
        true
    }

    /// Drops all active solves except `kept`. The resync released them and has leased again those that are still ours; it
    /// does not release submissions under way.
    fn forget_all_but(&mut self, kept: &BTreeSet<SolveId>) {
        self.epoch += 1;
        let is_gone = |active: &ActiveSolve| !kept.contains(&active.lease.solve.id);
        self.scheduler().queue.lock().remove_where(|active| is_gone(active));
        for active in self.agenda.take_where(&self.shared, is_gone) {
            if active.slot {
                self.scheduler().slots.give_back();
            }
            self.end_turn(active.turn);
        }
    }

    /// Ends a worker's turn.
    fn end_turn(&self, turn: Option<Turn>) {
        let Some(turn) = turn else { return };
        self.scheduler().queue.lock().settle(&turn.lane, turn.since, self.shared.now());
    }
}

#[cfg(test)]
mod tests;
