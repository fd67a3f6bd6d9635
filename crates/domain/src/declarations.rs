//! The guard: which challenges may be solved for which worker. One function checks it, at admission and again just before
//! money is spent, so that a declaration that was withdrawn stops the work that waits under it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crate::{
    budget::Budgets,
    challenge::{Challenge, Kind},
    fingerprint::Identity,
    id::WorkerName,
    retry::{Code, own},
    site::{AfterFailure, ContentRefusal, HostRule, PageUrl, Reuse, Site, check_pageless_contents},
    solve::AmbiguousPolicy,
    time::{Day, Timestamp},
};

/// Everything that the operator declared. A reload replaces the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// In order; the first valid one that covers a page counts.
    pub sites: Vec<Site>,
    /// The declaration for challenges without a page; without one they are refused.
    pub images: Option<Images>,
    /// The workers, and what each may have solved.
    pub workers: KnownWorkers,
}

/// The declaration for kinds that have no page: the provider sees the picture or the question only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Why the operator may have them solved. Kept with every claim.
    pub basis: Arc<str>,
    /// The kinds it covers.
    pub kinds: BTreeSet<Kind>,
    /// The last day of the declaration.
    pub expires: Option<Day>,
}

/// The workers that work is done for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KnownWorkers {
    /// All workers, each with the full scope: for a host that keeps no list of them, such as a test.
    #[default]
    Anyone,
    /// These workers, and [`POOL`].
    Listed(BTreeMap<WorkerName, WorkerScope>),
}

/// The declarations that one worker may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerScope {
    /// The hosts; `None` allows all declared ones.
    pub sites: Option<Arc<[HostRule]>>,
    /// Whether it may have challenges without a page solved.
    pub images: bool,
}

/// The terms under which a challenge is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Why it is allowed, in the operator's words.
    pub basis: Arc<str>,
    /// How claims without a key share a solve; `None` leaves it to the API.
    pub reuse: Option<Reuse>,
    /// What a named key does after a failure.
    pub after_failure: AfterFailure,
    /// What to do after a lost reply.
    pub ambiguous: AmbiguousPolicy,
    /// What the fingerprint leaves out.
    pub identity: Identity,
}

/// The declarations and the budgets in force where a decision is made. A decision that leads to a spend carries them into the
/// store, which checks the claims that then wait, and the money.
#[derive(Clone, PartialEq, Eq)]
pub struct Guard {
    declared: Option<Arc<Declarations>>,
    budgets: Arc<Budgets>,
}

/// Why a challenge is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SiteRefusal {
    #[error(
        "{0} is not declared; add a [[site]] with its host and the basis on which you automate it"
    )]
    NotDeclared(String),
    #[error("the declaration of {host} ended on {ended}; renew its `expires`")]
    Expired { host: String, ended: Day },
    #[error("{0} needs a page, and none was sent")]
    NoPage(Kind),
    #[error("images are not declared; add [images] with the basis on which you have them read")]
    NoImages,
    #[error("the declaration of images ended on {0}; renew `expires` in [images]")]
    ImagesExpired(Day),
    #[error("{0} is not one of the `kinds` in [images]; add it there if you may have it solved")]
    ImageKind(Kind),
    #[error("the worker {worker} may not use {host}; add it to `sites` of that [[worker]]")]
    SiteNotAllowed { worker: WorkerName, host: String },
    #[error(
        "the worker {0} may not have images solved; write `images = true` in that [[worker]] to allow it"
    )]
    ImagesNotAllowed(WorkerName),
    #[error("the worker {0} is not configured; add a [[worker]] with that name")]
    UnknownWorker(WorkerName),
    #[error(transparent)]
    Content(#[from] ContentRefusal),
}

/// The worker in whose name the gateway buys tokens for its pools. It is always known, with the full scope.
pub const POOL: &str = "pool";

// === impl Declarations ===

impl Declarations {
    /// Whether the challenge may be solved for the worker now, and on which terms.
    pub fn check(
        &self,
        challenge: &Challenge,
        worker: &WorkerName,
        now: Timestamp,
    ) -> Result<Terms, SiteRefusal> {
        let scope = self.workers.scope(worker)?;
        let kind = challenge.kind();
        let page = challenge.pageurl();
        let site = page.map(|page| self.check_page(page, worker, &scope, now)).transpose()?;
        let basis = match site {
            // The provider ignores the page of such a challenge, so a declared page says nothing about the picture.
            _ if kind.is_pageless() => self.check_images(kind, worker, &scope, now)?,
            Some(site) => Arc::clone(&site.basis),
            None => return Err(SiteRefusal::NoPage(kind.clone())),
        };
        match site {
            Some(site) => site.check_contents(challenge)?,
            None => check_pageless_contents(challenge)?,
        }
        Ok(Terms {
            basis,
            reuse: site.and_then(|site| site.reuse),
            after_failure: site.map(|site| site.after_failure).unwrap_or_default(),
            ambiguous: site.map(|site| site.ambiguous).unwrap_or_default(),
            identity: Identity { ignores_proxy: site.is_some_and(|site| site.key_ignores_proxy) },
        })
    }

