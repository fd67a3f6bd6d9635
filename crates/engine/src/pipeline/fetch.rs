//! Delivery: the worker fetches the answer. Subscribe, read, wait, and read again after a second at the latest
//! (reread.rs), so that a lost notification only costs latency. Before: settle.rs.

use std::{sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    claim::{Claim, ClaimState, Delivery, Repeats, Source},
    id::{ClaimId, TaskId},
    ledger::{Entry, Event},
    ports::{Feedback, Note, Scope, StoreError},
};

use crate::{Engine, Shared, scheduler::estimate};

use super::reread::reread;

/// How a claim stands.
#[derive(Clone, Debug)]
pub enum Outcome {
    Served {
        claim: Claim,
        /// Where the token came from, for this caller.
        source: Source,
    },
    Waiting {
        claim: Claim,
        /// How long until the answer is expected.
        eta: Duration,
    },
    /// The solve was given up; the claim's code says why.
    Failed(Claim),
    /// Its deadline passed, or its token expired before anybody fetched it.
    Lapsed(Claim),
    Withdrawn(Claim),
    /// It was fetched, and its token has expired since.
    Expired(Claim),
}

/// Why a claim could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchRefusal {
    /// The claim is unknown, or another worker's.
    #[error("there is no claim {0} of this worker")]
    NotFound(ClaimId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that happened to a claim.
#[derive(Clone, Debug)]
pub struct Explained {
    pub claim: Claim,
    /// Its ledger entries, in order.
    pub entries: Vec<Entry>,
    /// How often it was answered again, which the ledger does not have.
    pub repeats: Repeats,
}

/// How long a report waits for the poll quota.
const REPORT_PATIENCE: Duration = Duration::from_secs(60);

impl Engine {
    /// Reads a claim, waiting up to `wait` for its end. A token in the result counts as handed out.
    pub async fn fetch(
        &self,
        scope: &Scope,
        id: ClaimId,
        wait: Duration,
    ) -> Result<Outcome, FetchRefusal> {
        let shared = &self.0;
        let until = shared.now().plus(wait);
        // Subscribe before reading, so that a change in between is not missed.
        let mut changed = shared.ports.notifier.subscribe(id);
        let mut found = shared.ports.store.find_claim(id).await;
        loop {
            let claim = visible(scope, id, found?)?;
            if shared.now() >= until || claim.state != ClaimState::Waiting {
                return deliver(shared, claim).await;
            }
            found = tokio::select! {
                biased;
                () = &mut changed => {
                    changed = shared.ports.notifier.subscribe(id);
                    shared.ports.store.find_claim(id).await
                }
                () = shared.ports.clock.sleep_until(until) => {
                    shared.ports.store.find_claim(id).await
                }
                found = reread(shared, id) => found,
            };
        }
    }

    /// Reads a claim as it stands, also from the archive, and hands nothing out.
    pub async fn find_claim(&self, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
        let found = self.0.ports.store.find_claim(id).await?;
        let found = match (found, &self.0.config.archive) {
            (None, Some(archive)) => archive.archived_claim(id).await?,
            (found, _) => found,
        };
        visible(scope, id, found)
    }

    /// Withdraws a claim. A task that is already paid for goes to stock and serves the next claim.
    /// `by` is the admin who withdraws it in place of its worker.
    pub async fn withdraw(
        &self,
        scope: &Scope,
        id: ClaimId,
        by: Option<Actor>,
    ) -> Result<Claim, FetchRefusal> {
        let shared = &*self.0;
        find(shared, scope, id).await?;
        let withdrawal = shared.ports.store.withdraw(id, by, shared.now()).await?;
        shared.ports.notifier.notify(id);
        withdrawal.map(|found| found.claim).ok_or(FetchRefusal::NotFound(id))
    }

    /// Records whether the site accepted a token; `by` is the admin who says so in place of the worker. The first report about a task is passed on to the provider.
    pub async fn report(
        &self,
        scope: &Scope,
        id: ClaimId,
        feedback: Feedback,
        by: Option<Actor>,
    ) -> Result<(), FetchRefusal> {
        let shared = &*self.0;
        let claim = find(shared, scope, id).await?;
        let Some(token) = claim.token else { return Ok(()) };
        let note = Note {
            claim: Some(id),
            worker: claim.worker,
            project: claim.project,
            kind: Some(claim.kind),
            event: Event::Reported { good: feedback == Feedback::Good },
            by,
        };
        if shared.ports.store.note(note, shared.now()).await? {
            shared.tasks.spawn(pass_on(Arc::clone(&self.0), id, token.task, feedback));
        }
        Ok(())
    }

    /// Reads a claim with all its ledger entries.
    pub async fn explain(&self, scope: &Scope, id: ClaimId) -> Result<Explained, FetchRefusal> {
        let claim = self.find_claim(scope, id).await?;
        let entries = self.0.ports.records.explain(id).await?;
        let repeats = self.0.ports.store.repeats(id).await?;
        Ok(Explained { claim, entries, repeats })
    }
}

/// Passes a report on to the provider, which counts it like a poll and bans accounts that make too many.
async fn pass_on(shared: Arc<Shared>, claim: ClaimId, task: TaskId, feedback: Feedback) {
    let until = shared.now().plus(REPORT_PATIENCE);
    while let Err(at) = shared.poller.quota.take(shared.now()) {
        if at > until || !shared.pause(at.since(shared.now())).await {
            tracing::warn!(%claim, "poll quota is used up, report not sent to the provider");
            return;
        }
    }
    if let Err(fault) = shared.ports.provider.report(&task, feedback).await {
        tracing::warn!(%claim, %fault, "failed to send the report to the provider");
    }
}

async fn find(shared: &Shared, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
    visible(scope, id, shared.ports.store.find_claim(id).await?)
}

async fn deliver(shared: &Shared, claim: Claim) -> Result<Outcome, FetchRefusal> {
    if claim.state != ClaimState::Served {
        return Ok(outcome_of(shared, claim, None));
    }
    let id = claim.id;
    if claim.delivered_at.is_some() {
        // A delivered claim cannot change, so a worker that polls it without end costs no write.
        shared.maintenance.fetches.count(id);
        return Ok(outcome_of(shared, claim, Some(Source::Replay)));
    }
    match shared.ports.store.deliver(id, shared.now()).await? {
        Some(Delivery::Token(claim) | Delivery::Expired(claim) | Delivery::Nothing(claim)) => {
            Ok(outcome_of(shared, claim, None))
        }
        None => Err(FetchRefusal::NotFound(id)),
    }
}

/// How a claim stands; `source` overrides where its token came from.
pub(super) fn outcome_of(shared: &Shared, claim: Claim, source: Option<Source>) -> Outcome {
    match claim.state {
        ClaimState::Waiting => {
            let eta = estimate::eta(&shared.scheduler, &claim, shared.now());
            Outcome::Waiting { eta, claim }
        }
        ClaimState::Failed => Outcome::Failed(claim),
        ClaimState::Withdrawn => Outcome::Withdrawn(claim),
        ClaimState::Lapsed => Outcome::Lapsed(claim),
        ClaimState::Served => {
            let usable = claim.token.as_ref().is_some_and(|token| token.is_usable(shared.now()));
            let source = source.or(claim.source).unwrap_or(Source::Upstream);
            if usable { Outcome::Served { claim, source } } else { Outcome::Expired(claim) }
        }
    }
}

fn visible(scope: &Scope, id: ClaimId, found: Option<Claim>) -> Result<Claim, FetchRefusal> {
    let visible = found.filter(|claim| match scope {
        Scope::All => true,
        Scope::Worker(name) => claim.worker == *name,
    });
    visible.ok_or(FetchRefusal::NotFound(id))
}

// === impl Outcome ===

impl Outcome {
    pub fn claim(&self) -> &Claim {
        let (Self::Served { claim, .. }
        | Self::Waiting { claim, .. }
        | Self::Failed(claim)
        | Self::Lapsed(claim)
        | Self::Withdrawn(claim)
        | Self::Expired(claim)) = self;
        claim
    }
}
