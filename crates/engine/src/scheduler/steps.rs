//! Runs the driver's steps as tasks of their own and hands their results back. A step that panics costs its solve a
//! resync; the driver goes on.

use std::{panic::AssertUnwindSafe, sync::Arc};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::StoreError,
    solve::{AMBIGUOUS_WAIT, Fact, Stage},
};
use futures_util::FutureExt;

use crate::{Shared, pipeline::settle, polling::batch};

use super::{
    active::{ActiveSolve, ActiveSolves, NextStep, Turn},
    circuit_breaker::Contact,
    leases,
};

pub(super) enum StepResult {
    Leased { result: Result<Vec<Lease>, StoreError>, resync: bool },
    Stepped(Vec<(NextStep, Step)>),
}

/// The solve a step was started with, as it was then.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) solve: SolveId,
    attempt: u32,
    pub(super) had_slot: bool,
    pub(super) turn: Option<Turn>,
    pub(super) is_submit: bool,
    pub(super) epoch: u64,
}

pub(super) const MAX_STEPS: usize = 2048;

pub(super) async fn lease(shared: Arc<Shared>, only: Option<SolveId>, resync: bool) -> StepResult {
    let result = shared.record_store_health(leases::lease(&shared, only, resync).await);
    StepResult::Leased { result, resync }
}

pub(super) async fn run(
    shared: Arc<Shared>,
    step: Step,
    running: impl Future<Output = NextStep>,
) -> StepResult {
    let next = match AssertUnwindSafe(running).catch_unwind().await {
        Ok(next) => next,
        Err(_) => recover_from_panic(&shared, &step).await,
    };
    StepResult::Stepped(vec![(next, step)])
}

pub(super) async fn poll_batch(shared: Arc<Shared>, batch: ActiveSolves, epoch: u64) -> StepResult {
    let steps: Vec<Step> = batch.iter().map(|active| Step::new(active, epoch)).collect();
    let next = match AssertUnwindSafe(batch::poll_batch(shared, batch)).catch_unwind().await {
        Ok(next) if next.len() == steps.len() => next,
        Ok(_) | Err(_) => {
            tracing::error!("batch poll panicked, leasing its solves again");
            steps.iter().map(|_| NextStep::Resync).collect()
        }
    };
    StepResult::Stepped(next.into_iter().zip(steps).collect())
}

/// Nothing is known about what a panicked submission sent, so its attempt becomes ambiguous.
async fn recover_from_panic(shared: &Shared, step: &Step) -> NextStep {
    let Step { solve, attempt, is_submit, .. } = *step;
    tracing::error!(%solve, attempt, "solve step panicked, leasing the solve again");
    if is_submit {
        shared.scheduler.breakers.missed(Contact::ReplyLost, shared.now(), shared.now());
        let due = shared.now().plus(AMBIGUOUS_WAIT);
        let fact = Fact::ReplyLost { why: "the step panicked".into(), due };
        settle::record(shared, solve, attempt + 1, fact).await;
    }
    NextStep::Resync
}

// === impl Step ===

impl Step {
    pub(super) fn new(active: &ActiveSolve, epoch: u64) -> Self {
        let solve = &active.lease.solve;
        let is_started = active.slot && solve.stage == Stage::Intent;
        Self {
            solve: solve.id,
            // Before the attempt that the step sends.
            attempt: solve.attempt - u32::from(is_started),
            had_slot: active.slot,
            turn: active.turn.clone(),
            // A queued solve gets its slot for a submission, and so does one that was started with its claim.
            is_submit: is_started || (active.slot && solve.stage == Stage::Queued),
            epoch,
        }
    }

    /// Whether the submission ended without an intent: an intent counts as an attempt.
    pub(super) fn is_unsent(&self, after: &ActiveSolve) -> bool {
        self.is_submit && after.lease.solve.attempt == self.attempt
    }
}
