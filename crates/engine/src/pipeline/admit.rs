//! Admission: a claim arrives. Checks the declarations, chooses the key, then lets the store decide, with start.rs if it can be
//! submitted at once. After: scheduler/driver.rs.

use std::{net::IpAddr, sync::Arc, time::Duration};

use domain::{
    budget::LimitReached,
    challenge::{Challenge, Sharing},
    claim::{Admission, Allowance, Claim, ClaimState, Door, KeyRule, NewClaim, Source},
    declarations::{SiteRefusal, Terms},
    fingerprint::{BadKey, Fingerprint, KeyHash},
    id::{ClaimId, Project, SolveId, WorkerName},
    ports::{AddressRefused, StoreError},
    retry::Code,
    secret::Secret,
    site::Reuse,
    solve::Policy,
    time::Timestamp,
};

use crate::{
    Engine, Shared,
    maintenance::refusals::{self, RefusedRequest},
    scheduler::{
        estimate,
        queue_room::{QueueFull, Reservation},
        starts::StartPermit,
    },
};

use super::{
    fetch::{Outcome, outcome_of},
    reopening,
    start::{self, Decided},
};

/// A claim as a door has parsed it.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    pub worker: WorkerName,
    /// The project it is charged to.
    pub project: Project,
    pub door: Door,
    pub challenge: Challenge,
    /// The worker's own idempotency key.
    pub key: Option<String>,
    /// Never share a solve: the claim gets one of its own.
    pub fresh: bool,
    /// How long it waits at most; the configured deadline if absent.
    pub deadline: Option<Duration>,
    pub allowance: Allowance,
    /// The reply to this call carries the token, if there is one.
    pub collect: bool,
    /// Where to deliver the end of the claim.
    pub callback_url: Option<Secret>,
    /// Where the request came from, for the audit trail.
    pub address: Option<IpAddr>,
}

#[derive(Clone, Debug)]
pub struct Admitted {
    pub outcome: Outcome,
    /// The key was used before, and this is the claim it stands for.
    pub replayed: bool,
}

/// Why a claim was refused. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub enum ClaimRefusal {
    #[error(transparent)]
    Site(#[from] SiteRefusal),
    #[error(
        "the idempotency key belongs to claim {0}, which is for another challenge; use a new key"
    )]
    KeyMismatch(ClaimId),
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error("{0}")]
    OverBudget(LimitReached),
    #[error("{full}; retry later")]
    Busy {
        full: QueueFull,
        /// When a place may be free.
        retry_after: Duration,
    },
    /// No solve opened now can be answered in time.
    #[error(
        "no answer is possible within the deadline of {deadline:?}: with the current queue it takes {eta:?} or more; retry \
         later or use a longer deadline"
    )]
    TooLate {
        deadline: Duration,
        /// The shortest time to an answer.
        eta: Duration,
    },
    #[error("callback_url: {0}")]
    Callback(#[from] AddressRefused),
    #[error("the gateway is draining; retry at another gateway or in a moment")]
    Draining,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Admits a claim. The solve goes on whether or not the caller stays.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Admitted, ClaimRefusal> {
        let (worker, project) = (request.worker.clone(), request.project.clone());
        let (kind, address) = (request.challenge.kind().clone(), request.address);
        let page = request.challenge.pageurl().cloned();
        let result = self.try_claim(request).await;
        if let Err(refusal) = &result
            && let Some(code) = refusal.audited_as()
        {
            let pageurl = page.map(|page| page.to_string());
            let (worker, project, kind) = (Some(worker), Some(project), Some(kind));
            let refused = RefusedRequest { worker, project, kind, code, address, pageurl };
            refusals::count(&self.0, refused);
        }
        result
    }

    async fn try_claim(&self, request: ClaimRequest) -> Result<Admitted, ClaimRefusal> {
        let shared = &self.0;
        if shared.scheduler.is_draining() {
            return Err(ClaimRefusal::Draining);
        }
        let place = reserve(shared, &request);
        let declared = shared.declarations();
        let terms = declared.check(&request.challenge, &request.worker, shared.now())?;
        // This comes before the key is recognised, so it refuses only addresses that are known to be bad: no replay
        // fails because a name does not resolve.
        if let Some(url) = &request.callback_url {
            shared.ports.webhooks.check(Some(&request.worker), url.expose()).await?;
        }
        let (claim, replayed) = admit(shared, request, &terms, place).await?;
        if !replayed {
            shared.maintenance.pools.record_arrival(&claim.fingerprint);
        }
        if claim.callback_url.is_some() {
            shared.maintenance.outbox.record_use();
        }
        let outcome = outcome_of(shared, claim, replayed.then_some(Source::Replay));
        Ok(Admitted { outcome, replayed })
    }
}

