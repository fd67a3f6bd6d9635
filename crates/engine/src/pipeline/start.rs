//! Admits a claim and starts its solve in one decision: claim, lease and intent are durable together, and the submission leaves
//! at once. Called by admit.rs with a permit of scheduler/starts.rs; scheduler/driver.rs sends what was started.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use domain::{
    claim::{Admission, Claim, NewClaim, Start},
    id::Nonce,
    ports::StoreError,
    time::Timestamp,
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::{Shared, scheduler::starts::StartPermit};

/// What became of an admission with a permit.
pub(super) enum Decided {
    /// The claim's solve is being submitted.
    Started(Claim),
    /// No solve was started.
    Unstarted(Admission),
}

/// The answer for the caller, who may be gone.
type Answer = oneshot::Sender<Result<Decided, StoreError>>;

const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Admits a claim whose solve may be submitted at once. It goes on when its caller hangs up, because nobody else would send
/// what its intent announces.
pub(super) async fn admit(
    shared: &Arc<Shared>,
    permit: StartPermit,
    new: NewClaim,
    now: Timestamp,
) -> Result<Decided, StoreError> {
    let (answer, answered) = oneshot::channel();
    shared.tasks.spawn(run(Arc::clone(shared), permit, new, now, answer));
    let stopped = |_| StoreError::unavailable("engine", "the gateway has stopped");
    answered.await.map_err(stopped)?
}

async fn run(
    shared: Arc<Shared>,
    permit: StartPermit,
    mut new: NewClaim,
    now: Timestamp,
    answer: Answer,
) {
    let nonce = Nonce::draw(&*shared.ports.chance);
    let holder = shared.scheduler.lease.holder();
    new.start = Some(Start { holder, nonce, guard: shared.guard() });
    let admitted = AssertUnwindSafe(shared.ports.store.admit(new.clone(), now)).catch_unwind();
    let panicked = |_| Err(StoreError::unavailable("engine", "the admission panicked"));
    match admitted.await.unwrap_or_else(panicked) {
        Ok(Admission::Started(claim, lease)) => {
            permit.start(*lease, new.challenge, nonce);
            // The caller may be gone, and can ask for the claim under its key.
            drop(answer.send(Ok(Decided::Started(claim))));
        }
        Ok(admission) => {
            drop(permit);
            reply(&shared, answer, Ok(Decided::Unstarted(admission)));
        }
        // The store refused to decide.
        Err(error @ StoreError::WrongClock(_)) => reply(&shared, answer, Err(error)),
        Err(error) => {
            // Nothing is sent, so the slot is free.
            drop(permit);
            take_back(&shared, &new, nonce, (answer, error)).await;
        }
    }
}

/// Answers the caller. If it is gone, the driver is the one to look for what was opened.
fn reply(shared: &Shared, answer: Answer, result: Result<Decided, StoreError>) {
    if answer.send(result).is_err() {
        shared.scheduler.wake();
    }
}

/// The store's answer was lost, so an intent may be stored that was never sent. The solve can only go on when the store knows
/// that. The caller waits for the first try, which finds the claim if it was admitted.
async fn take_back(
    shared: &Shared,
    new: &NewClaim,
    nonce: Nonce,
    (answer, lost): (Answer, StoreError),
) {
    let mut caller = Some((answer, lost));
    loop {
        let withheld =
            shared.ports.store.withhold_start(new.id, new.solve, nonce, shared.now()).await;
        let withheld = shared.record_store_health(withheld);
        let failed = withheld.as_ref().err().cloned();
        if let Some((answer, lost)) = caller.take() {
            let found = withheld.ok().flatten().filter(|claim| is_of(claim, new));
            let found = found.map(|claim| Decided::Unstarted(Admission::Opened(claim)));
            reply(shared, answer, found.ok_or(lost));
        }
        let Some(error) = failed else { break };
        tracing::error!(solve = %new.solve, %error, "failed to take back a start, retrying");
        if !shared.rest(RETRY_AFTER).await {
            // The intent becomes ambiguous when the lease of this gateway has ended.
            return;
        }
    }
    shared.scheduler.wake();
}

/// Whether the claim is the one that was to be admitted, and not another one with the same id.
fn is_of(claim: &Claim, new: &NewClaim) -> bool {
    (&claim.worker, claim.fingerprint, claim.deadline)
        == (&new.worker, new.fingerprint, new.deadline)
}
