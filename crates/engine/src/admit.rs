//! Step 1 of a claim: it arrives. Declared site? Which key? Then one decision of the store. After: driver.rs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use domain::{
    challenge::Challenge,
    claim::{Admission, Allowance, Claim, ClaimState, Door, KeyRule, NewClaim, Source},
    fingerprint::{BadKey, Fingerprint, Identity, KeyHash},
    id::{ClaimId, Project, SolveId, WorkerName},
    ledger::Event,
    ports::{AddressRefused, Note, StoreError},
    retry::own,
    secret::Secret,
    site::{HostRule, Reuse, Site, SiteRefusal},
    solve::{AmbiguousPolicy, Policy},
    time::Timestamp,
};

use crate::{Engine, Inner, fetch::Outcome};

/// What a worker asks for, already parsed by a door.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks.
    pub worker: WorkerName,
    /// What it is charged to.
    pub project: Project,
    /// Through which door.
    pub door: Door,
    /// What has to be solved.
    pub challenge: Challenge,
    /// The worker's own idempotency key.
    pub key: Option<String>,
    /// A claim of its own, whatever else is under way.
    pub fresh: bool,
    /// How long it waits at most.
    pub deadline: Option<Duration>,
    /// What the worker may still open today.
    pub allowance: Allowance,
    /// The worker's own narrowing of the declared sites.
    pub narrowing: Option<Arc<[HostRule]>>,
    /// The answer to this very call takes the token along.
    pub collect: bool,
    /// Where to tell the worker about the end.
    pub callback_url: Option<Secret>,
}

/// A claim that was admitted, and how it stands.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// How it stands.
    pub outcome: Outcome,
    /// The same key came before: this is that claim.
    pub replayed: bool,
}

