//! Step 6 of a claim: the worker asks for the answer. Listen, read, wait, read again at the latest after a second:
//! with every hint lost only latency suffers. Before: settle.rs.

use std::time::Duration;

use domain::{
    claim::{Claim, ClaimState, Delivery, Source},
    id::ClaimId,
    ledger::{Entry, Event},
    money::Money,
    ports::{Fault, Feedback, Note, Scope, StoreError, Threads},
};

use crate::{Engine, Inner};

/// How a claim stands, as a door tells it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Here is the token.
    Served {
        /// The claim, with its token.
        claim: Claim,
        /// Where the token came from, for this caller.
        source: Source,
    },
    /// Not yet.
    Waiting {
        /// The claim.
        claim: Claim,
        /// When it is worth asking again.
        eta: Duration,
    },
    /// The solve was given up: the claim's code says why.
    Failed(Claim),
    /// The deadline passed.
    Lapsed(Claim),
    /// The worker took it back.
    Withdrawn(Claim),
    /// The token has died and is not handed out any more.
    Expired(Claim),
}

/// Why a claim could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchRefusal {
    /// Unknown, or another worker's.
    #[error("there is no claim {0} of this worker")]
    NotFound(ClaimId),
    /// The store is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that happened to a claim.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The claim as it stands.
    pub claim: Claim,
    /// Its story, in order.
    pub entries: Vec<Entry>,
}

/// Waiting callers read again at the latest after this.
const REREAD: Duration = Duration::from_secs(1);

impl Engine {
    /// Reads a claim, waiting up to `wait` for its end; a served token counts as handed out.
    pub async fn fetch(
        &self,
        scope: &Scope,
        id: ClaimId,
        wait: Duration,
    ) -> Result<Outcome, FetchRefusal> {
        let inner = &*self.0;
        let until = inner.now().plus(wait);
        loop {
            let ear = inner.ports.doorbell.listen(id);
            let claim = inner.find(scope, id).await?;
            let now = inner.now();
            if now >= until || claim.state != ClaimState::Waiting {
                return inner.deliver(claim).await;
            }
            let again = until.min(now.plus(REREAD));
            tokio::select! {
                biased;
                () = ear => {}
                () = inner.ports.clock.sleep_until(again) => {}
            }
        }
    }

    /// Reads a claim as it stands and hands nothing out: for whoever watches rather than works.
    pub async fn look(&self, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
        self.0.find_anywhere(scope, id).await
    }

    /// Takes a claim back. What was paid for is banked for the next claim.
    pub async fn withdraw(&self, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
        let inner = &*self.0;
        inner.find(scope, id).await?;
        let withdrawal = inner.ports.store.withdraw(id, inner.now()).await?;
        inner.ports.doorbell.ring(id);
        withdrawal.map(|found| found.claim).ok_or(FetchRefusal::NotFound(id))
    }

    /// Tells how a token fared; passed on to the provider once.
    pub async fn report(
        &self,
        scope: &Scope,
        id: ClaimId,
        feedback: Feedback,
    ) -> Result<(), FetchRefusal> {
        let inner = &*self.0;
        let claim = inner.find(scope, id).await?;
        let Some(token) = claim.token else { return Ok(()) };
        let event = Event::Reported { good: feedback == Feedback::Good };
        let note = Note {
            claim: Some(id),
            worker: claim.worker,
            project: claim.project,
            kind: Some(claim.kind),
            event,
        };
        if !inner.ports.store.note(note, inner.now()).await? {
            return Ok(());
        }
        let provider = inner.ports.provider.clone();
        inner.tasks.spawn(async move {
            if let Err(fault) = provider.report(&token.task, feedback).await {
                tracing::warn!(claim = %id, %fault, "failed to send the report to the provider");
            }
        });
        Ok(())
    }

    /// The whole story of a claim.
    pub async fn explain(&self, scope: &Scope, id: ClaimId) -> Result<Explained, FetchRefusal> {
        let claim = self.0.find_anywhere(scope, id).await?;
        let entries = self.0.ports.records.explain(id).await?;
        Ok(Explained { claim, entries })
    }

    /// The account's balance at the provider.
    pub async fn balance(&self) -> Result<Money, Fault> {
        self.0.ports.provider.balance().await
    }

    /// Our own threads: slots, and how many of them are in use.
    pub fn threads(&self) -> Threads {
        let total = u32::try_from(self.0.places.limit()).unwrap_or(u32::MAX);
        let working = u32::try_from(self.0.places.used()).unwrap_or(u32::MAX);
        Threads { total, working }
    }
}

impl Inner {
    async fn find(&self, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
        seen(scope, id, self.ports.store.find_claim(id).await?)
    }

    /// Also in the archive: for people, since no claim on its way waits for that.
    async fn find_anywhere(&self, scope: &Scope, id: ClaimId) -> Result<Claim, FetchRefusal> {
        let found = match (self.ports.store.find_claim(id).await?, &self.config.archive) {
            (None, Some(archive)) => archive.archived_claim(id).await?,
            (found, _) => found,
        };
        seen(scope, id, found)
    }

    async fn deliver(&self, claim: Claim) -> Result<Outcome, FetchRefusal> {
        if claim.state != ClaimState::Served {
            return Ok(self.outcome_of(claim, None));
        }
        let again = claim.delivered_at.is_some();
        let id = claim.id;
        match self.ports.store.deliver(id, self.now()).await? {
            Some(Delivery::Token(claim)) => {
                let source = if again { Some(Source::Replay) } else { None };
                Ok(self.outcome_of(claim, source))
            }
            Some(Delivery::Expired(claim)) => Ok(Outcome::Expired(claim)),
            Some(Delivery::Nothing(claim)) => Ok(self.outcome_of(claim, None)),
            None => Err(FetchRefusal::NotFound(id)),
        }
    }

    /// How a claim stands; `source` overrides where its token came from.
    pub(crate) fn outcome_of(&self, claim: Claim, source: Option<Source>) -> Outcome {
        match claim.state {
            ClaimState::Waiting => Outcome::Waiting { eta: self.eta(&claim, self.now()), claim },
            ClaimState::Failed => Outcome::Failed(claim),
            ClaimState::Withdrawn => Outcome::Withdrawn(claim),
            ClaimState::Lapsed => Outcome::Lapsed(claim),
            ClaimState::Served => {
                let usable = claim.token.as_ref().is_some_and(|token| token.is_usable(self.now()));
                let source = source.or(claim.source).unwrap_or(Source::Upstream);
                if usable { Outcome::Served { claim, source } } else { Outcome::Expired(claim) }
            }
        }
    }
}

/// The claim, if whoever asks may see it.
fn seen(scope: &Scope, id: ClaimId, found: Option<Claim>) -> Result<Claim, FetchRefusal> {
    let visible = found.filter(|claim| match scope {
        Scope::All => true,
        Scope::Worker(name) => claim.worker == *name,
    });
    visible.ok_or(FetchRefusal::NotFound(id))
}