impl ClaimRefusal {
    /// The reason in the audit trail; `None` where the gateway could not answer, which is no refusal.
    fn audited_as(&self) -> Option<Code> {
        let reason = match self {
            Self::Site(refusal) => return Some(refusal.code()),
            Self::KeyMismatch(_) => "idempotency_key_reused",
            Self::Key(_) => "bad_idempotency_key",
            Self::OverBudget { .. } => "budget_exceeded",
            Self::Busy { .. } => "busy",
            Self::TooLate { .. } => "cannot_meet_deadline",
            Self::Callback(_) => "callback_refused",
            Self::Draining | Self::Store(_) => return None,
        };
        Some(reason.into())
    }
}

/// Reserves a place in the queue, in case that the claim opens a solve.
fn reserve<'a>(
    shared: &'a Shared,
    request: &ClaimRequest,
) -> Result<Reservation<'a>, ClaimRefusal> {
    let (scheduler, challenge) = (&shared.scheduler, &request.challenge);
    let most = (shared.config.most_queued, shared.config.most_queued_bytes);
    let reserved = scheduler.reserve(most, &request.worker, challenge.file_bytes(), shared.now());
    reserved.map_err(|full| {
        let retry_after = scheduler.solve_times.usual(challenge.kind());
        ClaimRefusal::Busy { full, retry_after }
    })
}

/// The claim, and whether it is a replay.
async fn admit(
    shared: &Arc<Shared>,
    request: ClaimRequest,
    terms: &Terms,
    place: Result<Reservation<'_>, ClaimRefusal>,
) -> Result<(Claim, bool), ClaimRefusal> {
    let mut new = new_claim(shared, request, terms)?;
    let place = match place {
        Ok(place) => Some(place),
        Err(full) if !may_be_known(&new) => return Err(full),
        Err(full) => {
            // The store may still replay it, serve it from stock or join it, and opens nothing.
            new.soonest = Timestamp::from_millis(u64::MAX);
            return match admit_new(shared, new, None).await {
                Err(ClaimRefusal::TooLate { .. }) => Err(full),
                decided => decided,
            };
        }
    };
    admit_new(shared, new, place).await
}

/// Whether it may need no solve of its own: it has a key, or its answer is shared. Others are refused without asking the store
/// when the queue is full.
fn may_be_known(new: &NewClaim) -> bool {
    match new.key {
        KeyRule::Named(_) | KeyRule::Derived { .. } => true,
        KeyRule::Own => new.challenge.kind().sharing() == Sharing::Shared,
    }
}

