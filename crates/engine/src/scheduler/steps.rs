//! Runs the driver's steps as tasks of their own and hands their results back. A step that panics costs its solve a
//! resync; the driver goes on.

use std::{panic::AssertUnwindSafe, sync::Arc};

use domain::{
    id::SolveId,
    lease::Lease,
    ports::StoreError,
    solve::{AMBIGUOUS_WAIT, Fact},
};
use futures_util::FutureExt;
use tokio::task::{JoinError, JoinSet};

use crate::{Shared, pipeline::settle, polling::batch};

use super::{
    active::{ActiveSolve, ActiveSolves, NextStep, Turn},
    circuit_breaker::Contact,
    leases,
};

#[derive(Debug, Default)]
pub(super) struct Steps(JoinSet<StepResult>);

pub(super) enum StepResult {
    Leased { result: Result<Vec<Lease>, StoreError>, resync: bool },
    Stepped { next: NextStep, step: Step },
    BatchPolled(Vec<(NextStep, Step)>),
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

const MAX_STEPS: usize = 2048;

// === impl Steps ===

impl Steps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_STEPS
    }

    pub(super) async fn join_next(&mut self) -> Option<Result<StepResult, JoinError>> {
        self.0.join_next().await
    }

    pub(super) fn abort_all(&mut self) {
        self.0.abort_all();
    }

    pub(super) fn lease(&mut self, shared: &Arc<Shared>, only: Option<SolveId>, resync: bool) {
        let shared = Arc::clone(shared);
        self.0.spawn(async move {
            let result = leases::lease(&shared, only, resync).await;
            shared.record_store_health(&result);
            StepResult::Leased { result, resync }
        });
    }

    pub(super) fn run<F>(
        &mut self,
        shared: &Arc<Shared>,
        active: Box<ActiveSolve>,
        step: Step,
        run: fn(Arc<Shared>, Box<ActiveSolve>) -> F,
    ) where
        F: Future<Output = NextStep> + Send + 'static,
    {
        let running = AssertUnwindSafe(run(Arc::clone(shared), active)).catch_unwind();
        let shared = Arc::clone(shared);
        self.0.spawn(async move {
            let next = match running.await {
                Ok(next) => next,
                Err(_) => recover_from_panic(&shared, &step).await,
            };
            StepResult::Stepped { next, step }
        });
    }

    pub(super) fn poll_batch(&mut self, shared: &Arc<Shared>, batch: ActiveSolves, epoch: u64) {
        let steps: Vec<Step> = batch.iter().map(|active| Step::new(active, epoch)).collect();
        let running = AssertUnwindSafe(batch::poll::poll_batch(Arc::clone(shared), batch));
        self.0.spawn(async move {
            let next = match running.catch_unwind().await {
                Ok(next) if next.len() == steps.len() => next,
                Ok(_) | Err(_) => {
                    tracing::error!("batch poll panicked, leasing its solves again");
                    steps.iter().map(|_| NextStep::Resync).collect()
                }
            };
            StepResult::BatchPolled(next.into_iter().zip(steps).collect())
        });
    }
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
        let (had_slot, turn) = (active.slot, active.turn.clone());
        Self { solve: solve.id, attempt: solve.attempt, had_slot, turn, is_submit: false, epoch }
    }

    pub(super) fn submission(active: &ActiveSolve, epoch: u64) -> Self {
        Self { is_submit: true, ..Self::new(active, epoch) }
    }
}