    /// The declaration that covers the page.
    pub fn site(&self, page: &PageUrl, now: Timestamp) -> Result<&Site, SiteRefusal> {
        let mut ended = None;
        for site in self.sites.iter().filter(|site| site.rule.covers(page)) {
            match site.expires {
                Some(last) if last < now.day() => ended = Some(last),
                Some(_) | None => return Ok(site),
            }
        }
        let host = page.host().to_owned();
        Err(match ended {
            Some(ended) => SiteRefusal::Expired { host, ended },
            None => SiteRefusal::NotDeclared(host),
        })
    }

    fn check_page(
        &self,
        page: &PageUrl,
        worker: &WorkerName,
        scope: &WorkerScope,
        now: Timestamp,
    ) -> Result<&Site, SiteRefusal> {
        let site = self.site(page, now)?;
        let is_allowed =
            scope.sites.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.covers(page)));
        if is_allowed {
            return Ok(site);
        }
        Err(SiteRefusal::SiteNotAllowed { worker: worker.clone(), host: page.host().to_owned() })
    }

    fn check_images(
        &self,
        kind: &Kind,
        worker: &WorkerName,
        scope: &WorkerScope,
        now: Timestamp,
    ) -> Result<Arc<str>, SiteRefusal> {
        let images = self.images.as_ref().ok_or(SiteRefusal::NoImages)?;
        if let Some(last) = images.expires.filter(|last| *last < now.day()) {
            return Err(SiteRefusal::ImagesExpired(last));
        }
        if !images.kinds.contains(kind) {
            return Err(SiteRefusal::ImageKind(kind.clone()));
        }
        if !scope.images {
            return Err(SiteRefusal::ImagesNotAllowed(worker.clone()));
        }
        Ok(Arc::clone(&images.basis))
    }
}

// === impl SiteRefusal ===

impl SiteRefusal {
    /// The code for callers and the ledger.
    pub fn code(&self) -> Code {
        let code = if self.is_bad_form() { "ERROR_BAD_PARAMETERS" } else { own::SITE_NOT_DECLARED };
        code.into()
    }

    /// Whether the form of the claim is at fault, not a missing declaration.
    pub fn is_bad_form(&self) -> bool {
        matches!(self, Self::Content(refusal) if !refusal.is_undeclared())
    }
}

// === impl Guard ===

impl Guard {
    /// Allows what the declarations allow.
    pub fn new(declarations: Arc<Declarations>) -> Self {
        Self { declared: Some(declarations), budgets: Arc::default() }
    }

    /// With these budgets; without them, nothing is limited.
    #[must_use]
    pub fn with_budgets(self, budgets: Arc<Budgets>) -> Self {
        Self { budgets, ..self }
    }

    /// The budgets in force.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Allows everything: for tests and benchmarks of stores, which have no declarations.
    pub fn open() -> Self {
        Self { declared: None, budgets: Arc::default() }
    }

    /// Whether the challenge may be solved for the worker now.
    pub fn allows(&self, challenge: &Challenge, worker: &WorkerName, now: Timestamp) -> bool {
        self.declared.as_ref().is_none_or(|declared| declared.check(challenge, worker, now).is_ok())
    }
}

/// Names no site, because decisions are logged.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.declared.is_some() { "Guard(…)" } else { "Guard(open)" })
    }
}

// === impl Images ===

impl Images {
    /// A declaration without an end, for the kinds that are allowed by default.
    pub fn new(basis: impl Into<Arc<str>>) -> Self {
        Self { basis: basis.into(), kinds: Self::default_kinds(), expires: None }
    }

    /// A declaration without an end, for all kinds that have no page.
    pub fn all_kinds(basis: impl Into<Arc<str>>) -> Self {
        let kinds = Kind::known().filter(Kind::is_pageless).collect();
        Self { basis: basis.into(), kinds, expires: None }
    }

    /// Pictures of text and questions. The others are other sites' challenges, taken apart.
    pub fn default_kinds() -> BTreeSet<Kind> {
        [Kind::Image, Kind::TextQuestion].into()
    }
}

// === impl KnownWorkers ===

impl KnownWorkers {
    /// The scope of a worker.
    pub fn scope(&self, worker: &WorkerName) -> Result<WorkerScope, SiteRefusal> {
        match self {
            Self::Anyone => Ok(WorkerScope::FULL),
            Self::Listed(_) if worker.as_str() == POOL => Ok(WorkerScope::FULL),
            Self::Listed(workers) => workers
                .get(worker)
                .cloned()
                .ok_or_else(|| SiteRefusal::UnknownWorker(worker.clone())),
        }
    }
}

impl WorkerScope {
    /// All declared sites, and images.
    pub const FULL: Self = Self { sites: None, images: true };
}

#[cfg(test)]
mod tests;