async fn admit_new(
    shared: &Arc<Shared>,
    mut new: NewClaim,
    mut place: Option<Reservation<'_>>,
) -> Result<(Claim, bool), ClaimRefusal> {
    loop {
        let now = shared.now();
        let admission = match decide(shared, &new, place.is_some(), now).await? {
            Decided::Started(claim) => return Ok((claim, false)),
            Decided::Unstarted(admission) => admission,
        };
        match admission {
            Admission::Replayed(claim) => {
                // A live claim now wants work that was revived, which moves that work to its worker's lane.
                if claim.revives.is_some() && claim.state == ClaimState::Waiting {
                    shared.scheduler.wake();
                }
                return Ok((claim, true));
            }
            Admission::Stocked(claim) => return Ok((claim, false)),
            Admission::Opened(claim) => {
                if let Some(place) = place.take() {
                    place.opened(new.solve);
                }
                shared.scheduler.wake();
                return Ok((claim, false));
            }
            Admission::Joined(claim) | Admission::Started(claim, _) => {
                shared.scheduler.wake();
                return Ok((claim, false));
            }
            Admission::Mismatch(id) => return Err(ClaimRefusal::KeyMismatch(id)),
            Admission::OverBudget(reached) => return Err(ClaimRefusal::OverBudget(reached)),
            Admission::TooLate => {
                let (deadline, eta) = (new.deadline.since(now), new.soonest.since(now));
                return Err(ClaimRefusal::TooLate { deadline, eta });
            }
            Admission::NameTaken => {
                let chance = &*shared.ports.chance;
                new.id = ClaimId::draw(chance);
                new.solve = SolveId::draw(chance);
            }
        }
    }
}

/// Has the store decide. A claim that finds a free slot and nobody waiting is started in the same decision, if it opens a
/// solve.
async fn decide(
    shared: &Arc<Shared>,
    new: &NewClaim,
    may_open: bool,
    now: Timestamp,
) -> Result<Decided, StoreError> {
    let permit = if may_open { StartPermit::take(shared, &new.worker) } else { None };
    match permit {
        Some(permit) => start::admit(shared, permit, new.clone(), now).await,
        None => shared.ports.store.admit(new.clone(), now).await.map(Decided::Unstarted),
    }
}

fn new_claim(shared: &Shared, request: ClaimRequest, terms: &Terms) -> Result<NewClaim, BadKey> {
    let (chance, config) = (&*shared.ports.chance, &shared.config);
    let fingerprint = Fingerprint::of(&request.challenge, terms.identity);
    let kind = request.challenge.kind();
    let now = shared.now();
    Ok(NewClaim {
        id: ClaimId::draw(chance),
        solve: SolveId::draw(chance),
        key: key_rule(&request, terms, &fingerprint, config.reuse_window)?,
        deadline: now.plus(request.deadline.unwrap_or(config.deadline)),
        price: shared.price_of(&request.challenge),
        account: shared.budgets().account,
        policy: Policy { ambiguous: terms.ambiguous, ambiguity_budget: config.ambiguity_budget },
        basis: Arc::clone(&terms.basis),
        soonest: estimate::soonest_answer_if_opened(&shared.scheduler, kind, &request.worker, now),
        worker: request.worker,
        project: request.project,
        door: request.door,
        challenge: Arc::new(request.challenge),
        fingerprint,
        allowance: request.allowance,
        collect: request.collect,
        callback_url: request.callback_url,
        revives: None,
        reopens_after: reopening::window(terms.after_failure, config),
        reopened: 0,
        start: None,
    })
}

/// The worker's own key, or "same parameters, same solve" as far as site and door want it.
fn key_rule(
    request: &ClaimRequest,
    terms: &Terms,
    fingerprint: &Fingerprint,
    window: Duration,
) -> Result<KeyRule, BadKey> {
    if let Some(key) = &request.key {
        return KeyHash::named(&request.worker, key).map(KeyRule::Named);
    }
    let door_rule = match request.door {
        // Programs written for the provider expect every submission to be its own.
        Door::Compat => Reuse::Never,
        Door::V1 | Door::Cli => Reuse::Window,
    };
    let hash = KeyHash::derived(&request.worker, fingerprint);
    Ok(match terms.reuse.unwrap_or(door_rule) {
        Reuse::Window if !request.fresh => KeyRule::Derived { hash, window },
        Reuse::InFlight if !request.fresh => KeyRule::Derived { hash, window: Duration::ZERO },
        Reuse::Window | Reuse::InFlight | Reuse::Never => KeyRule::Own,
    })
}