/// Why a claim was not admitted. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub enum ClaimRefusal {
    /// The page is not declared.
    #[error(transparent)]
    Site(#[from] SiteRefusal),
    /// The key belongs to another challenge.
    #[error(
        "the idempotency key belongs to claim {0}, which is for another challenge; use a new key"
    )]
    KeyMismatch(ClaimId),
    /// The key has a bad form.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// The worker's allowance is used up.
    #[error("the budget `{limit}` of this worker is used up until {until}")]
    OverBudget {
        /// Which limit.
        limit: &'static str,
        /// When it is renewed.
        until: Timestamp,
    },
    /// Too many wait already.
    #[error("{0} solves are already waiting for a slot; retry later")]
    Busy(usize),
    /// No solve opened now can bring an answer in time.
    #[error(
        "no answer can come within the claim's {deadline:?}: with what waits already it takes {eta:?} or more; ask again \
         later, or give it more time"
    )]
    TooLate {
        /// How long the claim would have waited.
        deadline: Duration,
        /// What an answer takes at the least.
        eta: Duration,
    },
    /// The callback's address is not told anything.
    #[error("callback_url: {0}")]
    Callback(#[from] AddressRefused),
    /// The process is about to stop.
    #[error("the gateway is draining; retry at another gateway or in a moment")]
    Draining,
    /// The store is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// On what ground a claim is admitted.
struct Ground {
    basis: Arc<str>,
    reuse: Option<Reuse>,
    ambiguous: AmbiguousPolicy,
    identity: Identity,
}

impl Engine {
    /// Admits a claim. The solve goes on whether or not the caller stays.
    pub async fn claim(&self, ask: Ask) -> Result<Admitted, ClaimRefusal> {
        let inner = &*self.0;
        if inner.is_draining() {
            return Err(ClaimRefusal::Draining);
        }
        let queued = inner.health.queued();
        if queued >= inner.config.most_queued {
            return Err(ClaimRefusal::Busy(queued));
        }
        let ground = match self.ground(&ask) {
            Ok(ground) => ground,
            Err(refusal) => return Err(inner.refuse(&ask, refusal).await),
        };
        // Before its key is recognised: only what is known to be bad is refused, so that no replay fails on a resolver.
        if let Some(url) = &ask.callback_url {
            inner.ports.courier.check(url.expose()).await?;
        }
        let (claim, replayed) = inner.admit(ask, &ground).await?;
        if !replayed {
            inner.hint_pool(&claim.fingerprint);
        }
        if claim.callback_url.is_some() {
            inner.has_callbacks.store(true, Ordering::Relaxed);
            inner.outbox.notify_one();
        }
        let outcome = inner.outcome_of(claim, replayed.then_some(Source::Replay));
        Ok(Admitted { outcome, replayed })
    }

    fn ground(&self, ask: &Ask) -> Result<Ground, SiteRefusal> {
        let sites = self.sites();
        let Some(page) = ask.challenge.pageurl() else {
            let basis = Arc::clone(sites.check_images()?);
            return Ok(Ground {
                basis,
                reuse: None,
                ambiguous: AmbiguousPolicy::default(),
                identity: Identity::default(),
            });
        };
        let narrowed_out =
            ask.narrowing.as_ref().is_some_and(|rules| !rules.iter().any(|rule| rule.covers(page)));
        if narrowed_out {
            return Err(SiteRefusal::NotDeclared(page.host().to_owned()));
        }
        sites.check(page, self.clock().now()).map(Ground::of)
    }
}

impl Ground {
    fn of(site: &Site) -> Self {
        Self {
            basis: Arc::clone(&site.basis),
            reuse: site.reuse,
            ambiguous: site.ambiguous,
            identity: Identity { ignores_proxy: site.key_ignores_proxy },
        }
    }
}

impl Inner {
    /// A refused page is written down: deny by default, visibly.
    async fn refuse(&self, ask: &Ask, refusal: SiteRefusal) -> ClaimRefusal {
        let event = Event::Refused {
            code: own::SITE_NOT_DECLARED.into(),
            pageurl: ask.challenge.pageurl().map(ToString::to_string),
        };
        let note = Note {
            claim: None,
            worker: ask.worker.clone(),
            project: ask.project.clone(),
            kind: Some(ask.challenge.kind().clone()),
            event,
        };
        match self.ports.store.note(note, self.now()).await {
            Ok(_) => ClaimRefusal::Site(refusal),
            Err(error) => ClaimRefusal::Store(error),
        }
    }

    /// The claim, and whether it had been there before.
    async fn admit(&self, ask: Ask, ground: &Ground) -> Result<(Claim, bool), ClaimRefusal> {
        let mut new = self.new_claim(ask, ground)?;
        loop {
            let now = self.now();
            match self.ports.store.admit(new.clone(), now).await? {
                Admission::Replayed(claim) => {
                    // Work that was brought back is wanted now: it is live work under another name.
                    if claim.revives.is_some() && claim.state == ClaimState::Waiting {
                        self.wake.notify_one();
                    }
                    return Ok((claim, true));
                }
                Admission::Stocked(claim) => return Ok((claim, false)),
                Admission::Opened(claim) | Admission::Joined(claim) => {
                    self.wake.notify_one();
                    return Ok((claim, false));
                }
                Admission::Mismatch(id) => return Err(ClaimRefusal::KeyMismatch(id)),
                Admission::OverBudget { limit, until } => {
                    return Err(ClaimRefusal::OverBudget { limit, until });
                }
                Admission::TooLate => {
                    let (deadline, eta) = (new.deadline.since(now), new.soonest.since(now));
                    return Err(ClaimRefusal::TooLate { deadline, eta });
                }
                Admission::NameTaken => {
                    let chance = &*self.ports.chance;
                    new.id = ClaimId::draw(chance, &new.fingerprint);
                    new.solve = SolveId::draw(chance, &new.fingerprint);
                }
            }
        }
    }

    fn new_claim(&self, ask: Ask, ground: &Ground) -> Result<NewClaim, BadKey> {
        let chance = &*self.ports.chance;
        let fingerprint = Fingerprint::of(&ask.challenge, ground.identity);
        let now = self.now();
        Ok(NewClaim {
            id: ClaimId::draw(chance, &fingerprint),
            solve: SolveId::draw(chance, &fingerprint),
            key: self.key_rule(&ask, ground, &fingerprint)?,
            deadline: now.plus(ask.deadline.unwrap_or(self.config.deadline)),
            price: self.config.prices.get(ask.challenge.kind()).copied(),
            policy: Policy {
                ambiguous: ground.ambiguous,
                ambiguity_budget: self.config.ambiguity_budget,
            },
            basis: Arc::clone(&ground.basis),
            soonest: self.soonest_new(ask.challenge.kind(), &ask.worker, now),
            worker: ask.worker,
            project: ask.project,
            door: ask.door,
            challenge: Arc::new(ask.challenge),
            fingerprint,
            allowance: ask.allowance,
            collect: ask.collect,
            callback_url: ask.callback_url,
            revives: None,
        })
    }

    /// The worker's own key; or "same parameters, same solve" as far as site and door want it.
    fn key_rule(
        &self,
        ask: &Ask,
        ground: &Ground,
        fingerprint: &Fingerprint,
    ) -> Result<KeyRule, BadKey> {
        if let Some(key) = &ask.key {
            return KeyHash::named(&ask.worker, key).map(KeyRule::Named);
        }
        let own_rule = match ask.door {
            // Programs written for the provider expect every submission to be its own.
            Door::Compat => Reuse::Never,
            Door::V1 | Door::Cli => Reuse::Window,
        };
        let hash = KeyHash::derived(&ask.worker, fingerprint);
        Ok(match ground.reuse.unwrap_or(own_rule) {
            Reuse::Window if !ask.fresh => {
                KeyRule::Derived { hash, window: self.config.reuse_window }
            }
            Reuse::InFlight if !ask.fresh => KeyRule::Derived { hash, window: Duration::ZERO },
            Reuse::Window | Reuse::InFlight | Reuse::Never => KeyRule::Own,
        })
    }
}
